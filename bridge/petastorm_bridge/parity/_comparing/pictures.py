"""What the page shows besides numbers: rows that differ, ranges and histograms of the columns.

For people who would rather look than read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from petastorm_bridge.parity._recordings.cells import Array, Cells
from petastorm_bridge.parity._recordings.recording import Recording
from petastorm_bridge.parity._result import ColumnResult, Profile, Sample

from .comparison import BLOCK_ROWS, Comparison, Progress
from .describe import describe_value, place_text, show
from .rows import EXAMPLES, Rows

_CHANGED = 6  # rows of both sides
_ALONE = 3  # rows that one side has, of each
_DIFFERING = 12  # columns
_AGREEING = 3
BINS = 24


def samples(c: Comparison, rows: Rows) -> tuple[tuple[str, ...], tuple[Sample, ...]]:
    """Return the columns that are shown, and rows that differ; both sides are read once more, at these rows only."""
    pairs = _pairs(rows)
    if not (len(pairs) or any(map(len, rows.alone))):
        return (), ()
    cells = [c.gather(side, pairs[:, side]) if len(pairs) else {} for side in range(2)]
    differ = c.unequal(*cells) if len(pairs) else {}
    differing = [name for name, of_column in differ.items() if of_column.any()]
    agreeing = [name for name in c.columns if name not in differing]
    keys = [name for name in c.rules.key if name in agreeing]  # a few that tell the rows apart
    names = tuple((keys or agreeing)[:_AGREEING] + differing[:_DIFFERING])
    examples = []
    for at, places in enumerate(pairs.tolist()):
        differs = tuple(bool(differ[name][at]) for name in names)
        texts = []
        for name, other in zip(names, differs, strict=True):
            one, two = (of_side[name].cell(at) for of_side in cells)
            texts.append(describe_value(one, two) if other else (show(one), show(two)))
        first, second = (place_text(side, row) for side, row in zip(c.sides, places, strict=True))
        a, b = (tuple(text[side] for text in texts) for side in range(2))
        examples.append(Sample(first, second, a, b, differs))
    return names, (*examples, *_alone(c, rows, names))


def _pairs(rows: Rows) -> Array:
    """Return places on both sides, int64 [n, 2]: of every column in turn, so that none takes all the room."""
    examples = [stats.examples for stats in rows.stats.values()]
    in_turn = (pairs[turn] for turn in range(EXAMPLES) for pairs in examples if turn < len(pairs))
    return np.array(sorted(list(dict.fromkeys(in_turn))[:_CHANGED]), np.int64).reshape(-1, 2)


def _alone(c: Comparison, rows: Rows, names: Sequence[str]) -> Iterator[Sample]:
    """Yield some rows that only one side has."""
    nothing = ("",) * len(names)
    for side, alone in enumerate(rows.alone):
        shown = alone[:_ALONE]
        cells = c.gather(side, shown) if len(shown) else {}
        for at, row in enumerate(shown.tolist()):
            place, texts = (
                place_text(c.sides[side], row),
                tuple(show(cells[n].cell(at)) for n in names),
            )
            given = (place, "", texts, nothing) if side == 0 else ("", place, nothing, texts)
            yield Sample(*given, (False,) * len(names))


@dataclass
class _Facts:
    """One side of a column: its types, and of all its values the missing ones, the range and the histogram."""

    shape: list[Any]
    dtypes: list[str]
    kinds: list[str]
    nulls: int = 0
    nans: int = 0
    least: Any = None
    greatest: Any = None
    bins: Array | None = None

    def add(self, cells: Cells) -> None:
        """Take the column of some rows."""
        values = _measured(cells)
        if cells.kind == "number":
            self.nulls += cells.values.size - values.size if cells.values.dtype.kind in "mM" else 0
        else:
            missing = [v is None for v in cells.values] if cells.kind == "ragged" else None
            self.nulls += cells.values.null_count if missing is None else sum(missing)
        if values.dtype.kind == "f":
            self.nans += int(np.isnan(values).sum())
            values = values[np.isfinite(values)]
        if values.size:
            # A long double has no item of Python's.
            least, greatest = (
                bound.item() if values.itemsize <= 8 else float(bound)
                for bound in (values.min(), values.max())
            )
            self.least = least if self.least is None else min(self.least, least)
            self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)

    def count(self, cells: Cells, edges: Array) -> None:
        """Count the column of some rows in bins."""
        values = _measured(cells)
        inside = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        counts = np.histogram(inside.astype(np.float64), edges)[0]
        self.bins = counts if self.bins is None else self.bins + counts

    @property
    def are_times(self) -> bool:
        """Whether all values are times or durations, which are measured as integers."""
        return all(dtype.startswith(("datetime64", "timedelta64")) for dtype in self.dtypes)

    def text(self, bound: Any) -> str:
        """Write the least or the greatest value in words."""
        if bound is None:
            return ""
        if self.are_times:
            return str(np.int64(bound).view(self.dtypes[0]))
        return f"{bound:.6g}" if isinstance(bound, float) else str(bound)

    @property
    def profile(self) -> Profile:
        """What reports show."""
        return Profile(
            "|".join(self.dtypes),
            str(self.shape).replace("None", "?") if self.shape else "",
            self.nulls,
            self.nans,
            self.text(self.least),
            self.text(self.greatest),
            () if self.bins is None else tuple(self.bins.tolist()),
        )


def profiled(columns: Sequence[ColumnResult], c: Comparison) -> tuple[ColumnResult, ...]:
    """Return the columns with their ranges and histograms; both sides are read twice more."""
    facts = [_facts(side, c.progress) for side in c.sides]
    given = {n.name: [side[n.name] for side in facts if n.name in side] for n in columns}
    edges = {name: _edges(of_column) for name, of_column in given.items()}
    for side, of_side in zip(c.sides, facts, strict=True):
        for block in side.blocks(BLOCK_ROWS):
            for name, cells in block.columns.items():
                where = edges[name]
                if where is not None:
                    of_side[name].count(cells, where)
            c.progress("drawing", block.start + block.rows, side.rows)
    return tuple(_profiled(column, facts, given[column.name]) for column in columns)


def _profiled(
    column: ColumnResult, facts: Sequence[dict[str, _Facts]], given: list[_Facts]
) -> ColumnResult:
    one, other = (side[column.name].profile if column.name in side else None for side in facts)
    if all(f.bins is None for f in given):
        return replace(column, a=one, b=other)
    measures = "values" if all(f.kinds == ["number"] for f in given) else "lengths"
    return replace(column, a=one, b=other, measures=measures, axis=_axis(given))


def _axis(facts: list[_Facts]) -> tuple[str, str]:
    """Return the least and the greatest value of both sides, in words; none of dates beside numbers."""
    given = [each for each in facts if each.least is not None]
    if len({each.are_times for each in given}) > 1:
        return "", ""
    least = min(given, key=lambda each: float(each.least))
    greatest = max(given, key=lambda each: float(each.greatest))
    return least.text(least.least), greatest.text(greatest.greatest)


def _facts(side: Recording, progress: Progress) -> dict[str, _Facts]:
    """Return what is known of each column, of all ranks together."""
    by_name = {n: _Facts(c["shape"], c["dtypes"], c["kinds"]) for n, c in side.columns.items()}
    for block in side.blocks(BLOCK_ROWS):
        for name, cells in block.columns.items():
            by_name[name].add(cells)
        progress("measuring", block.start + block.rows, side.rows)
    return by_name


def _edges(facts: list[_Facts]) -> Array | None:
    least = [f.least for f in facts if f.least is not None]
    greatest = [f.greatest for f in facts if f.greatest is not None]
    if not least:
        return None
    low, high = float(min(least)), float(max(greatest))
    if not np.isfinite(high - low):
        return None
    whole = all(isinstance(v, int) for v in [*least, *greatest])
    if low == high:
        low, high = low - 0.5, high + 0.5
    elif whole and high - low < BINS:
        return np.arange(low - 0.5, high + 1)
    with np.errstate(over="ignore"):  # at the last edge, in whose place NumPy then puts the end
        return np.linspace(low, high, BINS + 1)


def _measured(cells: Cells) -> Array:
    if cells.kind == "number":
        kind = cells.values.dtype.kind
        if kind in "mM":
            given = cells.values[~np.isnat(cells.values)]
            return np.asarray(given.view(np.int64).reshape(-1))
        measurable = kind in "biuf" and cells.dtype != "bfloat16"  # whose values are bits
        return np.asarray(cells.values.reshape(-1)) if measurable else np.zeros(0)
    if cells.kind == "ragged":
        return np.array([v.size for v in cells.values if v is not None], np.int64)
    if cells.kind == "object":
        return np.zeros(0)
    length = pc.utf8_length if cells.kind == "text" else pc.binary_length
    return np.asarray(length(cells.values).drop_null().to_numpy(zero_copy_only=False))
