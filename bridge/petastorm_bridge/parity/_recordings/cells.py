"""One column of consecutive recorded rows: as NumPy or Arrow, compared without loops."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from petastorm_bridge.parity import recorder

Array = np.ndarray[Any, Any]

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class Tolerance:
    """How far two finite floating-point values may be apart: ``atol + rtol * |second|``.

    Raises:
        ValueError: A number is negative or not finite.
    """

    rtol: float = 0.0
    atol: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.rtol < math.inf and 0 <= self.atol < math.inf):
            raise ValueError(f"a tolerance is {self.rtol}, {self.atol}; it must not be negative")


@dataclass(frozen=True)
class Cells:
    """The values of one column in consecutive rows.

    Attributes:
        kind: ``number``, ``text``, ``bytes``, ``object`` or ``ragged``, as in the recorder.
        dtype: NumPy's name, or ``str``, ``bytes``, class names.
        shape: Shape of one row's value (``ragged``: its number of dimensions).
        rows: Number of rows.
        values: ``number``: an array [rows, *shape]; ``ragged``: a list of arrays or None;
            ``mixed`` (rows of several places, which differ in kind, dtype or shape): a list of
            cells and row; otherwise a flat Arrow array of rows × shape strings or bytes.
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
        if self.kind == "mixed":
            cells, place = self.values[row]
            return cells.cell(place)
        size = int(np.prod(self.shape))
        values = [_readable(self.kind, v) for v in self.values[row * size : row * size + size]]
        return values if self.shape else values[0]

    def take(self, rows: Array) -> Cells:
        """Return the rows with these indices."""
        if self.kind in {"ragged", "mixed"}:
            return replace(self, rows=len(rows), values=[self.values[i] for i in rows])
        if self.kind == "number":
            return replace(self, rows=len(rows), values=self.values[rows])
        size = int(np.prod(self.shape))
        flat = (rows[:, None] * size + np.arange(size)).reshape(-1)
        return replace(self, rows=len(rows), values=self.values.take(pa.array(flat)))


def _readable(kind: str, value: Any) -> Any:
    plain = value.as_py()
    if plain is None or kind != "object":
        return plain
    try:
        tagged = json.loads(plain)
    except (ValueError, RecursionError):
        return repr(plain)
    is_pair = isinstance(tagged, list) and len(tagged) > 1
    return f"{tagged[0]}({tagged[1]})" if is_pair else str(tagged)


def from_arrow(
    fields: dict[str, Any], name: str, kind: str, dtype: str, shape: Sequence[int]
) -> Cells:
    """Make the cells of a column from the Arrow arrays of a record batch, without copying numbers."""
    array = fields[name]
    rows = len(array)
    if kind == "ragged":
        (ndim,) = shape
        return Cells(kind, dtype, (ndim,), rows, _ragged(fields, name, dtype, ndim))
    flat = array.flatten() if shape else array
    if shape and not _has_rows_of(array, math.prod(shape)):
        raise ValueError(f"column {name!r} is not of its shape")
    if kind != "number":
        wanted = pa.large_string() if kind == "text" else pa.large_binary()
        if flat.type != wanted:
            raise ValueError(f"column {name!r} is {flat.type}, not {wanted}")
        return Cells(kind, dtype, tuple(shape), rows, flat)
    return Cells(kind, dtype, tuple(shape), rows, numbers(flat, dtype).reshape(rows, *shape))


def _has_rows_of(array: Any, size: int) -> bool:
    """Return whether every list has so many values; the sum alone could hide that rows were moved."""
    if array.null_count or len(array.flatten()) != len(array) * size:
        return False
    return bool((pc.list_value_length(array).to_numpy(zero_copy_only=False) == size).all())


def numbers(flat: Any, dtype: str) -> Array:
    """Return a flat Arrow array of numbers as NumPy, of the dtype it was recorded with.

    Raises:
        ValueError: It cannot have been recorded with this dtype.
    """
    if flat.null_count:
        raise ValueError("numbers have nulls")
    if pa.types.is_fixed_size_binary(flat.type):
        width = flat.type.byte_width
        raw = np.frombuffer(flat.buffers()[1] or b"", np.uint8)
        raw = raw[flat.offset * width : (flat.offset + len(flat)) * width]
        return np.asarray(raw.view(_foreign(dtype, width)))
    timed = dtype.startswith(("datetime64", "timedelta64"))
    stored = "int64" if timed else "uint8" if dtype == "bool" else dtype
    if stored not in recorder.PRIMITIVES or flat.type != pa.from_numpy_dtype(np.dtype(stored)):
        raise ValueError(f"{flat.type} does not hold {dtype}")
    array = flat.to_numpy(zero_copy_only=False)
    if dtype == "bool":
        if len(array) and array.max() > 1:
            raise ValueError("a truth value is neither true nor false")
        return np.asarray(array.view(np.bool_))
    return np.asarray(array.view(dtype) if timed else array)


