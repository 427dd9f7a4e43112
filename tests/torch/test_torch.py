"""What programs and frameworks do to a torch loader besides iterating over it."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge.errors import BridgeWarning
from petastorm_bridge.predicates import in_lambda
from petastorm_bridge.pytorch import (
    BatchedDataLoader,
    DataLoader,
    InMemBatchedDataLoader,
    LoaderBase,
    _sanitize_pytorch_types,
    decimal_friendly_collate,
)

ROWS = 22


class RowGroups(LoaderBase):
    """A program's own loader, as Petastorm lets it be written."""

    def __init__(self, reader):
        super().__init__()
        self.reader = reader

    def _iter_impl(self):
        for group in self.reader:
            yield {"id": group.id}


class Sized(RowGroups):
    def __len__(self):
        return 2


class Ids(DataLoader):
    """Overrides `__iter__`."""

    def __iter__(self):
        for batch in super().__iter__():
            yield batch["id"]


class Halves(DataLoader):
    """Overrides `_iter_impl`, and with it the number of batches."""

    def _iter_impl(self):
        for batch in super()._iter_impl():
            yield {"id": batch["id"][::2]}
            yield {"id": batch["id"][1::2]}


@pytest.mark.parametrize("kind", [RowGroups, Sized])
def test_a_subclass_needs_nothing_but_its_batches(open_reader, kind):
    loader = kind(open_reader())
    for _ in range(2):
        assert [len(batch["id"]) for batch in loader] == [13, 9]
    assert "rows=22" in repr(loader)
    if kind is Sized:
        assert len(loader) == 2
    else:
        with pytest.raises(TypeError, match=r"has no len\(\)"):
            len(loader)


def test_a_subclass_may_read_anything():
    class Anything(RowGroups):
        def _iter_impl(self):
            return list(self.reader)

    loader = Anything([1, 2])
    assert list(loader) == [1, 2]
    assert repr(loader) == "<Anything>"
    with pytest.warns(BridgeWarning, match="a way of its own"):
        assert loader.state_dict()["rows"] is None


@pytest.mark.parametrize("kind", [RowGroups, Halves])
def test_the_position_of_a_subclass_that_makes_its_batches_is_unknown(open_reader, kind):
    loader = kind(open_reader())
    next(iter(loader))
    with pytest.warns(BridgeWarning, match=r"way of its own.*super\(\).__iter__\(\)"):
        state = loader.state_dict()
    other = kind(open_reader())
    with pytest.warns(BridgeWarning, match="holds no position"):
        other.load_state_dict(state)
    assert sum(len(batch["id"]) for batch in other) == ROWS


def test_a_subclass_that_passes_batches_on_can_be_resumed(open_reader):
    loader = Ids(open_reader(), batch_size=4)
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    state = loader.state_dict()
    other = Ids(open_reader(), batch_size=4)
    other.load_state_dict(state)
    assert torch.cat(list(other)).tolist() == list(range(8, ROWS))


KNOWN_LENGTHS = [
    ({}, 4, 6),
    ({}, 1, 22),
    ({}, 22, 1),
    ({}, 100, 1),
    ({"num_epochs": 3}, 4, 17),
    ({"num_epochs": 2, "shuffle_row_groups": True, "shuffle_rows": True}, 5, 9),
    ({"cur_shard": 1, "shard_count": 3}, 4, 2),
    ({"shuffle_row_drop_partitions": 3}, 4, 6),
]


@pytest.mark.difference("loader-length")
@pytest.mark.parametrize("kind", [DataLoader, BatchedDataLoader])
@pytest.mark.parametrize(("options", "size", "expected"), KNOWN_LENGTHS)
def test_the_length_is_the_number_of_batches(open_reader, kind, options, size, expected):
    for capacity in (0, 8):
        loader = kind(open_reader(**options), size, shuffling_queue_capacity=capacity)
        assert len(loader) == expected
        for _ in range(2):
            assert sum(1 for _ in loader) == expected


def test_one_batch_of_everything_has_length_one(open_reader):
    loader = DataLoader(open_reader(num_epochs=2), batch_size=None)
    assert len(loader) == len(list(loader)) == 1


UNKNOWN_LENGTHS = [
    (DataLoader, {"num_epochs": None}, 4),
    (DataLoader, {"num_epochs": None}, None),
    (DataLoader, {"predicate": in_lambda(["id"], lambda ids: ids > 3)}, 4),
    (DataLoader, {"filters": [("id", ">", 3)]}, 4),
    (DataLoader, {"transform_spec": TransformSpec(lambda frame: frame.iloc[1:])}, 4),
    (Ids, {}, 4),
    (Halves, {}, 4),
    (BatchedDataLoader, {}, 0),
    (BatchedDataLoader, {}, "4"),
]


