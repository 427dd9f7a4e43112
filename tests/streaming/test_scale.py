"""What a dataset costs to open, from its index alone."""

import gc
import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from datasets import write_dataset
from streaming import MDSWriter
from streaming.base.spanner import Spanner
from streaming_oracle import write_shards

from petastorm_bridge import make_batch_reader
from petastorm_bridge.mds.dataset import _parsed, open_dataset
from petastorm_bridge.pytorch import DataLoader
from petastorm_bridge.streaming import (
    ColumnarStreamingDataset,
    MappedStreamingDataset,
    _mapped_reader,
)
from petastorm_bridge.streaming._index import ShardIndex, group_by_shard

pytestmark = pytest.mark.modern


def write_index(directory, shards, rows):
    """An index without shards."""
    directory.mkdir()
    columns = {
        "column_names": ["a"], "column_encodings": ["int64"], "column_sizes": [8],
        "compression": None, "hashes": [], "format": "mds", "version": 2, "size_limit": None,
        "zip_data": None, "samples": rows,
    }  # fmt: skip
    entries = [
        {**columns, "raw_data": {"basename": f"{i}.mds", "bytes": 12 * rows, "hashes": {}}}
        for i in range(shards)
    ]
    (directory / "index.json").write_text(json.dumps({"version": 2, "shards": entries}))


def columnar(directory):
    dataset = ColumnarStreamingDataset(local=str(directory), batch_size=1024)
    return dataset, dataset.size


def mapped(directory):
    dataset = MappedStreamingDataset(local=str(directory), batch_size=1024)
    return dataset, dataset.size


def own_loader(directory):
    loader = DataLoader(make_batch_reader(directory.as_uri(), num_epochs=1), batch_size=1024)
    return loader, sum(shard.samples for shard in open_dataset(str(directory)).shards)


def cost(directory, opened):
    """Bytes at most and bytes that stay, and objects that stay, of opening a dataset; its rows."""
    gc.collect()
    objects = len(gc.get_objects())
    tracemalloc.start()
    kept, rows = opened(directory)
    stays, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    gc.collect()
    found = most, stays, len(gc.get_objects()) - objects, rows
    if opened is own_loader:
        kept.reader.stop()
        kept.reader.join()
    return found


@pytest.mark.parametrize(
    "opened", [columnar, mapped, pytest.param(own_loader, marks=pytest.mark.slow)]
)
def test_opening_depends_on_shards_not_on_rows(tmp_path, opened):
    """A thousand million rows cost what a million do; twenty times the shards, twenty times as much."""
    cases = {"small": (2_000, 500), "rows": (2_000, 500_000), "few": (100, 500)}
    for name, (shards, rows) in cases.items():
        write_index(tmp_path / name, shards, rows)
    cost(tmp_path / "few", opened)  # what is made once in a process
    _parsed.cache_clear()
    found = {name: cost(tmp_path / name, opened) for name in cases}
    assert found["rows"][3] == 1_000_000_000
    for measure in range(3):
        assert found["rows"][measure] <= 1.1 * found["small"][measure]
        assert found["small"][measure] <= 22 * found["few"][measure]
    most, stays, objects, _ = found["small"]
    assert stays / 2_000 < 3_000
    assert most / 2_000 < 8_000
    assert objects / 2_000 < 8


@pytest.mark.parametrize("seed", range(20))
def test_shards_of_samples(seed):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 50, random.integers(1, 60))
    ids = random.permutation(int(sizes.sum()))
    index, stock = ShardIndex(sizes), Spanner(sizes.copy())
    expected = [stock[i] for i in ids]
    assert [index[int(i)] for i in ids] == expected
    shard_ids = index.shards_of(ids)
    assert shard_ids.tolist() == [shard for shard, _ in expected]
    for wrong in (-1, len(ids)):
        with pytest.raises(IndexError, match="Invalid sample index"):
            index[wrong]
    order, shards, bounds = group_by_shard(shard_ids, len(sizes))
    assert sorted(order.tolist()) == list(range(len(ids)))
    assert shards == sorted(set(shard_ids.tolist()))
    for shard, start, stop in zip(shards, bounds, bounds[1:], strict=False):
        assert set(shard_ids[order[start:stop]]) == {shard}


