"""The race in writing a few rows with Python workers that have imported nothing yet."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks._data import Data, installed_packages, numeric_table, spark_session
from benchmarks._materialise import converting, native_writing
from benchmarks._measure import Contestant, Measurement, race

GROUP = "first-task"
FLOOR = "Spark alone, an empty Python task"
ROWS = 100


def first_task(data: Data) -> list[Measurement]:
    """Measures the time of a job of one task, of which imports take most, in ms."""
    settings = replace(data.settings, rows=ROWS)
    with tempfile.TemporaryDirectory() as directory:
        session = spark_session(directory, reuse_workers=False)
        try:
            table = numeric_table(session, ROWS, 1).where("id >= 0")
            contestants = [
                _empty_task(table),
                *(converting(package, table, settings) for package in installed_packages()),
                native_writing(table, settings, directory),
            ]
            measured = race(GROUP, "ms", contestants, settings.rounds)
        finally:
            session.stop()
    return [replace(one, samples=tuple(ROWS * 1000 / s for s in one.samples)) for one in measured]


def _empty_task(table: DataFrame) -> Contestant:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

    def run() -> int:
        return int(table.mapInArrow(count, "rows long").collect()[0]["rows"])

    return Contestant(FLOOR, ROWS, run, check=lambda: None)
