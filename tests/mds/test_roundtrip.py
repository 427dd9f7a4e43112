"""Whatever is written is read back: by the engine, by the naive reader and by stock readers."""

import os
import tempfile
from decimal import Decimal

import naive
import numpy as np
import pyarrow as pa
import pytest
from datasets import read_table
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tables import Bits, batches_of, is_list, plain, tables

from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.decode import column_array, column_view
from petastorm_bridge.mds.shard import open_shard
from petastorm_bridge.mds.writer import ShardWriter

COMPRESSIONS = [None, None, "zstd", "zstd:1", "zstd:9", "gz", "gz:1", "snappy", "br:3", "bz2"]
HASHES = [None, (), ("sha1",), ("xxh64", "md5")]


@st.composite
def written_tables(draw, max_rows=150):
    """A random table, its batches, and keyword arguments for the writer."""
    table = draw(tables(max_rows))
    options = {
        "size_limit": draw(st.sampled_from([1, 300, 2000, 1 << 25])),
        # A few shards at most; how they are cut is the matter of other tests.
        "min_rows": 1 + table.num_rows // draw(st.integers(1, 4)),
        "compression": draw(st.sampled_from(COMPRESSIONS)),
        "hashes": draw(st.sampled_from(HASHES)),
    }
    return table, draw(batches_of(table)), options


def write(directory, table, batches=None, **options):
    """Write a table as a dataset and open it."""
    writer = ShardWriter(table.schema, directory, **options)
    for batch in table.to_batches() if batches is None else batches:
        writer.write(batch)
    commit_dataset(directory, table.schema, writer.finish())
    return open_dataset(directory)


def comparable(value):
    """A value (or row) of the naive reader in the form of :func:`random_tables.plain`."""
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items()}
    if isinstance(value, Decimal) and value.is_nan():
        return "NaN"  # a null: NaN equals nothing
    if isinstance(value, float):
        return Bits(value)
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return value


@pytest.mark.smoke
@pytest.mark.slow
@settings(max_examples=120)
@given(written_tables())
def test_what_was_written_is_read_back(case):
    table, batches, options = case
    with tempfile.TemporaryDirectory() as directory:
        dataset = write(directory, table, batches, **options)
        back = read_table(dataset)
        assert dataset.num_rows == table.num_rows
        assert back.schema.equals(table.schema)
        for name in table.schema.names:
            assert plain(back[name]) == plain(table[name]), name
        check_naive(directory, table)
        check_random_access(dataset)
        assert leftovers(directory, dataset) == []


def leftovers(directory, dataset):
    """Files that do not belong to the dataset."""
    known = {"index.json", "petastorm_bridge_schema.json"}
    known.update(shard.basenames[-1] for shard in dataset.shards)
    return sorted(set(os.listdir(directory)) ^ known)


@settings(max_examples=60)
@given(written_tables(max_rows=40))
def test_the_stock_reader_reads_every_shard(case):
    """Shard by shard with the reader that StreamingDataset uses, which takes milliseconds."""
    reader = pytest.importorskip("streaming.base.format.mds.reader").MDSReader
    table, batches, options = case
    with tempfile.TemporaryDirectory() as directory:
        dataset = write(directory, table, batches, **options)
        samples = []
        for entry in naive.read_index(directory)["shards"]:
            raw = os.path.join(directory, entry["raw_data"]["basename"])
            if entry["zip_data"]:
                with open(raw, "wb") as out:
                    out.write(naive.read_shard_file(directory, entry))
            shard = reader.from_json(directory, None, entry)
            samples += [shard[row] for row in range(len(shard))]
        check_stock(dataset, samples)


def check_stock(dataset, samples):
    """Samples of a stock reader have one set of keys and, decoded, the naive reader's values."""
    expected = naive.stored_rows(dataset.directory)
    assert len(samples) == len(expected)
    for sample, row in zip(samples, expected, strict=True):
        assert {name: stock_value(value) for name, value in sample.items()} == comparable(row)
    keys = {f.name for f in dataset.schema.fields}
    keys |= {f.null_column for f in dataset.schema.fields if f.null_column}
    keys |= {f.element_null_column for f in dataset.schema.fields if f.element_null_column}
    assert all(set(sample) == keys for sample in samples)


