"""How shards are cut, named and committed, and what is refused."""

import errno
import itertools
import json
import os
import pickle
import subprocess
import sys
import tempfile
import tracemalloc

import naive
import numpy as np
import pyarrow as pa
import pytest
from datasets import read_table
from hypothesis import given, settings
from hypothesis import strategies as st

from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.encode import costly_values, row_sizes
from petastorm_bridge.mds.files import write_whole
from petastorm_bridge.mds.ragged import typed_strings
from petastorm_bridge.mds.types import is_storable
from petastorm_bridge.mds.writer import ShardWriter


def cut_naively(sizes, size_limit, min_rows, least_bytes):
    """Rows of each shard: a row starts a new one if it would not fit, and the last has rows or bytes enough."""
    shards = []
    used = 0
    for size in sizes:
        limit = size_limit
        if shards and shards[-1] < min_rows:
            limit = max(size_limit, least_bytes)
        if shards and used + size <= limit:
            shards[-1] += 1
            used += size
        else:
            shards.append(1)
            used = size
    return shards


@settings(max_examples=60)
@given(
    # Multiples of four, so that rows often fit exactly.
    lengths=st.lists(st.integers(0, 4).map(lambda n: 4 * n), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    size_limit=st.integers(1, 60).map(lambda n: 4 * n),
    min_rows=st.integers(0, 8),
    least_bytes=st.integers(1, 60).map(lambda n: 4 * n),
)
def test_shards_are_cut_by_rows_and_bytes_wherever_batches_end(
    lengths, cuts, size_limit, min_rows, least_bytes
):
    table = pa.table({"s": ["x" * length for length in lengths], "i": range(len(lengths))})
    bounds = [0, *sorted(min(cut, len(lengths)) for cut in cuts), len(lengths)]
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr("petastorm_bridge.mds.writer._LEAST_BYTES", least_bytes)
        writer = ShardWriter(
            table.schema, directory, prefix="p", size_limit=size_limit, min_rows=min_rows
        )
        for start, stop in itertools.pairwise(bounds):
            for batch in table.slice(start, stop - start).to_batches():
                writer.write(batch)
        infos = writer.finish()
        # An offset and an int64 in every row; a size word and the text.
        sizes = [4 + 8 + 4 + length for length in lengths]
        expected = cut_naively(sizes, size_limit, min_rows, least_bytes)
        assert [info["index"]["samples"] for info in infos] == expected
        names = [info["index"]["raw_data"]["basename"] for info in infos]
        assert names == [f"p.{number:05}.mds" for number in range(len(expected))]
        assert sorted(os.listdir(directory)) == names
        commit_dataset(directory, table.schema, infos)
        assert read_table(open_dataset(directory)).equals(table)


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int16(), [1, None]),
        (pa.string(), ["", "abc", None]),
        (pa.binary(3), [b"abc", None]),
        (pa.decimal128(9, 3), [None, 1]),
        (pa.list_(pa.float32()), [[], [1.0] * 300, None]),
        (pa.list_(pa.string()), [[], ["a", None, '"'], None]),
    ],
)
def test_row_sizes_bound_what_a_row_takes(tmp_path, type_, values):
    """Without null flags, which are known only later."""
    table = pa.table({"x": pa.array(values, type_)})
    writer = ShardWriter(table.schema, str(tmp_path))
    writer.write(table.to_batches()[0])
    entry = writer.finish()[0]["index"]
    data = naive.read_shard_file(str(tmp_path), entry)
    offsets = np.frombuffer(data, "<u4", len(values) + 1, 4)
    flags = sum(name.endswith("is_null") for name in entry["column_names"])
    array = table["x"].chunk(0)
    assert (np.diff(offsets.astype(int)) <= row_sizes(array, costly_values(array)) + flags).all()


