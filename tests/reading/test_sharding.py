"""Which rows a shard has: even sizes, the order of row groups, runs of rows."""

import itertools
import random
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastorm_bridge.reader._sharding import Piece, _take_head, shard_pieces, split_pieces

COUNTS = st.lists(st.integers(0, 40), max_size=12)


def rows_of(pieces):
    """Every row of some pieces as (row group, row)."""
    return [(piece.group, row) for piece in pieces for row in range(piece.start, piece.stop)]


def everything(counts):
    return [(group, row) for group, count in enumerate(counts) for row in range(count)]


@given(COUNTS)
def test_without_shards_everything_in_order(counts):
    assert rows_of(shard_pieces(counts, None, None)) == everything(counts)


@given(counts=COUNTS.filter(any), data=st.data())
@settings(max_examples=200)
def test_shards_are_disjoint_complete_and_of_equal_size(counts, data):
    shard_count = data.draw(st.integers(1, sum(counts)))
    shards = [shard_pieces(counts, shard, shard_count) for shard in range(shard_count)]
    assert sorted(itertools.chain.from_iterable(map(rows_of, shards))) == everything(counts)
    sizes = [sum(map(len, pieces)) for pieces in shards]
    assert max(sizes) - min(sizes) <= 1
    for pieces in shards:
        assert all(len(piece) for piece in pieces)
        assert rows_of(pieces) == sorted(rows_of(pieces))


@given(shard_count=st.integers(1, 9), per_shard=st.integers(1, 4), rows=st.integers(1, 30))
def test_shards_are_those_of_petastorm_where_those_are_equal(shard_count, per_shard, rows):
    """petastorm/reader.py: a row group belongs to shard ``index % shard_count``."""
    counts = [rows] * (shard_count * per_shard)
    for shard in range(shard_count):
        expected = [Piece(i, 0, rows) for i in range(len(counts)) if i % shard_count == shard]
        assert shard_pieces(counts, shard, shard_count) == expected


def test_the_rows_that_move_are_taken_from_the_front_without_moving_the_rest():
    """A list closes the gap behind every piece taken, which no count of calls shows."""

    class NeverShifted(deque):
        def pop(self, *_):
            raise AssertionError("taken from the middle or from the end")

        def insert(self, *_):
            raise AssertionError("put back by shifting what is behind it")

    pieces = NeverShifted(Piece(i, 0, 2) for i in range(4))
    assert _take_head(pieces, 5) == [Piece(0, 0, 2), Piece(1, 0, 2), Piece(2, 0, 1)]
    assert list(pieces) == [Piece(2, 1, 2), Piece(3, 0, 2)]


def test_as_few_rows_as_possible_move():
    # Petastorm's shards have 5 + 2 and 4 rows; one of the seven goes to the other.
    counts = [5, 4, 2]
    assert shard_pieces(counts, 0, 2) == [Piece(0, 0, 5), Piece(2, 0, 1)]
    assert shard_pieces(counts, 1, 2) == [Piece(1, 0, 4), Piece(2, 1, 2)]
    # The longer shard keeps the odd row.
    assert shard_pieces([3, 4], 1, 2) == [Piece(1, 0, 4)]


@pytest.mark.parametrize("cur_shard", [None, -1, 2])
def test_a_shard_that_does_not_exist_is_empty(cur_shard):
    assert shard_pieces([2, 2], cur_shard, 2) == []


@given(count=st.integers(0, 300), parts=st.integers(1, 40))
@settings(max_examples=300)
def test_runs_are_those_of_petastorm(count, parts):
    """The formula of petastorm/arrow_reader_worker.py, _read_with_shuffle_row_drop."""
    expected = []
    if count:
        runs = np.floor(np.arange(count) / (float(count) / min(count, parts)))
        expected = [np.flatnonzero(runs == part).tolist() for part in range(parts)]
    found = split_pieces([Piece(3, 0, count)], parts)
    assert all(piece.group == 3 for piece in found)
    assert (expected or [[]] * parts) == [list(range(p.start, p.stop)) for p in found]


def test_runs_start_where_their_piece_does():
    pieces = [Piece(0, 10, 14), Piece(1, 0, 1)]
    halves = [
        Piece(0, 10, 12, (10, 14)), Piece(0, 12, 14, (10, 14)), Piece(1, 0, 1, (0, 1)), Piece(1, 1, 1, (0, 1)),
    ]  # fmt: skip
    assert split_pieces(pieces, 2) == halves
    assert halves[1].part(1, 2) == Piece(0, 13, 14, (10, 14))
    assert split_pieces(pieces, 1) == pieces
    assert split_pieces(pieces, 0) == []


@pytest.mark.parametrize("seed", [0, 7])
def test_a_seed_orders_the_row_groups_of_a_shard(seed):
    """petastorm/reader.py, _partition_row_groups."""
    order = list(range(12))
    random.Random(seed).shuffle(order)
    for shard in range(3):
        found = shard_pieces([5] * 12, shard, 3, seed)
        assert [piece.group for piece in found] == [i for i in order if i % 3 == shard]
    # Rows that moved between shards keep their row group's place.
    assert shard_pieces([5, 4, 2], 0, 2, seed=3) == [Piece(2, 0, 1), Piece(0, 0, 5)]
    assert shard_pieces([5] * 12, None, None, seed) == [Piece(i, 0, 5) for i in range(12)]
