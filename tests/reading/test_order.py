"""Epochs, order, shuffling and sharding of readers and torch loaders."""

import itertools
import tracemalloc

import numpy as np
import pytest

from petastorm_bridge import NoDataAvailableError, TransformSpec, make_batch_reader
from petastorm_bridge.predicates import in_lambda
from petastorm_bridge.pytorch import BatchedDataLoader, DataLoader, InMemBatchedDataLoader

ROWS = [5, 1, 7, 3]
TOTAL = sum(ROWS)


@pytest.fixture
def url(numbered):
    return numbered(TOTAL, ROWS)


def chunks(ids):
    """Cut ids into the shards they come from, in the order they appear."""
    shard = np.repeat(np.arange(len(ROWS)), ROWS)
    return [k for k, _ in itertools.groupby(shard[i] for i in ids)]


@pytest.mark.difference("partition-order")
@pytest.mark.difference("no-lost-rows")
@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("pool", ["thread", "dummy"])
def test_unshuffled_order_is_the_stored_one_whatever_the_workers(url, ids_of, workers, pool):
    spec = TransformSpec(lambda frame: frame)
    for transform in (None, spec):
        got = ids_of(
            url,
            shuffle_row_groups=False,
            workers_count=workers,
            reader_pool_type=pool,
            num_epochs=2,
            transform_spec=transform,
        )
        assert got == [*range(TOTAL)] * 2


@pytest.mark.difference("epochs-shuffled-anew")
@pytest.mark.difference("seed-zero")
@pytest.mark.parametrize("seed", [0, 42])
def test_seed_gives_petastorms_first_order_and_then_new_ones(url, ids_of, seed):
    one, two = (ids_of(url, seed=seed, num_epochs=8, workers_count=w) for w in (1, 4))
    assert one == two
    epochs = np.reshape(one, (8, TOTAL))
    assert all(sorted(epoch) == list(range(TOTAL)) for epoch in epochs)
    assert chunks(epochs[0]) == np.random.default_rng(seed).permutation(len(ROWS)).tolist()
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_without_a_seed_numpy_governs(url, ids_of):
    orders = []
    for _ in range(2):
        np.random.seed(7)  # noqa: NPY002 – what Petastorm's users seed
        orders.append(ids_of(url, num_epochs=3, capacity=3))
    assert orders[0] == orders[1]


@pytest.mark.difference("row-permutations-differ")
def test_rows_are_permuted_as_by_one_petastorm_worker(numbered, ids_of):
    url = numbered(24, [8, 8, 8])
    got = np.reshape(
        ids_of(url, seed=5, shuffle_rows=True, shuffle_row_groups=False, workers_count=4), (3, 8)
    )
    rng = np.random.default_rng(5)
    expected = [rng.permutation(8) + 8 * i for i in range(3)]
    assert np.array_equal(got, expected)
    assert not np.array_equal(got[0], got[1] - 8)


@pytest.mark.difference("shuffle-buffer-per-epoch")
@pytest.mark.difference("seed-governs-all")
@pytest.mark.parametrize("loader", [DataLoader, BatchedDataLoader])
@pytest.mark.parametrize("capacity", [2, 6, 100])
def test_shuffle_buffer_keeps_epochs_apart_and_obeys_the_seed(url, ids_of, loader, capacity):
    options = {"seed": 3, "num_epochs": 4, "capacity": capacity, "loader": loader}
    got = ids_of(url, workers_count=1, **options)
    assert got == ids_of(url, workers_count=4, **options)
    for epoch in np.reshape(got, (4, TOTAL)):
        assert sorted(epoch) == list(range(TOTAL))


@pytest.mark.difference("shuffle-capacity-one")
def test_capacity_of_one_shuffles_within_row_groups(numbered, ids_of):
    got = ids_of(numbered(200), seed=1, capacity=1)
    assert sorted(got) == list(range(200)) != got


@pytest.mark.difference("shuffle-buffer-memory")
def test_shuffle_buffer_takes_what_its_rows_need(url, ids_of):
    ids_of(url, capacity=10)
    tracemalloc.start()
    try:
        ids_of(url, capacity=10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20  # Petastorm: 800 MB


@pytest.mark.difference("predicate-keeps-rows-whole")
def test_shuffled_rows_under_a_predicate_stay_whole(numbered):
    url = numbered(100)
    with make_batch_reader(
        url, shuffle_rows=True, seed=2, predicate=in_lambda(["id"], lambda ids: ids > 20)
    ) as reader:
        rows = next(reader)
    assert sorted(rows.id) == list(range(21, 100)) != rows.id.tolist()
    assert np.array_equal(rows.x, rows.id * 2)


@pytest.mark.difference("equal-shards")
@pytest.mark.difference("more-shards-than-row-groups")
@pytest.mark.parametrize("count", [1, 2, 3, 7, TOTAL])
def test_shards_are_disjoint_complete_and_equal(url, ids_of, count):
    shards = [ids_of(url, cur_shard=i, shard_count=count, seed=i) for i in range(count)]
    assert sorted(itertools.chain(*shards)) == list(range(TOTAL))
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= 1


def test_more_shards_than_rows_is_an_error(url):
    with pytest.raises(NoDataAvailableError, match=f"{TOTAL + 1} shards of a dataset of {TOTAL}"):
        make_batch_reader(url, cur_shard=0, shard_count=TOTAL + 1)


@pytest.mark.difference("numpy-shards")
def test_numpy_integers_name_shards(url, ids_of):
    got = ids_of(url, cur_shard=np.int64(0), shard_count=np.int32(2))
    assert len(got) == TOTAL // 2
    shards = {"cur_shard": 0, "shard_count": 2}
    assert ids_of(url, seed=np.int64(7), **shards) == ids_of(url, seed=7, **shards)


@pytest.mark.parametrize("seed", [[1, 2], (3, 4), np.array([5, 6])], ids=["list", "tuple", "array"])
def test_several_integers_are_a_seed(url, ids_of, seed):
    orders = [ids_of(url, seed=seed, num_epochs=2) for _ in range(2)]
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == sorted([*range(TOTAL), *range(TOTAL)])


@pytest.mark.difference("reiteration-starts-clean")
@pytest.mark.parametrize("loader", [DataLoader, BatchedDataLoader])
def test_a_second_pass_starts_with_its_own_first_row(numbered, loader):
    with make_batch_reader(numbered(10), shuffle_row_groups=False) as reader:
        batches = loader(reader, batch_size=4)
        passes = [[batch["id"].tolist() for batch in batches] for _ in range(3)]
    assert passes == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]] * 3


