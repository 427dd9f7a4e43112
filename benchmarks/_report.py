"""Tables on the terminal, and JSON for machines."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._command import figure
from benchmarks._measure import Measurement
from benchmarks._settings import COSTS, TITLES, Settings
from benchmarks._targets import Verdict

_PACKAGES = (
    "petastorm",
    "mosaicml-streaming",
    "pyspark",
    "torch",
    "tensorflow",
    "tensorflow-cpu",
    "numpy",
    "pandas",
    "pyarrow",
)


def environment() -> dict[str, Any]:
    """Where the figures come from: processor count, Python and the versions that matter."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": versions,
    }


def print_race(console: Console, measurements: Sequence[Measurement]) -> None:
    """One table for one race, the best median first."""
    group, unit = measurements[0].group, measurements[0].unit
    best_first = sorted(measurements, key=lambda one: one.median, reverse=unit not in COSTS)
    best = best_first[0].median
    table = Table(title=f"{TITLES[group]} ({unit})", title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in ("rows", "runs", "median", "min", "max", "best is", "repeated"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in best_first:
        low, high = sorted((one.median, best))
        table.add_row(
            one.name + ("*" if one.note else ""),
            f"{one.rows:,}",
            str(len(one.samples)),
            *[figure(value) for value in (one.median, min(one.samples), max(one.samples))],
            "" if one is best_first[0] or not low else f"× {figure(high / low)}",
            str(one.repeated or ""),
        )
    notes = [f"* {note}" for note in sorted({one.note for one in measurements} - {""})]
    if any(one.repeated for one in measurements):
        notes.append("repeated: epochs that were short of rows, thrown away and done again")
    table.caption = "\n".join(notes) or None
    table.caption_justify = "left"
    console.print(table)
    console.print()


def print_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    """The targets, with what was reached."""
    table = Table(title="Targets (medians of the rounds' ratios)", title_justify="left")
    for heading in ("race", "bridge", "against"):
        table.add_column(heading)  # names give way, figures do not
    table.add_column("at least", justify="right", no_wrap=True)
    table.add_column("reached", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    words = {True: "[green]met[/]", False: "[bold red]not met[/]", None: "not measured"}
    for verdict in verdicts:
        target = verdict.target
        reached = "" if verdict.ratio is None else f"× {figure(verdict.ratio)}"
        wanted = f"× {figure(target.factor)}"
        table.add_row(target.group, target.ours, target.theirs, wanted, reached, words[verdict.met])
    console.print(table)


def write_json(
    path: str,
    settings: Settings,
    measurements: Sequence[Measurement],
    verdicts: Sequence[Verdict],
) -> None:
    """Everything that was measured, every single sample included."""
    report = {
        "environment": environment(),
        "settings": _as_json(settings),
        "measurements": [one.as_json() for one in measurements],
        "targets": [one.as_json() for one in verdicts],
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")


def read_json(path: str, settings: Settings) -> list[Measurement] | None:
    """What was measured in the same surroundings with the same settings; None if these differ."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    # A setting that came later had no part in what was measured earlier, and one that is gone has none now.
    then, now = report["settings"], _as_json(settings)
    if report["environment"] != environment() or any(
        then[name] != now[name] for name in then.keys() & now.keys()
    ):
        return None
    return [Measurement.from_json(record) for record in report["measurements"]]


def _as_json(settings: Settings) -> Any:
    return json.loads(json.dumps(asdict(settings)))
