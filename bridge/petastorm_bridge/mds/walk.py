"""The walk over the columns of samples: ``[u32 size of each variable column][columns in name order]``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .errors import ShardCorruptedError
from .layout import ShardLayout
from .ragged import Int64, alternating, take_values, unaligned_view

Cells: TypeAlias = "npt.NDArray[Any] | pa.LargeBinaryArray"
"""Stored values: an array ``(rows, *shape)`` of its own if of fixed width, otherwise strings."""


class ColumnWalk:
    """Where the values of columns are in samples of which some columns are of variable width.

    Args:
        layout: The columns.
        raw: The buffer that the samples are in, uint8 of shape ``(size,)``.
        starts: Where each sample begins, ascending, shape ``(samples,)``.
        stops: Where it ends, at least ``layout.least_bytes`` further on.
        path_of: Returns the file that a sample came from, for messages.

    Raises:
        ShardCorruptedError: The sizes of a sample's columns do not add up to the sample: with them,
            no value lies outside of it.
    """

    def __init__(
        self,
        layout: ShardLayout,
        raw: npt.NDArray[np.uint8],
        starts: Int64,
        stops: Int64,
        path_of: Callable[[int], str],
    ) -> None:
        self._layout = layout
        self._raw = raw
        count = layout.widths.count(None)
        words = unaligned_view(raw, "<u4")
        self._sizes = [words[starts + 4 * word] for word in range(count)]
        self._check(stops - starts, path_of)
        # The position in each sample just behind its first, second, … variable column.
        self._behind: list[Int64] = [starts + 4 * count]
        self._strings: dict[int, pa.LargeBinaryArray] = {}

    def _check(self, lengths: Int64, path_of: Callable[[int], str]) -> None:
        total = np.full(len(lengths), self._layout.least_bytes, np.int64)
        for sizes in self._sizes:
            total += sizes
        if (total != lengths).any():
            row = int(np.flatnonzero(total != lengths)[0])
            raise ShardCorruptedError.because(
                path_of(row),
                f"{int(lengths[row])} bytes of columns in a sample",
                f"{int(total[row])} bytes",
            )

    def _starts(self, position: int) -> Int64:
        """Return where the values of a column start."""
        variable, places = self._layout.variable, self._layout.places
        before, distance = places[position]
        for number in range(len(self._behind) - 1, before):
            start = self._behind[number] + places[variable[number]][1]
            self._behind.append(start + self._sizes[number])
        return self._behind[before] + distance if distance else self._behind[before]

    def fixed(self, position: int, rows: Any) -> npt.NDArray[Any]:
        """Return values of a column of fixed width in an array of their own, ``(rows, *shape)``."""
        dtype = self._layout.formats[position]
        assert dtype is not None
        values = unaligned_view(self._raw, f"V{dtype.itemsize}")[self._starts(position)[rows]]
        return np.asarray(values.view(dtype.base).reshape(-1, *dtype.shape))

    def strings(self, position: int, rows: Int64) -> pa.LargeBinaryArray:
        """Return values of a column of variable width."""
        values = self._strings.get(position)
        if values is None:
            sizes = self._sizes[self._layout.places[position][0]]
            values = alternating(self._raw, self._starts(position), sizes)
            self._strings[position] = values
        return take_values(values, rows)

    def cells(self, position: int, rows: Int64) -> Cells:
        """Return values of any column."""
        if self._layout.widths[position] is None:
            return self.strings(position, rows)
        return self.fixed(position, rows)
