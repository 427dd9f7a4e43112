"""What ``compression_codec`` and ``parquet_row_group_size_bytes`` mean for MDS shards."""

from __future__ import annotations

import operator
from typing import Any

from petastorm_bridge.spark._session import ArgumentTypeError

DEFAULT_ROW_GROUP_SIZE_BYTES = 32 * 1024 * 1024

# parquet-mr's default block size, which Spark uses when the option is None.
_PARQUET_BLOCK_SIZE = 128 * 1024 * 1024


# MDS compression for each, in the order of Petastorm's own error message.
CODECS: dict[str, str | None] = {
    "uncompressed": None,
    "bzip2": "bz2",
    "gzip": "gz:6",  # zlib's and Parquet's default level
    "lz4": "zstd:1",  # MDS has no LZ4
    "snappy": "snappy",
    "deflate": "gz:6",  # gzip is deflate with a header
}


def mds_compression(codec: Any) -> str | None:
    """Return the MDS compression for a value of ``compression_codec``.

    Raises:
        RuntimeError: Petastorm does not know this codec either (same type and text).
        ArgumentTypeError: Not a string.
    """
    if not codec:
        return None
    if not isinstance(codec, str):
        raise ArgumentTypeError(
            f"compression_codec must be a string or None, not {type(codec).__name__}: {codec!r}. "
            f"Supported: {', '.join(map(repr, CODECS))}."
        )
    if codec.lower() not in CODECS:
        names = ", ".join(map(repr, CODECS))
        raise RuntimeError(
            f"compression_codec should be None or one of the following values: {names}"
        )
    return CODECS[codec.lower()]


def shard_size(row_group_bytes: Any) -> int:
    """Return the size limit of a shard, in bytes, for ``parquet_row_group_size_bytes``.

    Petastorm hands the value to Parquet, which looks at it every hundred rows: 0 and negative
    numbers give row groups of a hundred rows, None means Parquet's default of 128 MiB, and a string
    of digits is a number. Here a shard takes the place of a row group, with the same cuts in mind.

    Raises:
        ValueError: A string that is no whole number.
        ArgumentTypeError: Another type (Petastorm: a failing Spark job).
    """
    if row_group_bytes is None:
        return _PARQUET_BLOCK_SIZE
    asked = f"parquet_row_group_size_bytes={row_group_bytes!r}"
    advice = "Give the size of a shard in bytes as an int, e.g. 32 * 1024 * 1024."
    if isinstance(row_group_bytes, str):
        try:
            return max(1, int(row_group_bytes))
        except ValueError:
            raise ValueError(f"{asked} is not a whole number. {advice}") from None
    try:
        size = operator.index(row_group_bytes)
    except TypeError:
        size = None
    if size is None or isinstance(row_group_bytes, bool):
        raise ArgumentTypeError(
            f"{asked} is a {type(row_group_bytes).__name__}, not an int. {advice}"
        )
    return max(1, size)
