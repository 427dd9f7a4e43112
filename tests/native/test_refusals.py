"""What tensors cannot hold is refused in one message, and nothing half written stays."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

REFUSED = {
    "price": ("cast(id as decimal(10, 2))", "cast it to double"),
    "day": ("date'2020-01-02'", "cast it to timestamp"),
    "span": ("interval '1' day", "cast it to bigint"),
    "nothing": ("null", "cast it to a number"),
    "pairs": ("map('a', id)", "select its values"),
    "parts": ("named_struct('a', id)", "select its fields"),
    "nested": ("array(array(id))", "flatten it"),
    "words": ("array('a')", "cast its elements to numbers"),
    "blobs": ("array(binary('a'))", "cast its elements to numbers"),
    "prices": ("array(cast(id as decimal(10, 2)))", "cast its elements to numbers"),
}
NULLS = {
    "name": ("if(id = 3, null, string(id))", "of type string, with nulls"),
    "blob": ("if(id = 3, null, binary(string(id)))", "of type binary, with nulls"),
    "flag": ("if(id = 3, null, id > 1)", "of type boolean, with nulls"),
    "ids": ("if(id = 3, null, array(id))", "of type array<bigint>, and null in some rows"),
    "moments": (
        "if(id = 3, null, array(timestamp'2020-01-01'))",
        "of type array<timestamp>, and null in some rows",
    ),
    "flags": (
        "array(id > 1, if(id = 3, null, true))",
        "of type array<boolean>, with nulls in the arrays",
    ),
}


def frame_of(spark, columns):
    chosen = [f"{sql} as {name}" for name, (sql, _) in columns.items()]
    return spark.range(7, numPartitions=2).selectExpr("id", "if(id = 1, null, 5) as held", *chosen)


@pytest.mark.parametrize("columns", [REFUSED, NULLS], ids=["types", "nulls"])
def test_one_message_names_every_column(native, write_mds, spark, tmp_path, columns):
    out = tmp_path / "mds"
    with pytest.raises(ValueError, match="streaming cannot give these columns") as caught:
        write_mds(frame_of(spark, columns), str(out))
    assert isinstance(caught.value, native.UnsupportedColumnsError)
    lines = str(caught.value).splitlines()[1:-1]
    assert len(lines) == len(columns)
    for line, (name, (_, advice)) in zip(lines, columns.items(), strict=True):
        assert line.startswith(f"  {name}: ")
        assert advice in line
    assert "petastorm_bridge's make_spark_converter" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_null_vectors(native, write_mds, spark, tmp_path):
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql.types import StructField, StructType

    schema = StructType([StructField("vector", VectorUDT())])
    frame = spark.createDataFrame([(Vectors.dense([1.0]),), (None,)], schema)
    with pytest.raises(
        native.UnsupportedColumnsError, match="vector: of type vector, and null in some"
    ):
        write_mds(frame, str(tmp_path / "mds"))


def test_both_forms_say_the_same(both_writers, spark, tmp_path):
    said = set()
    for write_mds in both_writers.values():
        with pytest.raises(ValueError, match="cannot give these") as caught:
            write_mds(frame_of(spark, NULLS), str(tmp_path / "mds"))
        said.add(str(caught.value))
    assert len(said) == 1


def test_types_are_refused_before_anything_is_computed(native, write_mds, spark, tmp_path):
    frame = spark.range(3).selectExpr("cast(id as decimal(3, 0)) as d", "raise_error('run') as e")
    with pytest.raises(native.UnsupportedColumnsError):
        write_mds(frame, str(tmp_path / "mds"))


def test_empty_frames(write_mds, spark, tmp_path):
    with pytest.raises(ValueError, match=r"(?i)no rows|empty"):
        write_mds(spark.range(0), str(tmp_path / "mds"))
    assert os.listdir(tmp_path) == []


def test_what_is_there_stays(write_mds, spark, tmp_path):
    (tmp_path / "mds").mkdir()
    (tmp_path / "mds" / "mine").write_text("kept")
    with pytest.raises(FileExistsError, match="is there already"):
        write_mds(spark.range(3), str(tmp_path / "mds"))
    assert (tmp_path / "mds" / "mine").read_text() == "kept"


@pytest.mark.parametrize("arguments", [{"dtype": "float16"}, {"compression": "lzma"}])
def test_arguments_that_mean_nothing(write_mds, spark, tmp_path, arguments):
    with pytest.raises(Exception, match=r"dtype|lzma"):
        write_mds(spark.range(3), str(tmp_path / "mds"), **arguments)
    assert os.listdir(tmp_path) == []


def test_no_place_to_write_to(write_mds, spark, cache_dir, monkeypatch):
    monkeypatch.delenv("PETASTORM_BRIDGE_PARENT_CACHE_DIR_URL", raising=False)
    spark.conf.unset("petastorm.spark.converter.parentCacheDirUrl")
    with pytest.raises(ValueError, match="give `out`"):
        write_mds(spark.range(1))


def test_a_job_that_fails_leaves_nothing(write_mds, spark, tmp_path):
    frame = spark.range(2000, numPartitions=4).selectExpr(
        "if(id = 1999, int(raise_error('this one')), 1) as v"
    )
    with pytest.raises(Exception, match="this one"):
        write_mds(frame, str(tmp_path / "mds"), size_limit=1 << 12)
    assert os.listdir(tmp_path) == []


KILLED = """
import importlib, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
module, out = sys.argv[1:]
frame = spark.range(1_000_000, numPartitions=2)
importlib.import_module(module).write_mds(frame, out, size_limit=1 << 12)
"""


@pytest.mark.modern
@pytest.mark.slow
def test_killed_while_writing(native, tmp_path, streaming):
    """No index says that what a killed program wrote is a dataset."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(KILLED))
    out = tmp_path / "mds"
    program = subprocess.Popen(
        [sys.executable, str(script), native.__name__, str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + 300
        while not any("mds" in file for _, _, files in os.walk(out) for file in files):
            assert program.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    assert not (out / "index.json").exists()
    with pytest.raises(Exception, match=r"index|No such file"):
        streaming.StreamingDataset(local=str(out), batch_size=1)
