"""Two commits are raced by their own benchmarks on their own code, and judged by all turns. Speed is not tested."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import against  # noqa: E402 - no package, run from the root
from benchmarks._measure import Measurement  # noqa: E402

# Who commits is nobody's setting.
GIT = ("git", "-c", "user.name=Nobody", "-c", "user.email=nobody@example.com")


def git(folder, *command):
    subprocess.run([*GIT, *command], cwd=folder, check=True, capture_output=True)


def turn(unit="rows/s", **medians):
    return [
        Measurement("torch-sequential", name, unit, 1, (median,))
        for name, median in medians.items()
    ]


def test_contestants_that_both_know_are_compared():
    before = [turn(bridge=100.0, gone=1.0), turn(bridge=300.0, gone=1.0)]
    now = [turn(new=1.0, bridge=400.0), turn(new=1.0, bridge=600.0)]
    (change,) = against.compare(before, now)
    assert (change.name, change.before, change.now) == ("bridge", (100.0, 300.0), (400.0, 600.0))
    assert (change.ratio, change.verdict) == (2.5, "better")


@pytest.mark.parametrize(
    ("before", "now", "unit", "verdict"),
    [
        ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0), "rows/s", "better"),
        ((4.0, 5.0, 6.0), (1.0, 2.0, 3.0), "rows/s", "worse"),
        ((4.0, 5.0, 6.0), (1.0, 2.0, 3.0), "MiB", "better"),
        ((1.0, 2.0, 3.0), (3.0, 5.0, 6.0), "rows/s", "within noise"),
        ((1.0,), (5.0,), "rows/s", "one turn shows nothing"),
    ],
)
def test_only_what_every_turn_says_is_more_than_noise(before, now, unit, verdict):
    (change,) = against.compare(
        [turn(unit, one=each) for each in before], [turn(unit, one=each) for each in now]
    )
    assert change.verdict == verdict


def test_the_files_of_a_commit_are_those_that_it_has(tmp_path, monkeypatch):
    repository, work = tmp_path / "repository", tmp_path / "work"
    repository.mkdir()
    work.mkdir()
    git(repository, "init", "--quiet")
    (repository / "file").write_text("committed")
    git(repository, "add", "file")
    git(repository, "commit", "--quiet", "-m", "One file")
    (repository / "file").write_text("changed")
    (repository / "other").write_text("new")
    monkeypatch.setattr(against, "_HERE", repository)
    earlier = against.check_out("HEAD", work)
    assert {path.name: path.read_text() for path in earlier.iterdir()} == {"file": "committed"}
    assert (repository / "file").read_text() == "changed"
    for unknown in ("no-such-commit", "--output=file"):
        with pytest.raises(typer.BadParameter, match="has no commit"):
            against.check_out(unknown, work)
    assert sorted(path.name for path in work.iterdir()) == ["earlier"]


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.spark
def test_both_sides_run_their_own_code(tmp_path):
    """The earlier side of this copy calls one contestant by another name."""
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("benchmarks", "bridge", "codemods", "tests/helpers"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    races = tmp_path / "benchmarks" / "_codemod.py"
    today = races.read_text(encoding="utf-8")
    races.write_text(today.replace("2 processes", "so far"), encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "-m", "So far")
    races.write_text(today, encoding="utf-8")
    figures = tmp_path / "figures.json"
    options = ["--quick", "--only", "codemod", "--turns", "2", "--json", str(figures)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.against", "HEAD", *options],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (change,) = json.loads(figures.read_text(encoding="utf-8"))["changes"]
    assert change["name"] == "10,000 files in 10 s"
    assert len(change["before"]) == len(change["now"]) == 2
    assert "…" not in done.stdout


@pytest.mark.modern
@pytest.mark.slow
def test_a_race_that_the_earlier_commit_does_not_know_is_named(tmp_path):
    for name in ("benchmarks", "tests/helpers"):
        shutil.copytree(ROOT / name, tmp_path / name)
    settings = tmp_path / "benchmarks" / "_settings.py"
    today = settings.read_text(encoding="utf-8")
    settings.write_text(today.replace('"codemod":', '"rewriting":'), encoding="utf-8")
    with pytest.raises(typer.BadParameter, match="choose from"):
        against._measure(tmp_path, ["codemod"], tmp_path, quick=True)


def test_an_unknown_race_is_refused():
    with pytest.raises(typer.BadParameter, match="choose from"):
        against.run("HEAD", only="torch-sequental")
