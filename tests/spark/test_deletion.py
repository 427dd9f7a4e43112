"""Deleting what the bridge made, never anything else, by hand and at exit."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from petastorm_bridge._sources.parquet_files import MARKER_NAME
from petastorm_bridge.fs_utils import local_path
from petastorm_bridge.spark import (
    SparkDatasetConverter,
    make_spark_converter,
    spark_dataset_converter,
)
from petastorm_bridge.spark._directory import deletion
from petastorm_bridge.spark._directory import store as _store
from petastorm_bridge.spark.spark_dataset_converter import register_delete_dir_handler

pytestmark = pytest.mark.spark


@pytest.fixture
def handler_calls():
    calls = []
    register_delete_dir_handler(calls.append)
    yield calls
    register_delete_dir_handler(None)


@pytest.mark.smoke
def test_delete_removes_the_directory_and_may_be_called_twice(spark, cache_dir):
    converter = make_spark_converter(spark.range(10))
    converter.delete()
    assert list(cache_dir.iterdir()) == []
    converter.delete()


@pytest.mark.difference("use-after-delete-at-once")
def test_use_after_delete_is_told_at_once(spark, cache_dir):
    converter = make_spark_converter(spark.range(10))
    other = make_spark_converter(spark.range(10))
    converter.delete()
    for deleted in (converter, other):
        started = time.monotonic()
        with (
            pytest.raises(
                RuntimeError,
                match=r"^Timeout while waiting for all parquet-store files to appear at urls file:.*"
                r"This process deleted .* Make a new converter",
            ),
            deleted.make_torch_dataloader(),
        ):
            pass
        waited = time.monotonic() - started
        assert waited < spark_dataset_converter._FILE_AVAILABILITY_WAIT_TIMEOUT_SECS / 2


def test_deleting_while_reading_never_loses_rows_silently(spark, cache_dir):
    converter = make_spark_converter(spark.range(5000, numPartitions=1), 400)
    rows = 0
    with converter.make_torch_dataloader(batch_size=100, num_epochs=1) as loader:
        batches = iter(loader)
        rows += len(next(batches)["id"])
        converter.delete()
        try:
            for batch in batches:
                rows += len(batch["id"])
        except FileNotFoundError:  # as in Petastorm
            rows = 5000
    assert rows == 5000


def test_use_after_someone_else_deleted_waits_and_then_tells(spark, cache_dir, monkeypatch):
    converter = make_spark_converter(spark.range(10, numPartitions=8))
    shutil.rmtree(local_path(converter.cache_dir_url))
    monkeypatch.setattr(spark_dataset_converter, "_FILE_AVAILABILITY_WAIT_TIMEOUT_SECS", 0.3)
    with (
        pytest.raises(RuntimeError, match=r"and 3 more,Please check.*did not appear within 0.3 s"),
        converter.make_torch_dataloader(),
    ):
        pass


def test_files_that_appear_late_are_waited_for(tmp_path):
    import threading

    path = tmp_path / "late"
    timer = threading.Timer(0.3, path.touch)
    timer.start()
    spark_dataset_converter._wait_file_available([f"file://{path}"])
    timer.join()


@pytest.mark.difference("path-data-is-never-deleted")
def test_a_converter_of_a_path_never_deletes(spark, cache_dir, tmp_path, caplog):
    source = tmp_path / "table"
    spark.range(5).write.parquet(str(source))
    converter = make_spark_converter(f"file://{source}")
    before = sorted(p.name for p in source.iterdir())
    converter.delete()
    assert sorted(p.name for p in source.iterdir()) == before
    assert "petastorm-bridge did not write it" in caplog.text
    # Not even the bridge's own directories, if a user points at them.
    made = make_spark_converter(spark.range(5))
    make_spark_converter(made.cache_dir_url).delete()
    assert Path(local_path(made.cache_dir_url)).exists()


@pytest.mark.difference("path-data-is-never-deleted")
def test_only_directories_with_their_own_marker_are_deleted(spark, cache_dir, tmp_path, caplog):
    made = make_spark_converter(spark.range(5))
    copy = tmp_path / "copy of it"
    shutil.copytree(local_path(made.cache_dir_url), copy)
    table = tmp_path / "table"
    table.mkdir()
    (table / MARKER_NAME).write_text("{not json")
    partitioned = tmp_path / "partitioned"
    (partitioned / "k=1").mkdir(parents=True)
    for directory in (copy, table, partitioned):
        SparkDatasetConverter(f"file://{directory}", [], 0).delete()
        deletion.default_delete_handler(f"file://{directory}")
        assert directory.exists()
    assert caplog.text.count("petastorm-bridge did not write it") == 6
    deletion.default_delete_handler(f"file://{tmp_path}/nothing")


def test_a_registered_handler_deletes_instead(spark, cache_dir, handler_calls):
    converter = make_spark_converter(spark.range(10))
    converter.delete()
    assert handler_calls == [converter.cache_dir_url]
    assert Path(local_path(converter.cache_dir_url)).exists()
    register_delete_dir_handler(None)
    converter.delete()
    assert list(cache_dir.iterdir()) == []


def test_what_a_handler_raises_reaches_the_caller(spark, cache_dir):
    def fail(url):
        raise RuntimeError("no rights")

    register_delete_dir_handler(fail)
    try:
        with pytest.raises(RuntimeError, match="no rights"):
            make_spark_converter(spark.range(10)).delete()
    finally:
        register_delete_dir_handler(None)


def test_a_directory_that_a_dying_task_still_writes_to_is_removed(tmp_path, monkeypatch):
    directory = tmp_path / "d"
    store = _store.store_at(f"file://{directory}")
    with store.creating():
        pass
    remove, late = (
        os.rmdir,
        ["shard.00001.a7.00000.mds", f"shard.00001.a7.00000.mds.{32 * 'a'}.tmp"],
    )

    def race(path):
        if late:
            (directory / late.pop()).touch()
        remove(path)

    monkeypatch.setattr(os, "rmdir", race)
    assert store.remove_ours() == []
    assert late == []
    assert not directory.exists()
    assert store.remove_ours() == []


@pytest.mark.difference("delete-keeps-files-of-others")
def test_files_of_others_survive_a_deletion(spark, cache_dir, caplog):
    frame = spark.range(10).selectExpr("id", "IF(id > 7, NULL, id) AS n")
    converter = make_spark_converter(frame, compression_codec="gzip")
    directory = Path(local_path(converter.cache_dir_url))
    (directory / "model.pt").write_text("weeks of training")
    (directory / "shard.00000.mds").write_text("not a name of ours")
    (directory / "index.json.tmp").mkdir()
    for _ in range(2):
        converter.delete()
        kept = ["index.json.tmp", "model.pt", "shard.00000.mds"]
        assert sorted(os.listdir(directory)) == kept
    assert f"but left what petastorm-bridge did not write: {', '.join(kept)}." in caplog.text


def test_a_backup_is_not_the_bridges(spark, cache_dir, tmp_path, caplog):
    converter = make_spark_converter(spark.range(10))
    name = converter.cache_dir_url.rpartition("/")[2]
    subprocess.run(["cp", "-a", cache_dir, tmp_path / "backup"], check=True)
    backup = SparkDatasetConverter(f"file://{tmp_path}/backup/{name}", [], 10)
    backup.delete()
    deletion.default_delete_handler(backup.cache_dir_url)
    assert (tmp_path / "backup" / name / "index.json").exists()
    assert caplog.text.count("petastorm-bridge did not write it") == 2
    # The same place by another name is no copy.
    (tmp_path / "link").symlink_to(cache_dir)
    SparkDatasetConverter(f"file://{tmp_path}/link/{name}", [], 10).delete()
    assert list(cache_dir.iterdir()) == []


def test_links_are_not_followed(spark, cache_dir, tmp_path):
    converter = make_spark_converter(spark.range(10))
    directory = Path(local_path(converter.cache_dir_url))
    directory.rename(tmp_path / "moved")
    directory.symlink_to(tmp_path / "moved")
    converter.delete()
    assert (tmp_path / "moved" / "index.json").exists()
    directory.unlink()
    (tmp_path / "moved").rename(directory)
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (directory / "shard.00000.a0.00007.mds").symlink_to(precious)
    converter.delete()
    assert precious.exists()
    assert list(cache_dir.iterdir()) == []


def test_a_failing_deletion_at_exit_is_logged_only(caplog, monkeypatch):
    monkeypatch.setattr(deletion, "_deleted", set())
    deleted = []

    def handler(url):
        deleted.append(url)
        raise PermissionError("read only")

    for url, process in (("file:///a", os.getpid()), ("file:///b", -1), ("file:///a", os.getpid())):
        deletion._delete(url, process, lambda: handler)
    assert deleted == ["file:///a"]  # b was made by another process, this one's parent
    assert "Delete cache data file:///a failed due to PermissionError('read only')" in caplog.text


WITH_SPARK = """
import os, signal, sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("petastorm.spark.converter.parentCacheDirUrl", "file:" + os.getcwd() + "/cache")
    .getOrCreate()
)
from petastorm_bridge.spark import make_spark_converter
converter = make_spark_converter(spark.range(10))
assert len(os.listdir("cache")) == 1
"""

# The same registration without the seconds that a Spark session takes to start.
WITHOUT_SPARK = """
import os, signal, sys
from petastorm_bridge.spark import spark_dataset_converter as face
from petastorm_bridge.spark._directory import deletion
from petastorm_bridge.spark._directory.store import store_at
with store_at("file://" + os.path.abspath("cache/made")).creating():
    pass
