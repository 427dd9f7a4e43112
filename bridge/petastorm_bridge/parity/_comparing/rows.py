"""Which rows have a counterpart on the other side: the heart of count, rows, order and values."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace

import numpy as np

from petastorm_bridge.parity._recordings.cells import Array
from petastorm_bridge.parity._recordings.hashing import hash_rows, hashes, mix
from petastorm_bridge.parity._recordings.recording import CannotCompareError, Recording

from .matching import Matches, Spill, match
from .plan import ColumnPlan, Plan
from .rules import Rules
from .walk import (
    BLOCK_ROWS,
    ColumnStats,
    Progress,
    compare_columns,
    gather,
    row_hashes,
    segments,
    walk,
)

_FEW = 2000  # rows without a counterpart that are looked at one by one
_MANY = 200_000
_GATHER_BYTES = 128 << 20


@dataclass(frozen=True)
class Comparison:
    """What is compared: both sides and the plan, a way to report progress, a temporary directory."""

    a: Recording
    b: Recording
    plan: Plan
    progress: Progress | None = None
    folder: str = ""


@dataclass
class Rows:
    """What became of the rows of both sides.

    Attributes:
        missing: Rows of the first side without a counterpart, ascending.
        extra: Rows of the second side without one, ascending.
        missing_repeats: How many of `missing` are equal to another row that the second side has.
        extra_repeats: How many of `extra` are equal to a row that the first side has.
        moved: Equal rows that are at different places.
        first_moved: The first of them: its places on both sides.
        strayed: Equal rows on different ranks.
        first_strayed: The first of them.
        stats: The values of the rows that belong together, by column.
        ambiguous: Rows of equal keys that were put together in the order they came in.
        agreeing: Of shuffled rows, the columns that hold the same values as a whole.
    """

    stats: dict[str, ColumnStats]
    missing: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    extra: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    missing_repeats: int = 0
    extra_repeats: int = 0
    moved: int = 0
    first_moved: tuple[int, int] | None = None
    strayed: int = 0
    first_strayed: tuple[int, int] | None = None
    ambiguous: int = 0
    agreeing: tuple[str, ...] | None = None


def compare_in_order(comparison: Comparison) -> Rows:
    """Compare rows that should be at the same places.

    Rows that agree where they are need no more attention; only the others are looked for.
    """
    a, b, plan = comparison.a, comparison.b, comparison.plan
    stats = {name: ColumnStats() for name in plan.names}
    differs = np.ones(a.rows, np.bool_)
    partly = np.zeros(a.rows, np.bool_)  # some column agrees at that place
    for pair in walk(a, b, plan, comparison.progress):
        by_name = compare_columns(plan, pair.a, pair.b)
        places = np.arange(pair.rows)
        rows = pair.start_a + places, pair.start_b + places
        for name, differ in by_name.items():
            stats[name].add(pair.a[name], pair.b[name], differ, rows)
        columns = np.stack(list(by_name.values()))
        differs[pair.start_a : pair.start_a + pair.rows] = columns.any(axis=0)
        partly[pair.start_a : pair.start_a + pair.rows] = ~columns.all(axis=0)
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
    columns = (plan.columns,)
    left = _spill(comparison, a, columns, differs)
    right = _spill(comparison, b, columns, differs_b)
    matches = match(
        left, right, (a.rows, b.rows), (a.rank_starts, b.rank_starts), comparison.folder
    )
    repeats = _repeats(comparison, matches)
    changed = _changed_in_place(comparison, partly, matches, repeats)
    if matches.moved or matches.missing.any() or matches.extra.any():
        # What differs place by place says nothing once rows have moved.
        stats = _fresh_stats(plan, a.rows - int(differs.sum()) + matches.moved)
        _compare_pairs(comparison, changed, stats)
        _pair_similar(comparison, matches, repeats, stats)
    return _rows(matches, repeats, stats)


def _fresh_stats(plan: Plan, compared: int) -> dict[str, ColumnStats]:
    return {name: ColumnStats(compared=max(0, compared)) for name in plan.names}


def _rows(matches: Matches, repeats: tuple[Array, Array], stats: dict[str, ColumnStats]) -> Rows:
    missing, extra = np.flatnonzero(matches.missing), np.flatnonzero(matches.extra)
    return Rows(
        stats,
        missing,
        extra,
        int(np.isin(repeats[0], missing).sum()),
        int(np.isin(repeats[1], extra).sum()),
        matches.moved,
        matches.first_moved,
        matches.strayed,
        matches.first_strayed,
        matches.ambiguous,
    )


def _spill(
    comparison: Comparison,
    side: Recording,
    columns: tuple[tuple[ColumnPlan, ...], ...],
    where: Array | None = None,
) -> Spill:
    """Write the hashes of rows to disk: of the first columns as key, of all of the last in full."""
    # Both sides are cut into as many parts.
    name = "a" if side is comparison.a else "b"
    spill = Spill(comparison.folder, name, max(comparison.a.rows, comparison.b.rows))
    for block in side.blocks(BLOCK_ROWS, frozenset(comparison.plan.names)):
        chosen = np.arange(block.rows)
        if where is not None:
            chosen = np.flatnonzero(where[block.start : block.start + block.rows])
        if len(chosen):
            cells = {c.name: c.prepare(block) for c in comparison.plan.columns}
            if len(chosen) < block.rows:
                cells = {key: value.take(chosen) for key, value in cells.items()}
            group_hashes = [row_hashes(cells, group, len(chosen)) for group in columns]
            spill.add(group_hashes[0], group_hashes[-1], block.start + chosen)
        if comparison.progress:
            comparison.progress("looking for rows", block.start + block.rows, side.rows)
    return spill


def _repeats(comparison: Comparison, matches: Matches) -> tuple[Array, Array]:
    """Return the rows without counterpart that the other side has, only not so often."""
    left = _known_elsewhere(comparison, comparison.a, comparison.b, np.flatnonzero(matches.missing))
    right = _known_elsewhere(comparison, comparison.b, comparison.a, np.flatnonzero(matches.extra))
    return left, right


def _known_elsewhere(
    comparison: Comparison, side: Recording, other: Recording, rows: Array
) -> Array:
    plan = comparison.plan
    if not len(rows) or len(rows) > _MANY:
        return np.zeros(0, np.int64)
    wanted = row_hashes(gather(side, plan, rows), plan.columns, len(rows))
    present = np.zeros(0, np.uint64)
    for block in other.blocks(BLOCK_ROWS, frozenset(plan.names)):
        cells = {c.name: c.prepare(block) for c in plan.columns}
        of_block = row_hashes(cells, plan.columns, block.rows)
        present = np.union1d(present, of_block[np.isin(of_block, wanted)])
    return np.asarray(rows[np.isin(wanted, present)])


def _changed_in_place(
    comparison: Comparison, partly: Array, matches: Matches, repeats: tuple[Array, Array]
) -> Array:
    """Return the rows that changed where they are, int64 [n, 2]; they no longer count as missing.

    At least one column must agree, if there are two.
    """
    changed = []
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


def _pair_similar(
    comparison: Comparison,
    matches: Matches,
    repeats: tuple[Array, Array],
    stats: dict[str, ColumnStats],
) -> None:
    """Take rows without counterpart for changed ones if at least half of their columns agree."""
    columns = comparison.plan.columns
    left = np.setdiff1d(np.flatnonzero(matches.missing), repeats[0])
    right = np.setdiff1d(np.flatnonzero(matches.extra), repeats[1])
    if not len(left) or not len(right) or max(len(left), len(right)) > _FEW or len(columns) < 2:
        return
    cells = (
        gather(comparison.a, comparison.plan, left),
        gather(comparison.b, comparison.plan, right),
    )
    alike = np.zeros((len(left), len(right)), np.int32)
    for column in columns:
        sides = [hashes(side[column.name]) for side in cells]
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
    if not set(rules.key) <= set(plan.names):
        # A column of another dtype, or that one side lacks, tells nothing; the schema says so.
        rules = replace(rules, key=())
    sums = [_sums(side, plan, comparison.progress) for side in (a, b)]
    agreeing = tuple(n for n in plan.names if a.rows == b.rows and sums[0][n] == sums[1][n])
    shards_matter = rules.shards == "exact" and a.ranks == b.ranks > 1
    if a.rows == b.rows and sums[0][""] == sums[1][""] and not shards_matter:
        return Rows({name: ColumnStats(compared=a.rows) for name in plan.names})
    columns = (_key(plan, rules, agreeing), plan.columns)
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        comparison = replace(comparison, folder=folder)
        left, right = _spill(comparison, a, columns), _spill(comparison, b, columns)
        # Without a key by name, or tolerances, few columns that happen to agree prove nothing.
        unique = not rules.key and all(c.tolerance is None for c in plan.columns)
        matches = match(
            left,
            right,
            (a.rows, b.rows),
            (a.rank_starts, b.rank_starts),
            folder,
            unique=unique,
        )
        stats = _fresh_stats(plan, matches.moved)
        for pairs in matches.pair_slices(1 << 20):
            _compare_pairs(comparison, pairs, stats)
        repeats = _repeats(comparison, matches)
        _pair_similar(comparison, matches, repeats, stats)
        rows = _rows(matches, repeats, stats)
    rows.agreeing = agreeing
    return rows


def _sums(side: Recording, plan: Plan, progress: Progress | None) -> dict[str, int]:
    """Return a digest of each column's values in any order, and under '' of the rows."""
    totals = dict.fromkeys([*plan.names, ""], 0)
    for block in side.blocks(BLOCK_ROWS, frozenset(plan.names)):
        column_hashes = {c.name: hashes(c.prepare(block)) for c in plan.columns}
        for name, values in [*column_hashes.items(), ("", hash_rows(column_hashes))]:
            totals[name] += int(mix(values.copy()).sum(dtype=np.uint64))
        if progress:
            progress("counting rows", block.start + block.rows, side.rows)
    return {name: total % 2**64 for name, total in totals.items()}


def _key(plan: Plan, rules: Rules, agreeing: tuple[str, ...]) -> tuple[ColumnPlan, ...]:
    """Choose the columns that tell which row is which."""
    if rules.key:
        return tuple(plan[name] for name in rules.key)
    exact = tuple(c for c in plan.columns if c.tolerance is None)
    if not exact:
        raise CannotCompareError(
            "rows in any order with a tolerance for every column cannot be told apart; name a "
            "column that is the same on both sides (--key id)"
        )
    agree = set(agreeing)
    return tuple(c for c in exact if c.name in agree) or exact
