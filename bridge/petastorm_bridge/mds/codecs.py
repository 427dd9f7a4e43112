"""Shard compression and hashing under the names MDS uses.

The names, levels and file extensions are those of ``streaming/base/compression.py`` and
``streaming/base/hashing.py``. The work is done by Arrow's codecs and the standard library, so that
Spark executors need neither ``streaming`` nor its compression packages.
"""

from __future__ import annotations

import bz2
import contextlib
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

# MDS name -> (Arrow's name, lowest level, highest level, streaming's default level).
_FAMILIES: dict[str, tuple[str, int, int, int | None]] = {
    "br": ("brotli", 0, 11, 11),
    "bz2": ("bz2", 1, 9, 9),
    "gz": ("gzip", 0, 9, 9),
    "snappy": ("snappy", 0, 0, None),
    "zstd": ("zstd", 1, 22, 3),
}
EXTENSIONS = frozenset(_FAMILIES)
"""Of the names of compressed shards, behind ``.mds.``."""
# `streaming` looks names up in a table, so "zstd:" or "zstd:07" would not open there.
_NAME = re.compile(r"([a-z0-9]+)(?::(0|[1-9][0-9]?))?", re.ASCII)


@dataclass(frozen=True)
class Compression:
    """One way of compressing a whole shard file.

    Attributes:
        name: As written into ``index.json``, e.g. ``"zstd:3"`` or ``"snappy"``.
        extension: Of file names, without the dot.
        level: None where the family has none.
    """

    name: str
    extension: str
    level: int | None

    def compress(self, data: bytes | memoryview) -> bytes:
        """Return ``data`` compressed."""
        if self.extension == "bz2":  # Arrow has it as a stream only, without levels
            return bz2.compress(data, self.level or 9)
        # Arrow's gzip starts at level 1; level 0 only differs in size, never in content.
        level = self.level or 1 if self.extension == "gz" else self.level
        codec = pa.Codec(_FAMILIES[self.extension][0], compression_level=level)
        return bytes(codec.compress(data, asbytes=True))

    def decompress(self, data: bytes | memoryview, raw_size: int) -> bytes:
        """Return the ``raw_size`` bytes that ``data`` was compressed from.

        Raises:
            OSError, ValueError: ``data`` is damaged, or does not hold ``raw_size`` bytes.
        """
        if self.extension == "snappy":  # no stream; Arrow leaves what is missing uninitialised
            if (size := snappy_size(data)) != raw_size:
                raise ValueError(f"{size} bytes instead of {raw_size}")
            return bytes(pa.decompress(data, raw_size, "snappy", asbytes=True))
        stream = pa.CompressedInputStream(pa.BufferReader(data), _FAMILIES[self.extension][0])
        # One byte more than wanted shows data that is too long, without expanding all of it.
        raw = bytes(stream.read(raw_size + 1))
        if len(raw) != raw_size:
            more = "at least " if len(raw) > raw_size else ""
            raise ValueError(f"{more}{len(raw)} bytes instead of {raw_size}")
        return raw


def snappy_size(data: bytes | memoryview) -> int:
    """Return the uncompressed size at the start of raw snappy data, a little-endian varint."""
    size = 0
    for position, byte in enumerate(bytes(data[:5])):
        size |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return size
    raise ValueError("no snappy data")


def parse_compression(name: str | None) -> Compression | None:
    """Return the codec of a name such as ``"zstd:7"``, None for None; ValueError if MDS has none."""
    if name is None:
        return None
    match = _NAME.fullmatch(name)
    if match is not None and match[1] in _FAMILIES:
        _, low, high, default = _FAMILIES[match[1]]
        level = default if match[2] is None else int(match[2])
        if level is None or (default is not None and low <= level <= high):
            return Compression(name, match[1], level)
    raise ValueError(
        f"Unknown shard compression {name!r}: MDS knows 'br' (levels 0-11), 'bz2' (1-9), "
        "'gz' (0-9), 'snappy' and 'zstd' (1-22), written as 'zstd' or 'zstd:7'."
    )


_HASHES: dict[str, Callable[[], Any]] = {
    name: getattr(hashlib, name)
    for name in hashlib.algorithms_available
    if hasattr(hashlib, name) and not name.startswith("shake_")
}
with contextlib.suppress(ImportError):  # a light executor has those of hashlib only
    import xxhash

    _HASHES.update({name: getattr(xxhash, name) for name in xxhash.algorithms_available})


def default_hash() -> str:
    """Return the fastest hash this machine can compute that every streaming release can check."""
    return "xxh3_64" if "xxh3_64" in _HASHES else "sha1"


def is_hash(name: str) -> bool:
    """Return whether this machine can compute the hash called ``name``."""
    return name in _HASHES


def digest(name: str, *parts: Any) -> str:
    """Return the hex digest of some buffers, one after the other; ValueError without that hash here."""
    if name not in _HASHES:
        raise ValueError(f"Unknown hash {name!r}; this machine has {', '.join(sorted(_HASHES))}.")
    hasher = _HASHES[name]()
    for part in parts:
        hasher.update(part)
    return str(hasher.hexdigest())
