"""One column of consecutive recorded rows: as NumPy or Arrow, compared and hashed without loops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import recorder

Array = np.ndarray[Any, Any]

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class Tolerance:
    """How far two floating-point values may be apart: ``atol + rtol * |second|``."""

    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True)
class Cells:
    """The values of one column in consecutive rows.

    Attributes:
        kind: ``number``, ``text``, ``bytes``, ``object`` or ``ragged``, as in the recorder.
        dtype: NumPy's name, or ``str``, ``bytes``, class names.
        shape: Shape of one row's value (``ragged``: its number of dimensions).
        rows: Number of rows.
        values: ``number``: an array [rows, *shape]; ``ragged``: a list of arrays or None; otherwise
            a flat Arrow array of rows × shape strings or bytes.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    rows: int
    values: Any

    def cell(self, row: int) -> Any:
        """Return one row's value as Python or NumPy shows it."""
        if self.kind in {"number", "ragged"}:
            return self.values[row]
        size = int(np.prod(self.shape))
        found = [_readable(self.kind, v) for v in self.values[row * size : row * size + size]]
        return found if self.shape else found[0]

    def take(self, rows: Array) -> Cells:
        """Return the rows with these indices."""
        if self.kind == "ragged":
            return replace(self, rows=len(rows), values=[self.values[i] for i in rows])
        if self.kind == "number":
            return replace(self, rows=len(rows), values=self.values[rows])
        size = int(np.prod(self.shape))
        flat = (rows[:, None] * size + np.arange(size)).reshape(-1)
        return replace(self, rows=len(rows), values=self.values.take(pa.array(flat)))


def _readable(kind: str, value: Any) -> Any:
    found = value.as_py()
    if found is None or kind != "object":
        return found
    tagged = json.loads(found)
    return f"{tagged[0]}({tagged[1]})" if len(tagged) > 1 else str(tagged)


def from_arrow(
    fields: dict[str, Any], name: str, kind: str, dtype: str, shape: Sequence[int]
) -> Cells:
    """Make the cells of a column from the Arrow arrays of a record batch, without copying numbers."""
    array = fields[name]
    rows = len(array)
    if kind == "ragged":
        return Cells(kind, dtype, (shape[0],), rows, _ragged(fields, name, dtype))
    flat = array.flatten() if shape else array
    if kind != "number":
        return Cells(kind, dtype, tuple(shape), rows, flat)
    return Cells(kind, dtype, tuple(shape), rows, numbers(flat, dtype).reshape(rows, *shape))


def numbers(flat: Any, dtype: str) -> Array:
    """Return a flat Arrow array of numbers as NumPy, of the dtype it was recorded with."""
    if pa.types.is_fixed_size_binary(flat.type):
        width = flat.type.byte_width
        raw = np.frombuffer(flat.buffers()[1], np.uint8)
        raw = raw[flat.offset * width : (flat.offset + len(flat)) * width]
        return np.asarray(raw.view(np.uint16 if dtype == "bfloat16" else _foreign(dtype, width)))
    array = flat.to_numpy(zero_copy_only=False)
    if dtype == "bool":
        return np.asarray(array.view(np.bool_))
    timed = dtype.startswith(("datetime64", "timedelta64"))
    return np.asarray(array.view(dtype) if timed else array)


def _foreign(dtype: str, width: int) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except TypeError:  # a dtype of another library, or a structured one
        return np.dtype((np.void, width))
    return found


def _ragged(fields: dict[str, Any], name: str, dtype: str) -> list[Array | None]:
    array = fields[name]
    flat = numbers(array.flatten(), dtype)
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    shapes = fields[name + recorder.SHAPE_SUFFIX].to_pylist()
    missing = array.is_null().to_numpy(zero_copy_only=False)
    return [
        None if missing[i] else flat[ends[i] - lengths[i] : ends[i]].reshape(shape)
        for i, shape in enumerate(shapes)
    ]


