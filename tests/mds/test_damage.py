"""Datasets that are not what they should be: one clear error each, never a wrong row."""

import base64
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasets import read_table
from sample_datasets import ROWS, fixed_table, mixed_table, write

from petastorm_bridge import make_batch_reader
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.errors import DatasetError, DatasetNotFoundError, ShardCorruptedError
from petastorm_bridge.mds.schema import content_digest

TABLES = {"fixed": fixed_table, "mixed": mixed_table}
SIDECAR = "petastorm_bridge_schema.json"


@pytest.fixture(params=list(TABLES))
def table(request):
    return TABLES[request.param]()


def shard_path(directory, number=0):
    """Path of one shard's file as written."""
    entry = open_dataset(directory).shards[number]
    return os.path.join(directory, entry.basenames[-1])


def edit_index(directory, edit):
    """Let ``edit`` change the parsed index."""
    path = Path(directory, "index.json")
    index = json.loads(path.read_text("utf-8"))
    edit(index)
    path.write_text(json.dumps(index), "utf-8")


def edit_sidecar(directory, edit):
    """Let ``edit`` change the parsed sidecar, and give it the digest of what it says then."""
    path = Path(directory, SIDECAR)
    sidecar = json.loads(path.read_text("utf-8"))
    del sidecar["sha256"]
    edit(sidecar)
    sidecar["sha256"] = content_digest(sidecar)
    path.write_text(json.dumps(sidecar), "utf-8")


NO_COLUMNS = base64.b64encode(pa.schema([]).serialize().to_pybytes()).decode()


def forget_hashes(index):
    for shard in index["shards"]:
        for part in ("raw_data", "zip_data"):
            if shard[part]:
                shard[part]["hashes"] = {}


