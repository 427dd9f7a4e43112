"""Stored values → the values of a batch, as NumPy arrays or as torch's default collation has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from streaming.base.format.mds.encodings import mds_decode
from torch.utils.data import default_collate

from petastorm_bridge._blocks.batches import BatchShapeError, different_shapes
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.layout import Cells
from petastorm_bridge.mds.ndarray import parse_headers
from petastorm_bridge.mds.ragged import Int64, binary_rows, byte_offsets, value_bytes

from ._mapped import Column, Kind

Format = Literal["numpy", "torch"]
Ragged = Literal["error", "list"]


class UndecodableError(DatasetError):
    """Bytes of a column are not what its encoding says; the message does not know the file."""


def batch_values(column: Column, cells: Cells, ragged: Ragged) -> Any:
    """Return the values of one column.

    Args:
        column: The column.
        cells: Its stored values, at least one.
        ragged: What to do with arrays that each say their own shape: ``'error'`` makes one array of
            them, which takes that they agree; ``'list'`` makes a list of arrays.

    Returns:
        An array ``(rows, *shape)`` of numbers; of everything else a list with one value a row.

    Raises:
        UndecodableError: The bytes are no such values.
        RuntimeError: Arrays of differing shape (also a ValueError).
    """
    if column.kind is Kind.NUMBER:
        return cells
    strings = cells if isinstance(cells, pa.Array) else binary_rows(cells)
    try:
        return _decoded(column, strings, ragged)
    except BatchShapeError:  # no damage
        raise
    except Exception as error:  # decoders of images, pickles and users raise anything
        raise UndecodableError(f"{type(error).__name__}: {error}") from error


def _decoded(column: Column, strings: pa.LargeBinaryArray, ragged: Ragged) -> Any:
    if column.kind is Kind.ARRAY:
        return _arrays(column, strings, ragged)
    if column.kind is Kind.TEXT or column.encoding == "json":
        texts = _listed(strings.cast(pa.large_string()))
        return texts if column.kind is Kind.TEXT else list(map(json.loads, texts))
    if column.kind is Kind.DIGITS:
        wanted = pa.int64() if column.encoding == "str_int" else pa.float64()
        return np.array(strings.cast(pa.large_string()).cast(wanted).to_numpy())
    values = _listed(strings)
    if column.kind is Kind.BYTES:
        return values
    return [mds_decode(column.encoding, value) for value in values]


def _listed(strings: pa.Array) -> list[Any]:
    # By way of NumPy, which is many times faster than Arrow's own to_pylist.
    listed: list[Any] = strings.to_numpy(zero_copy_only=False).tolist()
    return listed


def _arrays(column: Column, strings: pa.LargeBinaryArray, ragged: Ragged) -> Any:
    """Return arrays of which each says its shape, and its type unless the encoding does."""
    raw, offsets = value_bytes(strings), byte_offsets(strings)
    starts, sizes = offsets[:-1] - offsets[0], np.diff(offsets)
    # Arrays of one type and shape have one header and one size.
    if (sizes == sizes[0]).all():
        cells = raw.reshape(len(strings), sizes[0])
        (first,), _ = parse_headers(raw, starts[:1], sizes[:1], column.encoding)
        if (cells[:, : first.width] == cells[0, : first.width]).all():
            values = cells[:, first.width :].copy().view(first.dtype)
            values = values.reshape(len(strings), *first.shape)
            return list(values) if ragged == "list" else values
    headers, which = parse_headers(raw, starts, sizes, column.encoding)
    bounds = zip(starts.tolist(), (starts + sizes).tolist(), which.tolist(), strict=True)
    arrays = []
    for start, stop, number in bounds:
        dtype, shape, width = headers[number]
        arrays.append(raw[start + width : stop].copy().view(dtype).reshape(shape))
    if ragged == "list":
        return arrays
    if len({array.shape for array in arrays}) > 1:
        raise different_shapes(column.name, [array[np.newaxis] for array in arrays])
    dtype = _promoted([array.dtype for array in arrays])
    return np.stack([array.astype(dtype) for array in arrays])


def joined(name: str, parts: Sequence[Any], order: Int64) -> Any:
    """Return the values of several parts of a batch, one after the other and then in some order."""
    if isinstance(parts[0], list):
        values = [value for part in parts for value in part]
        return [values[row] for row in order.tolist()]
    if len({part.shape[1:] for part in parts}) > 1:
        raise different_shapes(name, parts)
    dtype = _promoted([part.dtype for part in parts])
    return np.concatenate([part.astype(dtype) for part in parts])[order]


def _promoted(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the type that holds values of several, by torch's rules as in its collation."""
    promoted, *others = dict.fromkeys(dtypes)
    for dtype in others:
        one, other = (torch.from_numpy(np.empty(0, d)).dtype for d in (promoted, dtype))
        promoted = torch.empty(0, dtype=torch.promote_types(one, other)).numpy().dtype
    return promoted


def tensors(column: Column, values: Any, ragged: Ragged) -> Any:
    """Return the values of a column as ``torch.utils.data.default_collate`` has them.

    Raises:
        TypeError: Torch collates no such values.
    """
    if isinstance(values, np.ndarray):
        return torch.from_numpy(values)
    if column.kind is Kind.OBJECT:
        try:
            return default_collate(values)
        except (TypeError, RuntimeError) as error:
            raise TypeError(
                f"Torch cannot collate column {column.name!r} ({column.encoding}): {error}. Take "
                "format='numpy', which leaves such values in a list, or leave the column out with "
                "columns=[...]."
            ) from error
    if column.kind is Kind.ARRAY and ragged == "list":
        return [torch.from_numpy(value) for value in values]
    return values
