"""What is compared and how: two recordings, the rules, and the columns in the form in which they are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from petastorm_bridge.parity._recordings.cells import Array, Cells, Tolerance, concat, unequal
from petastorm_bridge.parity._recordings.recording import Block, Recording
from petastorm_bridge.parity.recorder import counted

from .rules import Effect, Rules

BLOCK_ROWS = 16384
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class ColumnPlan:
    """How one column is compared.

    Attributes:
        dtype: The dtype that both sides are converted to; None leaves them as they are.
        tolerance: How far numbers may be apart.
        any_nan: Whether NaNs are made alike.
        strip: Whether NUL characters at the end of strings are removed.
        rounded: Whether integers are compared as doubles.
    """

    dtype: str | None = None
    tolerance: Tolerance | None = None
    any_nan: bool = False
    strip: bool = False
    rounded: bool = False

    def prepare(self, cells: Cells) -> Cells:
        """Return the column of some rows in the form in which it is compared."""
        if cells.kind == "text" and self.strip:
            return replace(cells, values=pc.utf8_rtrim(cells.values, characters="\0"))
        if cells.kind == "ragged" and self.any_nan:
            return replace(cells, values=[None if v is None else _one_nan(v) for v in cells.values])
        if cells.kind != "number":
            return cells
        dtype = "float64" if self.rounded and cells.dtype == "int64" else self.dtype
        if dtype is not None and dtype != cells.dtype:
            cells = replace(cells, dtype=dtype, values=cells.values.astype(dtype))
        return replace(cells, values=_one_nan(cells.values)) if self.any_nan else cells


def _one_nan(values: Array) -> Array:
    """Make all NaNs alike, also those within complex numbers."""
    if values.dtype.kind not in "fc":
        return values
    parts = np.ascontiguousarray(values)
    parts = parts.view(parts.real.dtype) if values.dtype.kind == "c" else parts
    missing = np.isnan(parts)
    if not missing.any():
        return values
    made = np.where(missing, parts.dtype.type(np.nan), parts)
    return np.asarray(made.view(values.dtype).reshape(values.shape))


@dataclass(frozen=True)
class Comparison:
    """Two sides and how they are compared; sides are numbered, 0 is how it should be.

    Attributes:
        sides: The recordings.
        rules: What may differ.
        labels: What to call the sides.
        progress: Is called with what is being done, and how many rows of how many.
        columns: How each column is compared; none before the schemas were.
    """

    sides: tuple[Recording, Recording]
    rules: Rules
    labels: tuple[str, str]
    progress: Progress
    columns: Mapping[str, ColumnPlan] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, str]:
        """What to call the sides within a sentence."""
        first, second = (f"the {n} side" if n in {"first", "second"} else n for n in self.labels)
        return first, second

    @cached_property
    def shards_are_exact(self) -> bool:
        """Whether every rank must have the same rows on both sides."""
        a, b = self.sides
        is_asked = self.rules.shards == "exact" and not self.rules.allows(Effect.SHARDS)
        return is_asked and a.ranks == b.ranks

    @cached_property
    def why_any_order(self) -> str:
        """Why the order of rows is not compared; empty if it is."""
        a, b = self.sides
        if self.rules.order == "shuffled":
            return "rows may come in any order"
        if allowed := self.rules.allows(Effect.ORDER):
            return f"{allowed} is allowed"
        if a.ranks != b.ranks:
            return f"{counted(a.ranks, 'rank')} cannot be in the order of {b.ranks}"
        if a.ranks > 1 and not self.shards_are_exact:
            return "rows may be on any rank"
        return ""

    def shared(self) -> list[tuple[int, int, int]]:
        """Return where the stretches begin on both sides that should hold the same rows, and their numbers of rows.

        One for each rank if both sides have as many ranks, else one for everything.
        """
        a, b = self.sides
        if a.ranks != b.ranks:
            return [(0, 0, min(a.rows, b.rows))]
        starts = [side.rank_starts.tolist() for side in self.sides]
        rows = np.minimum(*(np.diff(side.rank_starts) for side in self.sides)).tolist()
        return list(zip(starts[0], starts[1], rows, strict=False))

    def _prepared(self, block: Block) -> dict[str, Cells]:
        return {name: plan.prepare(block.columns[name]) for name, plan in self.columns.items()}

    def walk(self) -> Iterator[tuple[tuple[Array, Array], dict[str, Cells], dict[str, Cells]]]:
        """Yield which rows are at the same place of the same rank, and the columns of both sides there."""
        a, b = self.sides
        done, total = 0, min(a.rows, b.rows)
        for first, second, rows in self.shared():
            at = 0
            while at < rows:
                left = a.block(first + at, min(BLOCK_ROWS, rows - at), self.columns)
                right = b.block(second + at, left.rows, self.columns)
                if right.rows < left.rows:
                    left = a.block(first + at, right.rows, self.columns)
                places = np.arange(left.rows)
                indices = left.start + places, right.start + places
                yield indices, self._prepared(left), self._prepared(right)
                at += left.rows
                done += left.rows
                self.progress("comparing", done, total)

    def read(
        self, side: int, what: str, where: Array | None = None
    ) -> Iterator[tuple[Array, dict[str, Cells]]]:
        """Yield rows of a side and their columns, block by block.

        Args:
            side: Which.
            what: What it is for, to report as progress.
            where: Which rows are wanted, bool; all by default.
        """
        recording = self.sides[side]
        for block in recording.blocks(BLOCK_ROWS, self.columns):
            end = block.start + block.rows
            if where is None:
                yield np.arange(block.start, end), self._prepared(block)
            elif len(wanted := np.flatnonzero(where[block.start : end])):
                cells = {name: c.take(wanted) for name, c in self._prepared(block).items()}
                yield block.start + wanted, cells
            self.progress(what, end, recording.rows)

    def gather(self, side: int, rows: Array) -> dict[str, Cells]:
        """Return the columns of at least one row of a side, in the order in which the rows are named."""
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        parts: list[dict[str, Cells]] = []
        at = 0
        while at < len(wanted):
            block = self.sides[side].block(int(wanted[at]), BLOCK_ROWS, self.columns)
            end = int(np.searchsorted(wanted, block.start + block.rows))
            places = wanted[at:end] - block.start
            parts.append({name: c.take(places) for name, c in self._prepared(block).items()})
            at = end
        back = np.argsort(order)
        return {name: concat([part[name] for part in parts]).take(back) for name in self.columns}

    def unequal(self, a: Mapping[str, Cells], b: Mapping[str, Cells]) -> dict[str, Array]:
        """Say for each column in which rows it differs."""
        return {name: unequal(a[name], b[name], c.tolerance) for name, c in self.columns.items()}