def read_all(directory):
    return read_table(open_dataset(directory))


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_truncated(tmp_path, table, compression):
    """At many positions, also when the index has forgotten hashes or agrees with the size."""
    directory = write(tmp_path, table, compression=compression)
    path = shard_path(directory)
    whole = Path(path).read_bytes()
    positions = {0, 1, 3, 4, 5, 8, len(whole) - 1, *range(0, len(whole), max(1, len(whole) // 40))}
    for position in sorted(positions):
        Path(path).write_bytes(whole[:position])
        with pytest.raises(ShardCorruptedError) as caught:
            read_all(directory)
        text = str(caught.value)
        assert path in text
        assert f"expected {len(whole)} bytes, found {position} bytes" in text
        assert "convert the DataFrame again" in text

    def agree(index):
        part = "zip_data" if compression else "raw_data"
        index["shards"][0][part]["bytes"] = position

    edit_index(directory, forget_hashes)
    # Below that there is no room for the offsets of the samples, which the index itself shows.
    rows = open_dataset(directory).shards[0].samples
    room = 0 if compression else 4 * (rows + 2)
    for position in sorted(positions):
        Path(path).write_bytes(whole[:position])
        edit_index(directory, agree)
        with pytest.raises(DatasetError) as caught:
            read_all(directory)
        if position < room:
            assert f"{rows} samples in {position} bytes" in str(caught.value)
        else:
            assert isinstance(caught.value, ShardCorruptedError)
            assert path in str(caught.value)


@pytest.mark.parametrize("compression", [None, "zstd", "snappy"])
def test_a_flipped_bit_is_found_by_its_hash(tmp_path, table, compression):
    directory = write(tmp_path, table, compression=compression)
    path = shard_path(directory)
    whole = Path(path).read_bytes()
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        Path(path).write_bytes(damaged)
        with pytest.raises(
            ShardCorruptedError, match=r"expected xxh64 [0-9a-f]+, found "
        ) as caught:
            read_all(directory)
        assert path in str(caught.value)


@pytest.mark.parametrize("moved", [-1, 1, -(1 << 20)])
def test_an_offset_that_moved(tmp_path, table, moved):
    """Stock readers would take other bytes for the samples on both sides of it."""
    directory = write(tmp_path, table)
    edit_index(directory, forget_hashes)
    path = Path(shard_path(directory))
    damaged = bytearray(path.read_bytes())
    offset = int.from_bytes(damaged[12:16], "little")
    damaged[12:16] = ((offset + moved) % 2**32).to_bytes(4, "little")
    path.write_bytes(damaged)
    with pytest.raises(ShardCorruptedError, match=r"samples of|bytes of columns in a sample"):
        read_all(directory)


@pytest.mark.parametrize("family", ["zstd", "gz", "snappy", "br", "bz2"])
def test_compressed_garbage_without_hashes(tmp_path, table, family):
    directory = write(tmp_path, table, compression=family)
    path = shard_path(directory)
    size = os.path.getsize(path)
    edit_index(directory, forget_hashes)
    for garbage in (b"\0" * size, b"\xff" * size, os.urandom(size)):
        Path(path).write_bytes(garbage)
        with pytest.raises(ShardCorruptedError, match=f"expected {family} data") as caught:
            read_all(directory)
        assert path in str(caught.value)


def test_other_data_of_the_right_compression(tmp_path, table):
    """A valid stream, but of another size."""
    from petastorm_bridge.mds.codecs import parse_compression

    for family in ("zstd", "gz", "snappy", "br", "bz2"):
        directory = write(tmp_path / family, table, compression=family)
        path = shard_path(directory)
        other = parse_compression(family).compress(b"something else")
        Path(path).write_bytes(other)
        file = {"bytes": len(other), "hashes": {}}
        edit_index(directory, lambda index, file=file: index["shards"][0]["zip_data"].update(file))
        with pytest.raises(ShardCorruptedError, match=f"expected {family} data"):
            read_all(directory)


def test_larger_than_the_index_says(tmp_path, table):
    directory = write(tmp_path, table)
    path = shard_path(directory)
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(ShardCorruptedError, match=r"expected \d+ bytes, found \d+ bytes"):
        read_all(directory)
    size = os.path.getsize(path)

    def agree(index):
        forget_hashes(index)
        index["shards"][0]["raw_data"]["bytes"] = size

    edit_index(directory, agree)
    with pytest.raises(ShardCorruptedError, match=rf"expected samples from byte \d+ to {size}"):
        read_all(directory)


@pytest.mark.parametrize("delta", [-1, 1, 1000, -ROWS, 2**40])
@pytest.mark.parametrize("has_sidecar", [True, False])
def test_wrong_row_count(tmp_path, table, delta, has_sidecar):
    directory = write(tmp_path, table)
    if not has_sidecar:
        os.remove(os.path.join(directory, SIDECAR))

    def edit(index):
        index["shards"][1]["samples"] += delta

    edit_index(directory, edit)
    with pytest.raises(DatasetError) as caught:
        read_all(directory)
    assert directory in str(caught.value)


def rename(entry):
    entry["column_names"][0] += "x"


def swap(entry):
    names = entry["column_names"]
    names[0], names[1] = names[1], names[0]


def drop(entry):
    for key in ("column_names", "column_encodings", "column_sizes"):
        del entry[key][0]


def add(entry):
    entry["column_names"].append("zzz")
    entry["column_encodings"].append("int8")
    entry["column_sizes"].append(1)


def retype(entry):
    entry["column_encodings"][entry["column_names"].index("i")] = "uint32"


def resize(entry):
    entry["column_sizes"][entry["column_names"].index("i")] = 8


def unsize(entry):
    entry["column_sizes"][entry["column_names"].index("i")] = None


def shorten(entry):
    del entry["column_sizes"][-1]


def repeat(entry):
    entry["column_names"][0] = entry["column_names"][1]


@pytest.mark.parametrize("edit", [rename, swap, drop, add, retype, resize, unsize, shorten, repeat])
@pytest.mark.parametrize("has_sidecar", [True, False])
def test_wrong_columns(tmp_path, table, edit, has_sidecar):
    directory = write(tmp_path, table)
    if not has_sidecar:
        os.remove(os.path.join(directory, SIDECAR))
    edit_index(directory, lambda index: edit(index["shards"][1]))
    with pytest.raises(DatasetError) as caught:
        read_all(directory)
    assert directory in str(caught.value)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_missing_shard(tmp_path, table, compression):
    directory = write(tmp_path, table, compression=compression)
    path = shard_path(directory, 1)
    os.remove(path)
    with pytest.raises(DatasetNotFoundError, match=r"Shard .* is missing.*convert") as caught:
        read_all(directory)
    assert path.removesuffix(".zstd") in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)


def test_empty_file(tmp_path, table):
    directory = write(tmp_path, table)
    path = shard_path(directory)
    Path(path).write_bytes(b"")
    with pytest.raises(ShardCorruptedError, match="found 0 bytes"):
        read_all(directory)
    edit_index(directory, lambda index: index["shards"][0]["raw_data"].update(bytes=0, hashes={}))
    with pytest.raises(DatasetError, match=r"not a usable MDS index .* samples in 0 bytes"):
        read_all(directory)


def test_no_index(tmp_path, table):
    directory = write(tmp_path, table)
    os.remove(os.path.join(directory, "index.json"))
    with pytest.raises(DatasetNotFoundError, match=r"index\.json is missing") as caught:
        open_dataset(directory)
    assert directory in str(caught.value)
    with pytest.raises(DatasetNotFoundError, match=r"index\.json is missing"):
        open_dataset(directory + "/nowhere")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "3",
        '"index"',
        "{}",
        '{"version": 3, "shards": []}',
        '{"version": 2}',
        '{"version": 2, "shards": 5}',
        '{"version": 2, "shards": [5]}',
        '{"version": 2, "shards": [null]}',
        '{"version": 2, "shards": [{}]}',
        '{"version": 2, "shards": [{"version": 1, "format": "mds"}]}',
        '{"version": 2, "shards": [{"version": 2, "format": "jsonl"}]}',
        '{"version": 2, "shards": [{"version": 2, "format": "mds"}]}',
        "[" * 100_000,
        "\xff\xfe",
    ],
)
def test_unusable_index(tmp_path, text):
    (tmp_path / "index.json").write_text(text, "latin-1")
    with pytest.raises(DatasetError) as caught:
        open_dataset(str(tmp_path))
    assert str(tmp_path / "index.json") in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 1),
        ("format", "csv"),
        ("samples", "many"),
        ("samples", -1),
        ("samples", None),
        ("samples", True),
        ("samples", 2.5),
        ("samples", float("inf")),
        ("samples", 10**30),
        ("samples", 10**9),
        ("raw_data", None),
        ("raw_data", []),
        ("raw_data", {"basename": "x"}),
        ("raw_data", {"basename": 5, "bytes": 1, "hashes": {}}),
        ("raw_data", {"basename": "x", "bytes": "1", "hashes": {}}),
        ("raw_data", {"basename": "x", "bytes": 1, "hashes": None}),
        ("raw_data", {"basename": "x", "bytes": -1, "hashes": {}}),
        ("raw_data", {"basename": "x", "bytes": 10**30, "hashes": {}}),
        ("raw_data", {"basename": "x", "bytes": True, "hashes": {}}),
        ("zip_data", {"basename": "x", "bytes": 1, "hashes": {}}),
        ("column_names", None),
        ("column_names", 5),
        ("column_encodings", [None] * 5),
        ("column_encodings", ["ndarray:complex64:3"] * 5),
        ("column_encodings", ["ndarray:object"] * 5),
        ("column_encodings", ["ndarray:int8:0"] * 5),
        ("column_encodings", ["ndarray:int8:-1"] * 5),
        ("column_encodings", ["ndarray:int8:x"] * 5),
        ("column_encodings", ["ndarray:int8:"] * 5),
        ("column_encodings", ["ndarray:"] * 5),
        ("column_sizes", None),
        ("column_sizes", ["a"] * 5),
        ("column_names", ["i", "f", "b", "t", "\ud800"]),
        ("column_names", ["i", "f", "b", "t", []]),
        ("column_names", "ifbtv"),
        ("column_encodings", ["ndarray:int8:99999999999"] * 5),
    ],
)
def test_unusable_entry(tmp_path, key, value):
    directory = write(tmp_path, fixed_table())
    edit_index(directory, lambda index: index["shards"][1].update({key: value}))
    with pytest.raises(DatasetError) as caught:
        open_dataset(directory)
    assert os.path.join(directory, "index.json") in str(caught.value)