deletion.delete_at_exit("file://" + os.path.abspath("cache/made"), lambda: face._delete_dir_handler)
"""

FORK = """
child = os.fork()
if child == 0:
    import atexit
    atexit._run_exitfuncs()
    os._exit(0)
os.waitpid(child, 0)
assert len(os.listdir("cache")) == 1, "a forked child deleted it"
"""

READ = """
with converter.make_torch_dataloader(num_epochs=1) as loader:
    assert sorted(i for batch in loader for i in batch["id"].tolist()) == list(range(10))
"""

HANDLER = "face.register_delete_dir_handler(lambda url: os.mkdir('called'))"

# What happens to the process, and whether the directory remains, as measured with Petastorm.
ENDS = {
    "normal, after a forked child": (WITH_SPARK + FORK, False),
    "spark stopped": (WITH_SPARK + "spark.stop()" + READ, False),
    "interrupted": (WITH_SPARK + "os.kill(os.getpid(), signal.SIGINT)", False),
    "exception": (WITHOUT_SPARK + "raise ValueError", False),
    "exit": (WITHOUT_SPARK + "sys.exit(3)", False),
    "no cleanup": (WITHOUT_SPARK + "os._exit(0)", True),
    "terminated": (WITHOUT_SPARK + "os.kill(os.getpid(), signal.SIGTERM)", True),
    "handler": (WITHOUT_SPARK + HANDLER, True),
}


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_the_directory_goes_when_the_process_ends(tmp_path, end):
    script, remains = ENDS[end]
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert (tmp_path / "cache").is_dir(), finished.stderr
    assert bool(list((tmp_path / "cache").iterdir())) == remains, finished.stderr
    assert (tmp_path / "called").exists() == (end == "handler")
