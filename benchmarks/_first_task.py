"""The race in writing a few rows with Python workers that have imported nothing yet."""

from __future__ import annotations

import tempfile
from dataclasses import replace

from benchmarks._data import Data, installed_packages, numeric_table, spark_session
from benchmarks._materialise import converting, handing_over, native_writing
from benchmarks._measure import Measurement, race

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
                replace(handing_over(table, settings), name=FLOOR),
                *(converting(package, table, settings) for package in installed_packages()),
                native_writing(table, settings, directory),
            ]
            measured = race(GROUP, "ms", contestants, settings.rounds)
        finally:
            session.stop()
    return [replace(one, samples=tuple(ROWS * 1000 / s for s in one.samples)) for one in measured]