@pytest.mark.parametrize(("kind", "options", "size"), UNKNOWN_LENGTHS)
def test_a_length_that_nobody_can_know_is_a_type_error(open_reader, kind, options, size):
    """As of Petastorm's loaders; `list` and truth do not mind."""
    loader = kind(open_reader(**options), batch_size=size)
    with pytest.raises(TypeError, match=rf"object of type '{kind.__name__}' has no len\(\)"):
        len(loader)
    assert loader
    if "transform_spec" in options:
        assert len(list(loader)) == 5


def test_an_error_in_the_batch_size_is_still_the_iterations(open_reader):
    with pytest.raises(ValueError, match="at least 1"):
        list(BatchedDataLoader(open_reader(), batch_size=0))


def test_the_batch_size_may_change_between_passes(open_reader):
    loader = DataLoader(open_reader(), batch_size=4)
    assert len(loader) == len(list(loader)) == 6
    loader.batch_size = 10
    assert len(loader) == len(list(loader)) == 3


def test_a_loader_shows_what_it_reads(open_reader):
    loader = DataLoader(open_reader(num_epochs=None), 4, shuffling_queue_capacity=7)
    assert repr(loader) == (
        "<DataLoader batch_size=4 shuffling_queue_capacity=7 num_epochs=None rows=22 "
        "columns=['id', 'x']>"
    )
    in_memory = InMemBatchedDataLoader(open_reader(), 4, num_epochs=2, rows_capacity=10)
    assert repr(in_memory) == (
        "<InMemBatchedDataLoader batch_size=4 num_epochs=2 rows=10 columns=['id', 'x']>"
    )
    assert repr(DataLoader.__new__(DataLoader)) == "<DataLoader>"


def test_states_before_within_and_after_a_pass(open_reader):
    """Asking changes nothing and may be repeated."""
    loader = DataLoader(open_reader(num_epochs=2), batch_size=8)
    assert loader.state_dict() == loader.state_dict()
    seen = []
    for batch in loader:
        seen += batch["id"].tolist()
        state = loader.state_dict()
        assert state == loader.state_dict()
        assert state["rows"] == 8 * -(-len(seen) // 8)
    assert seen == 2 * list(range(ROWS))
    assert loader.state_dict()["rows"] == 0


def test_a_state_is_plain_whatever_integer_the_seed_is(open_reader):
    states = []
    for seed in (7, np.int64(7)):
        loader = DataLoader(open_reader(seed=seed), batch_size=8)
        next(iter(loader))
        states.append(json.dumps(loader.state_dict()))
    assert states[0] == states[1]


def test_a_state_costs_the_same_whatever_the_number_of_row_groups(open_reader, monkeypatch):
    """Loaders of torchdata ask after each batch."""
    looks = 0

    class Pieces(list):
        def __iter__(self):
            nonlocal looks
            looks += 1
            return super().__iter__()

    monkeypatch.setattr(
        "petastorm_bridge.reader._reader.split_pieces", lambda pieces, _: Pieces(pieces)
    )
    loader = DataLoader(open_reader(seed=1), batch_size=8)
    for _ in loader:
        loader.state_dict()
        before = looks
        loader.state_dict()
        assert looks == before > 0


@pytest.mark.parametrize("make_copy", [pickle.dumps, copy.deepcopy])
def test_a_loader_says_that_it_cannot_be_pickled(open_reader, make_copy):
    with pytest.raises(TypeError, match=r"A DataLoader cannot be pickled.*Pickle the converter"):
        make_copy(DataLoader(open_reader(), batch_size=4))


def test_a_copy_is_a_loader_over_the_same_reader(open_reader):
    loader = DataLoader(open_reader(), batch_size=4)
    other = copy.copy(loader)
    assert len(list(other)) == 6
    assert other.reader is loader.reader


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_in_torchs_own_loader(open_reader, workers):
    outer = torch.utils.data.DataLoader(
        DataLoader(open_reader(), batch_size=4), batch_size=None, num_workers=workers
    )
    assert len(outer) == 6
    for _ in range(2):
        assert torch.cat([batch["id"] for batch in outer]).tolist() == list(range(ROWS))


def test_a_loader_says_what_to_do_instead_of_a_sampler(open_reader):
    loader = DataLoader(open_reader(), batch_size=4)
    assert not hasattr(loader, "sampler")
    with pytest.raises(AttributeError, match=r"has no sampler.*shard_by_rank=True"):
        _ = loader.sampler


def test_loaders_in_memory_know_their_length_and_stand_in_torchs_own(open_reader):
    def loader(**options):
        return InMemBatchedDataLoader(open_reader(), 4, rows_capacity=10, **options)

    for num_epochs in (1, 3):
        outer = torch.utils.data.DataLoader(loader(num_epochs=num_epochs), batch_size=None)
        assert len(outer) == len(list(outer)) == 3 * num_epochs
    assert loader()


@pytest.mark.parametrize("kind", [DataLoader, InMemBatchedDataLoader])
def test_several_workers_would_repeat_every_row(open_reader, kind, monkeypatch):
    # Torch waits so long for each worker of an iterator that has failed, whatever it iterates.
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.1)
    outer = torch.utils.data.DataLoader(
        kind(open_reader(), batch_size=4), batch_size=None, num_workers=2
    )
    batches = iter(outer)
    with pytest.raises(ValueError, match=r"2 workers .* all *rows of this loader.*cur_shard"):
        list(batches)
    batches._shutdown_workers()


