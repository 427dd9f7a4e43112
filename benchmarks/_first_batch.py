"""The time from the start of a Python process to its first batch of tensors, of which imports take most."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks._data import Data
from benchmarks._measure import Measurement
from benchmarks._settings import SEED, Settings

GROUP = "first-batch"
IMPORT = "import torch, and nothing else"
OURS, LARGER = "bridge DataLoader", "bridge DataLoader, larger table"
PETASTORM, STOCK = "petastorm DataLoader", "native StreamingDataLoader, 0 workers"

# Petastorm ends an epoch before its first batch in some of the tries, as in the races between loaders.
_MAX_REPEATS = 20

_OF_CONVERTER = """
import pickle, sys
import torch
with open(sys.argv[1], "rb") as file:
    converter = pickle.load(file)
with converter.make_torch_dataloader(batch_size=int(sys.argv[2]), num_epochs=1) as loader:
    batch = next(iter(loader))
    print(len(batch["id"]), flush=True)
"""
_OF_STREAMING = """
import sys
import torch
from streaming import StreamingDataLoader, StreamingDataset
size = int(sys.argv[2])
dataset = StreamingDataset(local=sys.argv[1], batch_size=size)
batch = next(iter(StreamingDataLoader(dataset, batch_size=size)))
print(len(batch["id"]), flush=True)
"""
_OF_TORCH = "import sys, torch; print(int(sys.argv[2]), flush=True)"


def first_batch(data: Data) -> list[Measurement]:
    """Measure processes that each take one batch, in turns, in ms."""
    with tempfile.TemporaryDirectory() as directory:
        contestants = {IMPORT: (_OF_TORCH, "")}
        stored = {OURS: data.numeric.get("bridge"), LARGER: data.larger.get("bridge")}
        stored[PETASTORM] = data.numeric.get("petastorm")
        for name, converter in stored.items():
            if converter is not None:
                contestants[name] = (_OF_CONVERTER, _pickled(directory, name, converter))
        contestants[STOCK] = (_OF_STREAMING, data.native)
        return _in_turns(contestants, data.settings)


def _pickled(directory: str, name: str, converter: Any) -> str:
    path = os.path.join(directory, f"{name}.pkl")
    with open(path, "wb") as file:
        pickle.dump(converter, file)
    return path


def _in_turns(contestants: dict[str, tuple[str, str]], settings: Settings) -> list[Measurement]:
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    repeated = dict.fromkeys(contestants, 0)
    order = np.random.default_rng(SEED)
    for _ in range(settings.slow_rounds):
        for name in order.permutation(list(contestants)).tolist():
            program, data = contestants[name]
            command = [program, data, str(settings.batch_size)]
            may_fail = _MAX_REPEATS if name == PETASTORM else 0
            milliseconds, failed = _first_success(command, may_fail)
            samples[name].append(milliseconds)
            repeated[name] += failed
    return [
        Measurement(GROUP, name, "ms", settings.batch_size, tuple(found), repeated[name])
        for name, found in samples.items()
    ]


def _first_success(program: Sequence[str], may_fail: int) -> tuple[float, int]:
    """Return the time of a run that gave a batch, and how many runs before it gave none."""
    for failed in range(may_fail):
        with contextlib.suppress(RuntimeError):
            return _milliseconds(program), failed
    return _milliseconds(program), may_fail


def _milliseconds(program: Sequence[str]) -> float:
    """Return the time until a program's first line of output.

    Raises:
        RuntimeError: It is not the number of rows asked for.
    """
    command = [sys.executable, "-W", "ignore", "-c", *program]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        milliseconds = 1000 * (time.perf_counter() - start)
        errors = process.communicate()[1]  # Petastorm sometimes aborts at exit
    if said.strip() != program[-1].encode():
        raise RuntimeError(f"No whole first batch, but {said!r}:\n{errors.decode()}")
    return milliseconds
