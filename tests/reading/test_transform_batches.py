"""Transforms that get a row group in pieces: ``transform_batch_size``."""

import collections
import threading

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge._sources.parquet import ParquetSource
from petastorm_bridge.predicates import in_lambda
from petastorm_bridge.pytorch import BatchedIterableDataset, DataLoader

ROWS, GROUP = 50, 20


@pytest.fixture
def url(tmp_path):
    table = pa.table({"id": np.arange(ROWS), "text": [f"t{i}" for i in range(ROWS)]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=GROUP)
    return tmp_path.as_uri()


def with_sizes(frame):
    """Note beside each row how many rows came with it."""
    frame["rows"] = len(frame)
    return frame


SPEC = TransformSpec(
    with_sizes, edit_fields=[("rows", np.int64, (), False)], removed_fields=["text"]
)


def read(url, **options):
    """Return all rows of an epoch: ids and how many rows the transform got with them."""
    with make_batch_reader(url, **{"transform_spec": SPEC, **options}) as reader:
        groups = list(reader)
    return np.concatenate([g.id for g in groups]), np.concatenate([g.rows for g in groups])


@pytest.mark.parametrize(
    "pool",
    ["thread", pytest.param("process", marks=[pytest.mark.slow, pytest.mark.modern]), "dummy"],
)
def test_rows_come_in_the_same_order(url, pool):
    orders = {"seed": 3, "shuffle_rows": True, "reader_pool_type": pool, "workers_count": 3}
    whole, sizes = read(url, **orders)
    assert set(sizes.tolist()) == {20, 10}
    found, sizes = read(url, transform_batch_size=8, **orders)
    np.testing.assert_array_equal(found, whole)
    assert collections.Counter(sizes.tolist()) == {8: 40, 4: 8, 2: 2}


@pytest.mark.parametrize("rows", [1, 20, 1000, np.int32(7)])
def test_any_number_of_rows(url, rows):
    found, sizes = read(url, transform_batch_size=rows, shuffle_row_groups=False)
    np.testing.assert_array_equal(found, np.arange(ROWS))
    assert sizes.max() == min(rows, GROUP)


def test_shards_predicates_filters_and_epochs(url):
    even = in_lambda(["id"], lambda ids: ids % 2 == 0)
    options = {"transform_batch_size": 3, "num_epochs": 2, "predicate": even, "seed": 1}
    options["filters"] = [("id", ">=", 10)]
    shards = [read(url, cur_shard=i, shard_count=3, **options)[0] for i in range(3)]
    assert collections.Counter(np.concatenate(shards).tolist()) == dict.fromkeys(
        range(10, 50, 2), 2
    )


def test_a_row_group_is_read_once_however_many_threads_share_it(url, monkeypatch):
    opened = collections.Counter()
    lock = threading.Lock()
    open_group = ParquetSource.open

    def counted(source, position):
        with lock:
            opened[position] += 1
        return open_group(source, position)

    monkeypatch.setattr(ParquetSource, "open", counted)
    found, _ = read(url, transform_batch_size=2, workers_count=4, shuffle_row_groups=False)
    np.testing.assert_array_equal(found, np.arange(ROWS))
    assert opened == {0: 1, 1: 1, 2: 1}


def test_the_first_batch_needs_only_its_own_rows(url):
    seen = []

    def watched(frame):
        seen.append(len(frame))
        return with_sizes(frame)

    spec = TransformSpec(watched, edit_fields=SPEC.edit_fields, removed_fields=["text"])
    reader = make_batch_reader(
        url, reader_pool_type="dummy", transform_spec=spec, transform_batch_size=4
    )
    with DataLoader(reader, batch_size=4) as loader:
        first = next(iter(loader))
    assert len(first["id"]) == 4
    assert seen == [4]


def test_a_saved_position_knows_the_size_of_frames(url):
    def loader(rows):
        reader = make_batch_reader(
            url, seed=5, transform_spec=SPEC, transform_batch_size=rows, workers_count=2
        )
        return DataLoader(reader, batch_size=6, shuffling_queue_capacity=15)

    with loader(7) as whole:
        expected = [batch["id"].tolist() for batch in whole]
    assert sorted(i for batch in expected for i in batch) == list(range(ROWS))
    with loader(7) as first:
        batches = iter(first)
        for _ in range(3):
            next(batches)
        state = first.state_dict()
    with loader(7) as resumed:
        resumed.load_state_dict(state)
        assert [batch["id"].tolist() for batch in resumed] == expected[3:]
    with loader(None) as other, pytest.warns(UserWarning, match="transform_batch_size"):
        other.load_state_dict(state)


def test_datasets_of_torch_hand_it_on(url):
    dataset = BatchedIterableDataset(
        url, batch_size=10, seed=2, transform_spec=SPEC, transform_batch_size=5
    )
    batches = list(dataset)
    assert sorted(int(i) for batch in batches for i in batch["id"]) == list(range(ROWS))
    assert all((batch["rows"] == 5).all() for batch in batches)


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        (0, ValueError, "at least one row"),
        (2.5, TypeError, "integer number of rows"),
        (True, TypeError, "integer number of rows"),
        ("4", TypeError, "integer number of rows"),
    ],
)
def test_what_is_no_number_of_rows(url, rows, error, said):
    with pytest.raises(error, match=said):
        make_batch_reader(url, transform_spec=SPEC, transform_batch_size=rows)


def test_it_needs_a_transform(url):
    with pytest.raises(TypeError, match="goes with transform_spec"):
        make_batch_reader(url, transform_batch_size=4)


@pytest.mark.parametrize("chosen", [slice(None), slice(2, 5)], ids=["whole", "sliced"])
def test_rows_of_equal_lists_are_those_that_arrow_takes(tmp_path, chosen):
    """Lists of one length are gathered as a matrix, others by Arrow."""
    equal = [[i, i + 1, i + 2] for i in range(9)]
    columns = {
        "ints": pa.array(equal, pa.list_(pa.int16())),
        "floats": pa.array(equal, pa.list_(pa.float32())),
        "flags": pa.array([[i % 2 == 0] for i in range(9)]),
        "texts": pa.array([[f"{i}"] for i in range(9)]),
        "none": pa.array([[]] * 9, pa.list_(pa.int64())),
    }
    table = pa.table(columns).take(pc.sort_indices(pa.array(range(9))))[chosen]
    pq.write_table(table, tmp_path / "x.parquet")
    with make_batch_reader(tmp_path.as_uri(), shuffle_rows=True, seed=4) as reader:
        found = next(reader)
    order = np.random.default_rng(4).permutation(len(table))
    assert found.ints.dtype == np.int16
    for name in columns:
        expected = table.column(name).to_pylist()
        assert getattr(found, name).tolist() == [expected[i] for i in order], name


def test_lists_of_several_lengths_are_still_named(tmp_path):
    pq.write_table(pa.table({"v": [[1, 2], [3], [4, 5, 6]]}), tmp_path / "x.parquet")
    with (
        make_batch_reader(tmp_path.as_uri(), shuffle_rows=True) as reader,
        pytest.raises(RuntimeError, match="expected to be the same length"),
    ):
        next(reader)
