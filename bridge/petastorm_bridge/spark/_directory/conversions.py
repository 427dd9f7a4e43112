"""Which conversions of this process can be used again.

Petastorm compares analysed plans alone. Two DataFrames with exchanged column names have plans that
produce the same result, and a plan that reads a directory does not say what is in it today; so
names, types and the look of the source files belong to the identity here.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from petastorm_bridge._workers.threads import each_at_once
from petastorm_bridge.fs_utils import existing_local_path
from petastorm_bridge.mds.access import is_far
from petastorm_bridge.mds.entry import INDEX_NAME
from petastorm_bridge.spark._session import logger

from .store import store_at

# Beyond this many source files only their names are compared: asking a mounted object store for
# their sizes takes long, and Spark and Delta give every file they write a name of its own.
_MAX_FILES_LOOKED_AT = 10_000

_FileState = tuple[int, int] | None


@dataclass(frozen=True)
class Identity:
    """What two conversions must share for one directory to serve both.

    Attributes:
        df: The DataFrame, kept for ``sameSemantics``.
        options: Parent directory, shard size, compression, dtype.
        columns: Name and type of every column.
        semantic_hash: Of the plan; equal for equal plans.
        files_digest: Of the sorted names of the files the plan reads.
        files: Size in bytes and modification time in ns of those files, None for one that cannot
            be looked at from here.
    """

    df: Any = field(compare=False)
    options: Hashable
    columns: tuple[tuple[str, str], ...]
    semantic_hash: int
    files_digest: str
    files: tuple[_FileState, ...] = field(compare=False)

    def may_match(self, other: Identity) -> bool:
        """Return whether a directory made for ``other`` may serve ``self``; asks nobody."""
        # A file that is gone: the DataFrame was not read anew (it would list other files), so it
        # still means the rows that were converted.
        return self == other and all(
            before is None or now is None or before == now
            for before, now in zip(self.files, other.files, strict=True)
        )

    def matches(self, other: Identity) -> bool:
        """Return whether a directory made for ``other`` serves ``self``; asks Spark."""
        return self.may_match(other) and _same_semantics(self.df, other.df)


def identity_of(df: Any, options: Hashable) -> Identity:
    """Return what identifies the conversion of a DataFrame, on Spark Connect as well."""
    names = _input_files(df)
    digest = hashlib.sha256("\0".join(names).encode()).hexdigest()
    looked_at = names if len(names) <= _MAX_FILES_LOOKED_AT else ()
    return Identity(
        df=df,
        options=options,
        columns=tuple((f.name, f.dataType.simpleString()) for f in df.schema.fields),
        semantic_hash=df.semanticHash(),
        files_digest=digest,
        files=tuple(each_at_once(_file_state, looked_at, is_far=_are_far(looked_at))),
    )


def _input_files(df: Any) -> list[str]:
    try:
        return sorted(df.inputFiles())
    except Exception as error:  # noqa: BLE001 - best effort in Spark, too
        logger.debug("Cannot list the source files of the DataFrame: %s", error)
        return []


def _are_far(urls: Sequence[str]) -> bool:
    """Return whether source files, like the first of them, are on a mount of the network."""
    try:
        path = existing_local_path(urls[0]) if urls else None
    except ValueError:
        return False
    return path is not None and is_far(os.path.dirname(path))


def _file_state(url: str) -> _FileState:
    try:
        path = existing_local_path(url)
        stat = None if path is None else os.stat(path)
    except (OSError, ValueError):
        return None
    return None if stat is None else (stat.st_size, stat.st_mtime_ns)


def _same_semantics(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(one.sameSemantics(other))
    except Exception as error:  # noqa: BLE001 - frames of stopped or different sessions
        logger.debug("Cannot compare two DataFrames: %s", error)
        return False


@dataclass(eq=False)
class CacheEntry:
    """One conversion of a DataFrame, finished or under way.

    Attributes:
        cache_dir_url: The directory, None while it is being written.
        done: Set when the writing has ended, well or badly.
    """

    identity: Identity
    cache_dir_url: str | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def is_there(self) -> bool:
        """Return whether the directory still holds a complete dataset."""
        return self.cache_dir_url is not None and store_at(self.cache_dir_url).exists(INDEX_NAME)


class ConversionCache:
    """The conversions of this process.

    Args:
        entries: The list that holds the finished ones (Petastorm's ``_cache_df_meta_list``).
    """

    def __init__(self, entries: list[CacheEntry]) -> None:
        self._entries = entries
        self._start_anew()
        os.register_at_fork(after_in_child=self._start_anew)

    def _start_anew(self) -> None:
        # A child has no thread that would release its parent's lock or end its conversions.
        self._lock = threading.Lock()
        self._under_way: list[CacheEntry] = []

    def get_or_create(self, identity: Identity, create: Callable[[], str]) -> str:
        """Return the directory of an equal conversion, or make one.

        Equal conversions in several threads wait for the first; different ones run side by side.
        """
        judged: list[CacheEntry] = []
        while True:
            # Only what needs nobody's answer happens under the lock: Spark and the store may be
            # slow, and others have conversions of their own to do.
            with self._lock:
                entry = self._candidate(identity, judged)
                if entry is None:
                    entry = CacheEntry(identity)
                    self._under_way.append(entry)
                    break
            judged.append(entry)
            if not entry.identity.matches(identity):
                continue
            entry.done.wait()
            if entry.cache_dir_url is None:
                continue  # that conversion failed
            if entry.is_there():
                return entry.cache_dir_url
            self.forget(entry.cache_dir_url)  # deleted from outside: write it again
        try:
            entry.cache_dir_url = create()
        finally:
            with self._lock:
                self._under_way.remove(entry)
                if entry.cache_dir_url is not None:
                    self._entries.append(entry)
            entry.done.set()
        return entry.cache_dir_url

    def forget(self, cache_dir_url: str) -> None:
        """Drop the entries of a directory."""
        with self._lock:
            self._entries[:] = [e for e in self._entries if e.cache_dir_url != cache_dir_url]

    def _candidate(self, identity: Identity, judged: list[CacheEntry]) -> CacheEntry | None:
        for entry in [*self._entries, *self._under_way]:
            if entry not in judged and entry.identity.may_match(identity):
                return entry
        return None