def stock_value(value):
    """A value of a stock sample in the form of :func:`comparable`."""
    if isinstance(value, np.ndarray | np.generic):
        return comparable(value.tolist())
    return comparable(value)


# Nulls in some shards only, of every kind that is flagged and of one that is not.
UNEVEN = pa.table(
    {
        "whole": pa.array([1, 2, 3, 4, None, 6]),
        "text": pa.array(["a", None, "c", "d", "e", "f"]),
        "list": pa.array([[1], [2], [], [4], [5, None], [6]], pa.list_(pa.int16())),
        "words": pa.array([["a"], [], None, ["d"], [None], []], pa.list_(pa.string())),
        "float": pa.array([1.0, None, 3.0, 4.0, 5.0, 6.0], pa.float32()),
        "time": pa.array([1, 2, 3, None, 5, 6], pa.timestamp("us")),
        "sure": pa.array([True, False] * 3),
        "money": pa.array([Decimal("1.50"), None] * 3, pa.decimal128(5, 2)),
    }
)


# The stock reader leaves the files that it decompresses to the collector.
@pytest.mark.filterwarnings("ignore:unclosed file .*mds:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <_io.FileIO name='.*mds")
@pytest.mark.parametrize("compression", [None, "zstd:3", "gz", "snappy", "br", "bz2"])
def test_streaming_dataset_gives_the_same_samples(tmp_path, compression):
    """The whole stock path: hashes, decompression, several shards, the same keys in each sample."""
    streaming = pytest.importorskip("streaming")
    dataset = write(
        str(tmp_path), UNEVEN, min_rows=2, size_limit=1, compression=compression, hashes=("sha1",)
    )
    assert [shard.samples for shard in dataset.shards] == [2, 2, 2]
    stock = streaming.StreamingDataset(
        local=str(tmp_path), batch_size=1, validate_hash="sha1", shuffle=False
    )
    check_stock(dataset, [stock[row] for row in range(len(stock))])
    assert read_table(open_dataset(str(tmp_path))).num_rows == 6
    for name in UNEVEN.schema.names:
        assert plain(read_table(dataset)[name]) == plain(UNEVEN[name])
    fields = {field.name: field for field in dataset.schema.fields}
    assert {name: field.nulls for name, field in fields.items()} == {
        name: UNEVEN[name].null_count for name in UNEVEN.schema.names
    }
    assert (fields["list"].element_nulls, fields["words"].element_nulls) == (1, 1)


def check_naive(directory, table):
    rows = naive.logical_rows(directory)
    assert len(rows) == table.num_rows
    for name in table.schema.names:
        found = [comparable(row[name]) for row in rows]
        assert found == plain(table[name]), name


def check_random_access(dataset):
    """Slices and arrays of row numbers give those rows, from views and from Arrow arrays."""
    random = np.random.default_rng(0)
    for entry in dataset.shards:
        shard = open_shard(dataset.directory, entry)
        count = entry.samples
        selections = [
            slice(count // 3, count - count // 4),
            slice(count, None),
            np.arange(count)[::-1].copy(),
            random.integers(0, count, count + 3),
            np.empty(0, np.int64),
        ]
        for field in dataset.schema.fields:
            assert field.name in shard
            everything = column_array(shard, field, slice(None))
            for rows in selections:
                chosen = np.arange(count)[rows]
                expected = plain(everything.take(pa.array(chosen)))
                found = column_array(shard, field, rows)
                found.validate(full=True)
                assert found.type == field.type
                assert plain(found) == expected
                view = column_view(shard, field, rows)
                if view is not None:
                    assert plain_view(view, field.type) == expected


def plain_view(view, type_):
    """The values of a NumPy view in the form of :func:`random_tables.plain`."""
    if is_list(type_):
        return [plain_view(row, type_.value_type) for row in view]
    if view.dtype.kind in "mM":
        nat = np.iinfo(np.int64).min
        return [None if value == nat else value for value in view.astype(np.int64).tolist()]
    return comparable(view.tolist())
