"""Files that end the process which parses them, or hold it up: all others get done."""

import os
import time

import pytest

from petastorm_codemods import _processes
from petastorm_codemods._engine import process
from petastorm_codemods._model import Destination, Failed, Success
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings

pytestmark = pytest.mark.anystack

BRIDGE = Settings(Destination.BRIDGE)
GOOD = "from petastorm.spark import make_spark_converter\n"
DEEP = GOOD + "x=" + "+(" * 3000 + "1" + ")" * 3000 + "\n"


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "deep.py").write_text(DEEP)
    for number in range(20):
        (tmp_path / f"good{number}.py").write_text(GOOD)
    return tmp_path


def outcomes_of(folder, jobs):
    found = run([str(folder)], BRIDGE, jobs=jobs).outcomes
    failed = {
        os.path.basename(each.path): each.reason for each in found if isinstance(each, Failed)
    }
    return sum(isinstance(each, Success) for each in found), failed


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_that_kills_the_parser_fails_alone(tree, jobs):
    good, failed = outcomes_of(tree, jobs)
    assert (good, list(failed)) == (20, ["deep.py"])
    assert "nested too deep" in failed["deep.py"]


def test_so_does_one_that_is_not_expected_to(tree, monkeypatch):
    monkeypatch.setattr(_processes, "is_risky", lambda *_: False)
    good, failed = outcomes_of(tree, 2)
    assert (good, list(failed)) == (20, ["deep.py"])


def test_a_file_that_takes_too_long_is_given_up():
    text = GOOD + "x = " + "1 + " * 20_000 + "1\n"
    assert _processes.is_risky("x.py", text.encode())
    start = time.monotonic()
    outcome = _processes.alone("x.py", text.encode(), BRIDGE, seconds=0.1)
    assert isinstance(outcome, Failed)
    assert "more than 0.1 seconds" in outcome.reason
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("text", "risky"),
    [
        (DEEP, True),
        ("if a: pass\n" + "elif b: pass\n" * 10_000, True),
        ("x = " + "not " * 5000 + "1", True),
        ("x = [" + "[1, (2, 3)],\n" * 20_000 + "]", False),
        (")" * 5000 + "(" * 100, False),
    ],
)
def test_what_is_worked_on_alone(text, risky):
    assert _processes.is_risky("x.py", text.encode()) is risky


def test_deep_code_that_the_parser_survives_fails_with_a_reason():
    outcome = process("x.py", (GOOD + "x=" + "[" * 900 + "]" * 900).encode(), BRIDGE)
    assert isinstance(outcome, Failed)
    assert "nested too deep" in outcome.reason
