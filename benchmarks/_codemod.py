"""The codemod over a large repository: ``python -m benchmarks._codemod``.

A generated tree of 10,000 files, 100 of which use Petastorm, is looked through by the real command in
a process of its own, start of the interpreter included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

FILES = 10_000
PETASTORM = 100
TARGET_SECONDS = 10.0

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


def build(folder: str, files: int = FILES, petastorm: int = PETASTORM) -> None:
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


def measure(files: int = FILES, petastorm: int = PETASTORM) -> dict[str, float]:
    """Return the seconds that the command takes and what it found.

    Raises:
        RuntimeError: It did not rewrite every file that uses Petastorm, and no other.
    """
    with tempfile.TemporaryDirectory(prefix="codemod-") as folder:
        build(folder, files, petastorm)
        command = [sys.executable, "-m", "petastorm_bridge.cli", "codemod", folder]
        start = time.perf_counter()
        done = subprocess.run(
            [*command, "--jobs", "2", "--report", "json"],
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - start
    found = json.loads(done.stdout)["counts"]
    if (found["scanned"], found["rewritten"]) != (files, petastorm):
        raise RuntimeError(f"the codemod found {found}: {done.stderr}")
    return {"seconds": seconds, "files": files, "call sites": found["sites rewritten"]}


def main(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the result here.")] = None,
) -> None:
    """Time the codemod over 10,000 files and say whether it keeps below its limit."""
    result = measure()
    met = result["seconds"] < TARGET_SECONDS
    typer.echo(
        f"codemod: {FILES:,} files, {PETASTORM} with Petastorm: {result['seconds']:.1f} s "
        f"({'met' if met else 'missed'}: below {TARGET_SECONDS:.0f} s)"
    )
    if json_path:
        json_path.write_text(json.dumps({**result, "target": TARGET_SECONDS}), encoding="utf-8")
    raise typer.Exit(not met)


if __name__ == "__main__":
    typer.run(main)
