"""Which rows a shard has: row groups shared out evenly, and cut into parts."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from petastorm_bridge.errors import NoDataAvailableError


@dataclass(frozen=True)
class Piece:
    """Rows ``start`` to ``stop`` of one row group.

    Attributes:
        cut_from: Start and stop of the piece that it was cut from, whose rows are shuffled before
            they are cut; None if it is whole.
    """

    group: int
    start: int
    stop: int
    cut_from: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self.stop - self.start

    def part(self, start: int, stop: int) -> Piece:
        """Return what lies between two positions in the piece."""
        whole = self.cut_from or (self.start, self.stop)
        return Piece(self.group, self.start + start, self.start + stop, whole)


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
    rows = sum(row_counts)
    if shard_count > rows:
        raise NoDataAvailableError(
            f"Asked for {shard_count} shards of a dataset of {rows} rows: at least "
            f"{shard_count - rows} shards would be empty. Lower shard_count or add rows. "
            "Number of row-groups in the dataset does not matter: shards may cut them."
        )
    if cur_shard is None or not 0 <= cur_shard < shard_count:
        return []
    shards: list[list[Piece]] = [[] for _ in range(shard_count)]
    for piece in whole:
        shards[piece.group % shard_count].append(piece)
    _level(shards)
    order = list(range(len(row_counts)))
    if seed is not None:
        random.Random(seed).shuffle(order)  # noqa: S311 - Petastorm's generator
    turns = {group: turn for turn, group in enumerate(order)}
    return sorted(shards[cur_shard], key=lambda piece: (turns[piece.group], piece.start))


def _level(shards: list[list[Piece]]) -> None:
    """Move tails of shards with too many rows to those with too few, until sizes differ by at most one."""
    sizes = [sum(map(len, pieces)) for pieces in shards]
    targets = _even_sizes(sizes)
    surplus: list[Piece] = []
    for pieces, size, target in zip(shards, sizes, targets, strict=True):
        rows = deque(pieces)
        pieces[:] = _take_head(rows, min(size, target))
        surplus += rows
    waiting = deque(sorted(surplus, key=lambda piece: (piece.group, piece.start)))
    for pieces, size, target in zip(shards, sizes, targets, strict=True):
        pieces.extend(_take_head(waiting, target - size))


def _even_sizes(sizes: Sequence[int]) -> list[int]:
    """Return sizes of the same sum that differ by at most one; the longest get the odd rows, so that few move."""
    base, odd = divmod(sum(sizes), len(sizes))
    even = [base] * len(sizes)
    for shard in sorted(range(len(sizes)), key=lambda shard: (-sizes[shard], shard))[:odd]:
        even[shard] += 1
    return even


def odd_rows(size: int, rows: int, shard_count: int, *, drop_last: bool) -> int:
    """Return by how many rows a shard differs from what every shard has once they are even.

    As ``torch.utils.data.DistributedSampler`` does it: the odd rows are dropped (-1), or a shard that
    lacks one reads one of its rows again (1).

    Args:
        size: Rows of the shard, see :func:`shard_pieces`: at most one more than others have.
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
    base, odd = divmod(rows, shard_count)
    return (base if drop_last or not odd else base + 1) - size


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
        bounds = np.searchsorted(runs, np.arange(parts + 1)).tolist()
        result += [piece.part(start, stop) for start, stop in itertools.pairwise(bounds)]
    return result
