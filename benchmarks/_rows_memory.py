"""Peak memory of one epoch of ``make_reader``, each in a fresh process.

Run as a script this module is that process: ``python -m benchmarks._rows_memory PACKAGE URL ROWS`` prints
MiB.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile

from benchmarks import _stored
from benchmarks._data import Data
from benchmarks._measure import IncompleteEpochError, Measurement, timed_run
from benchmarks._process import answer, cost, silence
from benchmarks._rows import reader_contestant
from benchmarks._settings import MODULES

GROUP = "rows-memory"
SIZES = ("", ", larger dataset")


def name(package: str, size: str) -> str:
    """How a package on a dataset of one of `SIZES` is called in the results."""
    return f"{package} make_reader{size}"


def rows_memory(data: Data) -> list[Measurement]:
    """Peak resident memory above what the process had after its imports, in MiB.

    The larger dataset has more row groups of the same size.
    """
    settings = data.settings
    schema, group = _stored.array_schema(), settings.stored_group
    counts = {SIZES[0]: settings.stored_rows}
    counts[SIZES[1]] = settings.stored_rows * settings.memory_growth
    with tempfile.TemporaryDirectory(prefix="rows-") as work:
        urls = {
            size: _stored.write(os.path.join(work, str(n)), schema, _stored.array_row, n, group)
            for size, n in counts.items()
        }
        contenders = [(package, size) for size in SIZES for package in data.packages]
        samples: dict[tuple[str, str], list[float]] = {one: [] for one in contenders}
        for _ in range(settings.slow_rounds):
            for package, size in contenders:
                arguments = package, urls[size], str(counts[size])
                samples[package, size].append(answer("_rows_memory", *arguments))
    return [
        Measurement(GROUP, name(*one), "MiB", counts[one[1]], tuple(samples[one]))
        for one in contenders
    ]


def _measure(package: str, url: str, rows: int) -> float:
    importlib.import_module("pyarrow.parquet")
    importlib.import_module(MODULES[package])
    contestant = reader_contestant(package, url, rows)
    _, _, mebibytes = cost(lambda: timed_run(contestant))
    return mebibytes


if __name__ == "__main__":
    silence()
    try:
        print(_measure(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    except IncompleteEpochError as error:
        sys.exit(str(error))
