"""What makes single samples of the bytes of a shard."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from streaming.base.format.mds.encodings import mds_decode

from petastorm_bridge.mds.errors import ShardCorruptedError
from petastorm_bridge.mds.shard_file import ShardFile

from ._layout import Column, Kind, columns_of

Sample: TypeAlias = "dict[str, Any]"


def sample_maker(shard: ShardFile) -> Callable[[int], Sample]:
    """Return what makes the sample of a row.

    It raises ShardCorruptedError for what cannot be decoded.
    """
    if shard.records is not None:
        return _from_records(shard, shard.records)
    return _from_bytes(shard)


def _undecodable(shard: ShardFile, row: int, error: Exception) -> ShardCorruptedError:
    columns = ", ".join(f"{c.name!r}: {c.encoding}" for c in columns_of(shard.layout))
    reason = f"{type(error).__name__}: {error}"
    return ShardCorruptedError.because(shard.path, f"sample {row} with columns {columns}", reason)


def _from_records(shard: ShardFile, records: Any) -> Callable[[int], Sample]:
    """Return what makes a sample of a record of fixed width."""
    columns = columns_of(shard.layout)
    names = [column.name for column in columns]
    # One array for each column: taking a field out of a record is several times slower.
    fields = [records[f"{i}"] for i in range(len(names))]
    special = [
        (column.name, int if column.encoding == "int" else _opaque(column.encoding))
        for column in columns
        if column.encoding == "int" or column.kind is not Kind.NUMBER
    ]

    def decode(row: int) -> Sample:
        sample = dict(zip(names, [field[row] for field in fields]))  # noqa: B905 - faster
        try:
            for name, make in special:
                sample[name] = make(sample[name])
        except Exception as error:  # decoders of users raise anything
            raise _undecodable(shard, row, error) from error
        return sample

    return decode


def _from_bytes(shard: ShardFile) -> Callable[[int], Sample]:
    """Return what makes a sample of which some columns are of variable width."""
    layout = shard.layout
    columns = [
        (column.name, width, _decoder(column, dtype))
        for column, width, dtype in zip(
            columns_of(layout), layout.widths, layout.formats, strict=True
        )
    ]
    count = layout.widths.count(None)
    sizes_of = struct.Struct(f"<{count}I").unpack_from
    # NumPy takes values out of an Arrow buffer faster than out of its own.
    view, item = memoryview(pa.py_buffer(shard.raw)), shard.offsets.item

    def decode(row: int) -> Sample:
        sample: Sample = {}
        start = item(row)
        try:
            sizes = iter(sizes_of(view, start))
            start += 4 * count
            for name, width, make in columns:
                size = next(sizes) if width is None else width
                sample[name] = make(view, start, size)
                start += size
        except Exception as error:  # decoders of users raise anything
            raise _undecodable(shard, row, error) from error
        if start != item(row + 1):
            raise _undecodable(shard, row, ValueError("sizes that do not add up to the sample"))
        return sample

    return decode


def _opaque(encoding: str) -> Callable[[Any], Any]:
    return lambda value: mds_decode(encoding, value.tobytes())


def _decoder(column: Column, dtype: np.dtype[Any] | None) -> Callable[[memoryview, int, int], Any]:
    """Return what makes a value, given the file, where the value begins in it, and its bytes."""
    if column.encoding == "str":
        return lambda view, start, size: str(view[start : start + size], "utf-8")
    if column.encoding == "bytes":
        return lambda view, start, size: bytes(view[start : start + size])
    if column.encoding == "int":
        return lambda view, start, _: int.from_bytes(view[start : start + 8], "little", signed=True)
    if column.kind is not Kind.NUMBER or dtype is None:
        encoding = column.encoding
        return lambda view, start, size: mds_decode(encoding, bytes(view[start : start + size]))
    return lambda view, start, _: np.frombuffer(view, dtype, 1, start)[0]
