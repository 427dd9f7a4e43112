"""Races the bridge against Petastorm and native streaming: ``python -m benchmarks.run``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks import _codemod, _data, _report
from benchmarks._command import FAR_NUMBERS, chosen_groups, far_places, wide_console
from benchmarks._competitors import GROUP as COMPETITORS
from benchmarks._competitors import competitors
from benchmarks._materialise import materialise
from benchmarks._measure import Measurement
from benchmarks._memory import memory
from benchmarks._process import silence
from benchmarks._races import RACES
from benchmarks._settings import FULL, GROUPS, QUICK, RESULTS, Settings
from benchmarks._targets import judge
from benchmarks.far import GROUPS as FAR
from benchmarks.far import far, why_skipped

# Races that make what they need by themselves.
_ALONE = frozenset({*_codemod.GROUPS, COMPETITORS, *FAR})


def main() -> None:
    """Entry point."""
    typer.run(run)


def run(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny tables: shows that it runs, not how fast.")
    ] = False,
    only: Annotated[
        str, typer.Option(metavar="RACE,…", help=f"Some of: {', '.join(GROUPS)}.")
    ] = "",
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write every sample here.")
    ] = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="Write them where the guide takes its figures from."),
    ] = False,
    directory: Annotated[
        Path | None, typer.Option(help="Where the data go; deleted afterwards.")
    ] = None,
    places: Annotated[
        str,
        typer.Option(
            "--far", metavar="NAME=NUMBER,…", help=f"Other far places: {', '.join(FAR_NUMBERS)}."
        ),
    ] = "",
) -> None:
    """Measure the bridge, Petastorm and native streaming side by side, and judge the targets."""
    groups = chosen_groups(only)
    settings = QUICK if quick else FULL
    if places and record:
        raise typer.BadParameter("--record is for the sizes that the guide tells; leave out --far.")
    if places and set(groups).isdisjoint(FAR):
        raise typer.BadParameter(f"--far is for some of: {', '.join(FAR)}.")
    settings = replace(settings, far=far_places(places, settings.far))
    earlier: list[Measurement] | None = []
    if record:
        json_path = RESULTS
        if set(groups) != set(GROUPS):  # a race that is not run again stays as recorded
            earlier = _report.read_json(str(RESULTS), settings)
    if earlier is None:
        raise typer.BadParameter(
            f"{RESULTS.name} was measured with other versions or settings, so the other races' figures cannot "
            "stay beside these. Run all of them; or give a setting that only these races read a new name."
        )
    silence()
    console = wide_console()
    measurements: list[Measurement] = []
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=directory) as work:
        for race in _races(work, settings, groups, console):
            if race:
                _report.print_race(console, race)
            measurements += race
    for group in FAR:
        if group in groups and (why := why_skipped(group)):
            console.print(f"{group}, or a part of it, was skipped: there is {why}.")
    _report.print_verdicts(console, judge(measurements, settings))
    measured = {one.group for one in measurements}  # some may have been skipped
    measurements += [one for one in earlier if one.group not in measured]
    measurements.sort(key=lambda one: GROUPS.index(one.group))
    if json_path:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        verdicts = judge(measurements, settings)
        _report.write_json(str(json_path), settings, measurements, verdicts)


def _races(
    work: str, settings: Settings, groups: list[str], console: Console
) -> Iterator[list[Measurement]]:
    """Builds the tables, then runs the races: those between loaders first."""
    if _ALONE.issuperset(groups):
        for name in groups:
            with console.status(f"Measuring: {name}"):
                yield _measure_alone(name, settings)
        return
    with console.status("Starting Spark"):
        session = _data.spark_session(work)
    try:
        with console.status("Materialising the tables"):
            data = _data.build(session, settings, groups)
            data.save(work)
        for names in _processes(groups, settings):
            with console.status(f"Measuring: {', '.join(names)}"):
                races = _measure(names, work, data, session)
            yield from races
    finally:
        session.stop()


def _processes(groups: list[str], settings: Settings) -> list[list[str]]:
    """The races, those between loaders first; those together that share a process."""
    between_loaders = [group for group in GROUPS if group in groups and group in RACES]
    others = [[group] for group in GROUPS if group in groups and group not in RACES]
    if settings.isolate:
        return [[group] for group in between_loaders] + others
    return [between_loaders] * bool(between_loaders) + others


def _measure_alone(name: str, settings: Settings) -> list[Measurement]:
    if name in FAR:
        return far(name, settings)
    return _codemod.codemod(name, settings) if name in _codemod.GROUPS else competitors(settings)


def _measure(
    names: list[str], work: str, data: _data.Data, session: SparkSession
) -> list[list[Measurement]]:
    if _ALONE.issuperset(names):
        return [_measure_alone(name, data.settings) for name in names]
    if names == ["materialise"]:
        return [materialise(session, data.settings)]
    if names == ["memory"]:
        return [memory(data, work)]
    measured = _measure_in_child(names, work)
    return [[one for one in measured if one.group == name] for name in names]


def _measure_in_child(names: list[str], work: str) -> list[Measurement]:
    result = os.path.join(work, f"{names[0]}.json")
    command = [sys.executable, "-m", "benchmarks._child", result, work, *names]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    # Petastorm sometimes aborts at exit: what counts is that the result was written.
    if not os.path.exists(result):
        raise RuntimeError(f"Measuring {', '.join(names)} failed:\n{process.stderr}")
    with open(result, encoding="utf-8") as file:
        return [Measurement.from_json(record) for record in json.load(file)]


if __name__ == "__main__":
    main()
