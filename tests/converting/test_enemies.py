"""Converting Petastorm's own datasets while somebody changes them, and from odd schemas and lists of files."""

import datetime as dt
import os
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import read_table
from stored import spark, write_stored

from petastorm_bridge import make_reader
from petastorm_bridge.codecs import (
    CompressedImageCodec,
    CompressedNdarrayCodec,
    NdarrayCodec,
    ScalarCodec,
)
from petastorm_bridge.convert import convert_dataset
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.unischema import Unischema, UnischemaField

SCHEMA = Unischema(
    "Odd",
    [
        UnischemaField("part", np.bool_, (), None, False),
        UnischemaField("id", np.int64, (), None, False),
        UnischemaField("größe", np.float32, (2,), NdarrayCodec(), True),
        UnischemaField("time", np.datetime64, (), ScalarCodec(spark("TimestampType")), True),
        UnischemaField("none", np.float32, (None, 0), NdarrayCodec(), False),
        UnischemaField("empty", np.int8, (0,), CompressedNdarrayCodec(), False),
        UnischemaField("self", np.int32, (), None, False),
        UnischemaField("dot", np.uint8, (1, 1, 3), CompressedImageCodec("png"), False),
    ],
)


def row(i):
    return {
        "part": np.bool_(i % 2),
        "id": np.int64(i),
        "größe": None if i % 3 == 0 else np.full(2, i, np.float32),
        "time": None if i % 4 == 0 else dt.datetime(2020, 1, 1, 0, 0, i % 60, 123456),
        "none": np.zeros((i % 3, 0), np.float32),
        "empty": np.zeros(0, np.int8),
        "self": np.int32(-i),
        "dot": np.full((1, 1, 3), i % 256, np.uint8),
    }


def expected(i):
    time = np.datetime64(row(i)["time"], "us") if row(i)["time"] else np.datetime64("NaT")
    return {**row(i), "time": time}


@pytest.mark.difference("partitions-of-booleans")
def test_odd_fields_are_read_and_converted(tmp_path):
    url = write_stored(tmp_path / "d", SCHEMA, [row(i) for i in range(30)], partition="part")
    with make_reader(url, workers_count=2) as reader:
        found = {int(each.id): each._asdict() for each in reader}
    assert found.keys() == set(range(30))
    for i, values in found.items():
        for name, value in expected(i).items():
            np.testing.assert_array_equal(values[name], value, err_msg=name)
    done = convert_dataset(url, tmp_path / "mds", workers=1)
    table = read_table(open_dataset(done.path)).sort_by("id")
    assert table["id"].to_pylist() == list(range(30))
    assert table["part"].to_pylist() == [bool(i % 2) for i in range(30)]
    assert table["self"].to_pylist() == [-i for i in range(30)]
    assert [v is None for v in table["größe"].to_pylist()] == [i % 3 == 0 for i in range(30)]
    assert [v is None for v in table["time"].to_pylist()] == [i % 4 == 0 for i in range(30)]


def test_files_of_a_dataset_find_its_schema(tmp_path):
    schema = SCHEMA.create_schema_view(["id", "größe"])
    rows = [{"id": np.int64(i), "größe": np.full(2, i, np.float32)} for i in range(30)]
    url = write_stored(tmp_path / "d", schema, rows, files=3)
    files = sorted((tmp_path / "d").glob("*.parquet"))
    done = convert_dataset(files[:2], tmp_path / "two", workers=1)
    assert (done.rows, done.encodings) == (20, {"größe": "ndarray:float32:2", "id": "int64"})
    # A reader takes single files for plain Parquet, as Petastorm's.
    with pytest.warns(UserWarning, match="supports reading only Petastorm datasets"):
        reader = make_reader(f"{url}/{files[2].name}")
    with reader:
        found = {int(each.id): each.größe for each in reader}
    assert set(found) == set(range(20, 30))
    assert all(isinstance(value, bytes) for value in found.values())


@pytest.mark.parametrize(
    ("field", "values", "said"),
    [
        ((np.int8, (), None), pa.array([1, 300]), "stored as int64.*Integer value 300"),
        ((np.int8, (), None), pa.array([1, 2], pa.timestamp("ns")), r"stored as timestamp\[ns\]"),
        ((np.float32, (2,), None), pa.array([1, 2]), "stored as int64.*cast"),
        ((np.float32, (2,), None), pa.array([{"a": 1}] * 2), "stored as struct"),
        ((np.uint8, (2, 2), NdarrayCodec()), pa.array([1.5, 2.5]), "stored as double.*cast"),
        ((np.str_, (None,), CompressedNdarrayCodec()), pa.array(["a", "b"]), "stored as string"),
        ((np.uint8, (2, 2), CompressedImageCodec("png")), pa.array([1, 2]), "stored as int64"),
        ((np.uint8, (2**40,), NdarrayCodec()), pa.array([b"a", b"b"]), "There are no others"),
    ],
)
def test_files_that_are_not_what_the_schema_says(tmp_path, field, values, said):
    dtype, shape, codec = field
    schema = Unischema("Other", [UnischemaField("value", dtype, shape, codec, True)])
    url = write_stored(tmp_path / "d", schema, [], files=1)
    pq.write_table(pa.table({"value": values}), tmp_path / "d" / "part-00000.parquet")
    with pytest.raises((DatasetError, TypeError), match=f"'value'.*{said}"):
        convert_dataset(url, tmp_path / "mds", workers=1)


def rewritten(path):
    table = pq.read_table(path)
    pq.write_table(table.slice(0, len(table) // 2), f"{path}.new", row_group_size=50)
    os.replace(f"{path}.new", path)


CHANGES = {
    "rewritten": (rewritten, "written again"),
    "deleted": (os.remove, "is missing"),
    "truncated": (lambda path: os.truncate(path, 1000), "written again"),
}


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changes_meanwhile_leaves_no_dataset(change, tmp_path):
    change, said = CHANGES[change]
    schema = SCHEMA.create_schema_view(["id", "größe"])
    rows = [{"id": np.int64(i), "größe": np.full(2, i, np.float32)} for i in range(4000)]
    write_stored(tmp_path / "d", schema, rows, files=4, row_group_rows=50)
    made = tmp_path / "mds"
    options = ["--size-limit", "20kb", "--workers", "1", "--quiet"]
    command = [sys.executable, "-m", "petastorm_bridge", "convert", tmp_path / "d", made, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not (made.is_dir() and list(made.glob("*.mds"))):
            assert process.poll() is None
            time.sleep(0.001)
        change(tmp_path / "d" / "part-00003.parquet")
        error = process.stderr.read()
    assert process.returncode == 2, error
    assert said in error
    assert error.count("\n") == 1
    assert not (made / "index.json").exists()


def test_dbfs_that_is_not_mounted_is_said(tmp_path):
    if os.path.isdir("/dbfs"):
        pytest.skip("DBFS is mounted here")
    schema = SCHEMA.create_schema_view(["id"])
    url = write_stored(tmp_path / "d", schema, [{"id": np.int64(1)}], files=1)
    with pytest.raises(ValueError, match="not mounted here"):
        convert_dataset(url, "dbfs:/tmp/mds")
    assert not os.path.exists("/dbfs")
