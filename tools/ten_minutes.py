"""From nothing to a migrated, verified repository, as five people go: minutes for each step.

    python3 tools/ten_minutes.py
    python3 tools/ten_minutes.py keras contributor --keep

For each person a folder that is empty at first: a clone of this checkout as it was last committed, a virtual
environment of its own, the installation as the pages say it, and then the person's path, a test of
`tests/project/`, which makes the sample repository, runs the pages' own commands in it and
compares the rows with those from before: the bridge's, because today's versions have no Petastorm. Nothing that
is installed already is used but Python, Git, make and, if it suits Spark, Java. pip keeps no cache, as on a
fresh machine.

Each person needs up to 8 GB of disk while the path is gone; the folder goes afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import environment

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 10.0
"""Minutes that a person has."""
TESTS = "tests/project"


@dataclass(frozen=True)
class Person:
    """Somebody who comes from the README.

    Attributes:
        test: The path, a test in the folder `TESTS`.
        install: Commands of the installation, each of them on one of the pages.
        spark: Whether the path needs Java. On Databricks the runtime has it.
        python: The interpreter of the environment, below the clone.
    """

    test: str
    install: tuple[str, ...]
    spark: bool = False
    python: str = ".own/bin/python"


PEOPLE = {
    "databricks": Person(
        "test_five_people.py::test_a_databricks_notebook",
        ("pip install '.[streaming]'", "pip install '.[spark]'"),
        spark=True,
    ),
    "platform": Person(
        "test_five_people.py::test_a_platform_team", ("pip install '.[streaming]'",)
    ),
    "keras": Person(
        "test_five_people.py::test_a_keras_user",
        ("pip install '.[tensorflow]'", "pip install '.[spark]'"),
        spark=True,
    ),
    "datasets": Person(
        "test_five_people.py::test_a_team_with_datasets_in_petastorms_format",
        ("pip install '.[streaming]'", "pip install '.[spark]'", "pip install '.[images]'"),
        spark=True,
    ),
    "contributor": Person(
        "test_adding.py::test_a_rule", ("make setup",), python=".venv/bin/python"
    ),
}


@dataclass
class Gone:
    """What somebody's path took.

    Attributes:
        steps: Each step with its minutes.
        verified: Whether the rows were those from before.
        said: What the step that failed printed, its end.
    """

    steps: list[tuple[str, float]] = field(default_factory=list)
    verified: bool = False
    said: str = ""

    @property
    def minutes(self) -> float:
        """All steps together, without those of the measurement."""
        return sum(minutes for step, minutes in self.steps if not step.startswith("("))


class StepError(Exception):
    """A step failed; the message is what it printed."""


def main() -> int:
    """Go the paths, print what they took; 1 unless all end verified and in time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("people", nargs="*", metavar="PERSON", help=f"of {', '.join(PEOPLE)}")
    parser.add_argument("--keep", action="store_true", help="leave the folders, and say where")
    given = parser.parse_args()
    unknown = sorted(set(given.people) - set(PEOPLE))
    if unknown:
        parser.error(f"nobody is called {', '.join(unknown)}; there are {', '.join(PEOPLE)}")
    check_pages()
    worst = 0
    for name in given.people or PEOPLE:
        gone = go(PEOPLE[name], keep=given.keep)
        show(name, gone)
        worst |= not gone.verified or gone.minutes > LIMIT
    return worst


def check_pages() -> None:
    """Refuse to measure an installation that no page tells.

    Raises:
        SystemExit: A command of `PEOPLE` is on no page.
    """
    pages = ("README.md", "CONTRIBUTING.md", "migration_guide/install.md")
    told = "".join((ROOT / page).read_text("utf-8") for page in pages)
    for person in PEOPLE.values():
        for command in person.install:
            if not re.search(rf"{re.escape(command)}(?:`|\s)", told):
                raise SystemExit(f"none of {', '.join(pages)} says {command!r}")


def go(person: Person, *, keep: bool) -> Gone:
    """One person's path in a new folder; it is removed unless it is to be kept."""
    gone = Gone()
    folder = Path(tempfile.mkdtemp(prefix="ten-minutes-"))
    try:
        walk(person, folder, gone)
        gone.verified = True
    except StepError as error:
        gone.said = str(error)
    finally:
        if keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    return gone


