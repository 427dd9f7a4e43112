"""Figures of a process of its own: what it prints last, and the time and the memory of a job in it."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def silence() -> None:
    """Let no warning and no log come between the figures."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")


def last_line(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """Return what a module of the benchmarks printed last, or nothing, and what it complained of."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    # Petastorm sometimes aborts after its last row: what counts is what was printed before.
    return (done.stdout.splitlines() or [""])[-1], done.stderr


def answer(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Any:
    """Return what a module of the benchmarks prints last, which is JSON: a number, for instance."""
    line, errors = last_line(module, *arguments, environment=environment)
    try:
        return json.loads(line)
    except ValueError:
        raise RuntimeError(f"benchmarks.{module} {' '.join(arguments)} failed:\n{errors}") from None


def cost(job: Callable[[], T]) -> tuple[T, float, float]:
    """Do a job; return what it gave, milliseconds, and MiB of its peak above what was there before.

    Less than a tenth of a MiB, which is noise of the allocator, is given as that: ratios need more than nothing.
    """
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # the peak is what there is now, see proc(5)
    before = _status_mib("VmRSS")
    start = time.perf_counter()
    given = job()
    milliseconds = (time.perf_counter() - start) * 1000
    return given, milliseconds, max(_status_mib("VmHWM") - before, 0.1)


def _status_mib(key: str) -> float:
    """Return a line of ``/proc/self/status`` that is given in kB."""
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(f"{key}:"))
    return int(line.split()[1]) / 1024