def test_a_header_that_is_not_the_index_entry(tmp_path, table):
    """Another dataset's shard under the right name and size."""
    directory = write(tmp_path, table, hashes=())
    path = shard_path(directory)
    data = Path(path).read_bytes()
    for old, new in (
        (b'"column_names"', b'"column_nameX"'),
        (b'"int32"', b'"int3X"'),
        (b"{", b"["),
    ):
        assert old in data
        Path(path).write_bytes(data.replace(old, new, 1))
        with pytest.raises(ShardCorruptedError, match=r"expected (columns|a JSON header)"):
            read_all(directory)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda s: s.update(petastorm_bridge=2), "format 2, this release reads format 1; update"),
        (lambda s: s.update(petastorm_bridge=None), "update petastorm-bridge"),
        (lambda s: s.pop("arrow_schema"), "cannot be used"),
        (lambda s: s.update(arrow_schema="AAAA"), "cannot be used"),
        (lambda s: s.update(arrow_schema="not base64!"), "cannot be used"),
        (lambda s: s.update(columns=5), "cannot be used"),
        (lambda s: s.update(columns=[5]), "cannot be used"),
        (lambda s: s["columns"].append(dict(s["columns"][0])), "cannot be used"),
        (lambda s: s["columns"][0].pop("nulls"), "cannot be used"),
        (lambda s: s.update(num_rows=ROWS + 1), "13 rows there, 12 in the index"),
        (lambda s: s.update(num_rows=True), "a number of rows or nulls is True"),
        (lambda s: s.update(num_rows=None), "a number of rows or nulls is None"),
        (lambda s: s["columns"][0].update(nulls=-1), "a number of rows or nulls is -1"),
        (lambda s: s["columns"][0].update(name="other"), "not those of its Arrow schema"),
        (lambda s: s["columns"].reverse(), "not those of its Arrow schema"),
        (lambda s: s["columns"][0].update(null_column="f"), "cannot be used: columns"),
        (lambda s: s["columns"][0].update(null_column=[]), "cannot be used: columns"),
        (lambda s: s["columns"][0].update(null_column="q"), "column 'q' is uint8 there, missing"),
        (lambda s: s.update(columns=[]), "not those of its Arrow schema"),
        (lambda s: s.update(columns=[], arrow_schema=NO_COLUMNS), "columns .* are not there"),
        (lambda s: s.update(extra=[]), "extra"),
    ],
)
def test_unusable_sidecar(tmp_path, edit, message):
    directory = write(tmp_path, fixed_table())
    edit_sidecar(directory, edit)
    with pytest.raises(DatasetError, match=message) as caught:
        open_dataset(directory)
    assert os.path.join(directory, SIDECAR) in str(caught.value)


