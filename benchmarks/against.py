"""Races this checkout against an earlier commit: ``python -m benchmarks.against REVISION``.

This checkout's benchmarks run the code of both sides, in turns and in the environment that runs this. Those of the
earlier commit may prepare a race in another way, which makes all of its contestants faster or slower. What did not
change between the two, such as Petastorm, shows how much the machine's noise is worth.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks._command import chosen_groups, figure, wide_console
from benchmarks._measure import Measurement
from benchmarks._settings import COSTS, RESULTS, TITLES

_HERE = RESULTS.parent.parent
_CODE = ("bridge", "codemods")

Key = tuple[str, str]
"""A race and a contestant of it."""


@dataclass(frozen=True)
class Change:
    """What a contestant reached on both sides.

    Attributes:
        group: The race.
        name: The contestant.
        unit: Of the figures.
        before: The median of each turn of the earlier commit.
        now: The same of this checkout.
    """

    group: str
    name: str
    unit: str
    before: tuple[float, ...]
    now: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """How many times as good it is now, by the medians of all turns."""
        ratio = statistics.median(self.now) / statistics.median(self.before)
        return 1 / ratio if self.unit in COSTS else ratio

    @property
    def verdict(self) -> str:
        """Better or worse only if every turn of one side is better than every one of the other."""
        if len(self.now) == 1:
            return "one turn shows nothing"
        apart = min(self.now) > max(self.before) or max(self.now) < min(self.before)
        if not apart:
            return "within noise"
        return "better" if self.ratio > 1 else "worse"


def main() -> None:
    """Entry point."""
    typer.run(run)


def run(
    revision: Annotated[str, typer.Argument(help="An earlier commit, as git names it.")],
    *,
    only: Annotated[
        str,
        typer.Option(
            metavar="RACE,…", help="Races of this checkout that the earlier code can run."
        ),
    ] = "torch-sequential,torch-shuffled,torch-scalars",
    turns: Annotated[int, typer.Option(min=1, help="Runs of each side.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny tables.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the medians of all turns here.")
    ] = None,
) -> None:
    """Run the benchmarks on the code of an earlier commit and of this checkout in turns, and compare them."""
    groups = chosen_groups(only)
    console = wide_console()
    before: list[list[Measurement]] = []
    now: list[list[Measurement]] = []
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as work:
        earlier = check_out(revision, Path(work))
        sides = [(earlier, before), (_HERE, now)]
        for turn in range(turns):
            # Whoever comes second finds warmer files, a hotter machine or both.
            for checkout, results in sides if turn % 2 == 0 else reversed(sides):
                with console.status(f"Turn {turn + 1} of {turns}: {checkout.name}"):
                    results.append(_measure(checkout, groups, Path(work), quick=quick))
    changes = compare(before, now)
    _print(console, revision, changes)
    if json_path:
        report = {"revision": revision, "changes": [asdict(one) for one in changes]}
        json_path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def check_out(revision: str, folder: Path) -> Path:
    """Put the files of a commit into a new folder; the repository stays as it is.

    Raises:
        typer.BadParameter: Git knows no such commit, or its code is elsewhere in it.
    """
    command = ["git", "archive", "--format=tar", f"{revision}^{{commit}}"]
    archive = subprocess.run(command, cwd=_HERE, capture_output=True, check=False)
    if archive.returncode:
        said = archive.stderr.decode(errors="replace").strip()
        raise typer.BadParameter(f"git has no commit {revision!r} here: {said}")
    target = folder / "earlier"
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(target, filter="data")
    if missing := [folder for folder in _CODE if not (target / folder).is_dir()]:
        # What is installed would run in its place.
        raise typer.BadParameter(f"commit {revision!r} has no folder {missing[0]!r}.")
    return target


def compare(
    before: Sequence[Sequence[Measurement]], now: Sequence[Sequence[Measurement]]
) -> list[Change]:
    """Return what the contestants of both sides have reached, in the order of this side.

    Args:
        before: What each turn of the earlier commit's code measured.
        now: The same of this checkout's.
    """
    earlier, today = _medians(before), _medians(now)
    units = {(one.group, one.name): one.unit for turn in now for one in turn}
    return [
        Change(*key, units[key], tuple(earlier[key]), tuple(medians))
        for key, medians in today.items()
    ]


def _medians(turns: Sequence[Sequence[Measurement]]) -> Mapping[Key, list[float]]:
    medians: dict[Key, list[float]] = {}
    for turn in turns:
        for one in turn:
            medians.setdefault((one.group, one.name), []).append(one.median)
    return medians


def _measure(checkout: Path, groups: list[str], work: Path, *, quick: bool) -> list[Measurement]:
    result = work / "measured.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.run", "--only", ",".join(groups)]
    command += ["--json", str(result), *(["--quick"] if quick else [])]
    paths = os.pathsep.join([*(str(checkout / folder) for folder in _CODE), str(_HERE)])
    environment = os.environ | {"PYTHONPATH": paths}
    process = subprocess.run(
        command, cwd=_HERE, env=environment, capture_output=True, text=True, check=False
    )
    # Petastorm sometimes aborts at exit: what counts is that the result was written.
    if not result.exists():
        raise RuntimeError(
            f"The benchmarks failed on the code of {checkout}; they may want what it does not have:\n"
            f"{process.stdout[-2000:]}{process.stderr[-2000:]}"
        )
    measured = json.loads(result.read_text(encoding="utf-8"))["measurements"]
    return [Measurement.from_json(record) for record in measured]


def _print(console: Console, revision: str, changes: Sequence[Change]) -> None:
    for group, race in itertools.groupby(changes, key=lambda one: one.group):
        contestants = list(race)
        title = f"{TITLES[group]} ({contestants[0].unit}), medians"
        table = Table(title=title, title_justify="left")
        table.add_column("", no_wrap=True)
        for heading in (revision, "spread", "now", "spread", "now is", ""):
            table.add_column(heading, justify="right", no_wrap=True)
        for one in contestants:
            table.add_row(
                one.name,
                figure(statistics.median(one.before)),
                _spread(one.before),
                figure(statistics.median(one.now)),
                _spread(one.now),
                f"× {one.ratio:.2f}",
                one.verdict,
            )
        console.print(table)
        console.print()


def _spread(figures: Sequence[float]) -> str:
    """Return how far the turns lie around their middle."""
    return f"± {50 * (max(figures) - min(figures)) / statistics.median(figures):.0f} %"


if __name__ == "__main__":
    main()
