"""Today's benchmarks race the code of two commits, which are judged by all turns. Speed is not tested."""

import itertools
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

from benchmarks import _codemod, against  # noqa: E402 - no package, run from the root
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


def test_the_medians_of_all_turns_are_compared():
    before = [turn(bridge=100.0), turn(bridge=300.0)]
    now = [turn(bridge=400.0), turn(bridge=600.0)]
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
    work.mkdir()
    for name in ("bridge", "codemods"):
        (repository / name).mkdir(parents=True)
        (repository / name / "file").write_text("committed")
    git(repository, "init", "--quiet")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "Two files")
    (repository / "bridge" / "file").write_text("changed")
    (repository / "bridge" / "other").write_text("new")
    monkeypatch.setattr(against, "_HERE", repository)
    earlier = against.check_out("HEAD", work)
    found = {path.relative_to(earlier): path for path in earlier.rglob("*") if path.is_file()}
    assert {str(name): path.read_text() for name, path in found.items()} == {
        "bridge/file": "committed",
        "codemods/file": "committed",
    }
    assert (repository / "bridge" / "file").read_text() == "changed"
    for unknown in ("no-such-commit", "--output=file"):
        with pytest.raises(typer.BadParameter, match="has no commit"):
            against.check_out(unknown, work)
    assert sorted(path.name for path in work.iterdir()) == ["earlier"]


def test_a_commit_without_the_code_is_refused(tmp_path, monkeypatch):
    """What is installed would be raced against itself."""
    repository = tmp_path / "repository"
    (repository / "bridge").mkdir(parents=True)
    (repository / "bridge" / "file").write_text("")
    git(repository, "init", "--quiet")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "Half of it")
    monkeypatch.setattr(against, "_HERE", repository)
    with pytest.raises(typer.BadParameter, match="'HEAD' has no folder 'codemods'"):
        against.check_out("HEAD", tmp_path)


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.spark
def test_the_benchmarks_of_today_run_the_code_of_both(tmp_path):
    """Both commands of this copy write down that they ran, and the earlier side's benchmarks cannot run."""
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("benchmarks", "bridge", "codemods", "tests/helpers"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    races = tmp_path / "benchmarks" / "_codemod.py"
    command = tmp_path / "codemods" / "petastorm_codemods" / "_cli.py"
    today, code = races.read_text(encoding="utf-8"), command.read_text(encoding="utf-8")
    ran = tmp_path / "ran"
    note = "\nwith open({!r}, 'a') as file:\n    file.write({!r})\n"
    races.write_text("raise RuntimeError\n", encoding="utf-8")
    command.write_text(code + note.format(str(ran), "earlier\n"), encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "-m", "So far")
    races.write_text(today, encoding="utf-8")
    command.write_text(code + note.format(str(ran), "now\n"), encoding="utf-8")
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
    changes = json.loads(figures.read_text(encoding="utf-8"))["changes"]
    assert [change["name"] for change in changes] == [_codemod.OURS, _codemod.LIMIT]
    assert all(len(change["before"]) == len(change["now"]) == 2 for change in changes)
    in_turn = [side for side, _ in itertools.groupby(ran.read_text().split())]
    assert in_turn == ["earlier", "now", "earlier"]
    assert "…" not in done.stdout


@pytest.mark.modern
@pytest.mark.slow
def test_code_that_the_benchmarks_cannot_run_is_named(tmp_path):
    package = tmp_path / "bridge" / "petastorm_bridge"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('too old')", encoding="utf-8")
    with pytest.raises(RuntimeError, match=f"on the code of {tmp_path}.*(?s:.*)too old"):
        against._measure(tmp_path, ["codemod"], tmp_path, quick=True)


def test_an_unknown_race_is_refused():
    with pytest.raises(typer.BadParameter, match="choose from"):
        against.run("HEAD", only="torch-sequental")
