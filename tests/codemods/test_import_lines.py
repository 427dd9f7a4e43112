"""What a file imports and runs, by the look of its code: programs and notebooks, however their JSON is laid out."""

import json
import time

import pytest

from petastorm_codemods._meaning.other_files import modules_named
from petastorm_codemods._model import Rewritten
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings
from petastorm_codemods._text.import_lines import first_import, import_lines

pytestmark = pytest.mark.modern


def notebook(*sources, as_lists=True, **layout):
    cells = [
        {"cell_type": "code", "source": source.splitlines(True) if as_lists else source}
        for source in sources
    ]
    return json.dumps({"cells": cells, "nbformat": 4}, **layout)


LAYOUTS = {
    "indented": {"indent": 1},
    "one line": {},
    "no blanks": {"separators": (",", ":")},
    "strings": {"as_lists": False},
}
LINES = "import os\nfrom petastorm import (\n    local_disk_cache,\n)\nimport petastorm.spark\n"


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_imports_of_a_notebook_are_those_of_its_code(layout):
    assert import_lines(notebook(LINES, **layout).encode()) == import_lines(LINES.encode())
    marked = "\ufeff" + notebook(LINES, **layout)
    assert import_lines(marked.encode()) == import_lines(LINES.encode())


@pytest.mark.parametrize("layout", ["indented", "strings"])
def test_a_notebook_that_cannot_be_read_shows_its_imports(layout):
    broken = "{" + notebook("import os\nimport petastorm.spark\n", **LAYOUTS[layout])
    assert {module for module, _ in import_lines(broken.encode())} == {"os", "petastorm.spark"}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(
    "line", ["%run ./ours", "%run ./ours\nx = 1", "%run ours.ipynb", "%run ours.py"]
)
def test_what_a_notebook_runs_may_give_a_loader_a_shard(tmp_path, layout, line):
    ours = (
        "from petastorm.spark import make_spark_converter\n"
        "conv = make_spark_converter(df)\n"
        "def epoch(rank, size):\n"
        "    with conv.make_torch_dataloader(num_epochs=1, cur_shard=rank, shard_count=size) as loader:\n"
        "        fit(loader)\n"
        "epoch(0, 1)\n"
    )
    other = notebook(line, "import horovod.torch as hvd\nepoch(hvd.rank(), hvd.size())\n", **layout)
    assert modules_named(other.encode()) >= {"ours"}
    (tmp_path / "ours.ipynb").write_text(notebook(ours, **layout))
    (tmp_path / "other.ipynb").write_text(other)
    outcomes = run([str(tmp_path)], Settings()).outcomes
    (found,) = (each for each in outcomes if each.path.endswith("ours.ipynb"))
    assert isinstance(found, Rewritten)
    assert b"make_torch_dataloader" in found.after


def test_requirements_are_kept_for_a_notebook_in_one_line(tmp_path):
    (tmp_path / "a.ipynb").write_text(
        notebook("from petastorm import local_disk_cache\nlocal_disk_cache\n")
    )
    (tmp_path / "train.py").write_text(
        "from petastorm.spark import make_spark_converter\nmake_spark_converter(df)\n"
    )
    (tmp_path / "requirements.txt").write_text("petastorm==0.12.1\n")
    outcomes = run([str(tmp_path)], Settings()).outcomes
    (found,) = (each for each in outcomes if each.path.endswith("requirements.txt"))
    assert b"petastorm==0.12.1\n" in found.after


def test_many_imports_in_one_line_cost_in_proportion():
    def seconds(count):
        data = notebook("import os\n" * count, as_lists=False).encode()
        start = time.thread_time()
        assert len(import_lines(data)) == count
        return time.thread_time() - start

    seconds(100)
    assert seconds(20_000) < 40 * max(seconds(2_000), 0.002)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("import os\n  from petastorm.spark import a", "from petastorm"),
        ("\u96ea \ud800\nimport os, petastorm as p", "import os"),
        ("from petastorm (see below)", None),
        ("from petastorm to MDS\nimport petastorm_bridge\nfrom petastormx import a", None),
        ("from .petastorm import a", None),
    ],
)
def test_the_first_import_of_a_package_is_found_where_it_stands(text, place):
    found = first_import(text, "petastorm")
    assert found == (None if place is None else text.index(place))


def test_open_brackets_in_texts_cost_in_proportion():
    def seconds(count):
        start = time.thread_time()
        assert first_import("from a import (b,\n" * count, "petastorm") is None
        return time.thread_time() - start

    seconds(100)
    assert seconds(20_000) < 40 * max(seconds(2_000), 0.002)
