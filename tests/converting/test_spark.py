"""Spark's executors convert as processes of this machine do."""

import filecmp
import os
import pickle
import signal
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from petastorm_bridge._sources.parquet_files import CONVERSION_NAME
from petastorm_bridge.cli import app
from petastorm_bridge.convert import convert_dataset
from petastorm_bridge.convert._workers import SparkPool, results
from petastorm_bridge.mds.errors import DatasetError

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    for number in range(3):
        ids = range(400 * number, 400 * (number + 1))
        words = [None if i % 7 == 0 else f"word {i}" for i in ids]
        table = pa.table({"id": ids, "word": words})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=150)
    return folder


@pytest.mark.smoke
def test_the_same_bytes(spark, store, tmp_path):
    options = {"size_limit": 2_000, "compression": "zstd:3", "hashes": ["sha1"]}
    ours = convert_dataset(store, tmp_path / "ours", **options)
    theirs = convert_dataset(store, tmp_path / "theirs", spark=spark, **options)
    assert (theirs.rows, theirs.shards, theirs.taken_over) == (1200, ours.shards, 0)
    assert ours.shards > 3
    names = sorted(path.name for path in (tmp_path / "ours").iterdir())
    assert sorted(path.name for path in (tmp_path / "theirs").iterdir()) == names
    same = filecmp.cmpfiles(tmp_path / "ours", tmp_path / "theirs", names, shallow=False)
    assert same == (names, [], [])


def test_an_error_arrives_as_what_it_is(spark, store, tmp_path):
    """It is the one that a process would have raised, and no dataset is left."""
    good = (store / "2.parquet").read_bytes()
    size = len(good)
    (store / "2.parquet").write_bytes(good[:100] + b"\0" * (size // 2) + good[100 + size // 2 :])
    with pytest.raises(DatasetError, match=r"2\.parquet"):
        convert_dataset(store, tmp_path / "out", spark=spark, size_limit=2_000)
    assert not (tmp_path / "out" / "index.json").exists()


@pytest.mark.usefixtures("spark")
def test_the_command(store, tmp_path):
    done = CliRunner().invoke(
        app, ["convert", str(store), str(tmp_path / "out"), "--spark", "--quiet"]
    )
    assert done.exit_code == 0, done.output
    assert "1,200 rows" in done.output


@pytest.mark.usefixtures("spark")
def test_an_interrupted_command_says_that_it_goes_on(tmp_path):
    store, made = tmp_path / "store.parquet", tmp_path / "out"
    pq.write_table(pa.table({"x": range(20_000)}), store, row_group_size=100)

    def interrupt():
        deadline = time.monotonic() + 60
        while not list(made.glob(f"{CONVERSION_NAME}/part-*.json")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    done = CliRunner().invoke(
        app, ["convert", str(store), str(made), "--spark", "--quiet", "--size-limit", "100"]
    )
    thread.join()
    assert done.exit_code == 130, done.output
    assert "the same command goes on" in done.output
    assert not (made / "index.json").exists()


def test_what_cannot_be_together(spark, store, tmp_path):
    with pytest.raises(ValueError, match="with Spark its cores decide"):
        convert_dataset(store, tmp_path / "out", spark=spark, workers=2)
    assert not (tmp_path / "out").exists()


def add(setup, report, number):
    report(number)
    return setup + number


def test_a_task_comes_alone():
    """A list of all tasks with each of them would grow with their square."""
    batch = pa.RecordBatch.from_pydict({"number": [7], "task": [pickle.dumps((add, (3,)))]})
    (done,) = results(pickle.dumps(40), [batch])
    assert done.to_pylist() == [{"number": 7, "rows": 3, "result": pickle.dumps(43)}]


class Speculating:
    conf = {"spark.speculation": "true"}  # noqa: RUF012 - what a session is asked for


def test_tasks_that_may_run_twice_are_refused():
    with pytest.raises(ValueError, match=r"spark\.speculation is on"):
        SparkPool(Speculating(), None)


def test_a_session_that_refuses_to_look_up_the_setting():
    """Serverless ones, of which only the documented error can be had here."""

    class Conf:
        def get(self, key, default):
            raise RuntimeError(f"[CONFIG_NOT_AVAILABLE] Configuration {key} is not available.")

    class Session:
        conf = Conf()

    SparkPool(Session(), None).close()