def test_a_sidecar_that_was_altered(tmp_path):
    """A type that its shards may have as well, and the end of all nulls."""
    directory = write(tmp_path, mixed_table())
    path = Path(directory, SIDECAR)
    text = path.read_text("utf-8")
    for old, new in (('"nulls": 3', '"nulls": 0'), ("timestamp[us]", "timestamp[ns]")):
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")
        with pytest.raises(DatasetError, match="altered or damaged after it was written"):
            open_dataset(directory)


@pytest.mark.parametrize("num_rows", [0, ROWS])
def test_an_index_without_shards(tmp_path, num_rows):
    directory = write(tmp_path, fixed_table())
    edit_index(directory, lambda index: index.update(shards=[]))
    edit_sidecar(directory, lambda sidecar: sidecar.update(num_rows=num_rows))
    if num_rows:
        with pytest.raises(DatasetError, match="12 rows there, 0 in the index"):
            open_dataset(directory)
    else:
        assert read_all(directory).num_rows == 0


def test_an_unknown_compression_names_the_index(tmp_path):
    directory = write(tmp_path, fixed_table(), compression="zstd")
    edit_index(directory, lambda index: index["shards"][0].update(compression="zsud"))
    with pytest.raises(DatasetError, match=r"index\.json .*Unknown shard compression 'zsud'"):
        open_dataset(directory)


