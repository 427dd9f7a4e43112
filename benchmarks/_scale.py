"""What opening a dataset costs, by shards and by rows: start-up and memory.

The index is synthetic, of shards that do not exist: nothing but the index is read. Every dataset is opened
in a process of its own. Run as a script this module is those processes:
``python -m benchmarks._scale CONTESTANT DIRECTORY …`` prints ms and MiB of each directory.
"""

from __future__ import annotations

import functools
import importlib
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks._data import Data
from benchmarks._measure import Measurement
from benchmarks._process import cost, silence

STOCK, COLUMNAR, LOADER = (
    "native StreamingDataset",
    "columnar StreamingDataset",
    "bridge DataLoader",
)

# Streaming's table of samples takes 8 bytes a row while it is built.
_STOCK_BYTES_PER_ROW = 9


def opening_time(data: Data) -> list[Measurement]:
    """Milliseconds from the call to a dataset, or loader, that can be iterated."""
    return _race("opening-time", "ms", 0, data)


def opening_memory(data: Data) -> list[Measurement]:
    """Peak resident memory of it above what the process had after its imports, in MiB."""
    return _race("opening-memory", "MiB", 1, data)


def case_name(contestant: str, shards: int, rows: int) -> str:
    """How an opened dataset is called in the results: shards × rows of each."""
    return f"{contestant}, {shards:,} × {rows // shards:,}"


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


def _race(group: str, unit: str, figure: int, data: Data) -> list[Measurement]:
    return [
        Measurement(group, name, unit, rows, tuple(pair[figure] for pair in pairs))
        for name, rows, pairs in _opened(data.settings.openings, data.settings.slow_rounds)
    ]


@functools.lru_cache(maxsize=1)  # for the second of two races in one process
def _opened(
    cases: tuple[tuple[int, int], ...], rounds: int
) -> list[tuple[str, int, list[tuple[float, float]]]]:
    """Return, of every contestant and case, its name, its rows, and time and memory of each round."""
    found = []
    with tempfile.TemporaryDirectory() as root:
        folders = [Path(root, f"{shards}-{rows}") for shards, rows in cases]
        for folder, case in zip(folders, cases, strict=True):
            folder.mkdir()
            write_index(folder, *case)
        for contestant in (STOCK, COLUMNAR, LOADER):
            free = _free_memory() if contestant == STOCK else math.inf
            mine = [i for i, (_, rows) in enumerate(cases) if _STOCK_BYTES_PER_ROW * rows < free]
            pairs = _probe(contestant, [str(folders[i]) for i in mine] * rounds, root)
            for position, i in enumerate(mine):
                own = pairs[position :: len(mine)]
                found.append((case_name(contestant, *cases[i]), cases[i][1], own))
    return found


def _free_memory() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _probe(contestant: str, directories: list[str], temporary: str) -> list[tuple[float, float]]:
    command = [sys.executable, "-m", "benchmarks._scale", contestant, *directories]
    # Streaming leaves locks among the temporary files, and looks at all that are there.
    environment = {**os.environ, "TMPDIR": temporary}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = process.stdout.splitlines()[-len(directories) :]
    if process.returncode or len(lines) < len(directories):
        raise RuntimeError(f"{' '.join(command)} failed:\n{process.stderr}")
    return [(float(line.split()[0]), float(line.split()[1])) for line in lines]


def _opener(contestant: str, directory: str) -> Callable[[], Any]:
    if contestant == LOADER:
        bridge = importlib.import_module("petastorm_bridge")
        loader = importlib.import_module("petastorm_bridge.pytorch").DataLoader
        return lambda: loader(
            bridge.make_batch_reader(f"file://{directory}", num_epochs=1), batch_size=1024
        )
    module = "streaming" if contestant == STOCK else "petastorm_bridge.streaming"
    name = "StreamingDataset" if contestant == STOCK else "ColumnarStreamingDataset"
    dataset = getattr(importlib.import_module(module), name)
    return lambda: dataset(local=directory, batch_size=1024)


def _measure(contestant: str, directory: str) -> tuple[float, float]:
    _, milliseconds, mebibytes = cost(_opener(contestant, directory))
    return milliseconds, mebibytes


if __name__ == "__main__":
    silence()
    _opener(sys.argv[1], "")  # imports, for all
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        for directory in sys.argv[2:]:
            print(*pool.apply(_measure, (sys.argv[1], directory)))
