"""New imports stand in the cell of Petastorm's, and cells of a notebook begin with what they began with."""

import json

import pytest

from petastorm_codemods._engine import process
from petastorm_codemods._meaning.other_files import Project
from petastorm_codemods._model import Destination, Failed, Success
from petastorm_codemods._settings import Settings

IMPORT = "from petastorm.spark import SparkDatasetConverter, make_spark_converter"
MAKE = "conv = make_spark_converter(df)"
READ = "with conv.make_torch_dataloader() as loader:\n    next(iter(loader))"
NEW = "from streaming import StreamingDataLoader, StreamingDataset"


def rewritten(cells):
    """Return the sources of the cells after a run that rewrites all there is."""
    listed = [{"cell_type": "code", "source": source.splitlines(True)} for source in cells]
    data = json.dumps({"cells": listed, "nbformat": 4}).encode()
    settings = Settings(Destination.STREAMING, project=Project(converters=True))
    outcome = process("n.ipynb", data, settings)
    assert isinstance(outcome, Success), outcome
    return ["".join(cell["source"]) for cell in json.loads(outcome.after)["cells"]]


SPARK = "from pyspark.sql import SparkSession"


@pytest.mark.parametrize(
    "ending", ["", "\n", "\n\n", "  # converters\n", "\nimport os\n", f"\n{SPARK}", f"\n{SPARK}\n"]
)
@pytest.mark.parametrize(
    "follower",
    ["", "\n", SPARK, "%%time\nx = 1", "%%sql\nselect 1", "%%bash\nls", "%%writefile a.py\nx"],
)
def test_imports_stay_in_the_cell_of_petastorms(ending, follower):
    first, second, made, _ = rewritten([IMPORT + ending, follower, MAKE, READ])
    assert NEW in first.splitlines()
    assert first.endswith("\n") == (IMPORT + ending).endswith("\n")
    assert second == follower
    assert made == "conv = write_mds(df)"


def test_imports_stay_in_the_block_of_petastorms():
    first, second, *_ = rewritten([f"with quiet():\n    {IMPORT}\n", "%%time\nx = 1", MAKE, READ])
    native, streaming = first.splitlines()[1:]
    assert native == "    from petastorm_bridge.native import write_mds"
    assert streaming == f"    {NEW}"
    assert second == "%%time\nx = 1"


@pytest.mark.parametrize(
    "cells",
    [
        ["%%time\n" + IMPORT, "%%time\n" + MAKE, READ],
        ["%%time\nx = 1", "%%capture\n" + READ],
        ["%%time\nimport os\n", "%%time\n" + READ],
        ["", "%%time\n" + READ],
        ["%%sql\nselect 1", "%%time\n" + READ],
        ["%matplotlib inline\n", "%%time\n" + READ],
        ["%load_ext autoreload", "!ls", "%%time\n" + READ],
    ],
)
def test_magics_stay_first(cells):
    after = rewritten(cells)
    assert any(NEW in cell for cell in after)
    for old, new in zip(cells, after, strict=True):
        if old.startswith("%%"):
            assert new.splitlines()[0] == old.splitlines()[0]


def test_a_rewrite_above_a_magic_is_refused(monkeypatch):
    """The check of the result notices it, wherever the edit comes from."""
    from petastorm_codemods._rewriting import statements

    monkeypatch.setattr(statements, "_is_magic", lambda *_: False)
    listed = [{"cell_type": "code", "source": ["%%time\n", READ]}]
    data = json.dumps({"cells": listed, "nbformat": 4}).encode()
    outcome = process(
        "n.ipynb", data, Settings(Destination.STREAMING, project=Project(converters=True))
    )
    assert isinstance(outcome, Failed)
    assert "magic" in outcome.reason
