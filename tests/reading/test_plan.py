"""Which rows a reader visits: shards, runs of row groups, epochs."""

import importlib.util
import itertools
import random
import time
from collections import deque

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastorm_bridge._reading.plan import (
    Piece,
    Plan,
    Randomness,
    _take_head,
    shard_pieces,
    split_pieces,
)
from petastorm_bridge.errors import NoDataAvailableError

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


def test_more_shards_than_rows():
    with pytest.raises(NoDataAvailableError, match=r"4 shards of a dataset of 3 rows: at least 1 "):
        shard_pieces([2, 1], 0, 4)


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
    halves = [Piece(0, 10, 12), Piece(0, 12, 14), Piece(1, 0, 1), Piece(1, 1, 1)]
    assert split_pieces(pieces, 2) == halves
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


PIECES = [Piece(0, 0, 3), Piece(1, 0, 2), Piece(2, 1, 6), Piece(3, 0, 1)]


def visits(num_epochs, *, pieces=PIECES, shuffle_pieces=False, shuffle_rows=False, seed=None):
    plan = Plan(
        pieces,
        shuffle_pieces=shuffle_pieces,
        shuffle_rows=shuffle_rows,
        randomness=Randomness(seed),
    )
    return plan.visits(num_epochs)


def visited_rows(visit):
    order = range(len(visit.piece)) if visit.order is None else visit.order
    return [(visit.piece.group, visit.piece.start + int(row)) for row in order]


@pytest.mark.parametrize("shuffle_pieces", [False, True])
@pytest.mark.parametrize("shuffle_rows", [False, True])
@pytest.mark.parametrize("seed", [None, 0, 7])
def test_every_epoch_visits_every_row_once(shuffle_pieces, shuffle_rows, seed):
    np.random.seed(1)  # noqa: NPY002 - rules when there is no seed
    options = {"shuffle_pieces": shuffle_pieces, "shuffle_rows": shuffle_rows, "seed": seed}
    found = [list(visits(3, **options)) for _ in range(2)]
    assert [visit.ends_epoch for visit in found[0]] == [False, False, False, True] * 3
    orders = []
    for epoch in range(3):
        rows = [row for visit in found[0][4 * epoch : 4 * epoch + 4] for row in visited_rows(visit)]
        assert sorted(rows) == rows_of(PIECES)
        orders.append(rows)
    again = [row for visit in found[1] for row in visited_rows(visit)]
    if seed is not None or not (shuffle_pieces or shuffle_rows):
        assert again == list(itertools.chain.from_iterable(orders))
    if shuffle_pieces or shuffle_rows:
        assert orders[0] != orders[1] or orders[1] != orders[2]
    else:
        assert orders == [rows_of(PIECES)] * 3


def test_endless_epochs():
    endless = visits(None)
    assert sum(visit.ends_epoch for visit in itertools.islice(endless, 4000)) == 1000


@pytest.mark.parametrize("num_epochs", [0, 1, 5, None])
def test_nothing_to_visit(num_epochs):
    """Also for endless epochs: there is nothing to wait for."""
    assert list(visits(num_epochs, pieces=[])) == []


def test_without_a_seed_numpys_global_state_decides():
    orders = []
    for state in (5, 5, 6):
        np.random.seed(state)  # noqa: NPY002 - what Petastorm's users call
        found = visits(4, shuffle_pieces=True, shuffle_rows=True)
        orders.append([row for visit in found for row in visited_rows(visit)])
    assert orders[0] == orders[1] != orders[2]


def test_every_pass_continues_where_the_one_before_ended():
    """petastorm/workers_pool/ventilator.py, reset: the next permutation of the last order."""
    options = {"shuffle_pieces": True, "shuffle_rows": False, "randomness": Randomness(5)}
    plan = Plan(PIECES, **options)
    generator, order = np.random.default_rng(5), list(range(4))
    for _ in range(3):
        order = [order[i] for i in generator.permutation(4)]
        assert [visit.piece.group for visit in plan.visits(1)] == order


def test_empty_pieces_are_shuffled_but_not_visited():
    pieces = [Piece(0, 0, 1), Piece(0, 1, 1), Piece(1, 0, 1), Piece(1, 1, 1)]
    for seed in range(8):
        order = np.random.default_rng(seed).permutation(4)
        found = list(visits(1, pieces=pieces, shuffle_pieces=True, seed=seed))
        assert [visit.piece for visit in found] == [pieces[i] for i in order if i % 2 == 0]
        assert [visit.ends_epoch for visit in found] == [False, True]


def test_passes_side_by_side_have_orders_of_their_own():
    randomness = Randomness(5)
    assert randomness.of_pass(0) is randomness
    first, second = (list(randomness.of_pass(i).pieces(50)) for i in (1, 2))
    assert first != second
    assert first == list(Randomness(5).of_pass(1).pieces(50))
    assert Randomness(None).of_pass(3).pieces(5).shape == (5,)


def test_children_differ_from_each_other_and_repeat():
    def draws(seed):
        randomness = Randomness(seed)
        return [randomness.child().integers(0, 2**60).item() for _ in range(5)]

    assert draws(3) == draws(3) != draws(4)
    assert len(set(draws(3))) == 5


@pytest.mark.skipif(
    importlib.util.find_spec("petastorm") is None or int(pa.__version__.split(".")[0]) > 14,
    reason="needs the real petastorm, which needs pyarrow 14 or older",
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [1, 7, 2**31])
def test_the_first_epoch_has_petastorms_order(seed):
    from petastorm.workers_pool.ventilator import ConcurrentVentilator

    asked = []
    items = [{"group": group} for group in range(20)]

    def ventilate(group):
        asked.append(group)

    ventilator = ConcurrentVentilator(
        ventilate,
        items,
        randomize_item_order=True,
        random_seed=seed,
        max_ventilation_queue_size=1000,
    )
    ventilator.start()
    while not ventilator.completed():
        time.sleep(0.001)
    ventilator.stop()
    pieces = [Piece(group, 0, 4) for group in range(20)]
    found = list(visits(1, pieces=pieces, shuffle_pieces=True, shuffle_rows=True, seed=seed))
    assert [visit.piece.group for visit in found] == asked
    # petastorm/arrow_reader_worker.py: a generator of the same seed in the only worker.
    rows = np.random.default_rng(seed)
    assert [visit.order.tolist() for visit in found] == [
        rows.permutation(4).tolist() for _ in asked
    ]