def test_more_shards_than_sort_by_radix():
    shard_ids = np.array([70_000, 5, 70_000, 65_541])
    order, shards, bounds = group_by_shard(shard_ids, 80_000)
    assert (order.tolist(), shards, bounds) == ([1, 3, 0, 2], [5, 65_541, 70_000], [0, 1, 2, 4])


def test_shards_out_of_use_are_let_go(tmp_path, monkeypatch):
    """A pass in order over many shards holds some of them mapped, not all."""
    monkeypatch.setattr(_mapped_reader, "_SWEEP_BYTES", 1)  # of 1 GiB
    write_shards(tmp_path, [10] * 300)
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=10)
    held = [len(dataset._mapped._readers) for _ in dataset]
    assert max(held) <= 128
    for first in range(0, 3_000, 10):
        dataset.take(range(first, first + 10))
    assert len(dataset._mapped._readers) <= 128


def test_a_first_batch_opens_no_more_shards_than_it_has_samples(tmp_path, monkeypatch):
    write_shards(tmp_path, [2] * 300)
    opened = []
    dataset = ColumnarStreamingDataset(
        local=str(tmp_path), batch_size=8, shuffle=True, shuffle_algo="naive"
    )
    open_file = _mapped_reader.open_file
    monkeypatch.setattr(
        _mapped_reader, "open_file", lambda reader: opened.append(reader) or open_file(reader)
    )
    batches = iter(dataset)
    rows = [len(next(iter(next(batches).values())))]
    assert 1 <= len(opened) <= 8
    rows += [len(next(iter(batch.values()))) for batch in batches]
    assert rows == [8] * 75
    assert len({id(reader) for reader in opened}) == len(opened) == 300


def test_rows_that_are_sorted_by_length_are_not_gathered_by_that_of_the_first(
    tmp_path, monkeypatch
):
    with MDSWriter(out=str(tmp_path), columns={"id": "int64", "x": "bytes"}) as writer:
        for number in range(4_000):
            if number == 2_000:
                writer.flush_shard()
                writer._reset_cache()
            writer.write({"id": number, "x": bytes(10 if number < 2_000 else 5_000)})
    monkeypatch.setattr("petastorm_bridge.streaming._dataset._WINDOW_BYTES", 1 << 20)
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=8, shuffle=True)
    gathered = []
    gather = dataset._gather
    monkeypatch.setattr(
        dataset, "_gather", lambda ids, *more: gathered.append(len(ids)) or gather(ids, *more)
    )
    assert sum(len(batch["id"]) for batch in dataset) == sum(gathered) == 4_000
    assert 8 < max(gathered) <= (1 << 20) // 5_000


def test_windows_of_a_pass_use_the_memory_of_one(tmp_path, monkeypatch):
    columns = {"id": "int64", "x": "ndarray:float32:1024"}
    with MDSWriter(out=str(tmp_path), columns=columns, size_limit=1 << 20) as writer:
        for number in range(2_000):
            writer.write({"id": number, "x": np.full(1024, number, np.float32)})
    window = 1 << 20
    monkeypatch.setattr("petastorm_bridge.streaming._dataset._WINDOW_BYTES", window)
    datasets = [
        ColumnarStreamingDataset(
            local=str(tmp_path), batch_size=16, shuffle=True, shuffle_seed=seed
        )
        for seed in (1, 2)
    ]
    tracemalloc.start()
    for batch in datasets[0]:
        assert (batch["x"] == batch["id"][:, None]).all()
        del batch
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert window < most < 1.6 * window
    # Passes side by side have memory of their own.
    for pair in zip(*datasets, strict=True):
        for batch in pair:
            assert (batch["x"] == batch["id"][:, None]).all()


@pytest.mark.parametrize(("rows", "shards"), [(3, 400), (12, 200), (50, 60), (2_000, 3)])
def test_samples_are_looked_at_a_few_times_whatever_the_shards_are(
    tmp_path, monkeypatch, rows, shards
):
    """What is left for the next window is not asked for again and again."""
    write_dataset(tmp_path, pa.table({"id": np.arange(rows * shards)}), [rows] * shards)
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=10)
    asked, gather = [], dataset._gather
    monkeypatch.setattr(
        dataset, "_gather", lambda ids, *more: asked.append(len(ids)) or gather(ids, *more)
    )
    ids = np.concatenate([batch["id"] for batch in dataset])
    assert ids.tolist() == list(range(rows * shards))
    assert sum(asked) <= 10 * rows * shards
