"""What makes single samples of the bytes of a shard."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from streaming.base.format.mds.encodings import mds_decode

from petastorm_bridge.mds.errors import ShardCorruptedError

from ._layout import Column, Kind
from ._mapped import OpenShard

Sample: TypeAlias = "dict[str, Any]"


def sample_maker(shard: OpenShard) -> Callable[[int], Sample]:
    """Return what makes the sample of a row.

    It raises ShardCorruptedError for what cannot be decoded.
    """
    if shard.file.records is not None:
        return _from_records(shard, shard.file.records)
    return _from_bytes(shard)


def _undecodable(shard: OpenShard, row: int, error: Exception) -> ShardCorruptedError:
    columns = ", ".join(f"{c.name!r}: {c.encoding}" for c in shard.layout.columns)
    reason = f"{type(error).__name__}: {error}"
    return ShardCorruptedError.because(
        shard.file.path, f"sample {row} with columns {columns}", reason
    )


def _from_records(shard: OpenShard, records: Any) -> Callable[[int], Sample]:
    """Return what makes a sample of a record of fixed width."""
    layout = shard.layout
    names = [column.name for column in layout.columns]
    # One array for each column: taking a field out of a record is several times slower.
    fields = [records[f"{i}"] for i in range(len(names))]
    special = [
        (column.name, int if column.encoding == "int" else _opaque(column.encoding))
        for column in layout.columns
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


def _from_bytes(shard: OpenShard) -> Callable[[int], Sample]:
    """Return what makes a sample of which some columns are of variable width."""
    widths = shard.file.layout.widths
    columns = [(c.name, w, _decoder(c)) for c, w in zip(shard.layout.columns, widths, strict=True)]
    count = widths.count(None)
    sizes_of = struct.Struct(f"<{count}I").unpack_from
    # NumPy takes values out of an Arrow buffer faster than out of its own.
    view, item = memoryview(pa.py_buffer(shard.file.raw)), shard.file.offsets.item

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


def _decoder(column: Column) -> Callable[[memoryview, int, int], Any]:
    """Return what makes a value, given the file, where the value begins in it, and its bytes."""
    if column.encoding == "str":
        return lambda view, start, size: str(view[start : start + size], "utf-8")
    if column.encoding == "bytes":
        return lambda view, start, size: bytes(view[start : start + size])
    if column.encoding == "int":
        return lambda view, start, _: int.from_bytes(view[start : start + 8], "little", signed=True)
    if column.kind is not Kind.NUMBER:
        encoding = column.encoding
        return lambda view, start, size: mds_decode(encoding, bytes(view[start : start + size]))
    dtype, shape = column.dtype, column.shape
    if not shape:
        return lambda view, start, _: np.frombuffer(view, dtype, 1, start)[0]
    count = int(np.prod(shape))
    return lambda view, start, _: np.frombuffer(view, dtype, count, start).reshape(shape)
