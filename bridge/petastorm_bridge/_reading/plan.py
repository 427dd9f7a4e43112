"""Which rows a reader visits, and in which order: sharding, epochs, shuffling of row groups."""

from __future__ import annotations

import itertools
import random
import zlib
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from petastorm_bridge.errors import NoDataAvailableError

__all__ = [
    "Piece",
    "Plan",
    "Randomness",
    "Visit",
    "checksum",
    "even_pieces",
    "in_runs",
    "shard_pieces",
    "split_pieces",
    "without_rows",
]


@dataclass(frozen=True)
class Piece:
    """Rows ``start`` to ``stop`` of one row group."""

    group: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Visit:
    """One piece to be read now.

    Attributes:
        piece: What to read; None for an epoch without rows.
        order: Positions within the piece in the order wanted, or None for the stored order.
        ends_epoch: Whether it is the last visit of its epoch.
    """

    piece: Piece | None
    order: npt.NDArray[np.int64] | None
    ends_epoch: bool

    @property
    def num_rows(self) -> int:
        """Rows that are read."""
        if self.order is not None:
            return len(self.order)
        return 0 if self.piece is None else len(self.piece)


def shard_pieces(
    row_counts: Sequence[int],
    cur_shard: int | None,
    shard_count: int | None,
    seed: int | None = None,
    dropped: Collection[int] = (),
) -> list[Piece]:
    """Return the pieces of one shard; all rows when ``shard_count`` is None.

    Petastorm gives shard ``i`` the row groups ``i``, ``i + shard_count``, … and so shards of unequal
    size. Here every shard starts from the same row groups and those with too many rows pass the
    tail of their last ones to those with too few, until sizes differ by at most one row; where
    Petastorm's shards are equal already, they are Petastorm's. A seed sets the order of a shard's
    row groups, not which they are (``petastorm/reader.py``, ``_partition_row_groups``).

    Args:
        row_counts: Rows of each row group.
        cur_shard: Which shard.
        shard_count: Of how many.
        seed: Sets the order of the row groups.
        dropped: Row groups that a predicate leaves out. They keep their place in the first sharing
            and are no lack of rows.

    Raises:
        NoDataAvailableError: More shards than rows.
    """
    whole = [Piece(i, 0, n) for i, n in enumerate(row_counts) if n and i not in dropped]
    if shard_count is None:
        return whole
    total = sum(row_counts)
    if shard_count > total:
        raise NoDataAvailableError(
            f"Asked for {shard_count} shards of a dataset of {total} rows: at least "
            f"{shard_count - total} shards would be empty. Lower shard_count or add rows."
        )
    if cur_shard is None or not 0 <= cur_shard < shard_count:
        return []
    owned: list[list[Piece]] = [[] for _ in range(shard_count)]
    for piece in whole:
        owned[piece.group % shard_count].append(piece)
    sizes = [sum(map(len, pieces)) for pieces in owned]
    total = sum(sizes)
    # The longest get the odd rows, so that as few rows as possible move.
    ranked = sorted(range(shard_count), key=lambda shard: (-sizes[shard], shard))
    base, odd = divmod(total, shard_count)
    target = dict.fromkeys(range(shard_count), base)
    for shard in ranked[:odd]:
        target[shard] += 1
    surplus: list[Piece] = []
    for shard in range(shard_count):
        surplus += _take_tail(owned[shard], sizes[shard] - target[shard])
    surplus.sort(key=lambda piece: (piece.group, piece.start))
    waiting = deque(surplus)
    for shard in range(shard_count):
        owned[shard] += _take_head(waiting, target[shard] - sizes[shard])
    order = list(range(len(row_counts)))
    if seed is not None:
        random.Random(seed).shuffle(order)  # noqa: S311 - Petastorm's generator
    turn = {group: i for i, group in enumerate(order)}
    return sorted(owned[cur_shard], key=lambda piece: (turn[piece.group], piece.start))