# The pattern, and what an index may say instead of a shard's name.
BAD_NAMES = [
    ("without a name", ["", "."]),
    ("outside of its directory", ["..", "../x", "a/../../x", "/etc/passwd", "/", "a/.."]),
    ("no writer does", ["a//b", "./x", "a/./b", "a/", "..\\x", "x\0y"]),
    ("is no shard", ["index.json", SIDECAR, "0/index.json", "index.json/x"]),
    ("is no text", ["\ud800"]),
    ("is too long", ["x" * 201, "ü" * 101, "/".join(["x" * 100] * 11)]),
]


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize(
    ("problem", "name"), [(problem, name) for problem, names in BAD_NAMES for name in names]
)
def test_names_that_lead_elsewhere(tmp_path, problem, name, compression):
    directory = write(tmp_path, fixed_table(), compression=compression)
    part = "zip_data" if compression else "raw_data"
    edit_index(directory, lambda index: index["shards"][1][part].update(basename=name))
    with pytest.raises(DatasetError, match=problem) as caught:
        open_dataset(directory)
    assert os.path.join(directory, "index.json") in str(caught.value)


def test_a_file_that_is_also_a_folder(tmp_path):
    directory = write(tmp_path, fixed_table())
    name = "shard.00000.mds/x"
    edit_index(directory, lambda index: index["shards"][1]["raw_data"].update(basename=name))
    with pytest.raises(DatasetError, match="both as a file and as a folder"):
        open_dataset(directory)


def make_fifo(path):
    os.mkfifo(path)


