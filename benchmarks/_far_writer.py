"""One process that writes a dataset into a far place: ``python -m benchmarks._far_writer WRITER NEAR PLACE``.

It writes a tiny dataset into the place before, which starts Spark and its workers, and prints seconds.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks._far_reader import MDS, PARQUET, WARM
from benchmarks._process import silence
from benchmarks._settings import MODULES

__all__ = ["WRITERS"]

# Writes the rows of one directory into another; the name says which of the datasets.
Writer = Callable[[str, str], None]


def _plain(cores: int) -> Writer:
    """Write the shards' bytes, from memory, as many files at once as Spark has tasks."""

    def write(source: str, target: str) -> None:
        os.makedirs(target)
        bodies = [(path.name, path.read_bytes()) for path in sorted(Path(source).iterdir())]
        start = time.perf_counter()
        with ThreadPoolExecutor(cores) as pool:
            list(pool.map(lambda one: Path(target, one[0]).write_bytes(one[1]), bodies))
        print(time.perf_counter() - start, flush=True)

    return write


def _converter(package: str, folder: str) -> Writer:
    """Write by a package's ``make_spark_converter``, from Parquet near by."""
    from benchmarks._data import spark_session

    session = spark_session(folder)
    make = importlib.import_module(f"{MODULES[package]}.spark").make_spark_converter

    def write(source: str, target: str) -> None:
        os.makedirs(target)
        conf = "petastorm.spark.converter.parentCacheDirUrl"
        session.conf.set(conf, f"file://{target}")
        frame = session.read.parquet(f"file://{source}")
        start = time.perf_counter()
        make(frame, dtype=None)
        print(time.perf_counter() - start, flush=True)

    return write


def _command(workers: int) -> Writer:
    """Write by ``petastorm-bridge convert``, without Spark."""
    from petastorm_bridge.convert import convert_dataset

    def write(source: str, target: str) -> None:
        start = time.perf_counter()
        convert_dataset(source, target, workers=workers, verify=False)
        print(time.perf_counter() - start, flush=True)

    return write


_CORES = 2

# The dataset that each of them starts from, and what makes it.
WRITERS: dict[str, tuple[str, Callable[[str], Writer]]] = {
    "plain": (MDS, lambda _: _plain(_CORES)),
    "bridge": (PARQUET, lambda folder: _converter("bridge", folder)),
    "petastorm": (PARQUET, lambda folder: _converter("petastorm", folder)),
    "command": (PARQUET, lambda _: _command(_CORES)),
}


def main(name: str, near: str, place: str) -> None:
    """Write twice; the seconds of the second time are the last that is printed."""
    silence()
    dataset, make = WRITERS[name]
    with tempfile.TemporaryDirectory() as folder:
        write = make(folder)
        for kind in (WARM, ""):
            write(os.path.join(near, kind + dataset), os.path.join(place, f"{kind}{name}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
