"""A parent cache directory in a remote store."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import petastorm_bridge
from petastorm_bridge._sources.parquet_files import MARKER_NAME
from petastorm_bridge.mds.entry import INDEX_NAME
from petastorm_bridge.mds.schema import SIDECAR_NAME
from petastorm_bridge.spark._directory import dataset, deletion
from petastorm_bridge.spark._directory import store as _store

BRIDGE = str(Path(petastorm_bridge.__file__).parents[1])

fsspec = pytest.importorskip("fsspec", reason="remote stores are reached through fsspec")


@pytest.fixture
def memory():
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    return filesystem


def test_files_are_copied_with_the_index_last(memory, monkeypatch):
    first, last = "shard.00000.a0.00000.mds", "shard.00001.a12.00000.flags.mds.gz"
    store = _store.store_at("memory://bucket/cache/one")
    assert not store.is_there()
    with store.creating():
        pass
    assert store.is_there()
    assert store.is_ours()
    copied = []
    put = type(memory).put_file
    monkeypatch.setattr(
        type(memory), "put_file", lambda self, a, b: (copied.append(b), put(self, a, b))
    )
    with store.writing() as directory:
        for name in (INDEX_NAME, first, SIDECAR_NAME, last):
            Path(directory, name).write_text(name)
        assert not store.exists(first)
    assert not os.path.exists(directory)
    assert [name.rpartition("/")[2] for name in copied] == [
        first,
        last,
        SIDECAR_NAME,
        INDEX_NAME,
    ]
    assert store.sizes() == {
        first: len(first),
        last: len(last),
        INDEX_NAME: len(INDEX_NAME),
        SIDECAR_NAME: len(SIDECAR_NAME),
        MARKER_NAME: memory.size(f"/bucket/cache/one/{MARKER_NAME}"),
    }
    store.remove(last)
    store.remove(last)
    assert not store.exists(last)
    memory.pipe_file("/bucket/cache/one/deeper/shard.00000.a0.00000.mds", b"x")
    memory.pipe_file("/bucket/cache/one/notes.txt", b"x")
    assert store.remove_ours() == ["deeper", "notes.txt"]
    assert memory.find("/bucket") == [
        "/bucket/cache/one/deeper/shard.00000.a0.00000.mds",
        "/bucket/cache/one/notes.txt",
    ]
    memory.store.clear()
    assert store.remove_ours() == []
    with store.creating():
        pass
    assert store.remove_ours() == []
    assert store.sizes() == {}


def test_a_failed_writer_copies_nothing(memory):
    store = _store.store_at("memory://bucket/cache/one")
    with store.creating():
        pass

    def write():
        with store.writing() as directory:
            Path(directory, "a.mds").write_text("x")
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        write()
    assert set(store.sizes()) == {MARKER_NAME}


SHARD, OTHER_SHARD = "shard.00000.a0.00000.mds", "shard.00001.a6.00000.mds"


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_dying_task_leaves_nothing_in_a_directory_that_is_gone(memory, monkeypatch, when):
    """The driver removes the directory of a failed job, of which other tasks may still run."""
    store = _store.store_at("memory://bucket/cache/one")
    with store.creating():
        pass
    put = type(memory).put_file

    def put_and_remove(self, source, target):
        put(self, source, target)
        self.rm("/bucket/cache/one", recursive=True)
        put(self, source, target)

    def write():
        with store.writing() as directory:
            Path(directory, SHARD).write_text("x")
            Path(directory, OTHER_SHARD).write_text("x")
            if when == "before":
                assert store.remove_ours() == []
            else:
                monkeypatch.setattr(type(memory), "put_file", put_and_remove)

    with pytest.raises(FileNotFoundError, match="was deleted while files were copied into it"):
        write()
    assert memory.find("/bucket") == []
    assert not store.is_there()


def test_who_may_only_write_does(memory, monkeypatch):
    store = _store.store_at("memory://bucket/cache/one")
    with store.creating():
        pass

    def refuse(*_, **__):
        raise PermissionError("Forbidden")

    monkeypatch.setattr(type(memory), "cat_file", refuse)
    with store.writing() as directory:
        Path(directory, SHARD).write_text("x")
    assert set(store.sizes()) == {SHARD, MARKER_NAME}


def test_what_a_dying_task_adds_while_a_directory_is_removed_goes_too(memory, monkeypatch):
    store = _store.store_at("memory://bucket/cache/one")
    with store.creating():
        pass
    rm, added = type(memory).rm, []

    def rm_and_add(self, path, **options):
        rm(self, path, **options)
        if len(added) < 3:
            added.append(f"{path}/shard.0000{len(added)}.a0.00000.mds")
            self.pipe_file(added[-1], b"x")

    monkeypatch.setattr(type(memory), "rm", rm_and_add)
    assert store.remove_ours() == []
    assert len(added) == 3
    assert not store.is_there()


def test_a_directory_that_keeps_filling_is_told(memory, monkeypatch):
    store = _store.store_at("memory://bucket/cache/one")
    with store.creating():
        pass
    monkeypatch.setattr(type(memory), "rm", lambda *_, **__: None)
    with pytest.raises(OSError, match="Files keep appearing in it"):
        store.remove_ours()


def test_a_name_that_looks_like_a_pattern_is_a_name(memory):
    """fsspec removes all that a pattern finds."""
    like = "/bucket/cache1/one/" + SHARD
    memory.pipe_file(like, b"x")
    store = _store.store_at("memory://bucket/cache[1]/one")
    with store.creating():
        pass
    memory.pipe_file(f"/bucket/cache[1]/one/{SHARD}", b"x")
    assert store.remove_ours() == []
    assert memory.find("/bucket") == [like]


def test_only_marked_directories_are_deleted(memory, caplog):
    memory.pipe_file("/bucket/table/k=1/data.parquet", b"x")
    deletion.default_delete_handler("memory://bucket/table")
    assert memory.exists("/bucket/table/k=1/data.parquet")
    assert "petastorm-bridge did not write it" in caplog.text
    with _store.store_at("memory://bucket/made").creating():
        pass
    deletion.default_delete_handler("memory://bucket/made")
    assert not memory.exists("/bucket/made")
    deletion.default_delete_handler("memory://bucket/nothing")
    assert caplog.text.count("did not write it") == 1


def test_a_missing_index_is_told(memory):
    with _store.store_at("memory://bucket/made").creating():
        pass
    with pytest.raises(FileNotFoundError, match=INDEX_NAME):
        dataset.describe_converted("memory://bucket/made")


def test_files_are_waited_for(memory):
    memory.pipe_file("/bucket/a", b"x")
    dataset.wait_for_files(["memory://bucket/a"], 0)
    with pytest.raises(RuntimeError, match="appear at urls memory://bucket/b,Please check"):
        dataset.wait_for_files(["memory://bucket/a", "memory://bucket/b"], 0)


# A store that is a folder, found by its entry point like the packages of real stores, so that
# Spark's workers know it as well. No path of it exists on local disk.
DISK_STORE = """
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
import os