@pytest.mark.parametrize(
    ("row_bytes", "size_limit", "expected"),
    [
        (2_000_000, 8 << 20, [4, 4, 2]),  # at the limit, however few rows there are
        (2_000_000, 1 << 20, [1] * 10),  # a row that is larger
        (300_000, 1, [3, 3, 3, 1]),  # a tiny limit
        (300, 1, [10]),
    ],
)
def test_few_large_rows_are_not_forced_into_one_shard(tmp_path, row_bytes, size_limit, expected):
    table = pa.table({"x": [b"y" * row_bytes] * 10})
    writer = ShardWriter(table.schema, str(tmp_path), size_limit=size_limit)
    for batch in table.to_batches(max_chunksize=7):
        writer.write(batch)
    assert [info["index"]["samples"] for info in writer.finish()] == expected


def test_no_shard_is_larger_than_mds_offsets_can_address(tmp_path, monkeypatch):
    monkeypatch.setattr("petastorm_bridge.mds.writer.MAX_SHARD_BYTES", 2 << 20)
    table = pa.table({"x": [b"y" * 600_000] * 7})
    writer = ShardWriter(table.schema, str(tmp_path), size_limit=1 << 40)
    writer.write(table.to_batches()[0])
    assert [info["index"]["samples"] for info in writer.finish()] == [3, 3, 1]


def test_a_shard_too_large_for_its_offsets_is_an_error(monkeypatch, tmp_path):
    from petastorm_bridge.mds import layout
    from petastorm_bridge.mds.encode import StoredColumn

    # A column of 5 GiB that takes no memory.
    column = StoredColumn(
        "x", "ndarray:uint8:1073741824", np.broadcast_to(np.uint8(0), (5, 1 << 30))
    )
    monkeypatch.setattr(
        layout, "_samples", lambda columns, layout, rows: (b"", np.full(rows, 1 << 30, np.int64))
    )
    with pytest.raises(OverflowError, match=r"5 rows would take 536\d+ bytes.*4 GiB"):
        layout.assemble_shard([column], layout.ShardLayout.of([column]), {})