@pytest.mark.difference("endless-empty-ends")
def test_an_endless_pass_without_rows_ends(url):
    nothing = in_lambda(["id"], lambda ids: ids < 0)
    with (
        make_batch_reader(url, num_epochs=None, predicate=nothing) as reader,
        pytest.warns(UserWarning, match="whole epoch gave no row"),
    ):
        assert list(DataLoader(reader, batch_size=4)) == []


@pytest.mark.difference("endless-whole-batch-refused")
@pytest.mark.parametrize("size", [None, 0, -1, 2.5, float("inf"), "4"])
def test_a_batch_of_everything(url, size):
    with make_batch_reader(url, num_epochs=2) as reader:
        (batch,) = DataLoader(reader, batch_size=size)
        assert len(batch["id"]) == 2 * TOTAL
    with (
        make_batch_reader(url, num_epochs=None) as reader,
        pytest.raises(ValueError, match="never fills"),
    ):
        next(iter(DataLoader(reader, batch_size=size)))


@pytest.mark.difference("batched-size-checked")
@pytest.mark.parametrize(
    ("size", "kind"), [(0, ValueError), (-1, ValueError), (2.0, TypeError), ("4", TypeError)]
)
def test_batched_loader_checks_its_size(url, size, kind):
    with make_batch_reader(url) as reader, pytest.raises(kind, match="batch_size is"):
        next(iter(BatchedDataLoader(reader, batch_size=size)))


@pytest.mark.parametrize("loader", [DataLoader, BatchedDataLoader])
@pytest.mark.parametrize("capacity", ["4", None, 2.5])
def test_a_capacity_that_is_no_integer_is_refused(url, loader, capacity):
    """Petastorm's is a TypeError as well."""
    refusal = pytest.raises(TypeError, match=f"shuffling_queue_capacity is {capacity!r}, a")
    with make_batch_reader(url) as reader, refusal:
        next(iter(loader(reader, 4, shuffling_queue_capacity=capacity)))


@pytest.mark.parametrize("capacity", [0.0, -1, -1.5])
def test_a_capacity_of_nothing_is_no_buffer(url, capacity):
    with make_batch_reader(url, seed=1) as reader:
        assert len(list(DataLoader(reader, 4, shuffling_queue_capacity=capacity))) == -(-TOTAL // 4)


@pytest.mark.difference("inmem-empty")
def test_in_memory_loader_over_no_rows(url):
    nothing = in_lambda(["id"], lambda ids: ids < 0)
    reader = make_batch_reader(url, predicate=nothing)
    assert list(InMemBatchedDataLoader(reader, batch_size=4)) == []


def test_in_memory_loader_takes_its_capacity_of_endless_rows(url):
    reader = make_batch_reader(url, num_epochs=None, shuffle_row_groups=False)
    loader = InMemBatchedDataLoader(reader, batch_size=6, num_epochs=2, rows_capacity=8)
    assert [batch["id"].tolist() for batch in loader] == [[*range(6)], [6, 7]] * 2
    assert reader.stopped
    with pytest.raises(RuntimeError, match="couldn't be used multiple times"):
        next(iter(loader))


@pytest.mark.difference("stop-iteration-is-an-error")
@pytest.mark.parametrize("pool", ["thread", "dummy"])
def test_stop_iteration_in_a_transform_is_an_error(url, ids_of, pool):
    def stop(_):
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        ids_of(url, transform_spec=TransformSpec(stop), reader_pool_type=pool)


def test_a_failed_reader_keeps_failing(url):
    def fail(_):
        raise KeyError("boom")

    with make_batch_reader(url, transform_spec=TransformSpec(fail)) as reader:
        loader = DataLoader(reader, batch_size=4)
        with pytest.raises(KeyError, match="boom"):
            next(iter(loader))
        with pytest.raises(RuntimeError, match="last time iteration failed with error KeyError"):
            next(iter(loader))
        with pytest.raises(KeyError, match="boom"):
            next(reader)
