"""Shard compression and hashing under the names MDS uses.

The names, levels and file extensions are those of ``streaming/base/compression.py`` and
``streaming/base/hashing.py``. The work is done by Arrow's codecs and the standard library, so that
Spark executors need neither ``streaming`` nor its compression packages.
"""

from __future__ import annotations

import bz2
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

__all__ = ["Compression", "default_hash", "digest", "is_hash", "parse_compression"]

# MDS name -> (Arrow codec, lowest level, highest level, streaming's default level).
_ARROW_CODECS: dict[str, tuple[str, int, int, int | None]] = {
    "br": ("brotli", 0, 11, 11),
    "gz": ("gzip", 0, 9, 9),
    "snappy": ("snappy", 0, 0, None),
    "zstd": ("zstd", 1, 22, 3),
}


@dataclass(frozen=True)
class Compression:
    """One way of compressing a whole shard file.

    Attributes:
        name: As written into ``index.json``, e.g. ``"zstd:3"`` or ``"snappy"``.
        extension: File name extension without the dot, e.g. ``"zstd"``.
        level: Compression level, or None where the family has none.
    """

    name: str
    extension: str
    level: int | None

    def _codec(self) -> Any:
        arrow_name, low, _, _ = _ARROW_CODECS[self.extension]
        # Arrow's gzip starts at level 1; level 0 only differs in size, never in content.
        level = None if self.level is None else max(self.level, low, int(arrow_name == "gzip"))
        return pa.Codec(arrow_name, compression_level=level)

    def compress(self, data: bytes | memoryview) -> bytes:
        """Return ``data`` compressed."""
        if self.extension == "bz2":
            return bz2.compress(data, self.level or 9)
        return bytes(self._codec().compress(data, asbytes=True))

    def decompress(self, data: bytes | memoryview, raw_size: int) -> bytes:
        """Return the ``raw_size`` bytes that ``data`` was compressed from.

        Raises:
            OSError: ``data`` is damaged.
        """
        if self.extension == "bz2":
            return bz2.decompress(data)
        return bytes(self._codec().decompress(data, decompressed_size=raw_size, asbytes=True))


def parse_compression(name: str | None) -> Compression | None:
    """Return the codec called ``name`` (``"zstd"``, ``"zstd:7"``, ``"gz"`` …), None for None.

    Raises:
        ValueError: MDS has no such compression.
    """
    if name is None:
        return None
    family, _, level_text = name.partition(":")
    if family == "bz2":
        low, high, default = 1, 9, 9
    elif family in _ARROW_CODECS:
        _, low, high, default_level = _ARROW_CODECS[family]
        default = default_level if default_level is not None else 0
    else:
        raise _unknown_compression(name)
    if family == "snappy":
        if level_text:
            raise _unknown_compression(name)
        return Compression(name, family, None)
    level = default
    if level_text:
        if not level_text.isdigit() or not low <= int(level_text) <= high:
            raise _unknown_compression(name)
        level = int(level_text)
    return Compression(name, family, level)


def _unknown_compression(name: str) -> ValueError:
    return ValueError(
        f"Unknown shard compression {name!r}: MDS knows 'br' (levels 0-11), 'bz2' (1-9), "
        "'gz' (0-9), 'snappy' and 'zstd' (1-22), written as 'zstd' or 'zstd:7'."
    )


def _collect_hashes() -> dict[str, Callable[[Any], Any]]:
    found: dict[str, Callable[[Any], Any]] = {
        name: getattr(hashlib, name)
        for name in hashlib.algorithms_available
        if hasattr(hashlib, name) and not name.startswith("shake_")
    }
    try:
        import xxhash
    except ImportError:  # a light executor: hashlib is always there
        return found
    found.update({name: getattr(xxhash, name) for name in xxhash.algorithms_available})
    return found


_HASHES = _collect_hashes()


def default_hash() -> str:
    """Return the fastest hash this machine can compute that every streaming release can check."""
    return "xxh3_64" if "xxh3_64" in _HASHES else "sha1"


def is_hash(name: str) -> bool:
    """Return whether this machine can compute the hash called ``name``."""
    return name in _HASHES


def digest(name: str, data: Any) -> str:
    """Return the hex digest of ``data`` (any buffer).

    Raises:
        ValueError: This machine does not have the hash.
    """
    if name not in _HASHES:
        raise ValueError(f"Unknown hash {name!r}; this machine has {', '.join(sorted(_HASHES))}.")
    return str(_HASHES[name](data).hexdigest())