def _foreign(dtype: str, width: int) -> np.dtype[Any]:
    """Return how values of a dtype that Arrow does not have are read: as numbers or as bytes."""
    if dtype == "bfloat16":
        numpy_dtype = np.dtype(np.uint16)
    else:
        try:
            numpy_dtype = np.dtype(dtype)
        except (TypeError, ValueError, SyntaxError):  # of another library, or a structured one
            return np.dtype((np.void, width))
        if numpy_dtype.kind not in "fc" or dtype in recorder.PRIMITIVES:
            return np.dtype((np.void, width))
    if numpy_dtype.itemsize != width:
        raise ValueError(f"{width} bytes do not hold {dtype}")
    return numpy_dtype


def _ragged(fields: dict[str, Any], name: str, dtype: str, ndim: int) -> list[Array | None]:
    array, shapes = fields[name], fields[name + recorder.SHAPE_SUFFIX]
    flat = numbers(array.flatten(), dtype)
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    if not _has_rows_of(shapes, ndim):
        raise ValueError(f"column {name!r} has shapes of other lengths than {ndim}")
    sizes = shapes.flatten().to_numpy(zero_copy_only=False).reshape(len(array), ndim)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    if (sizes < 0).any():  # to NumPy such a size means: whatever is left
        raise ValueError(f"column {name!r} has an array of negative size")
    return [
        None if missing[i] else flat[ends[i] - lengths[i] : ends[i]].reshape(shape)
        for i, shape in enumerate(map(tuple, sizes.tolist()))
    ]


def concat(parts: Sequence[Cells]) -> Cells:
    """Put the rows of several cells together."""
    first = parts[0]
    if len(parts) == 1:
        return first
    rows = sum(part.rows for part in parts)
    kinds, dtypes = {part.kind for part in parts}, {part.dtype for part in parts}
    shapes = {part.shape for part in parts}
    if (
        kinds <= {"number", "ragged"}
        and len(dtypes) == 1
        and (kinds == {"ragged"} or len(shapes) > 1)
    ):
        arrays = [array for part in parts for array in part.values]
        return replace(first, kind="ragged", rows=rows, values=arrays)
    if len(kinds) > 1 or len(shapes) > 1 or (first.kind == "number" and len(dtypes) > 1):
        return Cells("mixed", "", (), rows, [(p, i) for p in parts for i in range(p.rows)])
    if first.kind == "number":
        return replace(first, rows=rows, values=np.concatenate([part.values for part in parts]))
    chunks = [part.values.cast(pa.large_binary()) for part in parts]
    chunks = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in chunks]
    values = pa.concat_arrays(chunks)
    values = values.cast(pa.large_string()) if first.kind == "text" else values
    return replace(first, rows=rows, values=values)


def unequal(a: Cells, b: Cells, tolerance: Tolerance | None = None) -> Array:
    """Say in which rows two columns differ, bool [rows].

    Args:
        a: One side.
        b: The other, of as many rows.
        tolerance: How far floating-point numbers may be apart; None asks for the same bits.
    """
    if "mixed" in {a.kind, b.kind}:
        return _unequal_mixed(a, b, tolerance)
    if a.kind == b.kind == "number" and a.shape == b.shape and a.dtype == b.dtype:
        differ = different_numbers(a.values, b.values, tolerance)
        return np.asarray(differ.reshape(a.rows, -1).any(axis=1))
    if {a.kind, b.kind} <= {"number", "ragged"} and a.dtype == b.dtype:
        pairs = zip(a.values, b.values, strict=True)
        return ~np.array([_same_arrays(x, y, tolerance) for x, y in pairs], np.bool_)
    flat = not {a.kind, b.kind} & {"number", "ragged"} and a.shape == b.shape
    if flat and a.kind == b.kind:
        return np.asarray(_different_flat(a, b).reshape(a.rows, -1).any(axis=1))
    # Of another kind; nulls alone have none.
    return ~(_all_null(a) & _all_null(b)) if a.kind != b.kind else np.ones(a.rows, np.bool_)


def uniform(cells: Cells) -> Iterator[tuple[Array, Cells]]:
    """Yield the rows of mixed cells that come from one place, and their cells."""
    places: dict[int, list[int]] = {}
    for row, (part, _) in enumerate(cells.values):
        places.setdefault(id(part), []).append(row)
    for rows in places.values():
        part = cells.values[rows[0]][0]
        yield np.array(rows), part.take(np.array([cells.values[row][1] for row in rows]))


