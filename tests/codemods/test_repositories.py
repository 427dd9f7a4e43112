"""Whole repositories: what becomes of every call of the converter's API, in every form.

Those in ``repositories`` are the sample, of whose calls most have to become native. They were written for this project
after the shapes of 60 public programs that were found by searching for the converter's API, so it is a sample of what a
search finds, and no random one. Each makes converters, opens loaders and hands them on as its program does; names, data
and models are others, and what does not touch the API is left out. Those in ``repositories_hard`` were made to hold
what stays, so that their shares say nothing.
"""

import pathlib
import re
import shutil
import sys

import pytest

from petastorm_codemods._rewriting.markers import MARK
from petastorm_codemods._run import run

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))

import measure_codemod
from measure_codemod import FORMS, MARKED, NATIVE, RANKS, SILENT

pytestmark = pytest.mark.modern

HERE = pathlib.Path(__file__).parent
SLOW = {"fast", "vendored"}
ON_BRIDGE = re.compile(r"make_spark_converter\(\s*[\w.]+\.cache_dir_url\s*\)\.make_")


def copied(name, place):
    """Copy the samples of a folder, without the suffix that keeps other tools off them; return the repositories."""
    for path in (HERE / name).rglob("*.txt"):
        to = place / path.relative_to(HERE / name).with_suffix("")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    return sorted(place.iterdir())


def measured(repositories, form):
    found = measure_codemod.Measured()
    for repository in repositories:
        measure_codemod.measure(repository, form, FORMS[form], found, None)
    return found


@pytest.fixture(
    params=[pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in FORMS]
)
def form(request):
    return request.param


def test_most_calls_become_native(tmp_path, form):
    repositories = copied("repositories", tmp_path)
    found = measured(repositories, form)
    assert not found.faults
    if form != "bridge":
        assert not found.silent
        assert found.native >= measure_codemod.LEAST_NATIVE
        texts = (path.read_text() for each in repositories for path in each.rglob("*.py"))
        calls = sum(
            len(re.findall(r"\.make_(?:torch_dataloader|tf_dataset)\b", text)) for text in texts
        )
        assert found.calls.total() == calls > 120


def test_hard_ones_have_no_faults(tmp_path, form):
    found = measured(copied("repositories_hard", tmp_path), form)
    assert not found.faults
    if form != "bridge":  # the silent one is another class's
        assert found.calls == {NATIVE: 12, MARKED: 6, RANKS: 4, SILENT: 1}


def test_what_stays_of_hard_ones_says_why(tmp_path):
    for repository in copied("repositories_hard", tmp_path):
        measure_codemod.written(run([str(repository)], FORMS["streaming"]))
    text = "".join(path.read_text() for path in tmp_path.rglob("*.*"))
    assert len(re.findall(rf"# {MARK} PM10[23]", text)) == 6
    assert len(ON_BRIDGE.findall(text)) == 6 + 4
    beside_what_does_not_parse = (tmp_path / "databricks_course" / "solutions_todo.py").read_text()
    for kept in ("converter = FILL IN", "write_mds(train_df)", "remote=converter_train.remote"):
        assert kept in beside_what_does_not_parse
