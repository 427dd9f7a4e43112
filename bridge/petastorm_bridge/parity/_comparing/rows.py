"""Which rows have a counterpart on the other side: the heart of count, rows, order and values."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from petastorm_bridge.parity._recordings.cells import Array, Cells, Distance, distance
from petastorm_bridge.parity._recordings.hashing import hash_rows, hashes, mix
from petastorm_bridge.parity._recordings.manifest import CannotCompareError
from petastorm_bridge.parity.recorder import counted

from .comparison import Comparison
from .matching import Matches, Spill, match

EXAMPLES = 5  # of each column
_FEW = 2000  # rows without a counterpart that are looked at one by one
_MANY = 200_000
_GATHER_BYTES = 128 << 20


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
    def alone(self) -> tuple[Array, Array]:
        """Rows of each side without a counterpart, ascending."""
        missing, extra = map(np.flatnonzero, self.matches.alone)
        return missing, extra


def compare_rows(c: Comparison) -> Rows:
    """Compare the rows of both sides: in their order, or in any if that is not asked for.

    Raises:
        CannotCompareError: Rows in any order have tolerances but no column that tells them apart.
    """
    if not c.columns:
        return Rows({})
    return _compare_shuffled(c) if c.why_any_order else _compare_in_order(c)


def _compare_in_order(c: Comparison) -> Rows:
    """Compare rows that should be at the same places.

    Rows that agree where they are need no more attention; only the others are looked for.
    """
    a, b = c.sides
    stats = _fresh_stats(c)
    differs = np.ones(a.rows, np.bool_), np.ones(b.rows, np.bool_)
    partly = np.zeros(a.rows, np.bool_)  # some column agrees at that place
    for rows, left, right in c.walk():
        by_name = c.unequal(left, right)
        for name, differ in by_name.items():
            stats[name].add(left[name], right[name], differ, rows)
        columns = np.stack(list(by_name.values()))
        for of_side, here in zip(differs, rows, strict=True):
            of_side[here] = columns.any(axis=0)
        partly[rows[0]] = ~columns.all(axis=0)
    if not differs[0].any() and a.rows == b.rows:
        return Rows(stats)
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        matches = _matches(c, folder, stats, where=differs)
        changed = _changed_in_place(c, partly, matches)
        if matches.moved or any(alone.any() for alone in matches.alone):
            # What differs place by place says nothing once rows have moved.
            stats = _fresh_stats(c, a.rows - int(differs[0].sum()) + matches.moved)
            _compare_pairs(c, changed, stats)
            _pair_similar(c, matches, stats)
    return Rows(stats, matches)


def _compare_shuffled(c: Comparison) -> Rows:
    """Compare rows that may come in any order.

    If the sides do not agree as a whole, rows are put together by the columns that do.
    """
    a, b = c.sides
    sums = [_sums(c, side) for side in range(2)]
    agreeing = tuple(n for n in c.columns if a.rows == b.rows and sums[0][n] == sums[1][n])
    shards_matter = c.shards_are_exact and a.ranks > 1
    if a.rows == b.rows and sums[0][""] == sums[1][""] and not shards_matter:
        return Rows(_fresh_stats(c, a.rows))
    # A column of another dtype, or that one side lacks, tells nothing; the schema says so.
    named = c.rules.key if set(c.rules.key) <= c.columns.keys() else ()
    key = named or _key(c, agreeing)
    # Without a key by name, or tolerances, few columns that happen to agree prove nothing.
    unique = not named and all(column.tolerance is None for column in c.columns.values())
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        stats = _fresh_stats(c)
        matches = _matches(c, folder, stats, key, unique=unique)
        for of_column in stats.values():
            of_column.compared += matches.moved
        _pair_similar(c, matches, stats)
    return Rows(stats, matches, agreeing)


def _sums(c: Comparison, side: int) -> dict[str, int]:
    """Return a digest of each column's values in any order, and under '' of the rows."""
    totals = dict.fromkeys([*c.columns, ""], 0)
    for _, columns in c.read(side, "counting rows"):
        by_name = _column_hashes(columns)
        for name, values in [*by_name.items(), ("", hash_rows(by_name))]:
            totals[name] += int(mix(values.copy()).sum(dtype=np.uint64))
    return {name: total % 2**64 for name, total in totals.items()}


def _key(c: Comparison, agreeing: Sequence[str]) -> Sequence[str]:
    """Choose the columns that tell which row is which."""
    exact = [name for name, column in c.columns.items() if column.tolerance is None]
    if not exact:
        raise CannotCompareError(
            "rows in any order with a tolerance for every column cannot be told apart; name a "
            "column that is the same on both sides (--key id)"
        )
    agree = set(agreeing)
    return [name for name in exact if name in agree] or exact


def _fresh_stats(c: Comparison, compared: int = 0) -> dict[str, ColumnStats]:
    return {name: ColumnStats(compared=compared) for name in c.columns}


