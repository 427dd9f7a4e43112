"""Find equal rows of two sides wherever they are, by hash, with temporary files for what is large."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from petastorm_bridge.parity._recordings.cells import Array

_RECORD = np.dtype([("key", "<u8"), ("full", "<u8"), ("row", "<i8")])
_PARTITION_ROWS = 1 << 20


class Spill:
    """Hashes of rows on disk, in parts of about a million rows that hold equal keys together.

    Args:
        folder: Temporary directory.
        name: Tells the sides apart.
        rows: About how many rows will come.
    """

    def __init__(self, folder: str, name: str, rows: int) -> None:
        self._bits = max(0, int(np.ceil(np.log2(max(1, rows / _PARTITION_ROWS)))))
        self._paths = [os.path.join(folder, f"{name}-{i}") for i in range(1 << self._bits)]
        for path in self._paths:
            with open(path, "wb"):
                pass

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, key: Array, full: Array, rows: Array) -> None:
        """Take rows: the hash of their key, the hash of all their columns, and their indices."""
        records = np.empty(len(rows), _RECORD)
        records["key"], records["full"], records["row"] = key, full, rows
        if not self._bits:
            self._append(0, records)
            return
        parts = (key >> np.uint64(64 - self._bits)).astype(np.int64)
        order = np.argsort(parts, kind="stable")
        ends = np.searchsorted(parts[order], np.arange(len(self) + 1))
        for part in range(len(self)):
            self._append(part, records[order[ends[part] : ends[part + 1]]])

    def _append(self, part: int, records: Array) -> None:
        with open(self._paths[part], "ab") as file:
            records.tofile(file)

    def part(self, index: int) -> Array:
        """Return the records of one part, by key, full hash and row."""
        records = np.fromfile(self._paths[index], _RECORD)
        return np.asarray(records[np.lexsort((records["row"], records["full"], records["key"]))])


@dataclass
class Matches:
    """What matching found; indices are rows of the two sides.

    Attributes:
        moved: How many rows are equal to one at another place.
        first_moved: The first of them on the first side, and its place on the second.
        strayed: How many are equal to one of another rank.
        first_strayed: The first of them.
        alone: Whether a row of each side has no counterpart, bool.
        repeats: Of the rows of both sides without counterpart, those that are equal to another row
            that the other side has.
        ambiguous: How many rows that differ had more than one candidate of the same key.
    """

    alone: tuple[Array, Array] = (np.zeros(0, np.bool_), np.zeros(0, np.bool_))
    repeats: tuple[Array, Array] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    moved: int = 0
    first_moved: tuple[int, int] | None = None
    strayed: int = 0
    first_strayed: tuple[int, int] | None = None
    ambiguous: int = 0


def match(
    a: Spill,
    b: Spill,
    ranks: tuple[Array, Array],
    take_pairs: Callable[[Array], None],
    *,
    unique: bool,
) -> Matches:
    """Match the rows of two spills: first those that are equal, then those of equal keys.

    Args:
        a: One side.
        b: The other; of as many parts.
        ranks: Where the rows of each rank start on each side, and the number of its rows.
        take_pairs: Gets rows that have the same key and differ otherwise, int64 [n, 2].
        unique: Of unequal rows, pair only those whose key no other row has.
    """
    matches = Matches((np.zeros(ranks[0][-1], np.bool_), np.zeros(ranks[1][-1], np.bool_)))
    for index in range(len(a)):
        left, right = a.part(index), b.part(index)
        single = [_single(part["key"]) for part in (left, right)]
        in_left, in_right = _pair_up(left, right, "full")
        _note_moved(matches, left[in_left]["row"], right[in_right]["row"], ranks)
        left, right = np.delete(left, in_left), np.delete(right, in_right)
        by_key = _pair_up(left, right, "key")
        if unique:
            rest = [
                np.delete(s, taken) for s, taken in zip(single, (in_left, in_right), strict=True)
            ]
            chosen = rest[0][by_key[0]] & rest[1][by_key[1]]
            by_key = by_key[0][chosen], by_key[1][chosen]
        if len(by_key[0]):
            pairs = np.stack([left[by_key[0]]["row"], right[by_key[1]]["row"]], axis=1)
            take_pairs(pairs[np.argsort(pairs[:, 0])])
            matches.ambiguous += _ambiguous(left["key"]) + _ambiguous(right["key"])
        for alone, records, paired in zip(matches.alone, (left, right), by_key, strict=True):
            alone[np.delete(records, paired)["row"]] = True
    return matches


def _single(keys: Array) -> Array:
    """Say which keys occur once; they are sorted."""
    if not len(keys):
        return np.zeros(0, np.bool_)
    other = keys[1:] != keys[:-1]
    return np.asarray(np.append([True], other) & np.append(other, [True]))


def _ambiguous(keys: Array) -> int:
    _, counts = np.unique(keys, return_counts=True)
    return int(counts[counts > 1].sum())


def _pair_up(left: Array, right: Array, name: str) -> tuple[Array, Array]:
    """Pair records of equal hash one to one, the first with the first; returns their places."""
    hashes = [left[name], right[name]]
    orders = [np.argsort(h, kind="stable") for h in hashes]
    hashes = [h[order] for h, order in zip(hashes, orders, strict=True)]
    both = np.concatenate(hashes)
    nth = np.concatenate([_occurrence(h) for h in hashes])
    side = np.repeat([0, 1], [len(h) for h in hashes])
    order = np.lexsort((side, nth, both))
    both, nth, side = both[order], nth[order], side[order]
    first = np.flatnonzero((both[1:] == both[:-1]) & (nth[1:] == nth[:-1]) & (side[1:] > side[:-1]))
    return orders[0][order[first]], orders[1][order[first + 1] - len(left)]


def _occurrence(hashes: Array) -> Array:
    """Number equal neighbours, from 0."""
    if not len(hashes):
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    lengths = np.diff(np.append(starts, len(hashes)))
    return np.arange(len(hashes)) - np.repeat(starts, lengths)


def _note_moved(matches: Matches, left: Array, right: Array, ranks: tuple[Array, Array]) -> None:
    if not len(left):
        return
    matches.moved += len(left)
    matches.first_moved = _first(matches.first_moved, left, right)
    if len(ranks[0]) != len(ranks[1]):
        return
    places = [
        np.searchsorted(starts[1:], rows, side="right")
        for starts, rows in zip(ranks, (left, right), strict=True)
    ]
    strayed = np.flatnonzero(places[0] != places[1])
    if len(strayed):
        matches.strayed += len(strayed)
        matches.first_strayed = _first(matches.first_strayed, left[strayed], right[strayed])


def _first(known: tuple[int, int] | None, left: Array, right: Array) -> tuple[int, int]:
    place = int(np.argmin(left))
    pair = int(left[place]), int(right[place])
    return pair if known is None else min(known, pair)