def even_pieces(
    pieces: Sequence[Piece], rows: int, shard_count: int, *, drop_last: bool
) -> list[Piece]:
    """Return the pieces of a shard so that every shard has as many rows as the others.

    As ``torch.utils.data.DistributedSampler`` does it: the odd rows are dropped, or a shard that
    lacks one reads its first row again.

    Args:
        pieces: From :func:`shard_pieces`, with at most one row more than in other shards.
        rows: Rows of all shards together.
        shard_count: Number of shards.
        drop_last: Whether to drop rows instead of repeating some.

    Raises:
        NoDataAvailableError: Fewer rows than shards.
    """
    if rows < shard_count:
        raise NoDataAvailableError(
            f"Asked for {shard_count} shards of {rows} rows: at least {shard_count - rows} shards "
            "would be empty. Lower the world size or add rows."
        )
    size = sum(map(len, pieces))
    base, odd = divmod(rows, shard_count)
    wanted = base if drop_last or not odd else base + 1
    even = list(pieces)
    _take_tail(even, size - wanted)
    if size < wanted:
        first = next(piece for piece in even if len(piece))
        even.append(Piece(first.group, first.start, first.start + 1))
    return even


def _take_tail(pieces: list[Piece], count: int) -> list[Piece]:
    """Remove ``count`` rows from the end of ``pieces`` and return them."""
    taken = []
    while count > 0:
        last = pieces.pop()
        moved = min(count, len(last))
        if moved < len(last):
            pieces.append(Piece(last.group, last.start, last.stop - moved))
        taken.append(Piece(last.group, last.stop - moved, last.stop))
        count -= moved
    return taken


def _take_head(pieces: deque[Piece], count: int) -> list[Piece]:
    """Remove ``count`` rows from the start of ``pieces`` and return them."""
    taken = []
    while count > 0:
        first = pieces.popleft()
        moved = min(count, len(first))
        if moved < len(first):
            pieces.appendleft(Piece(first.group, first.start + moved, first.stop))
        taken.append(Piece(first.group, first.start, first.start + moved))
        count -= moved
    return taken


def split_pieces(pieces: Sequence[Piece], parts: int) -> list[Piece]:
    """Return each piece cut into ``parts`` runs of rows (``shuffle_row_drop_partitions``).

    A piece with fewer rows gives empty runs as well: in Petastorm they take part in the shuffle.
    """
    if parts == 1:
        return list(pieces)
    result = []
    for piece in pieces:
        # Row r belongs to run floor(r / (rows / count)), as in petastorm/arrow_reader_worker.py.
        count = min(len(piece), parts)
        runs = np.floor(np.arange(len(piece)) / (len(piece) / max(count, 1))).astype(np.int64)
        bounds = np.searchsorted(runs, np.arange(parts + 1)) + piece.start
        result += [Piece(piece.group, int(a), int(b)) for a, b in itertools.pairwise(bounds)]
    return result


class Randomness:
    """The sources of a reader's random orders.

    With a seed, generators of its own (so results do not depend on the number of workers); without
    one NumPy's global state, as in Petastorm, so that ``numpy.random.seed`` governs it.

    Args:
        seed: As for ``numpy.random.default_rng``; None for the global state.

    Raises:
        TypeError, ValueError: From NumPy, for a seed that is no non-negative integer.
    """

    def __init__(self, seed: Any) -> None:
        self._seed = seed
        # Petastorm's ventilator and its workers each start a generator from the same seed.
        self._pieces = None if seed is None else np.random.default_rng(seed)
        self._rows = None if seed is None else np.random.default_rng(seed)
        self._children = None if seed is None else np.random.default_rng([seed, 1])

    @property
    def state(self) -> list[dict[str, Any]] | None:
        """Where the generators stand, JSON-able; None without a seed."""
        own = (self._pieces, self._rows, self._children)
        found = [dict(one.bit_generator.state) for one in own if one is not None]
        return found or None

    @state.setter
    def state(self, state: list[dict[str, Any]] | None) -> None:
        own = (self._pieces, self._rows, self._children)
        for one, stood in zip(own, state or (), strict=False):
            if one is not None:
                one.bit_generator.state = stood

    def pieces(self, count: int) -> npt.NDArray[np.int64]:
        """Return the order of ``count`` row groups."""
        return _permutation(self._pieces, count)

    def rows(self, count: int) -> npt.NDArray[np.int64]:
        """Return the order of ``count`` rows within a row group."""
        return _permutation(self._rows, count)

    def of_pass(self, number: int) -> Randomness:
        """Return the sources of a pass that runs beside others; the first pass has these here."""
        if number == 0 or self._seed is None:
            return self
        return Randomness([self._seed, number + 1])

    def child(self) -> np.random.Generator:
        """Return a generator for something that draws at its own pace (a shuffle buffer)."""
        if self._children is None:
            entropy = np.random.randint(0, 2**31 - 1, 4)  # noqa: NPY002 – as in _permutation
            return np.random.default_rng(entropy)
        return np.random.default_rng(self._children.integers(0, 2**63 - 1))


