"""Whether shard files are those that they are taken for.

Hashes are checked once in a process for every state of a file. Without one, that of a file which was there
when its dataset was opened tells it from another in its place.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import codecs
from .access import has_lasting_inodes, load
from .errors import ShardCorruptedError
from .ragged import Bytes

# Path -> what was asked of which file there.
_seen: dict[str, tuple[Any, ...]] = {}


def best_hash(hashes: Mapping[str, str]) -> str | None:
    """Return the name of the hash that is cheapest to check here; None if none can be."""
    known = [name for name in hashes if codecs.is_hash(name)]
    # Those of the xxhash family are many times faster than the others.
    return min(known, key=lambda name: not name.startswith("xxh")) if known else None


def differing_hash(hashes: Mapping[str, str], data: Any) -> tuple[str, str] | None:
    """Return which hash bytes should have and which they have, if these differ; the one that is cheapest is looked at."""
    name = best_hash(hashes)
    if name is None or (found := codecs.digest(name, data)) == hashes[name]:
        return None
    return f"{name} {hashes[name]}", found


def check_hash(path: str, hashes: Mapping[str, str], data: Any, status: os.stat_result) -> None:
    """Check a file's hash, unless this process has found the same file to have the same hash before.

    Args:
        path: The file.
        hashes: Names and hex digests, from the index; the one that is cheapest is checked.
        data: Its bytes (any buffer).
        status: Of the file.

    Raises:
        ShardCorruptedError: It has another hash.
    """
    name = best_hash(hashes)
    if name is None or _seen.get(path) == _state(name, hashes, status):
        return
    if differing := differing_hash(hashes, data):
        raise ShardCorruptedError.because(path, *differing)
    note_hash(path, hashes, status)


def note_hash(path: str, hashes: Mapping[str, str], status: os.stat_result) -> None:
    """Remember that a file has the hash which :func:`check_hash` would check; arguments as there."""
    name = best_hash(hashes)
    if name is not None:
        _seen[path] = _state(name, hashes, status)


def _state(name: str, hashes: Mapping[str, str], status: os.stat_result) -> tuple[Any, ...]:
    """Return what is asked of a file, and what tells it from one that takes its place."""
    # The change time and the inode tell apart files that were replaced with their date kept.
    return name, hashes[name], status.st_dev, status.st_ctime_ns, *mark(status)


FileMark = tuple[int, ...]
"""What differs between a file and one that takes its place, or itself written again."""


def mark(status: os.stat_result) -> FileMark:
    """Return the mark of a file of which this is known."""
    return status.st_ino, status.st_mtime_ns, status.st_size


def mark_of(path: str) -> FileMark | None:
    """Return the mark of a file; None if there is none."""
    with contextlib.suppress(OSError):
        return mark(os.stat(path))
    return None


def marks_of(directory: str, names: Iterable[str]) -> dict[str, FileMark]:
    """Return the marks of those files that are in a directory now; none where its file system has none."""
    if not has_lasting_inodes(directory):
        return {}
    marks = ((name, mark_of(os.path.join(directory, name))) for name in names)
    return {name: found for name, found in marks if found is not None}


def replaced(path: str) -> ShardCorruptedError:
    """Return the error for a file of which mark and hash are not those that it had, or should have."""
    return ShardCorruptedError(
        f"Shard {path} was replaced or written again after the dataset was opened, and its rows "
        "may be others now. Open the dataset again, and write new shards to another directory."
    )


def checked_bytes(
    path: str,
    size: int,
    hashes: Mapping[str, str] | None,
    *,
    mapped: bool,
    noted: FileMark | None = None,
) -> Bytes:
    """Return all bytes of a file, which must have a size and one of some hashes, if there are any.

    Raises:
        FileNotFoundError: There is no such file.
        ShardCorruptedError: It is another file.
        DatasetError: It is no regular file.
        OSError: The file system fails or refuses.
    """
    data, status = load(path, mapped)
    check_size(path, size, len(data))
    # As it is now: it may have been written while it was read.
    if noted is not None and noted != (mark_of(path) or mark(status)):
        raise replaced(path)
    if hashes:
        check_hash(path, hashes, data, status)
    return data


def check_size(path: str, size: int, found: int) -> None:
    """Raise ShardCorruptedError if a file has another size than its index says, in bytes."""
    if found != size:
        raise ShardCorruptedError.because(path, f"{size} bytes", f"{found} bytes")
