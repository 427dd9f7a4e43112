"""The codemod over generated repositories, by the real command, start of the interpreter included.

One is large and has a file of a hundred that uses Petastorm; in the others every file does, and the second has four
times as many of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks._measure import Measurement
from benchmarks._settings import Settings

GROUP, USERS = GROUPS = "codemod", "growth-codemod"
GROWTH = 4
PROCESSES = {1: "1 process", 2: "2 processes"}
OURS, LIMIT = "petastorm-bridge codemod, 2 processes", "10,000 files in 10 s"
_LIMIT = 1_000.0

_PLAIN = '''"""Module {n} of a service."""

from __future__ import annotations

import logging
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass
class Record{n}:
    name: str
    value: int = {n}

    def scaled(self, factor: float) -> float:
        """Return the value times a factor."""
        return self.value * factor


def total(records: list[Record{n}]) -> float:
    return sum(record.scaled(2) for record in records if record.name)
'''
_USER = """
from petastorm import TransformSpec
from petastorm.spark import SparkDatasetConverter, make_spark_converter


def get_transform_spec{n}(is_train=True):
    return TransformSpec(lambda rows: rows, selected_fields=["features", "label"])


def prepare{n}(spark, df):
    spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, "file:///tmp/cache{n}")
    train, val = df.randomSplit([0.9, 0.1])
    return make_spark_converter(train), make_spark_converter(val.repartition(4))


def train{n}(converter_train, converter_val, batch_size=32):
    with converter_train.make_torch_dataloader(transform_spec=get_transform_spec{n}(), batch_size=batch_size) as a, \\
         converter_val.make_torch_dataloader(num_epochs=1, batch_size=batch_size, workers_count=2) as b:
        for step, batch in enumerate(a):
            if step == len(converter_train) // batch_size:
                break
        return [batch for batch in b]
"""


def codemod(name: str, settings: Settings) -> list[Measurement]:
    """Files per second of one of the two races."""
    return _large(settings) if name == GROUP else _users(settings)


def case_name(processes: int, growth: int) -> str:
    """How a run over files that all use Petastorm is called in the results."""
    more = f", {growth} times as many files" if growth > 1 else ""
    return f"petastorm-bridge codemod, {PROCESSES[processes]}{more}"


def _large(settings: Settings) -> list[Measurement]:
    """Files per second, and what they would be at the limit."""
    files, rounds = settings.codemod_files, settings.slow_rounds
    with tempfile.TemporaryDirectory(prefix="codemod-") as folder:
        _build(folder, files, settings.codemod_users)
        samples = [files / _seconds(folder, files, settings.codemod_users) for _ in range(rounds)]
    return [
        Measurement(GROUP, OURS, "files/s", files, tuple(samples)),
        Measurement(GROUP, LIMIT, "files/s", files, (_LIMIT,) * rounds, note="the target"),
    ]


def _users(settings: Settings) -> list[Measurement]:
    """Files per second, of which more files do not make less."""
    samples: dict[tuple[int, int], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="codemod-") as work:
        folders = {growth: os.path.join(work, str(growth)) for growth in (1, GROWTH)}
        for growth, folder in folders.items():
            files = settings.codemod_scripts * growth
            os.mkdir(folder)
            for n in range(files):
                with open(os.path.join(folder, f"module{n}.py"), "w", encoding="utf-8") as file:
                    file.write(_USER.format(n=n))
        for _ in range(settings.slow_rounds):
            for growth, folder in folders.items():
                files = settings.codemod_scripts * growth
                for processes in PROCESSES:
                    seconds = _seconds(folder, files, files, processes)
                    samples.setdefault((processes, growth), []).append(files / seconds)
    return [
        Measurement(
            USERS,
            case_name(processes, growth),
            "files/s",
            settings.codemod_scripts * growth,
            tuple(rates),
        )
        for (processes, growth), rates in samples.items()
    ]


def _build(folder: str, files: int, petastorm: int) -> None:
    """Write the tree; every so manieth file uses Petastorm."""
    for n in range(files):
        package = os.path.join(folder, f"package{n // 200}")
        if n % 200 == 0:
            os.makedirs(package)
        text = _PLAIN.format(n=n) * 3
        if n % (files // petastorm) == 0:
            text += _USER.format(n=n) * 3
        with open(os.path.join(package, f"module{n}.py"), "w", encoding="utf-8") as file:
            file.write(text)


def _seconds(folder: str, files: int, users: int, processes: int = 2) -> float:
    """Return how long the command takes, which writes nothing.

    Raises:
        RuntimeError: It did not rewrite every file that uses Petastorm, and no other.
    """
    command = [sys.executable, "-m", "petastorm_bridge", "codemod", folder, "--to", "streaming"]
    command += ["--jobs", str(processes), "--report", "json"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    found: dict[str, Any] = json.loads(done.stdout)["counts"] if done.stdout else {}
    if (found.get("scanned"), found.get("rewritten")) != (files, users):
        raise RuntimeError(f"the codemod found {found}: {done.stderr}")
    return seconds
