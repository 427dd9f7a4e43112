"""In which order a reader visits its rows: epochs, shuffling of row groups, passes that begin in the middle.

And having row groups fetched from far away before they are visited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from petastorm_bridge._sources._far.ahead import AHEAD_BYTES
from petastorm_bridge._sources.source import Source

from ._sharding import Piece

_MOST_VISITS_AHEAD = 1024


@dataclass(frozen=True)
class Visit:
    """One piece to be read now.

    Attributes:
        order: Positions within the piece in the order wanted, or None for the stored order.
        ends_epoch: Whether it is the last visit of its epoch.
    """

    piece: Piece
    order: npt.NDArray[np.int64] | None
    ends_epoch: bool

    @property
    def num_rows(self) -> int:
        """Rows that are read."""
        return len(self.piece if self.order is None else self.order)

    def part(self, start: int, stop: int, *, ends_epoch: bool) -> Visit:
        """Return the visit of the rows between two positions in this one."""
        if self.order is None:
            return Visit(self.piece.part(start, stop), None, ends_epoch)
        return Visit(self.piece, self.order[start:stop], ends_epoch)


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
        seeds = () if seed is None else (seed, seed, [seed, 1])
        self._generators = [np.random.default_rng(one) for one in seeds]
        # The global state, which Petastorm's users seed, permutes under the same name.
        three: Sequence[Any] = self._generators or (np.random, np.random, None)
        self._pieces, self._rows, self._children = three

    @property
    def state(self) -> list[dict[str, Any]] | None:
        """Where the generators stand, JSON-able; None without a seed."""
        return [dict(one.bit_generator.state) for one in self._generators] or None

    @state.setter
    def state(self, state: list[dict[str, Any]] | None) -> None:
        for one, stood in zip(self._generators, state or (), strict=False):
            one.bit_generator.state = stood

    def pieces(self, count: int) -> npt.NDArray[np.int64]:
        """Return the order of ``count`` row groups."""
        return self._pieces.permutation(count)  # type: ignore[no-any-return]

    def rows(self, count: int) -> npt.NDArray[np.int64]:
        """Return the order of ``count`` rows within a row group."""
        return self._rows.permutation(count)  # type: ignore[no-any-return]

    def of_pass(self, number: int) -> Randomness:
        """Return the sources of a pass that runs beside others; the first pass has these here."""
        if number == 0 or self._seed is None:
            return self
        return Randomness([self._seed, number + 1])

    def child(self) -> np.random.Generator:
        """Return a generator for something that draws at its own pace (a shuffle buffer)."""
        if self._children is None:
            entropy = np.random.randint(0, 2**31 - 1, 4)  # noqa: NPY002 – the same state
            return np.random.default_rng(entropy)
        return np.random.default_rng(self._children.integers(0, 2**63 - 1))


@dataclass(eq=False)
class Plan:
    """The order in which pieces are visited, from pass to pass.

    With a seed, every pass of one epoch has the order that it has in Petastorm with one worker
    (``workers_pool/ventilator.py``): a new permutation of the order before. Later epochs of a pass
    are shuffled anew as well.

    Attributes:
        pieces: What to visit; empty ones take part in the shuffle only.
        shuffle_pieces: Whether to shuffle their order.
        shuffle_rows: Whether to shuffle the rows within each.
        randomness: Where orders come from.
        odd_rows: 1 to read one row of every epoch twice, -1 to leave one out, each time another one; see
            :func:`~._sharding.odd_rows`.
        epoch: Number of the next epoch, by which that row changes.
        rows: Rows of an epoch.
    """

    pieces: Sequence[Piece]
    shuffle_pieces: bool
    shuffle_rows: bool
    randomness: Randomness
    odd_rows: int = 0
    epoch: int = 0

    def __post_init__(self) -> None:
        self.rows = sum(map(len, self.pieces)) + self.odd_rows
        self._order = list(self.pieces)

    @property
    def state(self) -> dict[str, Any]:
        """What the next pass's order follows from, JSON-able."""
        order = None
        if self.shuffle_pieces:
            position = {piece: i for i, piece in enumerate(self.pieces)}
            order = [position[piece] for piece in self._order]
        return {"order": order, "epoch": self.epoch, "generators": self.randomness.state}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        if state["order"] is not None:
            self._order = [self.pieces[i] for i in state["order"]]
        self.epoch = state["epoch"]
        self.randomness.state = state["generators"]

    def visits(self, num_epochs: int | None) -> Iterator[Visit]:
        """Yield all visits of one pass, epoch after epoch; endless when ``num_epochs`` is None."""
        epoch = 0
        while num_epochs is None or epoch < num_epochs:
            if self.shuffle_pieces:
                self._order = [self._order[i] for i in self.randomness.pieces(len(self._order))]
            odd_piece, odd = self._odd_row() if self.odd_rows else (None, 0)
            self.epoch += 1
            filled = [
                piece
                for piece in self._order
                if len(piece) > (piece is odd_piece and self.odd_rows < 0)
            ]
            for i, piece in enumerate(filled):
                rows = self.randomness.rows(len(piece)) if self.shuffle_rows else None
                if piece is odd_piece:
                    rows = np.arange(len(piece)) if rows is None else rows
                    rows = np.append(rows, odd) if self.odd_rows > 0 else rows[rows != odd]
                yield Visit(piece, rows, i == len(filled) - 1)
            if not filled:
                return
            epoch += 1

    def _odd_row(self) -> tuple[Piece, int]:
        """Return the piece that has this epoch's odd row, and the row's position in it."""
        place = self.epoch % sum(map(len, self.pieces))
        for piece in self.pieces:
            if place < len(piece):
                return piece, place
            place -= len(piece)
        raise AssertionError("the position is one of all rows")


