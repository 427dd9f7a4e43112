"""The Petastorm-style torch loaders go on from a saved position."""

import itertools
import json

import numpy as np
import pytest
from streaming_oracle import write_shards

from petastorm_bridge import TransformSpec, make_batch_reader
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


def test_order_without_a_seed_cannot_be_had_again(url):
    for options, capacity in (({}, 0), ({"shuffle_row_groups": False}, 10)):
        with (
            DataLoader(
                make_batch_reader(url, **options), batch_size=5, shuffling_queue_capacity=capacity
            ) as loader,
            pytest.raises(ValueError, match="without a seed"),
        ):
            loader.state_dict()


def test_states_of_others_are_refused(url):
    with open_loader(url, "row groups", DataLoader, 16, 0) as loader:
        state = loader.state_dict()
    with (
        open_loader(url, "shard", DataLoader, 15, 0) as other,
        pytest.raises(ValueError, match=r"'batch_size': 16, 'row_groups': .*, 'rows': 123"),
    ):
        other.load_state_dict(state)
    with (
        open_loader(url, "row groups", DataLoader, 16, 0) as other,
        pytest.raises(ValueError, match="no state of a loader"),
    ):
        other.load_state_dict({"epoch": 1})