class DiskStore(DirFileSystem):
    protocol = "disk"

    def __init__(self, **kwargs):
        super().__init__(path=os.environ["DISK_STORE"], fs=LocalFileSystem(auto_mkdir=True))

    @classmethod
    def _strip_protocol(cls, path):
        return path.removeprefix("disk://").strip("/")
"""

SCRIPT = """
import json, os, sys, time
from pyspark.sql import SparkSession, functions as sf
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
spark.conf.set("petastorm.spark.converter.parentCacheDirUrl", "disk://bucket/cache")
from petastorm_bridge.spark import make_spark_converter
bucket = os.environ["DISK_STORE"] + "/bucket"
results = {}

df = spark.range(0, 300, 1, 3).selectExpr("id", "IF(id > 250, NULL, id) AS n")
converter = make_spark_converter(df)
results["url"] = converter.cache_dir_url.rpartition("/")[0]
results["urls"] = {url.rpartition("/")[0] == converter.cache_dir_url for url in converter.file_urls}
results["urls"] = list(results["urls"])
results["reused"] = make_spark_converter(df).cache_dir_url == converter.cache_dir_url
folder = f"{bucket}/cache/" + converter.cache_dir_url.rpartition("/")[2]
results["files"] = sorted(name.partition(".")[0] for name in os.listdir(folder))

def ids(**kwargs):
    with converter.make_torch_dataloader(num_epochs=1, shuffle_row_groups=False, **kwargs) as loader:
        return [int(i) for batch in loader for i in batch["id"].tolist()]

results["rows"] = ids() == list(range(300))
try:
    make_spark_converter(spark.range(3).select(sf.udf(lambda x: 1 // x, "long")("id")))
except Exception as error:
    results["failed"] = type(error).__name__
end = time.monotonic() + 60
while (left := len(os.listdir(f"{bucket}/cache"))) > 1 and time.monotonic() < end:
    time.sleep(0.1)  # another task of the failed job may not have ended yet
results["left"] = left
converter.delete()
results["deleted"] = os.listdir(f"{bucket}/cache")
again = make_spark_converter(df)
results["again"] = len(again)
print("RESULTS", json.dumps(results))
"""


@pytest.mark.smoke
@pytest.mark.slow
@pytest.mark.spark
def test_a_conversion_into_a_store_and_back(tmp_path):
    packages = tmp_path / "packages"
    (packages / "disk_store-1.dist-info").mkdir(parents=True)
    (packages / "disk_store.py").write_text(DISK_STORE, "utf-8")
    metadata = packages / "disk_store-1.dist-info"
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: disk-store\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[fsspec.specs]\ndisk = disk_store.DiskStore\n")
    (tmp_path / "store" / "bucket").mkdir(parents=True)
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([BRIDGE, str(packages)]),
            "PYSPARK_PYTHON": sys.executable,
            "DISK_STORE": str(tmp_path / "store"),
        },
    )
    lines = [line for line in finished.stdout.splitlines() if line.startswith("RESULTS")]
    assert lines, finished.stderr[-3000:]
    assert json.loads(lines[0].removeprefix("RESULTS")) == {
        "url": "disk://bucket/cache",
        "urls": [True],
        "reused": True,
        "files": [
            "_petastorm_bridge_cache",
            "index",
            "petastorm_bridge_schema",
            "shard",
            "shard",
            "shard",
        ],
        "rows": True,
        "failed": "MaterializationError",
        "left": 1,
        "deleted": [],
        "again": 300,
    }
    # Deleted when the process ended.
    assert list((tmp_path / "store" / "bucket" / "cache").iterdir()) == []


def test_a_store_whose_package_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "smbclient", None)
    with pytest.raises(ImportError, match="smbprotocol"):
        _store.store_at("smb://host/share")