def between(visits: Iterator[Visit], start: int, stop: int | None = None) -> Iterator[Visit]:
    """Yield what of the visits of a pass lies between two of its rows; whole pieces are never read.

    Args:
        visits: Of the pass.
        start: Position of the first row, in the order of the visits.
        stop: That behind the last one, with which an epoch ends; None for all.
    """
    position = 0
    for visit in visits:
        begin, position = position, position + visit.num_rows
        first = max(start - begin, 0)
        last = visit.num_rows if stop is None else min(stop - begin, visit.num_rows)
        if first < last:
            yield visit.part(first, last, ends_epoch=visit.ends_epoch or begin + last == stop)
        if stop is not None and position >= stop:
            return


def in_runs(visits: Iterator[Visit], rows: int) -> Iterator[Visit]:
    """Yield the visits of a pass cut into runs of at most so many rows, in the same order."""
    for visit in visits:
        count = visit.num_rows
        for start in range(0, count, rows):
            stop = min(start + rows, count)
            yield visit.part(start, stop, ends_epoch=visit.ends_epoch and stop == count)


def fetched_ahead(
    visits: Iterator[Visit], source: Source, may_cut: Callable[[], bool], *, is_for_others: bool
) -> Iterator[Visit]:
    """Yield visits while the row groups of those that follow are being fetched, within a budget of bytes.

    Args:
        visits: Of a pass.
        source: Where the row groups are.
        may_cut: Tells whether the first visit may become two, so that its first rows do not wait for the others.
        is_for_others: Whether other processes do the visits.
    """
    if may_cut() and not is_for_others:
        visits = _cut_first(visits, source)
    waiting: deque[tuple[Visit, int]] = deque()
    size = 0
    last: int | None = None
    for visit in visits:
        wanted = 0
        if visit.piece.group != last:  # a group may take several visits
            last = visit.piece.group
            wanted = source.want(last, is_for_others=is_for_others)
        waiting.append((visit, wanted))
        size += wanted
        while waiting and (size == 0 or size > AHEAD_BYTES or len(waiting) > _MOST_VISITS_AHEAD):
            first, fetched = waiting.popleft()
            size -= fetched
            yield first
    yield from (visit for visit, _ in waiting)


def _cut_first(visits: Iterator[Visit], source: Source) -> Iterator[Visit]:
    """Yield visits, the first one as two where the first rows of its row group are here before the others."""
    for visit in visits:
        rows, first = visit.num_rows, 0
        if visit.piece.start == 0 and visit.order is None:
            first = source.want_first(visit.piece.group)
        if 0 < first < rows:
            yield visit.part(0, first, ends_epoch=False)
            yield visit.part(first, rows, ends_epoch=visit.ends_epoch)
        else:
            yield visit
        break
    yield from visits


@dataclass(frozen=True)
class Part:
    """One of several parts of a pass, for readers that share it: the workers of a torch ``DataLoader``.

    Attributes:
        batch_size: Parts begin where batches of so many rows do; None for one batch of all rows.
    """

    number: int
    count: int
    batch_size: int | None


def rows_of_part(part: Part, rows: int) -> range:
    """Return the positions that a part has among the rows of a pass.

    All parts together have as many batches as the whole pass, and only the last batch of the last
    part may be short.
    """
    size = part.batch_size or max(rows, 1)
    batches = -(-rows // size)
    start, stop = (
        batches * number // part.count * size for number in (part.number, part.number + 1)
    )
    return range(min(start, rows), min(stop, rows))
