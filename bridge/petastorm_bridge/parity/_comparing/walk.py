"""Walk over two recordings: place by place, or at chosen rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from petastorm_bridge.parity._recordings.cells import Array, Cells, distance, unequal
from petastorm_bridge.parity._recordings.hashing import hash_rows, hashes
from petastorm_bridge.parity._recordings.recording import Recording

from .describe import counted
from .plan import ColumnPlan, Plan

BLOCK_ROWS = 16384
EXAMPLES = 5  # of each column
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Pair:
    """The same rows of both sides, in the form in which they are compared."""

    start_a: int
    start_b: int
    rows: int
    a: dict[str, Cells]
    b: dict[str, Cells]


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
    a: Recording, b: Recording, plan: Plan, progress: Progress | None = None
) -> Iterator[Pair]:
    """Yield the rows that are at the same place of the same rank."""
    names = frozenset(plan.names)
    done, total = 0, min(a.rows, b.rows)
    for first_a, rows_a, first_b, rows_b in segments(a, b):
        at, end = 0, min(rows_a, rows_b)
        while at < end:
            left = a.block(first_a + at, min(BLOCK_ROWS, end - at), names)
            right = b.block(first_b + at, left.rows, names)
            if right.rows < left.rows:
                left = a.block(first_a + at, right.rows, names)
            columns = [{c.name: c.prepare(block) for c in plan.columns} for block in (left, right)]
            yield Pair(first_a + at, first_b + at, left.rows, columns[0], columns[1])
            at += left.rows
            done += left.rows
            if progress:
                progress("comparing", done, total)


def row_hashes(columns: dict[str, Cells], plans: Sequence[ColumnPlan], rows: int) -> Array:
    """Hash rows over some columns; uint64 [rows]."""
    if not plans:
        return np.zeros(rows, np.uint64)
    column_hashes = {plan.name: hashes(columns[plan.name]) for plan in plans}
    return np.asarray(hash_rows(column_hashes))


def gather(side: Recording, plan: Plan, rows: Array) -> dict[str, Cells]:
    """Return these rows, in this order, in the form in which they are compared."""
    names = frozenset(plan.names)
    order = np.argsort(rows, kind="stable")
    wanted = rows[order]
    parts: list[dict[str, Cells]] = []
    at = 0
    while at < len(wanted):
        block = side.block(int(wanted[at]), BLOCK_ROWS, names)
        end = int(np.searchsorted(wanted, block.start + block.rows))
        places = wanted[at:end] - block.start
        parts.append({c.name: c.prepare(block).take(places) for c in plan.columns})
        at = end
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return {c.name: concat([part[c.name] for part in parts]).take(back) for c in plan.columns}


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
        apart: Those of them that hold numbers that can be subtracted, on both sides.
        greatest: Greatest absolute difference of these.
        one_nan: Rows with a NaN, infinity or NaT on one side only.
        needed: Of rows that differ in finite numbers of one shape only: the least relative
            tolerance with which all would be the same; infinite if there is none.
        only_floats: Whether all of them hold floating-point numbers of one shape.
        first: Of the first differing row: its places on both sides and both values.
        examples: Places on both sides of some rows that differ.
    """

    compared: int = 0
    differing: int = 0
    apart: int = 0
    greatest: float | None = None
    one_nan: int = 0
    needed: float = 0.0
    only_floats: bool = True
    first: tuple[int, int, Any, Any] | None = field(default=None)
    examples: list[tuple[int, int]] = field(default_factory=list)

    def add(self, a: Cells, b: Cells, differ: Array, rows: tuple[Array, Array]) -> None:
        """Take a column of some rows, where it differs, and the rows' places on both sides."""
        self.compared += a.rows
        places = np.flatnonzero(differ)
        if not len(places):
            return
        self.differing += len(places)
        measured = distance(a.take(places), b.take(places))
        self.only_floats &= measured.floats
        self.apart += measured.rows
        self.one_nan += measured.one_nan
        self.needed = max(self.needed, measured.needed)
        if measured.greatest is not None:
            self.greatest = max(measured.greatest, self.greatest or 0.0)
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
        if self.greatest is not None:
            some = "" if self.apart == self.differing else f"{counted(self.apart, 'row')} "
            texts.append(f"{some}by at most {self.greatest:.6g}")
        if self.one_nan:
            texts.append(f"{counted(self.one_nan, 'row')} with NaN or infinity on one side only")
        return "; ".join(texts)


def compare_columns(plan: Plan, a: dict[str, Cells], b: dict[str, Cells]) -> dict[str, Array]:
    """Say for each column in which rows it differs."""
    return {c.name: unequal(a[c.name], b[c.name], c.tolerance) for c in plan.columns}