def make_loop(path):
    os.symlink(path, path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(os.path.dirname(path))  # the system's limit of such paths is short
        made.bind(os.path.basename(path))


def make_device(path):
    os.symlink("/dev/zero", path)


@pytest.mark.parametrize("make", [make_fifo, os.mkdir, make_device, make_loop, make_socket])
@pytest.mark.parametrize("name", ["index.json", SIDECAR, "shard.00001.mds"])
def test_what_is_no_file_is_refused_at_once(tmp_path, monkeypatch, make, name):
    monkeypatch.chdir(tmp_path)
    directory = write(tmp_path, fixed_table())
    path = os.path.join(directory, name)
    os.remove(path)
    make(path)
    with pytest.raises(DatasetError, match=r"no regular file|cannot be opened as a file") as caught:
        read_all(directory)
    assert path in str(caught.value)


def test_a_shard_is_checked_again_when_another_hash_is_asked_of_it(tmp_path):
    directory = write(tmp_path, fixed_table())
    assert read_all(directory).num_rows == ROWS

    def repeat_the_last(index):
        first, last = (shard["raw_data"] for shard in index["shards"])
        first.update(basename=last["basename"])

    edit_index(directory, repeat_the_last)
    with pytest.raises(ShardCorruptedError, match=r"shard\.00001\.mds .* expected xxh64"):
        read_all(directory)


def test_a_shard_is_checked_again_when_it_was_replaced_with_its_date_kept(tmp_path):
    directory = write(tmp_path, fixed_table())
    assert read_all(directory).num_rows == ROWS
    path = shard_path(directory)
    status, data = os.stat(path), bytearray(Path(path).read_bytes())
    data[-1] ^= 1
    for replace in (True, False):
        with open(path + ".new" if replace else path, "r+b" if not replace else "wb") as file:
            file.write(data)
        os.utime(file.name, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.replace(file.name, path)
        with pytest.raises(ShardCorruptedError, match="expected xxh64"):
            read_all(directory)


@pytest.mark.parametrize("pool", ["dummy", "thread", "process"])
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("is_renamed", [True, False], ids=["renamed", "written"])
def test_rows_of_another_shard_where_no_hash_tells(tmp_path, pool, compression, is_renamed):
    """It has the same size, and takes the place of one in the middle of a reader's passes."""
    paths = []
    noise = np.random.default_rng(0).integers(0, 2**62, ROWS)  # as large when compressed
    for folder, numbers in (("data", noise), ("other", -noise)):
        directory = write(tmp_path / folder, pa.table({"id": numbers}), compression=compression)
        edit_index(directory, forget_hashes)
        paths.append(shard_path(directory, 1))
    status = os.stat(paths[0])

    def replace():
        os.utime(paths[1], ns=(status.st_atime_ns, status.st_mtime_ns + (not is_renamed)))
        if is_renamed:
            os.replace(paths[1], paths[0])
        else:
            # Without cutting it short before: reading a mapping that is short of bytes ends the process.
            with open(paths[0], "r+b") as file:
                file.write(Path(paths[1]).read_bytes())

    options = {"reader_pool_type": pool, "workers_count": 1, "results_queue_size": 1}
    read = make_batch_reader(f"file://{tmp_path}/data", num_epochs=200, **options)
    with read as reader:
        next(reader)
        replace()
        with pytest.raises(ShardCorruptedError, match=r"00001\.mds.* was replaced"):
            assert all(min(group.id) > 0 for group in reader)


CUT = """
import os, sys
from petastorm_bridge.mds import codecs
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.shard import open_shard

decompress = codecs.Compression.decompress

def cut_and_decompress(self, data, size):
    os.truncate(sys.argv[2], 0)
    return decompress(self, data, size)

codecs.Compression.decompress = cut_and_decompress
print(open_shard(sys.argv[1], open_dataset(sys.argv[1]).shards[0]).num_rows)
"""


def test_a_file_that_is_cut_short_while_it_is_expanded(tmp_path):
    """Its pages are read by then; a mapping would end the process."""
    noise = np.random.default_rng(0).integers(0, 2**62, 100_000)
    directory = write(tmp_path, pa.table({"id": noise}), compression="zstd", min_rows=50_000)
    path = shard_path(directory, 0)
    command = [sys.executable, "-c", CUT, directory, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "50000\n"), done.stderr
    assert os.path.getsize(path) == 0


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null"])
def test_a_sidecar_that_is_none(tmp_path, text):
    directory = write(tmp_path, fixed_table())
    Path(directory, SIDECAR).write_text(text, "utf-8")
    with pytest.raises(DatasetError) as caught:
        open_dataset(directory)
    assert os.path.join(directory, SIDECAR) in str(caught.value)


def test_a_sidecar_left_from_another_dataset(tmp_path):
    """Some program wrote the directory again and did not know the sidecar."""
    directory = write(tmp_path / "a", fixed_table())
    other = fixed_table().set_column(0, "i", pa.array(["text"] * ROWS))
    sidecar = Path(write(tmp_path / "b", other), SIDECAR).read_bytes()
    Path(directory, SIDECAR).write_bytes(sidecar)
    with pytest.raises(
        DatasetError, match=r"'i' is string there, int32 in shard\.00000\.mds.*delete"
    ):
        open_dataset(directory)
    os.remove(os.path.join(directory, SIDECAR))
    assert read_all(directory).num_rows == ROWS


def test_text_that_is_no_text(tmp_path):
    """Bytes that are no UTF-8, and JSON that is none, in a shard whose sizes are right."""
    table = pa.table({"s": ["abcd"] * 8, "j": [["ab"]] * 8})
    directory = write(tmp_path, table, hashes=())
    path = shard_path(directory)
    data = Path(path).read_bytes()
    for name, old, new in (
        ("s", b"abcd", b"ab\xff\xfe"),
        ("j", b'["ab"]', b'["ab",'),
        ("j", b'["ab"]', b'["\xff\xfe"]'),
        ("j", b'["ab"]', b"nonull"),
        ("j", b'["ab"]', b'{"a":}'),
        ("j", b'["ab"]', b"[null]"[:5] + b"\n"),
    ):
        Path(path).write_bytes(data.replace(old, new, 1))
        dataset = open_dataset(directory)
        with pytest.raises(
            ShardCorruptedError, match=f"expected a column '{name}' of type "
        ) as caught:
            read_table(dataset)
        assert path in str(caught.value)


WRITE_UNTIL_FULL = """
import os, signal, sys
import pyarrow as pa
from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.writer import ShardWriter

directory, limit, compression = sys.argv[1], int(sys.argv[2]), sys.argv[3] or None
if limit:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
schema = pa.schema([("x", pa.string())])
writer = ShardWriter(schema, directory, min_rows=1, size_limit=1, compression=compression)
rows = int(sys.argv[4])
width = int(sys.argv[5])
try:
    for row in range(rows):
        writer.write(pa.RecordBatch.from_pydict({"x": [os.urandom(width).hex()]}))
    commit_dataset(directory, schema, writer.finish(), {"note": "n" * int(sys.argv[6])})
except OSError as error:
    print(type(error).__name__, error.errno, error.filename)
    print(sorted(name for name in os.listdir(directory) if not name.endswith((".mds", ".zstd"))))
    writer.abort()
    print(sorted(name for name in os.listdir(directory)))
else:
    print("written")
"""


def write_until_full(directory, limit, compression="", rows=20, width=1000, note=0, prefix=()):
    arguments = [str(directory), str(limit), compression, str(rows), str(width), str(note)]
    done = subprocess.run(
        [*prefix, sys.executable, "-c", WRITE_UNTIL_FULL, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("compression", ["", "zstd"])
def test_a_shard_that_cannot_be_written(tmp_path, compression):
    """A limit on file sizes stands for a full disk; both are OSErrors of write()."""
    error, left, after_abort = write_until_full(tmp_path, 1200, compression)
    assert error.startswith(f"OSError 27 {tmp_path}/shard.00000.mds")
    assert (left, after_abort) == ("[]", "[]")


@pytest.mark.parametrize(
    ("rows", "note", "name"), [(1, 5000, SIDECAR), (12, 0, "index.json")], ids=["sidecar", "index"]
)
def test_a_commit_that_cannot_be_written(tmp_path, rows, note, name):
    error, left, _ = write_until_full(tmp_path, 3000, rows=rows, note=note, width=10)
    assert error == f"OSError 27 {tmp_path}/{name}"
    assert left == ("[]" if name == SIDECAR else f"['{SIDECAR}']")
    with pytest.raises(DatasetNotFoundError):
        open_dataset(str(tmp_path))


def test_a_disk_that_is_really_full(tmp_path):
    """On a file system of 64 KiB, where this user may mount one."""
    mount = ["unshare", "--mount", "--map-root-user"]
    script = f'mount -t tmpfs -o size=64k tmpfs {tmp_path} && exec "$@"'
    try:
        subprocess.run([*mount, "sh", "-c", script, "sh", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a file system: {error}")
    lines = write_until_full(tmp_path, 0, prefix=[*mount, "sh", "-c", script, "sh"], width=4000)
    error, left, after_abort = lines
    assert error.startswith(f"OSError 28 {tmp_path}/shard.0000")
    assert (left, after_abort) == ("[]", "[]")


def test_what_was_read_of_an_index_is_forgotten_when_it_changes(tmp_path):
    """Opening the same dataset for every epoch parses it once."""
    directory = tmp_path / "data"
    write(directory, fixed_table())
    first = open_dataset(str(directory))
    assert open_dataset(str(directory)).shards is first.shards
    index = directory / "index.json"
    content = json.loads(index.read_text("utf-8"))
    content["shards"] = content["shards"][:1]
    index.write_text(json.dumps(content), "utf-8")
    (directory / "petastorm_bridge_schema.json").unlink()
    assert len(open_dataset(str(directory)).shards) == 1 < len(first.shards)
    index.unlink()
    with pytest.raises(DatasetNotFoundError):
        open_dataset(str(directory))
