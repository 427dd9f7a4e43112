"""Peak memory of one epoch, each loader in a fresh process.

Run as a script this module is that process:
``python -m benchmarks._memory DIRECTORY PACKAGE LOADER TABLE`` prints MiB.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from benchmarks._data import Data
from benchmarks._loaders import native_contestant, tf_contestant, torch_contestant
from benchmarks._measure import Contestant, IncompleteEpochError, Measurement, timed_run
from benchmarks._process import answer, cost, silence

TABLES = ("numeric", "larger")
NATIVE = "native"
NATIVE_LOADER = "StreamingDataLoader, 0 workers"
_IMPORTS = {
    "petastorm": ("pyarrow.parquet", "petastorm.pytorch", "petastorm.spark"),
    "bridge": ("pyarrow.parquet", "petastorm_bridge.pytorch", "petastorm_bridge.spark"),
    NATIVE: ("streaming",),
}
_TF_IMPORTS = {
    "petastorm": ("tensorflow", "petastorm.tf_utils", "petastorm.spark"),
    "bridge": ("tensorflow", "petastorm_bridge.tf_utils", "petastorm_bridge.spark"),
}


def memory(data: Data, directory: str) -> list[Measurement]:
    """Peak resident memory above what the process had after its imports, in MiB.

    Memory-mapped files count. The larger table consists of row groups of the same size, so a
    loader that is flat in the dataset's size needs no more for it.
    """
    contenders = [
        (package, loader, table)
        for table in TABLES
        for loader in data.settings.memory_loaders
        for package in data.packages
    ]
    contenders.append((NATIVE, NATIVE_LOADER, TABLES[0]))
    samples: dict[tuple[str, str, str], list[float]] = {one: [] for one in contenders}
    for _ in range(data.settings.slow_rounds):
        for one in contenders:
            samples[one].append(answer("_memory", directory, *one))
    return [
        Measurement(
            "memory",
            measurement_name(*one),
            "MiB",
            _rows(data, one[0], one[2]),
            tuple(samples[one]),
        )
        for one in contenders
    ]


def measurement_name(package: str, loader: str, table: str) -> str:
    """How a loader over one of `TABLES` is called in the results."""
    return f"{package} {loader}" + (", larger table" if table == "larger" else "")


def _rows(data: Data, package: str, table: str) -> int:
    return data.settings.native_rows if package == NATIVE else len(getattr(data, table)[package])


def _contestant(data: Data, package: str, loader: str, table: str) -> Contestant:
    settings = data.settings
    if package == NATIVE:
        return native_contestant(data.native, settings, workers=0, shuffle=False)
    converter: Any = getattr(data, table)[package]
    if loader == "make_tf_dataset":
        return tf_contestant(package, converter, settings.batch_size)
    capacity = settings.shuffling_queue_capacity if loader.endswith("shuffled") else 0
    batched = loader.startswith("Batched")
    return torch_contestant(package, converter, settings, batched=batched, capacity=capacity)


def _measure(directory: str, package: str, loader: str, table: str) -> float:
    imports = _TF_IMPORTS if loader == "make_tf_dataset" else _IMPORTS
    for module in imports[package]:
        importlib.import_module(module)
    data = Data.load(directory)
    _, _, mebibytes = cost(lambda: timed_run(_contestant(data, package, loader, table)))
    return mebibytes


if __name__ == "__main__":
    silence()
    try:
        print(_measure(*sys.argv[1:]))
    except IncompleteEpochError as error:
        sys.exit(str(error))
