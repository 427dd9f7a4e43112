"""The guide's page tells the truth about options, allowances and code."""

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from petastorm_bridge.cli import app
from petastorm_bridge.parity._comparing.rules import ALLOWANCES

pytestmark = pytest.mark.modern

GUIDE = Path(__file__).parent.parent.parent / "migration_guide"
PAGE = (GUIDE / "parity.md").read_text("utf-8")


def test_every_allowance_is_there():
    section = PAGE.split("## Allow a known difference")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("| ")][1:]
    named = {name for line in table for name in re.findall(r"`([a-z\-]+)`", line.split("|")[1])}
    assert named == set(ALLOWANCES)


def test_every_option_exists():
    shown = ""
    for command in ("record", "compare", "run"):
        answer = CliRunner().invoke(app, ["parity", command, "--help"], env={"COLUMNS": "200"})
        shown += answer.stdout
    named = set(re.findall(r"`?(--[a-z][a-z\-]+)", PAGE))
    assert named - {"--headless", "--window-size", "--parity-record"} == {
        option for option in named if option in shown
    }


def test_the_examples_run(tmp_path, monkeypatch, parity):
    """Those in which the page's own ``loaders`` are any rows; tests/project/test_guide.py runs the others."""
    rows = [{"id": np.arange(5)}, {"id": np.arange(5, 8)}]
    loaders = types.ModuleType("loaders")
    loaders.train = lambda: rows
    monkeypatch.setitem(sys.modules, "loaders", loaders)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    compared, tested = (block for block in blocks if "from loaders import train" in block)
    names = {}
    exec(compared, names)
    assert names["result"].same
    tests = {}
    exec(tested, tests)
    tests["test_loaders_agree"]()
    parity.golden_directory = tmp_path / "golden"
    parity.recording = True
    tests["test_training_data_is_what_it_was"](parity)
    parity.recording = False
    tests["test_training_data_is_what_it_was"](parity)
    rows.pop()
    with pytest.raises(AssertionError, match="3 row"):
        tests["test_training_data_is_what_it_was"](parity)