def test_abort_removes_everything_written(tmp_path):
    table = pa.table({"x": range(100)})
    for compression in (None, "zstd"):
        writer = ShardWriter(
            table.schema, str(tmp_path), min_rows=10, size_limit=1, compression=compression
        )
        writer.write(table.to_batches()[0])
        assert len(os.listdir(tmp_path)) == 9  # the tenth waits for more rows
        writer.abort()
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "type_",
    [
        pa.null(),
        pa.struct([("a", pa.int32())]),
        pa.map_(pa.string(), pa.int32()),
        pa.list_(pa.list_(pa.int32())),
        pa.list_(pa.struct([("a", pa.int32())])),
        pa.list_(pa.null()),
        pa.list_(pa.int32(), 2),
        pa.dictionary(pa.int32(), pa.string()),
        pa.time64("us"),
        pa.date64(),
    ],
)
def test_types_that_cannot_be_stored(tmp_path, type_):
    assert not is_storable(type_)
    schema = pa.schema([("ok", pa.int32()), ("bad", type_)])
    with pytest.raises(
        TypeError, match=r"Column 'bad' of type .* cannot be stored in MDS.*Cast it"
    ):
        ShardWriter(schema, str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_wrong_settings(tmp_path):
    schema = pa.schema([("x", pa.int32())])
    with pytest.raises(ValueError, match=r"Unknown shard compression 'lz4'.*'zstd'"):
        ShardWriter(schema, str(tmp_path), compression="lz4")
    with pytest.raises(ValueError, match=r"Unknown hash 'crc'; this machine has .*sha1"):
        ShardWriter(schema, str(tmp_path), hashes=["sha1", "crc"])
    twice = pa.schema([("x", pa.int32()), ("x", pa.int64())])
    with pytest.raises(ValueError, match=r"names must differ, found \['x', 'x'\]"):
        ShardWriter(twice, str(tmp_path))


def test_batches_of_another_schema(tmp_path):
    writer = ShardWriter(pa.schema([("x", pa.int32()), ("y", pa.string())]), str(tmp_path))
    for columns in ({"x": pa.array([1], pa.int32())}, {"x": [1], "y": ["a"]}):
        with pytest.raises(TypeError, match=r"(?s)has columns x: .*, the writer expects x: int32"):
            writer.write(pa.RecordBatch.from_pydict(columns))
    assert writer.finish() == []


def test_a_directory_that_is_not_there(tmp_path):
    writer = ShardWriter(pa.schema([("x", pa.int64())]), str(tmp_path / "missing"))
    writer.write(pa.RecordBatch.from_pydict({"x": [1]}))
    with pytest.raises(FileNotFoundError, match=r"missing/shard\.00000\.mds"):
        writer.finish()


def test_an_empty_dataset(tmp_path):
    schema = pa.schema([("x", pa.int64()), ("l", pa.list_(pa.string()))])
    writer = ShardWriter(schema, str(tmp_path))
    writer.write(pa.RecordBatch.from_arrays([pa.array([], t) for t in schema.types], schema=schema))
    commit_dataset(str(tmp_path), schema, writer.finish())
    dataset = open_dataset(str(tmp_path))
    assert (dataset.num_rows, dataset.shards) == (0, ())
    assert read_table(dataset).equals(schema.empty_table())


def test_rows_without_columns_are_counted(tmp_path):
    commit_dataset(str(tmp_path), pa.schema([]), [], num_rows=7)
    assert open_dataset(str(tmp_path)).num_rows == 7


def write_uneven(directory):
    """Three shards, the middle one with nulls, and a column of floats whose nulls are NaN."""
    table = pa.table(
        {"x": [1, 2, None, 4, 5, 6], "f": pa.array([None, 1.0, 2.0, None, None, 3.0], pa.float64())}
    )
    writer = ShardWriter(table.schema, str(directory), min_rows=2, size_limit=1)
    writer.write(table.to_batches()[0])
    return table, writer.finish()


def test_shards_are_rewritten_by_whoever_the_caller_names(tmp_path):
    """The function travels to other machines, and a task there may run twice."""
    table, infos = write_uneven(tmp_path)
    seen = []

    def map_shards(function, todo):
        todo = list(todo)
        seen.extend(info["index"]["raw_data"]["basename"] for info in todo)
        for info in todo:
            pickle.loads(pickle.dumps(function))(str(tmp_path), json.loads(json.dumps(info)))
        return [pickle.loads(pickle.dumps(function))(str(tmp_path), info) for info in todo]

    before = json.dumps(infos)
    commit_dataset(str(tmp_path), table.schema, infos, {"note": 1}, map_shards=map_shards)
    assert seen == ["shard.00000.mds", "shard.00002.mds"]
    assert json.dumps(infos) == before
    dataset = open_dataset(str(tmp_path))
    assert dataset.schema.extra == {"note": 1}
    assert read_table(dataset)["x"].to_pylist() == table["x"].to_pylist()
    # Nulls are counted when they are first seen: afterwards they are NaN.
    assert {f.name: f.nulls for f in dataset.schema.fields} == {"x": 1, "f": 3}
    assert sorted(os.listdir(tmp_path)) == [
        "index.json",
        "petastorm_bridge_schema.json",
        "shard.00000.flags.mds",
        "shard.00001.mds",
        "shard.00002.flags.mds",
    ]


def test_a_failed_rewrite_leaves_nothing_visible_and_can_be_repeated(tmp_path):
    table, infos = write_uneven(tmp_path)

    def failing(function, todo):
        yield function(str(tmp_path), next(iter(todo)))
        raise ConnectionError("executor lost")

    with pytest.raises(ConnectionError):
        commit_dataset(str(tmp_path), table.schema, infos, map_shards=failing)
    assert "index.json" not in os.listdir(tmp_path)
    commit_dataset(str(tmp_path), table.schema, infos)
    assert open_dataset(str(tmp_path)).num_rows == 6


def test_costly_values_are_encoded_once(tmp_path, monkeypatch):
    """Text is written of decimals and JSON once, though their sizes decide where shards are cut."""
    from petastorm_bridge.mds import encode

    encoded = []
    original = encode.lists_to_json
    monkeypatch.setattr(
        encode, "lists_to_json", lambda array: encoded.append(len(array)) or original(array)
    )
    table = pa.table({"j": [["ab", None]] * 500, "d": pa.array([1] * 500, pa.decimal128(9, 2))})
    writer = ShardWriter(table.schema, str(tmp_path), size_limit=2000)
    for batch in table.to_batches(max_chunksize=70):
        writer.write(batch)
    commit_dataset(str(tmp_path), table.schema, writer.finish())
    assert sum(encoded) == 500
    dataset = open_dataset(str(tmp_path))
    assert len(dataset.shards) > 3
    assert read_table(dataset).equals(table)


def test_writing_a_shard_takes_little_more_than_its_rows(tmp_path):
    """One copy, which is the shard: none for the file, none for the hash."""
    rows = pa.array(np.arange(1 << 18, dtype=np.float64))
    table = pa.table({f"c{number}": rows for number in range(8)})
    writer = ShardWriter(table.schema, str(tmp_path), size_limit=1 << 30)
    tracemalloc.start()
    try:
        writer.write(table.to_batches()[0])
        writer.finish()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.6 * table.nbytes  # sizes and offsets of rows are the rest


WRITE_LARGE_ROWS = """
import sys, pyarrow as pa
from petastorm_bridge.mds.writer import ShardWriter

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) << 10

writer = ShardWriter(pa.schema({"x": pa.binary()}), sys.argv[1], size_limit=8 << 20)
first = 0
for number in range(int(sys.argv[2])):
    writer.write(pa.RecordBatch.from_pydict({"x": [bytes([number]) * 1_000_000]}))
    first = first or peak()
writer.finish()
print(peak() - first)
"""


@pytest.mark.parametrize("rows", [50, pytest.param(200, marks=pytest.mark.slow)])
def test_memory_of_large_rows_is_that_of_a_shard(tmp_path, rows):
    """However many there are; the rows, what they are joined to, and the shard's bytes."""
    command = [sys.executable, "-c", WRITE_LARGE_ROWS, str(tmp_path), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 5 * (8 << 20)


def test_writers_of_one_file_do_not_meet(tmp_path):
    """Each has a temporary file of its own; the last one wins, and none is left."""
    path = str(tmp_path / "file")
    with pytest.raises(OSError, match="No space"):
        write_whole(path, parts_that_write(path))
    assert (tmp_path / "file").read_bytes() == b"inner"
    assert os.listdir(tmp_path) == ["file"]


def parts_that_write(path):
    yield b"outer"
    write_whole(path, [b"inner"], is_durable=True)
    raise OSError(errno.ENOSPC, "No space")


def test_a_file_that_is_there_already_as_it_is_to_be_stays(tmp_path):
    """As what another machine has written of the same rows, which may be read already."""
    file = tmp_path / "file"
    parts = [memoryview(b"abc"), memoryview(b"defg")]
    write_whole(str(file), parts, in_place=True)
    before = file.stat()
    write_whole(str(file), parts, in_place=True)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    "put",
    [
        lambda file: file.write_bytes(b"abc"),  # half of it, by a process that was killed
        lambda file: file.write_bytes(b"abcdefgh"),
        lambda file: file.write_bytes(b"abcdefG"),
        lambda file: file.symlink_to("other"),  # of the same content
        lambda file: file.symlink_to("none"),
        os.mkfifo,
    ],
)
def test_whatever_else_is_there_is_replaced(tmp_path, put):
    file, other = tmp_path / "file", tmp_path / "other"
    other.write_bytes(b"abcdefg")
    put(file)
    write_whole(str(file), [b"abc", b"defg"], in_place=True)
    assert not file.is_symlink()
    assert file.read_bytes() == other.read_bytes() == b"abcdefg"
    assert sorted(os.listdir(tmp_path)) == ["file", "other"]


def test_sliced_cells_keep_their_nulls():
    """Cells that begin within a longer array, beside flags that begin with them."""
    cells = pa.array([b"w", b"x", b"y", b"z"], pa.large_binary()).slice(1)
    nulls = np.array([False, True, False])
    found = typed_strings(cells, pa.string(), nulls)
    assert found.to_pylist() == ["x", None, "z"]
