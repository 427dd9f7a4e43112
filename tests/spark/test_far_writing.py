"""Conversions into a mount that answers late and refuses what mounts of object stores refuse."""

import importlib
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import read_table
from far_mount import far_mount, no_mount_because

from petastorm_bridge import make_reader
from petastorm_bridge import mds_support as support
from petastorm_bridge.codecs import ScalarCodec
from petastorm_bridge.etl.dataset_metadata import materialize_dataset
from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.writer import ShardWriter
from petastorm_bridge.spark import make_spark_converter
from petastorm_bridge.spark._session import MaterializationError
from petastorm_bridge.unischema import Unischema, UnischemaField

pytestmark = [
    pytest.mark.modern,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(no_mount_because() is not None, reason=str(no_mount_because())),
]

ROWS = 4000


@pytest.fixture(scope="module", params=["renaming by copying", "renaming nothing"])
def mount(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("far")
    (folder / "behind").mkdir()
    renaming = request.param == "renaming by copying"
    with far_mount(
        folder / "behind", folder / "far", seconds=0.002, refusing=True, renaming=renaming
    ) as mount:
        yield mount


@pytest.fixture
def place(mount, request):
    """A new directory there, and the same one without the mount."""
    name = f"place{time.monotonic_ns()}"
    (mount.behind / name).mkdir()
    yield mount.path / name
    shutil.rmtree(mount.behind / name)


def frame(spark, value="id"):
    return spark.range(0, ROWS, 1, 4).selectExpr("id", f"{value} as x")


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_a_converter(spark, mount, place, codec):
    mount.start_counting()
    converter = make_spark_converter(frame(spark), 4000, codec, parent_cache_dir_url=place.as_uri())
    counts = mount.counts()
    (made,) = (mount.behind / place.name).iterdir()
    shards = [path for path in made.iterdir() if ".mds" in path.name]
    assert len(shards) >= 8
    assert sorted({path.name for path in made.iterdir()} - {path.name for path in shards}) == [
        "_petastorm_bridge_cache.json",
        "index.json",
        "petastorm_bridge_schema.json",
    ]
    # Files are written once, and only the index is renamed, which would be writing the others again.
    assert counts["rename"] == 1
    assert counts["create"] <= len(shards) + 4
    assert counts.get("readdir", 0) <= 1
    # Nothing is read back; where nothing can be renamed, the index is copied from its temporary file.
    assert all(name.endswith(".tmp") for name in counts if name.startswith("read "))
    assert read_table(open_dataset(str(made)))["id"].to_pylist() == list(range(ROWS))
    with converter.make_torch_dataloader(batch_size=100, num_epochs=1) as loader:
        assert sorted(i for batch in loader for i in batch["id"].tolist()) == list(range(ROWS))
    converter.delete()
    assert not made.exists()


def test_shards_that_are_written_again_for_null_flags(spark, mount, place):
    nulls = frame(spark, "if(id = 3, null, id)")
    converter = make_spark_converter(nulls, 4000, parent_cache_dir_url=place.as_uri())
    (made,) = (mount.behind / place.name).iterdir()
    expected = [None if i == 3 else i for i in range(ROWS)]
    assert read_table(open_dataset(str(made)))["x"].to_pylist() == expected
    converter.delete()
    assert not made.exists()


def test_a_conversion_that_fails_leaves_nothing(spark, mount, place):
    fails = frame(spark, "if(id = 3999, raise_error('no such luck'), id)")
    with pytest.raises(MaterializationError, match="no such luck"):
        make_spark_converter(fails, 2000, parent_cache_dir_url=place.as_uri())
    assert os.listdir(mount.behind / place.name) == []


@pytest.mark.slow
@pytest.mark.parametrize("form", ["installed", "copied"])
def test_native_directories(spark, mount, place, tmp_path, monkeypatch, form):
    pytest.importorskip("streaming", reason="needs the extra [streaming]")
    name = "petastorm_bridge.native"
    if form == "copied":
        name = "far_mds_support"
        shutil.copy(Path(support.__file__), tmp_path / f"{name}.py")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    native = importlib.import_module(name)
    monkeypatch.setenv("PETASTORM_BRIDGE_LOCAL_CACHE", str(tmp_path / "copies"))
    nulls = frame(spark, "if(id = 3, null, id)")
    directory = native.write_mds(nulls, str(place / "made"), size_limit=8000)
    assert len(directory) == ROWS
    assert directory.remote == str(place / "made")
    assert directory.local.startswith(str(tmp_path / "copies"))
    found = open_dataset(str(mount.behind / place.name / "made"))
    assert read_table(found)["id"].to_pylist() == list(range(ROWS))
    directory.delete()
    assert os.listdir(mount.behind / place.name) == []


def test_petastorms_own_metadata(spark, place):
    """What Spark's local files do not reach: Hadoop gives each of them a mode."""
    codec = ScalarCodec(importlib.import_module("pyspark.sql.types").IntegerType())
    schema = Unischema("Numbers", [UnischemaField("id", np.int32, (), codec, False)])
    table = pa.table({"id": pa.array(range(100), pa.int32())})
    with materialize_dataset(spark, place.as_uri(), schema):
        pq.write_table(table, place / "a.parquet", row_group_size=30)
    with make_reader(place.as_uri(), shuffle_row_groups=False) as reader:
        assert [row.id for row in reader] == list(range(100))
    assert sorted(os.listdir(place)) == ["_common_metadata", "a.parquet"]


# The writer alone.

BATCH = pa.RecordBatch.from_pydict({"x": np.arange(40_000)})


def written(directory, **options):
    writer = ShardWriter(BATCH.schema, str(directory), size_limit=80_000, **options)
    writer.write(BATCH)
    return writer


def test_a_link_is_replaced_and_not_followed(mount, place):
    other = mount.behind / "other"
    other.write_bytes(b"not ours")
    (mount.behind / place.name / "shard.00002.mds").symlink_to("../other")
    commit_dataset(str(place), BATCH.schema, written(place).finish())
    assert other.read_bytes() == b"not ours"
    assert read_table(open_dataset(str(mount.behind / place.name)))["x"].to_pylist() == [
        *range(40_000)
    ]


def test_a_file_that_cannot_be_written(mount, place):
    """It is told by the next one or at the end, and nothing is left."""
    (mount.behind / place.name / "shard.00001.mds").mkdir()
    writer = ShardWriter(BATCH.schema, str(place), size_limit=80_000)

    def write():
        writer.write(BATCH)
        writer.finish()

    with pytest.raises(OSError, match=r"shard\.00001\.mds"):
        write()
    writer.abort()
    assert os.listdir(mount.behind / place.name) == ["shard.00001.mds"]


def test_several_files_are_written_at_once(tmp_path):
    (tmp_path / "behind").mkdir()
    with far_mount(
        tmp_path / "behind", tmp_path / "far", seconds=0.01, bandwidth=2e5, refusing=True
    ) as mount:
        began = time.monotonic()
        infos = written(mount.path).finish()
        seconds = time.monotonic() - began
    sizes = [info["index"]["raw_data"]["bytes"] for info in infos]
    one_after_the_other = sum(sizes) / 2e5
    assert len(sizes) >= 4
    assert seconds < 0.7 * one_after_the_other
