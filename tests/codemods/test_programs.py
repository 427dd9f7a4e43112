"""Programs after the usual patterns are run on Petastorm, on the bridge and on native streaming."""

import ast
import dataclasses
import functools
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import sys

import pytest
import warm

from petastorm_bridge import parity
from petastorm_codemods._model import Destination, NeedsHuman, Success, Target, Unchanged
from petastorm_codemods._run import run as codemod
from petastorm_codemods._settings import Settings
from petastorm_codemods._text.decode import write_atomically

HERE = pathlib.Path(__file__).parent
SOURCES = HERE.parents[1] / "codemods"
# Of so many programs one is run in all its forms, unless the comparison is live; other rules, other programs.
ONE_OF = 1 if os.environ.get("PETASTORM_BRIDGE_PARITY") == "live" else 2
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
    "fast": dataclasses.replace(STREAMING, target=Target(fast=True)),
}

# Petastorm's readers print this as their `with` ends, also where there is no cache; the bridge's say nothing.
PETASTORMS_OWN = "Cache cleanup complete."
# With --vendor a reader of the bridge on a converter's directory is left to a human: what streaming's writer
# wrote does not say which columns were booleans or timestamps. This one has none.
MARKED = {"reader_on_converter.py"}


def chosen():
    """The names of the programs that are run."""
    texts = [path.read_bytes() for path in sorted(SOURCES.rglob("*.py"))]
    seed = hashlib.sha256(b"".join(texts)).digest()
    order = sorted(PROGRAMS, key=lambda name: hashlib.sha256(seed + name.encode()).digest())
    return sorted(order[: math.ceil(len(order) / ONE_OF)])


RUN = chosen()

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def copy_programs(folder):
    for path in (HERE / "programs").rglob("*.txt"):
        place = folder / path.relative_to(HERE / "programs").with_suffix("")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)


def rewrite(folder, settings):
    for outcome in codemod([str(folder)], settings).outcomes:
        marked = os.path.basename(outcome.path) in MARKED and settings.vendor
        assert isinstance(outcome, NeedsHuman if marked else Success | Unchanged), outcome
        if isinstance(outcome, Success | NeedsHuman):
            write_atomically(outcome.path, outcome.after)


def run(out, folder):
    done = warm.run(
        [sys.executable, str(HERE / "run_programs.py"), str(out), str(folder), *RUN],
        capture_output=True,
        text=True,
        check=False,
        cwd=out.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (out / "programs.json").exists(), done.stderr[-4000:]
    return json.loads((out / "programs.json").read_text())


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
    """A function that gives where a form's recordings are, and what came of its programs; each runs once."""
    pytest.importorskip("petastorm", reason="compares with the real package")
    place = tmp_path_factory.mktemp("results")

    @functools.cache
    def result(form):
        return place / form, run(place / form, folders[form])

    return result


def test_the_original_runs(results):
    found_by_name = results("original")[1]
    assert sorted(found_by_name) == RUN
    for name, found in found_by_name.items():
        assert found.get("recordings") or found.get("printed"), (name, found)


def cut(sizes, epoch):
    """Batches as streaming cuts them: the last one of an epoch is short, and none reaches over its end."""
    total, size = sum(sizes), max(sizes)
    one = [size] * (epoch // size) + ([epoch % size] if epoch % size else [])
    return one * (total // epoch)


@pytest.mark.parametrize("name", RUN)
@pytest.mark.parametrize("form", FORMS)
def test_same_batches(results, name, form):
    """The same rows; in the same order and cut alike where nothing is shuffled.

    Petastorm's batches reach over the end of an epoch, and streaming's do not: a program in which that makes a
    difference says how many rows an epoch has. Nor are batches filled up where a transform drops rows.
    """
    (there, originals), (here, found) = results("original"), results(form)
    assert "error" not in found[name], found[name]["error"]
    printed = [line for line in originals[name]["printed"] if line != PETASTORMS_OWN]
    assert found[name]["printed"] == printed
    original, ours = originals[name]["recordings"], found[name]["recordings"]
    assert set(ours) == set(original)
    head = re.match(r"# (rows only|other cuts|epochs of (\d+))", PROGRAMS[name].read_text("utf-8"))
    rules = parity.Rules()
    if head and (head[1] == "rows only" or form != "bridge"):
        order = "shuffled" if head[1] == "rows only" else "exact"
        rules = parity.Rules(order=order, batches="any")
    for columns in original:
        parity.assert_same_batches(there / name / columns, here / name / columns, rules)
        if head and head[2] and form != "bridge":
            assert ours[columns] == cut(original[columns], int(head[2]))


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
