"""A function on pandas DataFrames as the ``collate_fn`` of a ``StreamingDataLoader``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

__all__ = ["PandasCollate"]

# Torch has no arithmetic for these types.
_TORCH_DTYPES = {"bool": "uint8", "uint16": "int32", "uint32": "int64"}


class PandasCollate:
    """Makes a batch of tensors from samples, by way of a function on their DataFrame.

    Booleans, which are stored as uint8, are booleans in the DataFrame; arrays of one axis or more
    are objects in it. Pickles, for ``num_workers``, if the function does.

    Args:
        func: Takes the DataFrame of a batch, whose columns are in the order of their names, and
            returns one; it may have other rows. None changes only which columns there are.
        edit_fields: ``(name, NumPy dtype, shape of a value, nullable)`` of each column that the
            function adds or changes.
        removed_fields: Names of columns that batches do not have.
        selected_fields: Names of all columns that batches have, in this order.
        timestamps: Names of columns of nanoseconds since 1970, which is how timestamps are stored,
            that the function gets as ``datetime64[ns]``.

    Raises:
        ValueError: Both ``removed_fields`` and ``selected_fields`` are given.
    """

    def __init__(
        self,
        func: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
        edit_fields: Sequence[Any] | None = None,
        removed_fields: Sequence[str] | None = None,
        selected_fields: Sequence[str] | None = None,
        *,
        timestamps: Iterable[str] = (),
    ) -> None:
        if removed_fields is not None and selected_fields is not None:
            raise ValueError("give removed_fields or selected_fields, not both")
        self.func = func
        self.edit_fields = edit_fields or []
        self.removed_fields = removed_fields or []
        self.selected_fields = selected_fields
        self.timestamps = frozenset(timestamps)

    def __call__(self, samples: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch of some samples: tensors, and lists where values are strings.

        Args:
            samples: Samples of a ``StreamingDataset``, or their columns.
        """
        columns = self.transformed(samples)
        return {name: _tensor(name, values) for name, values in columns.items()}

    def transformed(
        self, samples: Sequence[Mapping[str, Any]] | Mapping[str, Any]
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of some samples after the function, each of shape ``(rows, …)``.

        Raises:
            ValueError: The function returned other columns than were said, or other shapes.
        """
        if isinstance(samples, Mapping):
            columns = dict(samples)
        else:
            columns = {name: [sample[name] for sample in samples] for name in samples[0]}
        names = self.names(columns)
        frame = pd.DataFrame({name: self._series(name, columns[name]) for name in columns})
        if self.func is not None:
            frame = self.func(frame)
        frame = frame.drop(columns=[name for name in self.removed_fields if name in frame])
        if set(frame.columns) != set(names):
            raise ValueError(f"the transform returned the columns {[*frame]} instead of {names}")
        shapes = {edit[0]: tuple(edit[2]) for edit in self.edit_fields}
        return {name: _values(name, frame[name], shapes.get(name, ())) for name in names}

    def names(self, before: Iterable[str]) -> list[str]:
        """Return the names of a batch's columns, in order, given those of the samples."""
        edited = [edit[0] for edit in self.edit_fields]
        kept = [name for name in before if name not in {*edited, *self.removed_fields}]
        names = [*kept, *edited]
        if self.selected_fields is None:
            return names
        return [name for name in self.selected_fields if name in names]

    def _series(self, name: str, values: Any) -> pd.Series[Any]:
        """Return a column of the DataFrame: numbers as they are, everything else as objects."""
        first: Any = values[0] if len(values) else 0
        if isinstance(first, (str, bytes)) or np.ndim(first) > 0:
            rows = [_as_booleans(np.asarray(row)) if np.ndim(row) else row for row in values]
            return pd.Series(rows, dtype=object)
        numbers = np.asarray(values)
        if name in self.timestamps:
            numbers = numbers.view("datetime64[ns]")
        column: pd.Series[Any] = pd.Series(_as_booleans(numbers))
        return column


def _as_booleans(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return booleans for what is stored as uint8."""
    return values.astype(bool) if values.dtype == np.uint8 else values


def _values(name: str, series: pd.Series[Any], shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    """Return a column of the result as one array.

    Args:
        name: The column's name.
        series: What the function made.
        shape: Shape of each value, as far as it was said; one of several axes has to be met.
    """
    values = series.to_numpy()
    if values.dtype == object:
        rows = series.tolist()
        if rows and isinstance(rows[0], (str, bytes)):
            return values
        if len({np.shape(row) for row in rows}) > 1:
            raise ValueError(f"the arrays in column {name!r} differ in shape")
        values = np.array(rows)
    if len(shape) < 2:
        return values
    if not len(values):
        return np.empty((0, *(size or 0 for size in shape)), values.dtype)
    found = values.shape[1:]
    pairs = zip(found, shape, strict=False)
    if len(found) != len(shape) or any(said not in {None, size} for size, said in pairs):
        raise ValueError(f"field {name} must be the shape {shape}, not {found}")
    return values


def _tensor(name: str, values: npt.NDArray[Any]) -> Any:
    """Return a column as a tensor, or as a list if it holds strings."""
    if values.dtype.kind in "OSUT":
        if any(not isinstance(value, (str, bytes)) for value in values.flat):
            raise TypeError(f"column {name!r} holds objects, which no tensor can hold")
        return values.tolist()
    if values.dtype.kind == "M":
        values = values.astype("datetime64[ns]").view(np.int64)
    dtype = _TORCH_DTYPES.get(values.dtype.name, values.dtype)
    return torch.from_numpy(np.array(values, dtype, order="C"))
