"""What opening a dataset costs, by shards and by rows: start-up and memory, each in a fresh process.

The index is synthetic, of shards that do not exist: nothing but the index is read. Run as a script this
module is that process: ``python -m benchmarks._scale DIRECTORY CONTESTANT`` prints ms and MiB.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks._data import Data
from benchmarks._measure import Measurement
from benchmarks._memory import forget_peak, status_mib

STOCK, COLUMNAR, LOADER = (
    "native StreamingDataset",
    "columnar StreamingDataset",
    "bridge DataLoader",
)

# Streaming's table of samples takes 8 bytes a row while it is built.
_STOCK_BYTES_PER_ROW = 9
# What is less than this is noise of the allocator.
_LEAST_MIB = 0.1


def opening_time(data: Data) -> list[Measurement]:
    """Milliseconds from the call to a dataset, or loader, that can be iterated."""
    return _race("opening-time", "ms", 0, data, data.settings.slow_rounds)


def opening_memory(data: Data) -> list[Measurement]:
    """Peak resident memory of it above what the process had after its imports, in MiB."""
    return _race("opening-memory", "MiB", 1, data, data.settings.slow_rounds)


def case_name(contestant: str, shards: int, rows: int) -> str:
    """How an opened dataset is called in the results."""
    return f"{contestant}, {shards:,} shards, {rows:,} rows"


def write_index(directory: Path, shards: int, rows: int) -> None:
    """Write the index of so many shards with so many rows in all, one integer each."""
    each = rows // shards
    entry = {
        "column_names": ["id"], "column_encodings": ["int64"], "column_sizes": [8],
        "compression": None, "format": "mds", "hashes": [], "samples": each, "size_limit": None,
        "version": 2, "zip_data": None,
    }  # fmt: skip
    files: Iterable[dict[str, Any]] = (
        {"basename": f"shard.{number:05}.mds", "bytes": 12 * each + 200, "hashes": {}}
        for number in range(shards)
    )
    listed = [{**entry, "raw_data": file} for file in files]
    (directory / "index.json").write_text(json.dumps({"version": 2, "shards": listed}))


def _race(group: str, unit: str, figure: int, data: Data, rounds: int) -> list[Measurement]:
    samples: dict[tuple[str, int, int], list[float]] = {}
    for shards, rows in data.settings.openings:
        with tempfile.TemporaryDirectory() as directory:
            write_index(Path(directory), shards, rows)
            for _ in range(rounds):
                for contestant in (STOCK, COLUMNAR, LOADER):
                    if contestant != STOCK or _STOCK_BYTES_PER_ROW * rows < _free_memory():
                        found = _probe(directory, contestant)[figure]
                        samples.setdefault((contestant, shards, rows), []).append(found)
    return [
        Measurement(group, case_name(*case), unit, case[2], tuple(found))
        for case, found in samples.items()
    ]


def _free_memory() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _probe(directory: str, contestant: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks._scale", directory, contestant]
    # Streaming leaves locks among the temporary files, and looks at all that are there.
    environment = {**os.environ, "TMPDIR": directory}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{process.stderr}")
    return [float(word) for word in process.stdout.split()[-2:]]


def _opener(contestant: str, directory: str) -> Callable[[], Any]:
    if contestant == LOADER:
        bridge = importlib.import_module("petastorm_bridge")
        loader = importlib.import_module("petastorm_bridge.pytorch").DataLoader
        url = Path(directory).as_uri()
        return lambda: loader(bridge.make_batch_reader(url, num_epochs=1), batch_size=1024)
    module = "streaming" if contestant == STOCK else "petastorm_bridge.streaming"
    name = "StreamingDataset" if contestant == STOCK else "ColumnarStreamingDataset"
    dataset = getattr(importlib.import_module(module), name)
    return lambda: dataset(local=directory, batch_size=1024)


def _measure(directory: str, contestant: str) -> tuple[float, float]:
    opener = _opener(contestant, directory)
    gc.collect()
    forget_peak()
    before = status_mib("VmRSS")
    start = time.perf_counter()
    opened = opener()
    milliseconds = (time.perf_counter() - start) * 1000
    peak = max(status_mib("VmHWM") - before, _LEAST_MIB)
    assert opened
    return milliseconds, peak


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print(*_measure(*sys.argv[1:]))
