"""Walk over two recordings: place by place, or at chosen rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from petastorm_bridge.parity._recordings.cells import (
    Array,
    Cells,
    Distance,
    distance,
    unequal,
)
from petastorm_bridge.parity._recordings.recording import Block, Recording
from petastorm_bridge.parity.recorder import counted

from .plan import Plan

BLOCK_ROWS = 16384
EXAMPLES = 5  # of each column
Progress = Callable[[str, int, int], None]


def segments(a: Recording, b: Recording) -> list[tuple[int, int, int, int]]:
    """Return start and number of rows on both sides of the stretches that belong together.

    One for each rank if both sides have as many ranks, else one for everything.
    """
    if a.ranks != b.ranks:
        return [(0, a.rows, 0, b.rows)]
    starts = [side.rank_starts.tolist() for side in (a, b)]
    sizes = [np.diff(side.rank_starts).tolist() for side in (a, b)]
    return list(zip(starts[0], sizes[0], starts[1], sizes[1], strict=False))


def walk(
    a: Recording, b: Recording, plan: Plan, progress: Progress
) -> Iterator[tuple[Block, Block]]:
    """Yield the rows that are at the same place of the same rank, in the form in which they are compared."""
    done, total = 0, min(a.rows, b.rows)
    for first_a, rows_a, first_b, rows_b in segments(a, b):
        at, end = 0, min(rows_a, rows_b)
        while at < end:
            left = a.block(first_a + at, min(BLOCK_ROWS, end - at), plan.columns)
            right = b.block(first_b + at, left.rows, plan.columns)
            if right.rows < left.rows:
                left = a.block(first_a + at, right.rows, plan.columns)
            yield plan.prepare(left), plan.prepare(right)
            at += left.rows
            done += left.rows
            progress("comparing", done, total)


def gather(side: Recording, plan: Plan, rows: Array) -> dict[str, Cells]:
    """Return these rows, in this order, in the form in which they are compared."""
    order = np.argsort(rows, kind="stable")
    wanted = rows[order]
    parts: list[dict[str, Cells]] = []
    at = 0
    while at < len(wanted):
        block = side.block(int(wanted[at]), BLOCK_ROWS, plan.columns)
        end = int(np.searchsorted(wanted, block.start + block.rows))
        places = wanted[at:end] - block.start
        columns = plan.prepare(block).columns
        parts.append({name: cells.take(places) for name, cells in columns.items()})
        at = end
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return {name: concat([part[name] for part in parts]).take(back) for name in plan.columns}


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


@dataclass
class ColumnStats:
    """How the values of one column differ in the rows that were compared.

    Attributes:
        compared: Rows.
        differing: Rows whose values differ.
        distance: How far they are apart.
        first: Of the first differing row: its places on both sides and both values.
        examples: Places on both sides of some rows that differ.
    """

    compared: int = 0
    differing: int = 0
    distance: Distance = field(default_factory=Distance)
    first: tuple[int, int, Any, Any] | None = field(default=None)
    examples: list[tuple[int, int]] = field(default_factory=list)

    def add(self, a: Cells, b: Cells, differ: Array, rows: tuple[Array, Array]) -> None:
        """Take a column of some rows, where it differs, and the rows' places on both sides."""
        self.compared += a.rows
        places = np.flatnonzero(differ)
        if not len(places):
            return
        self.differing += len(places)
        self.distance += distance(a.take(places), b.take(places))
        for row in places[: EXAMPLES - len(self.examples)]:
            self.examples.append((int(rows[0][row]), int(rows[1][row])))
        place = int(places[np.argmin(rows[0][places])])
        here = int(rows[0][place]), int(rows[1][place])
        if self.first is None or here < self.first[:2]:
            self.first = (*here, a.cell(place), b.cell(place))

    @property
    def how_far(self) -> str:
        """How far the numbers are apart, in words; empty if they are none."""
        texts = []
        apart, one_nan = self.distance.rows, self.distance.one_nan
        if apart:
            some = "" if apart == self.differing else f"{counted(apart, 'row')} "
            texts.append(f"{some}by at most {self.distance.greatest:.6g}")
        if one_nan:
            texts.append(f"{counted(one_nan, 'row')} with NaN or infinity on one side only")
        return "; ".join(texts)


def compare_columns(plan: Plan, a: dict[str, Cells], b: dict[str, Cells]) -> dict[str, Array]:
    """Say for each column in which rows it differs."""
    return {name: unequal(a[name], b[name], c.tolerance) for name, c in plan.columns.items()}
