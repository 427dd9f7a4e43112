"""The Petastorm-style torch loaders go on from a saved position."""

import itertools
import json

import numpy as np
import pytest
from streaming_oracle import write_shards

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge.errors import BridgeWarning
from petastorm_bridge.predicates import in_lambda
from petastorm_bridge.pytorch import BatchedDataLoader, DataLoader

SIZES = [30, 11, 25, 40, 17]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_shards(folder, SIZES, {"id": "int64", "many": "ndarray:float32:2,3"})
    return folder.as_uri()


def double(frame):
    return frame.assign(id=frame["id"] * 2)[frame["id"] % 3 > 0]


READERS = {
    "plain": {"seed": 3, "shuffle_row_groups": False},
    "row groups": {"seed": 3},
    "rows": {"seed": 3, "shuffle_rows": True, "shuffle_row_drop_partitions": 2},
    "epochs": {"seed": 3, "num_epochs": 3},
    "shard": {"seed": 3, "num_epochs": 2, "cur_shard": 1, "shard_count": 3},
    "predicate": {"seed": 3, "predicate": in_lambda(["id"], lambda ids: ids % 2 == 1)},
    "filters": {"seed": 3, "filters": [("id", ">", 20)]},
    "transform": {"seed": 3, "num_epochs": 2, "transform_spec": TransformSpec(double)},
    "processes": {"seed": 3, "reader_pool_type": "process", "workers_count": 1},
}


def open_loader(url, kind, loader, size, capacity):
    options = {"workers_count": 2, **READERS[kind]}
    reader = make_batch_reader(url, **options)
    return loader(reader, batch_size=size, shuffling_queue_capacity=capacity)


def ids(batches, most=None):
    return [batch["id"].tolist() for batch in itertools.islice(batches, most)]


def flat(batches):
    return list(itertools.chain.from_iterable(batches))


