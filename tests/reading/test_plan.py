"""In which order a reader visits its rows: epochs, shuffles, passes."""

import importlib.util
import itertools
import time

import numpy as np
import pyarrow as pa
import pytest

from petastorm_bridge.reader._plan import Plan, Randomness
from petastorm_bridge.reader._sharding import Piece

PIECES = [Piece(0, 0, 3), Piece(1, 0, 2), Piece(2, 1, 6), Piece(3, 0, 1)]
ROWS = [(piece.group, row) for piece in PIECES for row in range(piece.start, piece.stop)]


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
        assert sorted(rows) == ROWS
        orders.append(rows)
    again = [row for visit in found[1] for row in visited_rows(visit)]
    if seed is not None or not (shuffle_pieces or shuffle_rows):
        assert again == list(itertools.chain.from_iterable(orders))
    if shuffle_pieces or shuffle_rows:
        assert orders[0] != orders[1] or orders[1] != orders[2]
    else:
        assert orders == [ROWS] * 3


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
@pytest.mark.parametrize("seed", [1, 7, 2**31, [1, 2]])
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
