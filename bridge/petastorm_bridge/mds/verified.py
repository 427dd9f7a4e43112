"""Hashes of shard files, checked once in a process for every state of a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import codecs
from .errors import ShardCorruptedError
from .locks import ForkSafeLock

# Path -> what was asked of which file there.
_seen: dict[str, tuple[Any, ...]] = {}
_lock = ForkSafeLock()


def best_hash(hashes: Mapping[str, str]) -> str | None:
    """Return the name of the hash that is cheapest to check here; None if none can be."""
    known = [name for name in hashes if codecs.is_hash(name)]
    # Those of the xxhash family are many times faster than the others.
    return min(known, key=lambda name: not name.startswith("xxh")) if known else None


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
    if name is None:
        return
    # The change time and the inode tell apart files that were replaced with their date kept.
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    key = (name, hashes[name], *state)
    with _lock:
        if _seen.get(path) == key:
            return
    found = codecs.digest(name, data)
    if found != hashes[name]:
        raise ShardCorruptedError.because(path, f"{name} {hashes[name]}", found)
    with _lock:
        _seen[path] = key
