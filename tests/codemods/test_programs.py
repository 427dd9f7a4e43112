"""Programs after the usual patterns are run on Petastorm, on the bridge and on native streaming."""

import ast
import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from petastorm_codemods._model import Destination, NeedsHuman, Success, Target, Unchanged
from petastorm_codemods._run import run as codemod
from petastorm_codemods._settings import Settings
from petastorm_codemods._text.decode import write_atomically

HERE = pathlib.Path(__file__).parent
# Specimens of other people's style: the suffix keeps our own formatter away from them.
PROGRAMS = {
    path.name.split(".")[0]: path / "main.py.txt" if path.is_dir() else path
    for path in sorted((HERE / "programs").iterdir())
}
STREAMING = Settings(Destination.STREAMING)
FORMS = {
    "bridge": Settings(Destination.BRIDGE),
    "streaming": STREAMING,
    "vendored": dataclasses.replace(STREAMING, vendor=True),
    "fast": dataclasses.replace(
        STREAMING, target=Target("petastorm_bridge.native_fast", fast=True)
    ),
}

# Programs that native streaming leaves something of to a human: they read a converter's directory with
# the bridge's reader, which shows some types otherwise there. Of theirs it shows all alike.
MARKED = {"reader_on_converter.py"}

pytestmark = [pytest.mark.spark, pytest.mark.tf, pytest.mark.slow]


def copy_programs(folder):
    for path in (HERE / "programs").rglob("*.txt"):
        place = folder / path.relative_to(HERE / "programs").with_suffix("")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)


def rewrite(folder, settings):
    for outcome in codemod([str(folder)], settings).outcomes:
        marked = os.path.basename(outcome.path) in MARKED and settings is not FORMS["bridge"]
        assert isinstance(outcome, NeedsHuman if marked else Success | Unchanged), outcome
        if isinstance(outcome, Success | NeedsHuman):
            write_atomically(outcome.path, outcome.after)


def run(out, *folders):
    done = subprocess.run(
        [sys.executable, str(HERE / "run_programs.py"), str(out), *map(str, folders)],
        capture_output=True,
        text=True,
        check=False,
        cwd=out.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert out.exists(), done.stderr[-4000:]
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for form in ("original", *FORMS):
        made[form] = tmp_path_factory.mktemp("programs") / form
        copy_programs(made[form])
        if form in FORMS:
            rewrite(made[form], FORMS[form])
    return made


@pytest.fixture(scope="module")
def results(folders, tmp_path_factory):
    """A function that gives what the programs of a form record; each form runs once."""
    pytest.importorskip("petastorm", reason="compares with the real package")
    place = tmp_path_factory.mktemp("results")

    @functools.cache
    def result(form):
        return run(place / f"{form}.json", folders[form])[form]

    return result


def rows(batches):
    """All rows, sorted: batches without the order in which they came."""
    found = []
    for batch in batches:
        columns = [values for _, _, values in batch.values()]
        found += [[str(value) for value in row] for row in zip(*columns, strict=True)]
    return sorted(found)


def test_the_original_runs(results):
    for name, batches in results("original").items():
        assert isinstance(batches, list), (name, batches)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("form", FORMS)
def test_same_batches(results, name, form):
    original, ours = results("original")[name], results(form)[name]
    assert isinstance(original, list), original
    assert isinstance(ours, list), ours
    assert original
    if PROGRAMS[name].read_text("utf-8").startswith("# rows only"):
        assert [list(batch) for batch in ours[:1]] == [list(batch) for batch in original[:1]]
        assert rows(ours) == rows(original)
    else:
        assert ours == original


@pytest.mark.parametrize("form", FORMS)
def test_nothing_of_petastorm_is_left(folders, form):
    texts = {path: path.read_text() for path in folders[form].rglob("*.py")}
    for path, text in texts.items():
        assert not re.search(r"^\s*(?:import|from) petastorm\b", text, re.MULTILINE), path


def test_a_vendored_file_needs_nothing_of_ours(folders):
    text = (folders["vendored"] / "mds_support.py").read_text()
    modules = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name) or ""
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert not any(module.startswith("petastorm") for module in modules)
