"""What a ``transform_fn`` makes of row groups: shuffled, gone on with, on another device."""

import numpy as np
import pytest
import torch

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge._blocks.shuffle import shuffle_pool
from petastorm_bridge.pytorch import BatchedDataLoader, InMemBatchedDataLoader
from petastorm_bridge.pytorch._transformed import shuffle_tensors

ROWS = 22


@pytest.fixture
def open_loader(open_reader):
    """``open_loader(transform_fn, **options)`` → batches of 4 of `id`, row groups of 13 and 9."""

    def open_loader(transform_fn, capacity=0, **options):
        return BatchedDataLoader(
            open_reader(schema_fields=["id"], **options), 4, transform_fn, capacity
        )

    return open_loader


def ids(batches):
    return [batch["id"].tolist() for batch in batches]


def in_two(rows):
    return torch.as_tensor(rows)[::2]


def less_their_mean(rows):
    return torch.as_tensor(rows) - rows.mean()


def one_by_one(rows):
    return rows.astype(np.uint16)


FUNCTIONS = [in_two, less_their_mean, one_by_one]


@pytest.mark.parametrize("capacity", [0, 5])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_pass_goes_on_where_it_was_saved(open_loader, function, capacity):
    options = {"num_epochs": 2, "shuffle_row_groups": True, "seed": 3}
    whole = ids(open_loader(function, capacity, **options))
    for taken in (1, 3, len(whole) - 1, len(whole)):
        first = open_loader(function, capacity, **options)
        batches = iter(first)
        begun = [next(batches)["id"].tolist() for _ in range(taken)]
        resumed = open_loader(function, capacity, **options)
        resumed.load_state_dict(first.state_dict())
        # A pass that is over is followed by the next one.
        assert begun + ids(resumed)[: len(whole) - taken] == whole


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_shuffled_pass_has_the_same_rows(open_loader, function):
    in_order = np.concatenate(ids(open_loader(function, num_epochs=2)))
    shuffled = np.concatenate(ids(open_loader(function, 9, num_epochs=2)))
    assert sorted(in_order) == sorted(shuffled)
    assert in_order.tolist() != shuffled.tolist()


def test_no_row_slips_into_the_next_epoch(open_loader):
    # The last row group of an epoch leaves nothing but its end.
    groups = iter([0, 9, 0, 9])
    loader = open_loader(lambda rows: rows[next(groups) :], 100, num_epochs=2)
    assert sorted(np.concatenate(ids(loader))) == sorted([*range(13)] * 2)


def test_tensors_stay_on_their_device(open_loader):
    loader = open_loader(lambda rows: torch.as_tensor(rows).to("meta"), 5)
    assert {batch["id"].device.type for batch in loader} == {"meta"}


def test_the_function_sees_row_groups_in_memory_too(open_reader):
    seen = []

    def function(rows):
        seen.append(len(rows))
        return rows

    reader = open_reader(schema_fields=["id"])
    loader = InMemBatchedDataLoader(reader, 4, function, rows_capacity=15)
    assert np.concatenate(ids(loader)).tolist() == [*range(15)]
    assert seen == [13, 9]


@pytest.mark.parametrize("wrong", [{"rows_capacity": "8"}, {"transform_fn": lambda rows: None}])
def test_a_loader_in_memory_that_fails_stops_its_reader(open_reader, wrong):
    reader = open_reader()
    with pytest.raises((TypeError, RuntimeError)):
        InMemBatchedDataLoader(reader, 4, **wrong)
    with pytest.raises(RuntimeError, match="has stopped"):
        next(reader)


@pytest.mark.parametrize("capacity", [1, 7, 1000])
def test_tensors_are_shuffled_as_arrays_are(capacity):
    rng = np.random.default_rng(5)
    blocks = [
        Block({"id": rng.integers(0, 9, (rows, 2)), "x": rng.random(rows)}, rows, ends)
        for rows, ends in ((30, False), (0, False), (3, True), (50, False), (0, True), (8, False))
    ]
    of_tensors = [
        Block({n: torch.as_tensor(c) for n, c in b.columns.items()}, b.num_rows, b.ends_epoch)
        for b in blocks
    ]

    arrays = shuffle_pool(blocks, capacity, np.random.default_rng(1))
    tensors = shuffle_tensors(of_tensors, capacity, np.random.default_rng(1))

    def rows(found):
        return [
            (block.ends_epoch, {n: np.asarray(c).tolist() for n, c in block.columns.items()})
            for block in found
            if block.num_rows
        ]

    assert rows(tensors) == rows(arrays)


@pytest.mark.parametrize(
    "dtype", ["uint8", "uint16", "uint32", "uint64", "bool", "bfloat16", "complex64"]
)
def test_every_type_is_shuffled(open_loader, dtype):
    wanted = getattr(torch, dtype)
    found = list(open_loader(lambda rows: torch.as_tensor(rows).to(wanted), 6))
    assert {batch["id"].dtype for batch in found} == {wanted}
    values = torch.cat([batch["id"] for batch in found]).to(torch.complex64).real
    expected = torch.arange(ROWS).to(wanted).to(torch.complex64).real
    assert sorted(values.tolist()) == sorted(expected.tolist())


def test_types_widen_and_shapes_may_not(open_loader):
    types = iter([torch.int32, torch.int64])
    found = list(open_loader(lambda rows: torch.as_tensor(rows).to(next(types)), 30))
    assert {batch["id"].dtype for batch in found} == {torch.int64}
    assert sorted(np.concatenate(ids(found))) == [*range(ROWS)]
    for capacity in (0, 30):
        widths = iter([1, 2])
        loader = open_loader(lambda rows: np.zeros((len(rows), next(widths))), capacity)  # noqa: B023
        with pytest.raises(RuntimeError, match=r"to be equal size.*\[1\] and \[2\] in column 'id'"):
            list(loader)
