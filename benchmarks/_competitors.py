"""Other libraries that hand batches of a Parquet table to torch, each as its documentation advises.

They need newer versions of their libraries than Petastorm allows, so the race runs in an environment of its own
(``requirements/competitors.txt``). Run as a script this module is the process in that environment:
``python -m benchmarks._competitors RESULT quick|full``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from benchmarks._measure import Contestant, Measurement, loader_contestant, race
from benchmarks._parquet import ceiling, parquet_loader, shuffled_loader
from benchmarks._process import silence
from benchmarks._settings import FULL, QUICK, Settings
from benchmarks._table import FLOATS, write_parquet

GROUP = "competitors"
CONVERTED = "bridge DataLoader, MDS"
MAPPED, STREAMED = "Hugging Face Dataset", "Hugging Face IterableDataset"
LANCE, RAY, LIT_DATA = "Lance", "Ray Data", "LitData"
OTHERS = (MAPPED, STREAMED, LANCE, RAY, LIT_DATA)

_PYTHON = Path(__file__).resolve().parent.parent / ".venv-competitors" / "bin" / "python"


def competitors(settings: Settings) -> list[Measurement]:
    """Race them in their environment.

    Raises:
        RuntimeError: There is no such environment, or the race failed.
    """
    if not _PYTHON.exists():
        raise RuntimeError("The competitors are not installed. Run: make setup-competitors")
    with tempfile.TemporaryDirectory() as directory:
        result = os.path.join(directory, "result.json")
        size = "quick" if settings == QUICK else "full"
        command = [str(_PYTHON), "-m", "benchmarks._competitors", result, size]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Measuring {GROUP} failed:\n{done.stderr}")
        with open(result, encoding="utf-8") as file:
            return [Measurement.from_json(record) for record in json.load(file)]


def main(result: str, size: str) -> None:
    """Write the measurements as JSON."""
    silence()
    settings = QUICK if size == "quick" else FULL
    with (
        tempfile.TemporaryDirectory() as directory,
        tempfile.TemporaryDirectory() as own,
        _ray(),
    ):
        paths = write_parquet(directory, settings)
        contestants = [
            parquet_loader("bridge", directory, settings, "DataLoader"),
            _bridge_converted(directory, own, settings),
            shuffled_loader(directory, settings),
            ceiling(paths, settings),
            _hugging_face_mapped(paths, own, settings),
            _hugging_face_streaming(paths, own, settings),
            _lance(paths, own, settings),
            _ray_data(directory, settings),
            _lit_data(own, settings),
        ]
        measured = race(GROUP, "rows/s", contestants, settings.rounds)
    with open(result, "w", encoding="utf-8") as file:
        json.dump([one.as_json() for one in measured], file)


def _contestant(name: str, settings: Settings, batches: Any, note: str) -> Contestant:
    return loader_contestant(
        name, settings.rows, lambda: nullcontext(batches()), lambda batch: batch["id"], note=note
    )


def _bridge_converted(directory: str, own: str, settings: Settings) -> Contestant:
    from petastorm_bridge.convert import convert_dataset

    convert_dataset(f"file://{directory}", f"{own}/mds")
    contestant = parquet_loader("bridge", f"{own}/mds", settings, "DataLoader", CONVERTED)
    return replace(contestant, note="converted first, unmeasured, by petastorm-bridge convert")


def _hugging_face_mapped(paths: list[str], own: str, settings: Settings) -> Contestant:
    from datasets import Dataset

    table = Dataset.from_parquet(paths, cache_dir=f"{own}/mapped").with_format("torch")
    return _contestant(
        MAPPED,
        settings,
        lambda: table.iter(batch_size=settings.batch_size),
        f"datasets {version('datasets')}: copied into Arrow files first, unmeasured; doubles arrive as float32",
    )


def _hugging_face_streaming(paths: list[str], own: str, settings: Settings) -> Contestant:
    from datasets import load_dataset

    rows = load_dataset(
        "parquet", data_files=paths, split="train", streaming=True, cache_dir=f"{own}/streamed"
    ).with_format("torch")
    return _contestant(
        STREAMED,
        settings,
        lambda: rows.iter(batch_size=settings.batch_size),
        f"datasets {version('datasets')}: Parquet read directly; doubles arrive as float32",
    )


def _lance(paths: list[str], own: str, settings: Settings) -> Contestant:
    import lance
    from lance.torch.data import LanceDataset

    table = pa.concat_tables([parquet.read_table(path) for path in paths])
    # Its loader takes arrays of one length only.
    arrays = table["floats"].cast(pa.list_(pa.float32(), FLOATS))
    position = table.schema.get_field_index("floats")
    lance.write_dataset(table.set_column(position, "floats", arrays), f"{own}/table.lance")
    return _contestant(
        LANCE,
        settings,
        lambda: LanceDataset(f"{own}/table.lance", batch_size=settings.batch_size),
        f"pylance {version('pylance')}: converted into its own format first, unmeasured",
    )


@contextmanager
def _ray() -> Iterator[None]:
    """Ray's processes, which the race shares; starting them is not measured."""
    import ray
    from ray.data import DataContext

    ray.init(
        num_cpus=os.cpu_count(), include_dashboard=False, logging_level="ERROR", log_to_driver=False
    )
    DataContext.get_current().enable_progress_bars = False
    try:
        yield
    finally:
        ray.shutdown()


def _ray_data(directory: str, settings: Settings) -> Contestant:
    import ray

    return _contestant(
        RAY,
        settings,
        lambda: ray.data.read_parquet(directory).iter_torch_batches(batch_size=settings.batch_size),
        f"ray {version('ray')}: Parquet read directly, by processes that stand ready",
    )


def _lit_data(own: str, settings: Settings) -> Contestant:
    import litdata
    from litdata.streaming.item_loader import ParquetLoader

    fewer = replace(settings, rows=settings.native_rows)
    directory = f"{own}/indexed"
    os.mkdir(directory)
    write_parquet(directory, fewer)
    litdata.index_parquet_dataset(directory)
    rows = litdata.StreamingDataset(directory, item_loader=ParquetLoader())
    return _contestant(
        LIT_DATA,
        fewer,
        lambda: litdata.StreamingDataLoader(rows, batch_size=settings.batch_size),
        f"litdata {version('litdata')}: Parquet with an index of its own; fewer rows, because it goes row by row",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