def _column_hashes(columns: Mapping[str, Cells]) -> dict[str, Array]:
    return {name: hashes(cells) for name, cells in columns.items()}


def _matches(
    c: Comparison,
    folder: str,
    stats: dict[str, ColumnStats],
    key: Sequence[str] | None = None,
    where: tuple[Array | None, Array | None] = (None, None),
    *,
    unique: bool = False,
) -> Matches:
    """Match the rows of both sides, or those of them that `where` says, bool; by all columns without a key.

    Rows of the same key are compared on the way.
    """
    left, right = (_spill(c, side, folder, key, where[side]) for side in range(2))
    ranks = c.sides[0].rank_starts, c.sides[1].rank_starts
    matches = match(
        left, right, ranks, lambda pairs: _compare_pairs(c, pairs, stats), unique=unique
    )
    matches.repeats = _repeats(c, 0, matches.alone[0]), _repeats(c, 1, matches.alone[1])
    return matches


def _spill(
    c: Comparison, side: int, folder: str, key: Sequence[str] | None, where: Array | None
) -> Spill:
    """Hash the rows of a side; both sides are cut into as many parts."""
    spill = Spill(folder, str(side), max(recording.rows for recording in c.sides))
    for rows, columns in c.read(side, "looking for rows", where):
        by_name = _column_hashes(columns)
        full = hash_rows(by_name)
        of_key = full if key is None else hash_rows({name: by_name[name] for name in key})
        spill.add(of_key, full, rows)
    return spill


def _repeats(c: Comparison, side: int, alone: Array) -> Array:
    """Return those of a side's rows without counterpart that the other side has, only not so often."""
    rows = np.flatnonzero(alone)
    if not len(rows) or len(rows) > _MANY:
        return np.zeros(0, np.int64)
    wanted = hash_rows(_column_hashes(c.gather(side, rows)))
    present = np.zeros(0, np.uint64)
    for _, columns in c.read(1 - side, "looking for repeated rows"):
        of_block = hash_rows(_column_hashes(columns))
        present = np.union1d(present, of_block[np.isin(of_block, wanted)])
    return np.asarray(rows[np.isin(wanted, present)])


def _changed_in_place(c: Comparison, partly: Array, matches: Matches) -> Array:
    """Return the rows that changed where they are, int64 [n, 2]; they no longer count as missing.

    At least one column must agree, if there are two.
    """
    changed = []
    for first, second, rows in c.shared():
        alike = matches.alone[0][first : first + rows] & matches.alone[1][second : second + rows]
        if len(c.columns) > 1:
            alike &= partly[first : first + rows]
        places = np.flatnonzero(alike)
        together = np.stack([places + first, places + second], axis=1)
        repeated = [np.isin(together[:, side], matches.repeats[side]) for side in range(2)]
        changed.append(together[~(repeated[0] | repeated[1])])
    pairs = np.concatenate(changed)
    _take_together(matches, pairs)
    return np.asarray(pairs)


def _take_together(matches: Matches, pairs: Array) -> None:
    """Let rows no longer count as alone that belong together; int64 [n, 2]."""
    for side, alone in enumerate(matches.alone):
        alone[pairs[:, side]] = False


def _pair_similar(c: Comparison, matches: Matches, stats: dict[str, ColumnStats]) -> None:
    """Take rows without counterpart for changed ones if at least half of their columns agree."""
    left, right = (
        np.setdiff1d(np.flatnonzero(alone), repeats)
        for alone, repeats in zip(matches.alone, matches.repeats, strict=True)
    )
    if not len(left) or not len(right) or max(len(left), len(right)) > _FEW or len(c.columns) < 2:
        return
    sides = [_column_hashes(c.gather(side, rows)) for side, rows in enumerate((left, right))]
    alike = np.zeros((len(left), len(right)), np.int32)
    for name in c.columns:
        alike += sides[0][name][:, None] == sides[1][name][None, :]
    pairs = []
    for row in range(len(left)):
        best = int(np.argmax(alike[row]))
        if 2 * alike[row, best] >= len(c.columns):
            pairs.append((left[row], right[best]))
            alike[:, best] = -1
    if pairs:
        together = np.array(pairs)
        _take_together(matches, together)
        _compare_pairs(c, together, stats)


def _compare_pairs(c: Comparison, pairs: Array, stats: dict[str, ColumnStats]) -> None:
    """Compare the values of rows that belong together; int64 [n, 2]."""
    limit = int(np.clip(_GATHER_BYTES // max(1, c.sides[0].row_bytes), 1000, 1 << 20))
    for start in range(0, len(pairs), limit):
        rows = pairs[start : start + limit, 0], pairs[start : start + limit, 1]
        left, right = c.gather(0, rows[0]), c.gather(1, rows[1])
        for name, differ in c.unequal(left, right).items():
            stats[name].add(left[name], right[name], differ, rows)