@pytest.mark.parametrize("capacity", [0, 40])
@pytest.mark.parametrize("loader", [DataLoader, BatchedDataLoader])
@pytest.mark.parametrize("kind", READERS)
def test_resumption_anywhere(url, kind, loader, capacity):
    """Two passes; after any number of batches the rest is what would have come."""
    arguments = (url, kind, loader, 16, capacity)
    with open_loader(*arguments) as whole:
        passes = [ids(whole), ids(whole)]
    batches = len(passes[0])
    cuts = (3,) if kind == "processes" else (0, 1, batches // 2, batches - 1, batches)
    for cut in cuts:
        with open_loader(*arguments) as first:
            iterator = iter(first)
            assert ids(iterator, cut) == passes[0][:cut]
            state = json.loads(json.dumps(first.state_dict()))
            iterator.close()
        with open_loader(*arguments) as second:
            second.load_state_dict(state)
            assert second.state_dict() == state
            assert ids(second) == passes[0][cut:]
            assert ids(second) == passes[1]


def test_second_pass(url):
    """The state in a later pass, and between two."""
    arguments = (url, "rows", DataLoader, 10, 0)
    with open_loader(*arguments) as whole:
        ids(whole)
        between = whole.state_dict()
        second = ids(whole)
    with open_loader(*arguments) as other:
        ids(other)
        assert other.state_dict() == between
        assert ids(other, 4) == second[:4]
        within = other.state_dict()
    for state, rest in ((between, second), (within, second[4:])):
        with open_loader(*arguments) as resumed:
            resumed.load_state_dict(state)
            assert ids(resumed) == rest


def test_endless_pass(url):
    options = {"seed": 7, "num_epochs": None}
    with DataLoader(make_batch_reader(url, **options), batch_size=50) as loader:
        iterator = iter(loader)
        ids(iterator, 20)
        state = loader.state_dict()
        expected = ids(iterator, 5)
    with DataLoader(make_batch_reader(url, **options), batch_size=50) as loader:
        loader.load_state_dict(state)
        assert ids(loader, 5) == expected


def test_a_loader_may_go_back(url):
    """To a state of its own, after a pass that was left."""
    with open_loader(url, "row groups", BatchedDataLoader, 16, 0) as loader:
        iterator = iter(loader)
        ids(iterator, 2)
        state = loader.state_dict()
        expected = ids(iterator, 3)
        with pytest.raises(RuntimeError, match="before an iteration begins"):
            loader.load_state_dict(state)
        iterator.close()
        loader.load_state_dict(state)
        assert ids(loader, 3) == expected


def test_used_row_groups_are_not_read_again(tmp_path):
    write_shards(tmp_path, SIZES, {"id": "int64"})
    with open_loader(tmp_path.as_uri(), "plain", DataLoader, 10, 0) as loader:
        ids(loader, 5)
        state = loader.state_dict()
    shards = sorted(tmp_path.glob("*.mds"))
    shards[0].unlink()  # rows 0 to 30, and row 50 is in the third one
    shards[1].unlink()
    with open_loader(tmp_path.as_uri(), "plain", DataLoader, 10, 0) as loader:
        loader.load_state_dict(state)
        assert np.concatenate(ids(loader)).tolist() == list(range(50, sum(SIZES)))


@pytest.mark.parametrize(("options", "capacity"), [({}, 0), ({"shuffle_row_groups": False}, 10)])
def test_an_order_without_a_seed_is_saved_as_unknown_and_begins_anew(url, options, capacity):
    def unseeded():
        reader = make_batch_reader(url, **options)
        return DataLoader(reader, batch_size=5, shuffling_queue_capacity=capacity)

    with unseeded() as loader:
        loader.state_dict()  # nothing was delivered: no position to lose
        iterator = iter(loader)
        delivered = ids(iterator, 3)
        with pytest.warns(BridgeWarning, match=r"without a seed.* Pass seed=") as caught:
            states = [loader.state_dict() for _ in range(2)]
        assert len(caught) == 1
        assert states == [{"version": 1, "rows": None}] * 2
        assert sorted(flat(delivered + ids(iterator))) == list(range(sum(SIZES)))
        loader.state_dict()  # the pass is over: the next one begins anywhere
    with unseeded() as loader:
        with pytest.warns(BridgeWarning, match="holds no position") as caught:
            loader.load_state_dict(states[0])
        assert len(caught) == 1
        for _ in range(2):
            assert sorted(flat(ids(loader))) == list(range(sum(SIZES)))


@pytest.mark.parametrize("capacity", [0, 40])
@pytest.mark.parametrize("kind", ["rows", "epochs", "transform", "predicate"])
def test_batches_of_another_size_go_on_with_the_next_row(url, kind, capacity):
    with open_loader(url, kind, DataLoader, 16, capacity) as loader:
        rows = flat(ids(loader))
    with open_loader(url, kind, DataLoader, 10, capacity) as loader:
        iterator = iter(loader)
        ids(iterator, 3)
        state = loader.state_dict()
    for size in (16, 7):
        with open_loader(url, kind, DataLoader, size, capacity) as loader:
            loader.load_state_dict(state)
            iterator = iter(loader)
            assert flat(ids(iterator, 1)) == rows[30 : 30 + size]
            state_within = loader.state_dict()
            iterator.close()
            loader.load_state_dict(state_within)
            assert flat(ids(loader)) == rows[30 + size :]


def test_the_state_of_a_loader_of_other_data_begins_a_new_pass(url):
    with open_loader(url, "row groups", DataLoader, 16, 0) as loader:
        iterator = iter(loader)
        ids(iterator, 2)
        state = loader.state_dict()
    with open_loader(url, "shard", DataLoader, 15, 0) as whole:
        expected = ids(whole)
    with open_loader(url, "shard", DataLoader, 15, 0) as other:
        with pytest.warns(BridgeWarning, match=r"'row_groups': .*, 'rows': 123.* there"):
            other.load_state_dict(state)
        assert ids(other) == expected


@pytest.mark.parametrize(
    "state",
    [
        {"epoch": 1},
        {},
        None,
        [],
        {"version": 1},
        {"version": 2, "rows": 1},
        {"version": 1, "rows": "1", "start": {}, "loader": {}},
        {"version": 1, "rows": -1, "start": {}, "loader": {}},
        {"version": 1, "rows": 1, "start": {}},
    ],
)
def test_what_is_no_state_is_refused(url, state):
    with (
        open_loader(url, "row groups", DataLoader, 16, 0) as other,
        pytest.raises(ValueError, match="no state of a loader"),
    ):
        other.load_state_dict(state)


@pytest.mark.parametrize("start", [{}, None, {"order": [99], "generators": None}, {"order": 3}])
def test_a_damaged_state_is_refused(url, start):
    with open_loader(url, "row groups", DataLoader, 16, 0) as loader:
        state = loader.state_dict()
        with pytest.raises(ValueError, match="damaged"):
            loader.load_state_dict({**state, "start": start})


def test_a_resumed_pass_may_be_left_early(url):
    """Lightning counts the batches of the interrupted pass, wherever the resumed one began."""
    with open_loader(url, "row groups", DataLoader, 16, 0) as loader:
        iterator = iter(loader)
        ids(iterator, 2)
        state = loader.state_dict()
    with open_loader(url, "row groups", DataLoader, 16, 0) as loader:
        loader.load_state_dict(state)
        assert len(ids(loader, 3)) == 3
        assert sorted(flat(ids(loader))) == list(range(sum(SIZES)))
        ids(loader, 3)  # a pass that nobody resumed
        assert sorted(flat(ids(loader))) == list(range(sum(SIZES)))


def test_rows_taken_from_the_reader_beside_the_loader_make_the_position_unknown(url):
    with open_loader(url, "plain", DataLoader, 16, 0) as loader:
        next(loader.reader)
        iterator = iter(loader)
        ids(iterator, 2)
        with pytest.warns(BridgeWarning, match="taken from its reader"):
            assert loader.state_dict()["rows"] is None


@pytest.mark.parametrize("kind", ["row groups", "epochs", "shard"])
def test_who_counts_to_the_length_ends_the_pass(url, kind):
    """The position is then the next pass, and another iteration begins it."""
    with open_loader(url, kind, DataLoader, 16, 0) as loader:
        passes = [ids(loader), ids(loader)]
    with open_loader(url, kind, DataLoader, 16, 0) as loader:
        assert ids(loader, len(loader)) == passes[0]
        state = loader.state_dict()
        assert ids(loader, len(loader)) == passes[1]
    with open_loader(url, kind, DataLoader, 16, 0) as loader:
        loader.load_state_dict(state)
        assert ids(loader, len(loader)) == passes[1]