COLLATED = [
    ([(1, "a"), (2, "b")], [torch.tensor([1, 2]), ("a", "b")]),
    ([(1, "a"), (2, "b", "c")], [torch.tensor([1, 2]), ("a", "b")]),
    ([["a"], ["b"]], [("a", "b")]),
    ([{"k": "a"}, {"k": "b"}], {"k": ["a", "b"]}),
    ([b"a", b"b"], [b"a", b"b"]),
]


@pytest.mark.parametrize(("rows", "expected"), COLLATED)
def test_collating_by_hand(rows, expected):
    assert repr(decimal_friendly_collate(rows)) == repr(expected)


def test_types_of_a_row_are_sanitized_in_place():
    row = {
        "u16": np.array([1], np.uint16),
        "u32": np.array([1], np.uint32),
        "flags": np.array([True]),
        "flag": np.bool_(True),
        "time": np.array(["2024-01-01"], "datetime64[ns]"),
        "text": "as it is",
    }
    assert _sanitize_pytorch_types(row) is None
    assert {name: getattr(value, "dtype", None) for name, value in row.items()} == {
        "u16": np.int32,
        "u32": np.int64,
        "flags": np.uint8,
        "flag": np.uint8,
        "time": np.dtype("<M8[ns]"),
        "text": None,
    }
    with pytest.raises(TypeError, match="Found None in empty"):
        _sanitize_pytorch_types({"empty": None})
    with pytest.raises(TypeError, match="Found in field text"):
        _sanitize_pytorch_types({"text": np.array(["a"])})


@pytest.mark.difference("loader-left-early-starts-again")
@pytest.mark.parametrize("pool", ["dummy", "thread", "process"])
@pytest.mark.parametrize("num_epochs", [1, 2])
def test_a_loader_left_early_begins_a_new_pass(open_reader, pool, num_epochs):
    reader = open_reader(reader_pool_type=pool, workers_count=2, num_epochs=num_epochs)
    loader = DataLoader(reader, batch_size=4)
    for taken in (1, 3, 0):
        for number, batch in enumerate(loader):
            assert batch["id"].tolist() == list(range(4 * number, 4 * number + 4))
            if number == taken:
                break
    for _ in range(2):
        rows = torch.cat([batch["id"] for batch in loader]).tolist()
        assert rows == list(range(ROWS)) * num_epochs


def test_a_pass_after_one_left_early_is_shuffled_anew_and_again_the_same(open_reader):
    def passes(left_after):
        loader = DataLoader(open_reader(seed=5, shuffle_rows=True), batch_size=4)
        for number, _ in enumerate(loader):
            if number == left_after:
                break
        return [torch.cat([batch["id"] for batch in loader]).tolist() for _ in range(2)]

    one, other = passes(0), passes(2)
    assert one == other  # however far it was read
    assert one[0] != one[1]
    assert sorted(one[0]) == sorted(one[1]) == list(range(ROWS))


def test_a_loader_left_early_is_over_once_its_reader_is_closed(open_reader):
    loader = DataLoader(open_reader(), batch_size=4)
    with loader:
        next(iter(loader))
    with pytest.raises(RuntimeError, match="has stopped"):
        next(iter(loader))


def test_a_loader_left_early_again_and_again_leaves_nothing(numbered, no_leaks):
    url = numbered(ROWS, [13, 9])

    def leave():
        with DataLoader(make_batch_reader(url, num_epochs=None), batch_size=2) as loader:
            for _ in range(20):
                next(iter(loader))

    leave()
    with no_leaks():
        leave()
