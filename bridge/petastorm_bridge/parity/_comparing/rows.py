"""Which rows have a counterpart on the other side: the heart of count, rows, order and values."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from petastorm_bridge.parity._recordings.cells import Array, Cells
from petastorm_bridge.parity._recordings.hashing import hash_rows, hashes, mix
from petastorm_bridge.parity._recordings.manifest import CannotCompareError
from petastorm_bridge.parity._recordings.recording import Block, Recording

from .matching import Matches, Spill, match
from .plan import Plan
from .rules import Rules
from .walk import BLOCK_ROWS, ColumnStats, Progress, compare_columns, gather, segments, walk

_FEW = 2000  # rows without a counterpart that are looked at one by one
_MANY = 200_000
_GATHER_BYTES = 128 << 20


@dataclass(frozen=True)
class Comparison:
    """What is compared: both sides and the plan, a way to report progress, a temporary directory."""

    a: Recording
    b: Recording
    plan: Plan
    progress: Progress
    folder: str = ""

    def blocks(self, side: Recording, what: str, where: Array | None = None) -> Iterator[Block]:
        """Yield blocks of a side in the form in which they are compared, and report that as progress.

        Those of all rows, or those that have rows for which ``where`` is true.
        """
        for block in side.blocks(BLOCK_ROWS, self.plan.columns):
            if where is None or where[block.start : block.start + block.rows].any():
                yield self.plan.prepare(block)
            self.progress(what, block.start + block.rows, side.rows)


@dataclass
class Rows:
    """What became of the rows of both sides.

    Attributes:
        stats: The values of the rows that belong together, by column.
        matches: Which rows are equal, at their places or elsewhere.
        agreeing: Of shuffled rows, the columns that hold the same values as a whole.
    """

    stats: dict[str, ColumnStats]
    matches: Matches = field(default_factory=Matches)
    agreeing: tuple[str, ...] | None = None

    @cached_property
    def missing(self) -> Array:
        """Rows of the first side without a counterpart, ascending."""
        return np.flatnonzero(self.matches.missing)

    @cached_property
    def extra(self) -> Array:
        """Rows of the second side without one, ascending."""
        return np.flatnonzero(self.matches.extra)


def compare_in_order(comparison: Comparison) -> Rows:
    """Compare rows that should be at the same places.

    Rows that agree where they are need no more attention; only the others are looked for.
    """
    a, b, plan = comparison.a, comparison.b, comparison.plan
    stats = _fresh_stats(plan)
    differs = np.ones(a.rows, np.bool_)
    partly = np.zeros(a.rows, np.bool_)  # some column agrees at that place
    for left, right in walk(a, b, plan, comparison.progress):
        by_name = compare_columns(plan, left.columns, right.columns)
        places = np.arange(left.rows)
        rows = left.start + places, right.start + places
        here = slice(left.start, left.start + left.rows)
        for name, differ in by_name.items():
            stats[name].add(left.columns[name], right.columns[name], differ, rows)
        columns = np.stack(list(by_name.values()))
        differs[here] = columns.any(axis=0)
        partly[here] = ~columns.all(axis=0)
    if not differs.any() and a.rows == b.rows:
        return Rows(stats)
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        return _look_for(replace(comparison, folder=folder), stats, differs, partly)


def _look_for(
    comparison: Comparison, stats: dict[str, ColumnStats], differs: Array, partly: Array
) -> Rows:
    """Look for the rows that differ where they are."""
    a, b, plan = comparison.a, comparison.b, comparison.plan
    differs_b = np.ones(b.rows, np.bool_)
    for first_a, rows_a, first_b, rows_b in segments(a, b):
        rows = min(rows_a, rows_b)
        differs_b[first_b : first_b + rows] = differs[first_a : first_a + rows]
    matches = _matches(comparison, where=(differs, differs_b))
    changed = _changed_in_place(comparison, partly, matches)
    if matches.moved or matches.missing.any() or matches.extra.any():
        # What differs place by place says nothing once rows have moved.
        stats = _fresh_stats(plan, a.rows - int(differs.sum()) + matches.moved)
        _compare_pairs(comparison, changed, stats)
        _pair_similar(comparison, matches, stats)
    return Rows(stats, matches)


def _fresh_stats(plan: Plan, compared: int = 0) -> dict[str, ColumnStats]:
    return {name: ColumnStats(compared=compared) for name in plan.columns}


def _matches(
    comparison: Comparison,
    key: Sequence[str] | None = None,
    where: tuple[Array | None, Array | None] = (None, None),
    *,
    unique: bool = False,
) -> Matches:
    """Match the rows of both sides, or those of them that `where` says, bool; by all columns without a key."""
    a, b, folder = comparison.a, comparison.b, comparison.folder
    # Both sides are cut into as many parts.
    left, right = (Spill(folder, name, max(a.rows, b.rows)) for name in "ab")
    _add_hashes(comparison, left, a, key, where[0])
    _add_hashes(comparison, right, b, key, where[1])
    matches = match(left, right, (a.rank_starts, b.rank_starts), folder, unique=unique)
    matches.repeats = (
        _known_elsewhere(comparison, a, b, np.flatnonzero(matches.missing)),
        _known_elsewhere(comparison, b, a, np.flatnonzero(matches.extra)),
    )
    return matches


def _add_hashes(
    comparison: Comparison,
    spill: Spill,
    side: Recording,
    key: Sequence[str] | None,
    where: Array | None,
) -> None:
    for block in comparison.blocks(side, "looking for rows", where):
        cells, rows = block.columns, np.arange(block.rows)
        if where is not None:
            rows = np.flatnonzero(where[block.start : block.start + block.rows])
            cells = {name: column.take(rows) for name, column in cells.items()}
        by_name = _column_hashes(cells)
        full = hash_rows(by_name)
        of_key = full if key is None else hash_rows({name: by_name[name] for name in key})
        spill.add(of_key, full, block.start + rows)


def _column_hashes(columns: Mapping[str, Cells]) -> dict[str, Array]:
    """Hash some rows column by column; uint64 [rows] each."""
    return {name: hashes(cells) for name, cells in columns.items()}


def _known_elsewhere(
    comparison: Comparison, side: Recording, other: Recording, rows: Array
) -> Array:
    """Return those of some rows without counterpart that the other side has, only not so often."""
    if not len(rows) or len(rows) > _MANY:
        return np.zeros(0, np.int64)
    wanted = hash_rows(_column_hashes(gather(side, comparison.plan, rows)))
    present = np.zeros(0, np.uint64)
    for block in comparison.blocks(other, "looking for repeated rows"):
        of_block = hash_rows(_column_hashes(block.columns))
        present = np.union1d(present, of_block[np.isin(of_block, wanted)])
    return np.asarray(rows[np.isin(wanted, present)])


def _changed_in_place(comparison: Comparison, partly: Array, matches: Matches) -> Array:
    """Return the rows that changed where they are, int64 [n, 2]; they no longer count as missing.

    At least one column must agree, if there are two.
    """
    changed, repeats = [], matches.repeats
    for first_a, rows_a, first_b, rows_b in segments(comparison.a, comparison.b):
        rows = min(rows_a, rows_b)
        alike = matches.missing[first_a : first_a + rows] & matches.extra[first_b : first_b + rows]
        if len(comparison.plan.columns) > 1:
            alike &= partly[first_a : first_a + rows]
        places = np.flatnonzero(alike)
        known = np.isin(places + first_a, repeats[0]) | np.isin(places + first_b, repeats[1])
        places = places[~known]
        changed.append(np.stack([places + first_a, places + first_b], axis=1))
    pairs = np.concatenate(changed)
    matches.missing[pairs[:, 0]] = False
    matches.extra[pairs[:, 1]] = False
    return np.asarray(pairs)


def _pair_similar(comparison: Comparison, matches: Matches, stats: dict[str, ColumnStats]) -> None:
    """Take rows without counterpart for changed ones if at least half of their columns agree."""
    columns = comparison.plan.columns
    left = np.setdiff1d(np.flatnonzero(matches.missing), matches.repeats[0])
    right = np.setdiff1d(np.flatnonzero(matches.extra), matches.repeats[1])
    if not len(left) or not len(right) or max(len(left), len(right)) > _FEW or len(columns) < 2:
        return
    cells = (
        gather(comparison.a, comparison.plan, left),
        gather(comparison.b, comparison.plan, right),
    )
    alike = np.zeros((len(left), len(right)), np.int32)
    for name in columns:
        sides = [hashes(side[name]) for side in cells]
        alike += sides[0][:, None] == sides[1][None, :]
    pairs = []
    for row in range(len(left)):
        best = int(np.argmax(alike[row]))
        if 2 * alike[row, best] >= len(columns):
            pairs.append((left[row], right[best]))
            alike[:, best] = -1
    if pairs:
        together = np.array(pairs)
        matches.missing[together[:, 0]] = False
        matches.extra[together[:, 1]] = False
        _compare_pairs(comparison, together, stats)


def _compare_pairs(comparison: Comparison, pairs: Array, stats: dict[str, ColumnStats]) -> None:
    """Compare the values of rows that belong together; int64 [n, 2]."""
    limit = int(np.clip(_GATHER_BYTES // max(1, comparison.a.row_bytes), 1000, 1 << 20))
    for start in range(0, len(pairs), limit):
        rows = pairs[start : start + limit, 0], pairs[start : start + limit, 1]
        left, right = (
            gather(comparison.a, comparison.plan, rows[0]),
            gather(comparison.b, comparison.plan, rows[1]),
        )
        for name, differ in compare_columns(comparison.plan, left, right).items():
            stats[name].add(left[name], right[name], differ, rows)


def compare_shuffled(comparison: Comparison, rules: Rules) -> Rows:
    """Compare rows that may come in any order.

    If the sides do not agree as a whole, rows are put together by the columns that do.

    Raises:
        CannotCompareError: There are tolerances but no column that tells the rows apart.
    """
    a, b, plan = comparison.a, comparison.b, comparison.plan
    if not set(rules.key) <= plan.columns.keys():
        # A column of another dtype, or that one side lacks, tells nothing; the schema says so.
        rules = replace(rules, key=())
    sums = [_sums(comparison, side) for side in (a, b)]
    agreeing = tuple(n for n in plan.columns if a.rows == b.rows and sums[0][n] == sums[1][n])
    shards_matter = rules.shards == "exact" and a.ranks == b.ranks > 1
    if a.rows == b.rows and sums[0][""] == sums[1][""] and not shards_matter:
        return Rows(_fresh_stats(plan, a.rows))
    key = _key(plan, rules, agreeing)
    # Without a key by name, or tolerances, few columns that happen to agree prove nothing.
    unique = not rules.key and all(c.tolerance is None for c in plan.columns.values())
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        comparison = replace(comparison, folder=folder)
        matches = _matches(comparison, key, unique=unique)
        stats = _fresh_stats(plan, matches.moved)
        for pairs in matches.pair_slices(1 << 20):
            _compare_pairs(comparison, pairs, stats)
        _pair_similar(comparison, matches, stats)
    return Rows(stats, matches, agreeing)


def _sums(comparison: Comparison, side: Recording) -> dict[str, int]:
    """Return a digest of each column's values in any order, and under '' of the rows."""
    totals = dict.fromkeys([*comparison.plan.columns, ""], 0)
    for block in comparison.blocks(side, "counting rows"):
        by_name = _column_hashes(block.columns)
        for name, values in [*by_name.items(), ("", hash_rows(by_name))]:
            totals[name] += int(mix(values.copy()).sum(dtype=np.uint64))
    return {name: total % 2**64 for name, total in totals.items()}


def _key(plan: Plan, rules: Rules, agreeing: Sequence[str]) -> Sequence[str]:
    """Choose the columns that tell which row is which."""
    if rules.key:
        return rules.key
    exact = [name for name, column in plan.columns.items() if column.tolerance is None]
    if not exact:
        raise CannotCompareError(
            "rows in any order with a tolerance for every column cannot be told apart; name a "
            "column that is the same on both sides (--key id)"
        )
    agree = set(agreeing)
    return [name for name in exact if name in agree] or exact