def _unequal_mixed(a: Cells, b: Cells, tolerance: Tolerance | None) -> Array:
    differ = np.ones(a.rows, np.bool_)
    for rows, part in uniform(a if a.kind == "mixed" else b):
        left, right = (part, b.take(rows)) if a.kind == "mixed" else (a.take(rows), part)
        differ[rows] = unequal(left, right, tolerance)
    return differ


def _all_null(cells: Cells) -> Array:
    """Say which rows are one null, bool [rows]."""
    if cells.kind == "ragged":
        return np.array([value is None for value in cells.values], np.bool_)
    if cells.kind == "number" or cells.shape:
        return np.zeros(cells.rows, np.bool_)
    return np.asarray(cells.values.is_null().to_numpy(zero_copy_only=False))


def _same_arrays(x: Array | None, y: Array | None, tolerance: Tolerance | None) -> bool:
    if x is None or y is None:
        return x is y
    if x.shape != y.shape:
        return False
    return not different_numbers(x, y, tolerance).any()


def _different_flat(a: Cells, b: Cells) -> Array:
    left, right = (cells.values.cast(pa.large_binary()) for cells in (a, b))
    missing = [v.is_null().to_numpy(zero_copy_only=False) for v in (left, right)]
    differ = pc.not_equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    return np.asarray(differ | (missing[0] != missing[1]))


def different_numbers(a: Array, b: Array, tolerance: Tolerance | None = None) -> Array:
    """Say which elements of two arrays of one dtype and shape differ, by their bits by default."""
    kind = a.dtype.kind
    if kind not in "fcV":
        integers = kind in "mM"  # NaT is not equal to itself
        return np.asarray(a.view(np.int64) != b.view(np.int64) if integers else a != b)
    if kind == "f" and a.dtype.itemsize in _BITS:
        differ = _bits(a) != _bits(b)
    else:
        width = a.dtype.itemsize
        words = [np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in (a, b)]
        words = [w.reshape(*a.shape, width) for w in words]
        differ = (words[0] != words[1]).any(axis=-1)
    if kind == "V" or tolerance is None or not differ.any():
        return np.asarray(differ)
    wide = np.result_type(a.dtype, np.float64)  # what is allowed must not be rounded away
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(a.astype(wide) - b) <= tolerance.atol + tolerance.rtol * np.abs(
            b.astype(wide)
        )
    near &= np.isfinite(a) & np.isfinite(b)  # any number is within a share of infinity
    return np.asarray(differ & ~near & ~(np.isnan(a) & np.isnan(b)) & (a != b))


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(_BITS[values.dtype.itemsize])


@dataclass(frozen=True)
class Distance:
    """How far numbers are apart that differ; of no rows by default.

    Attributes:
        rows: Rows that differ in finite numbers.
        greatest: The greatest absolute difference of two of these.
        one_nan: Rows in which some number is NaN or infinite on one side, and not so on the other.
        needed: The least relative tolerance with which all rows would be the same; infinite if there
            is none.
        floats: Whether all are floating-point numbers of one shape.
    """

    rows: int = 0
    greatest: float = 0.0
    one_nan: int = 0
    needed: float = 0.0
    floats: bool = True

    def __add__(self, other: Distance) -> Distance:
        return Distance(
            self.rows + other.rows,
            max(self.greatest, other.greatest),
            self.one_nan + other.one_nan,
            max(self.needed, other.needed),
            self.floats and other.floats,
        )


_NOT_MEASURED = Distance(needed=math.inf, floats=False)


def distance(a: Cells, b: Cells) -> Distance:
    """Measure rows of numbers that differ; nothing is measured of anything else."""
    if a.kind != "number" or b.kind != "number" or a.shape != b.shape or a.dtype != b.dtype:
        return _NOT_MEASURED
    if a.values.dtype.kind not in "iuf" or a.dtype == "bfloat16" or not a.values.size:
        return _NOT_MEASURED
    wide = np.result_type(a.values.dtype, np.float64)
    left, right = (c.values.reshape(c.rows, -1).astype(wide) for c in (a, b))
    with np.errstate(all="ignore"):
        apart = np.abs(left - right)
        share = np.where(apart > 0, apart / np.abs(right), 0)
    finite = np.isfinite(left) & np.isfinite(right)
    odd = (~finite & ~((left == right) | (np.isnan(left) & np.isnan(right)))).any(axis=1)
    distances = apart[finite]
    # A sign of zero or the bits of a NaN is within any tolerance.
    needed = math.inf if odd.any() else float(share[finite].max(initial=0))
    rows = int((finite & (left != right)).any(axis=1).sum())
    greatest = float(distances.max()) if rows else 0.0
    return Distance(rows, greatest, int(odd.sum()), needed, a.values.dtype.kind == "f")
