"""The races in writing a DataFrame to disk: in one process, on executors of their own, and the first task alone."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import dataset
from pyspark.sql import DataFrame, SparkSession

from benchmarks._data import Data, converter, installed_packages, numeric_table, spark_session
from benchmarks._measure import Contestant, IncompleteEpochError, Measurement, race
from benchmarks._settings import Settings
from benchmarks._table import MDS_COLUMNS

SPARK_WRITER = "Spark's Parquet writer"
HAND_OVER = "Spark hands rows to Python, which counts them"

_WARM_UPS = 3

CLUSTER = "materialise-cluster"
_CLUSTER_MASTER = "local-cluster[2,1,1024]"

FIRST_TASK = "first-task"
FIRST_TASK_ROWS = 100
_EMPTY_TASK = "Spark alone, an empty Python task"


def materialise(
    session: SparkSession, settings: Settings, group: str = "materialise"
) -> list[Measurement]:
    """Measures how fast the numeric table is written, generated rows included.

    All write uncompressed. What is written is deleted between the runs, so none is reused.
    """
    # Not the tables that `build` converted: a converter would find those in its cache.
    table = numeric_table(session, settings.rows, settings.write_partitions).where("id >= 0")
    converters = [converting(package, table, settings) for package in installed_packages()]
    with tempfile.TemporaryDirectory() as directory:
        limits = [parquet_writing(table, settings, directory), handing_over(table, settings)]
        # The JVM goes on compiling what it runs for many runs.
        measured = race(
            group, "rows/s", [*converters, *limits], settings.rounds, warm_ups=_WARM_UPS
        )
        # On its own and last: it makes the Python workers, which Spark keeps for the next job, import
        # torch, and then every later task on them is slowed by the garbage collection after it.
        native = [native_writing(table, settings, directory)]
        return measured + race(group, "rows/s", native, settings.slow_rounds)


def materialise_on_executors(data: Data) -> list[Measurement]:
    """Measures the same as ``materialise``, with two executors of one core each."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["SPARK_HOME"] = _spark_home(Path(directory))
        session = spark_session(directory, _CLUSTER_MASTER)
        try:
            return materialise(session, data.settings, CLUSTER)
        finally:
            session.stop()
            del os.environ["SPARK_HOME"]


def _spark_home(directory: Path) -> str:
    """A place for the executors' working directories, which Spark would put into its own package."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    home = directory / "spark-home"
    home.mkdir()
    for name in ("bin", "jars", "sbin", "python"):
        if (installed / name).exists():
            (home / name).symlink_to(installed / name)
    return str(home)


def first_task(data: Data) -> list[Measurement]:
    """Measures the time of a job of one task, in ms: its Python worker has imported nothing yet, which takes most."""
    settings = replace(data.settings, rows=FIRST_TASK_ROWS)
    with tempfile.TemporaryDirectory() as directory:
        session = spark_session(directory, reuse_workers=False)
        try:
            table = numeric_table(session, FIRST_TASK_ROWS, 1).where("id >= 0")
            contestants = [
                replace(handing_over(table, settings), name=_EMPTY_TASK),
                *(converting(package, table, settings) for package in installed_packages()),
                native_writing(table, settings, directory),
            ]
            measured = race(FIRST_TASK, "ms", contestants, settings.rounds)
        finally:
            session.stop()
    return [
        replace(one, samples=tuple(FIRST_TASK_ROWS * 1000 / s for s in one.samples))
        for one in measured
    ]


def converting(package: str, table: DataFrame, settings: Settings) -> Contestant:
    """A package's converter writes a table of ``settings.rows`` rows, and deletes it again."""
    made: list[Any] = []

    def run() -> int:
        made.append(converter(package, table))
        return len(made[-1])

    def after() -> None:
        while made:
            made.pop().delete()

    formats = {"petastorm": "petastorm (Parquet)", "bridge": "bridge (MDS)"}
    return _contestant(formats[package], settings, run, after)


def parquet_writing(table: DataFrame, settings: Settings, directory: str) -> Contestant:
    """Spark's own writer, which hands no row to Python."""
    out = os.path.join(directory, "parquet")

    def run() -> int:
        table.write.option("compression", "uncompressed").parquet(out)
        return int(dataset.dataset(out).count_rows())

    def after() -> None:
        shutil.rmtree(out, ignore_errors=True)

    return _contestant(SPARK_WRITER, settings, run, after)


def handing_over(table: DataFrame, settings: Settings) -> Contestant:
    """The limit of whatever writes in Python: Spark hands all rows over, and they are counted."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": [rows]})

    def run() -> int:
        counts = table.mapInArrow(count, "rows long").collect()
        return sum(row.rows for row in counts)

    return _contestant(HAND_OVER, settings, run, lambda: None)


def native_writing(table: DataFrame, settings: Settings, directory: str) -> Contestant:
    """``dataframe_to_mds`` writes a table of ``settings.rows`` rows below a directory."""
    from streaming.base.converters import dataframe_to_mds

    out = os.path.join(directory, "mds")

    def run() -> int:
        dataframe_to_mds(
            table, mds_kwargs={"out": out, "columns": MDS_COLUMNS, "compression": None}
        )
        with open(os.path.join(out, "index.json"), encoding="utf-8") as file:
            return sum(shard["samples"] for shard in json.load(file)["shards"])

    def after() -> None:
        shutil.rmtree(out, ignore_errors=True)

    return _contestant("native dataframe_to_mds", settings, run, after)


def _contestant(name: str, settings: Settings, run: Any, after: Any) -> Contestant:
    def check() -> None:
        if (written := run()) != settings.rows:
            raise IncompleteEpochError(f"{name}: {written} rows where {settings.rows} were due")

    return Contestant(name, settings.rows, run, check, after)