def walk(person: Person, folder: Path, gone: Gone) -> None:
    """Clone, install, go the path; each step is noted.

    Raises:
        StepError: A step failed, or the path was skipped.
    """
    clone, steps = folder / "petastorm-bridge", folder / "steps.jsonl"
    surroundings = fresh_surroundings(folder, clone / person.python)
    step(gone, "git clone", f"git clone -q '{ROOT}' '{clone}'", folder, surroundings)
    python = environment.find_python(("3.11", "3.12", "3.10"))
    if not person.python.startswith(".venv"):
        step(gone, "python -m venv", f"'{python}' -m venv .own", clone, surroundings)
    for command in person.install:
        step(gone, command, command, clone, surroundings)
    if person.spark and environment.installed_java() not in (17, 21):
        java = "pip install -r requirements/java.txt"
        step(gone, java, java, clone, surroundings)
        link_java(clone / ".own")
        surroundings["JAVA_HOME"] = str(clone / ".own" / "java")
    judge = " ".join(f"'{name}'" for name in judges())
    if not person.python.startswith(".venv"):
        # pytest is how the path is gone here, not part of it.
        step(gone, "(what judges)", f"pip install {judge}", clone, surroundings)
    surroundings["PETASTORM_BRIDGE_STEPS"] = str(steps)
    test = f"python -m pytest -q -rs -p no:cacheprovider '{TESTS}/{person.test}'"
    started = time.monotonic()
    try:
        printed = step(gone, "rest of the path, with the programs", test, clone, surroundings)
    finally:
        rest = (time.monotonic() - started) / 60
        commands = [json.loads(line) for line in read(steps).splitlines()]
        told = [(command, seconds / 60) for command, seconds in commands]
        last = gone.steps.pop()[0]
        gone.steps += [*told, (last, rest - sum(minutes for _, minutes in told))]
    if not re.search(r"\b1 passed", printed):
        raise StepError(printed[-2000:])


def fresh_surroundings(folder: Path, python: Path) -> dict[str, str]:
    """Environment variables as of somebody who has just come: no interpreter's, no cache of pip's."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK_", "SPARK_", "PETASTORM_BRIDGE_"))
        and name not in {"VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL"}
    }
    kept["PATH"] = f"{python.parent}{os.pathsep}{kept['PATH']}"
    kept["PIP_DISABLE_PIP_VERSION_CHECK"] = kept["PIP_NO_CACHE_DIR"] = "1"
    kept["TMPDIR"] = str(folder)
    return kept


def judges() -> list[str]:
    """The packages that the tests are run with, as `pyproject.toml` pins them."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    group = re.search(r"^test = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert group, "pyproject.toml has no group of tests"
    return re.findall(r'"([^"]+)"', group[1])


def link_java(place: Path) -> None:
    """Make a JAVA_HOME in an environment, as `make setup` does."""
    environment.link_java(environment.Environment(place, "", (), java=(17,)))


def step(gone: Gone, name: str, command: str, folder: Path, surroundings: dict[str, str]) -> str:
    """Run one step and note its minutes; return what it printed.

    Raises:
        StepError: It failed.
    """
    started = time.monotonic()
    done = subprocess.run(
        ["/bin/bash", "-ec", command],
        cwd=folder,
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    gone.steps.append((name, (time.monotonic() - started) / 60))
    if done.returncode:
        raise StepError(f"{command}\n{done.stdout[-4000:]}")
    return done.stdout


def read(path: Path) -> str:
    """A file's text; none if there is no file."""
    return path.read_text("utf-8") if path.exists() else ""


def show(name: str, gone: Gone) -> None:
    """Print one person's steps, and how it ended."""
    verified = "verified" if gone.verified else "NOT VERIFIED"
    print(f"\n{name}: {gone.minutes:.1f} minutes, {verified}")
    for said, minutes in gone.steps:
        print(f"  {minutes:5.2f}  {said}")
    if gone.said:
        print(f"\n{gone.said}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