def hashes(cells: Cells, *, ragged: bool = False) -> Array:
    """Hash each row, uint64 [rows]; equal to the recorder's hashes of the same values.

    Args:
        cells: The column.
        ragged: Hash numbers as if their shapes differed: needed when they do in other rows.
    """
    if cells.kind == "ragged":
        return np.asarray(recorder.hash_ragged(cells.values))
    if cells.kind == "number":
        found = recorder.hash_ragged(list(cells.values)) if ragged else None
        return np.asarray(recorder.hash_fixed(cells.values) if found is None else found)
    flat = recorder.hash_flat(cells.values).reshape(cells.rows, *cells.shape)
    return np.asarray(recorder.hash_fixed(flat))


def unequal(
    a: Cells, b: Cells, tolerance: Tolerance | None = None, *, any_nan: bool = False
) -> Array:
    """Say in which rows two columns differ, bool [rows].

    Args:
        a: One side.
        b: The other, of as many rows.
        tolerance: How far floating-point numbers may be apart; None asks for the same bits.
        any_nan: Any NaN equals any other, whatever its bits.
    """
    if a.kind == b.kind == "number" and a.shape == b.shape and a.dtype == b.dtype:
        differ = different_numbers(a.values, b.values, tolerance, any_nan=any_nan)
        return np.asarray(differ.reshape(a.rows, -1).any(axis=1))
    if {a.kind, b.kind} <= {"number", "ragged"} and a.dtype == b.dtype:
        pairs = zip(a.values, b.values, strict=True)
        same = [_same_arrays(x, y, tolerance, any_nan) for x, y in pairs]
        return ~np.array(same, np.bool_)
    if a.kind in {"number", "ragged"} or b.kind in {"number", "ragged"} or a.shape != b.shape:
        return np.ones(a.rows, np.bool_)
    return np.asarray(_different_flat(a, b).reshape(a.rows, -1).any(axis=1))


def _same_arrays(
    x: Array | None, y: Array | None, tolerance: Tolerance | None, any_nan: bool
) -> bool:
    if x is None or y is None:
        return x is y
    if x.shape != y.shape:
        return False
    return not different_numbers(x, y, tolerance, any_nan=any_nan).any()


def _different_flat(a: Cells, b: Cells) -> Array:
    left, right = (cells.values.cast(pa.large_binary()) for cells in (a, b))
    missing = [v.is_null().to_numpy(zero_copy_only=False) for v in (left, right)]
    differ = pc.not_equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    if a.kind != b.kind and "null" not in {a.dtype, b.dtype}:
        differ = ~(missing[0] & missing[1])
    return np.asarray(differ | (missing[0] != missing[1]))


def different_numbers(
    a: Array, b: Array, tolerance: Tolerance | None = None, *, any_nan: bool = False
) -> Array:
    """Say which elements of two arrays of one dtype and shape differ, by their bits by default."""
    kind = a.dtype.kind
    if kind not in "fcV":
        integers = kind in "mM"  # NaT is not equal to itself
        return np.asarray(a.view(np.int64) != b.view(np.int64) if integers else a != b)
    if kind == "f" and a.dtype.itemsize in _BITS:
        differ = _bits(a) != _bits(b)
    else:
        words = [np.ascontiguousarray(v).view(np.uint8).reshape(*v.shape, -1) for v in (a, b)]
        differ = (words[0] != words[1]).any(axis=-1)
    if kind == "V" or not differ.any():
        return np.asarray(differ)
    if any_nan:
        differ &= ~(np.isnan(a) & np.isnan(b))
    if tolerance is not None:
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(a - b) <= tolerance.atol + tolerance.rtol * np.abs(b)
        differ &= ~near & ~(np.isnan(a) & np.isnan(b)) & (a != b)
    return np.asarray(differ)


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(_BITS[values.dtype.itemsize])


def distance(a: Cells, b: Cells) -> float | None:
    """Return the greatest absolute difference of two columns of numbers; None without one."""
    if a.kind != "number" or b.kind != "number" or a.shape != b.shape:
        return None
    if a.values.dtype.kind not in "iuf" or not a.values.size:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(a.values.astype(np.float64) - b.values.astype(np.float64))
    finite = apart[np.isfinite(apart)]
    return float(finite.max()) if finite.size else None