def _permutation(generator: np.random.Generator | None, count: int) -> npt.NDArray[np.int64]:
    if generator is None:
        return np.random.permutation(count)  # noqa: NPY002 – the state Petastorm's users seed
    return generator.permutation(count)


class Plan:
    """The order in which pieces are visited, from pass to pass.

    With a seed, every pass of one epoch has the order that it has in Petastorm with one worker
    (``workers_pool/ventilator.py``): a new permutation of the order before. Later epochs of a pass
    are shuffled anew as well.

    Args:
        pieces: What to visit; empty ones take part in the shuffle only.
        shuffle_pieces: Whether to shuffle their order.
        shuffle_rows: Whether to shuffle the rows within each.
        randomness: Where orders come from.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        *,
        shuffle_pieces: bool,
        shuffle_rows: bool,
        randomness: Randomness,
    ) -> None:
        self._pieces = pieces
        self._order = list(pieces)
        self._shuffle_pieces = shuffle_pieces
        self._shuffle_rows = shuffle_rows
        self._randomness = randomness

    @property
    def state(self) -> dict[str, Any]:
        """What the next pass's order follows from, JSON-able."""
        order = None
        if self._shuffle_pieces:
            position = {piece: i for i, piece in enumerate(self._pieces)}
            order = [position[piece] for piece in self._order]
        return {"order": order, "generators": self._randomness.state}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        if state["order"] is not None:
            self._order = [self._pieces[i] for i in state["order"]]
        self._randomness.state = state["generators"]

    def visits(self, num_epochs: int | None) -> Iterator[Visit]:
        """Yield all visits of one pass, epoch after epoch; endless when ``num_epochs`` is None."""
        epoch = 0
        while num_epochs is None or epoch < num_epochs:
            if self._shuffle_pieces:
                self._order = [self._order[i] for i in self._randomness.pieces(len(self._order))]
            filled = [piece for piece in self._order if len(piece)]
            for i, piece in enumerate(filled):
                rows = self._randomness.rows(len(piece)) if self._shuffle_rows else None
                yield Visit(piece, rows, i == len(filled) - 1)
            if not filled:
                return
            epoch += 1


def without_rows(visits: Iterator[Visit], rows: int) -> Iterator[Visit]:
    """Yield the visits of a pass without its first rows; whole pieces are never read."""
    for visit in visits:
        count = visit.num_rows
        if rows >= count > 0:
            rows -= count
        elif rows and visit.piece is not None:
            order = np.arange(count) if visit.order is None else visit.order
            yield Visit(visit.piece, order[rows:], visit.ends_epoch)
            rows = 0
        else:
            yield visit


def in_runs(visits: Iterator[Visit], rows: int) -> Iterator[Visit]:
    """Yield the visits of a pass cut into runs of at most so many rows, in the same order."""
    for visit in visits:
        piece, count = visit.piece, visit.num_rows
        if piece is None or count <= rows:
            yield visit
            continue
        for start in range(0, count, rows):
            stop = min(start + rows, count)
            ends_epoch = visit.ends_epoch and stop == count
            if visit.order is None:
                run = Piece(piece.group, piece.start + start, piece.start + stop)
                yield Visit(run, None, ends_epoch)
            else:
                yield Visit(piece, visit.order[start:stop], ends_epoch)


def checksum(numbers: Any) -> int:
    """Return a number that tells one list of integers from another."""
    return zlib.crc32(np.asarray(numbers, "<i8").tobytes())
