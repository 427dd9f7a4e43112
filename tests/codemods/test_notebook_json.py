"""The JSON of notebooks: what is no notebook is named, and nothing but the changed source changes."""

import json

import pytest

from petastorm_codemods._engine import process
from petastorm_codemods._model import Destination, Failed, Success, Unchanged
from petastorm_codemods._settings import Settings

BRIDGE = Settings(Destination.BRIDGE)
CELL = '{"cell_type": "code", "source": "import petastorm.spark"%s}'


def notebook(cells, rest=""):
    return f'{{"cells": [{cells}]{rest}}}'.encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[]", "no notebook of format 4"),
        (b'{"petastorm": 1}', "no notebook of format 4"),
        (b'{"cells": 1}', "no notebook of format 4"),
        (b'{"cells": [1]}', "no notebook of format 4"),
        (b'{"cells": [{"cell_type": "code", "source": 1}]}', "the source of cell 1 is no text"),
        (b'{"cells": [{"cell_type": "code", "source": [1]}]}', "the source of cell 1 is no text"),
        (b'{"cells": [], "metadata": [1]}', "no notebook of format 4"),
        (b'{"cells": [', "Expecting value"),
        (b'{"cells": ' + b"[" * 100_000, "nested too deep"),
        (notebook(CELL % (', "outputs": ' + "[" * 100_000 + "]" * 100_000)), "nested too deep"),
    ],
)
def test_what_is_no_notebook_is_named(data, reason):
    outcome = process("n.ipynb", data, BRIDGE)
    assert isinstance(outcome, Failed)
    assert reason in outcome.reason


@pytest.mark.parametrize(
    "rest",
    [
        ', "outputs": [' + "[" * 100 + "]" * 100 + "]",
        ', "outputs": [NaN, -Infinity, 1e999, ' + "9" * 5000 + "]",
        ', "outputs": {"a": "\\ud800 \\u0000"}',
    ],
)
def test_outputs_of_any_kind_stay(rest):
    data = notebook(CELL % rest)
    outcome = process("n.ipynb", data, BRIDGE)
    assert isinstance(outcome, Success), outcome
    assert outcome.after == data.replace(b"petastorm", b"petastorm_bridge")


def test_of_keys_that_come_twice_the_last_counts():
    """As every reader of JSON has it."""
    twice = CELL % ', "source": ["x = 1"]'
    assert process("n.ipynb", notebook(twice), BRIDGE) == Unchanged("n.ipynb")
    last = notebook(twice, f', "cells": [{CELL % ""}]')
    outcome = process("n.ipynb", last, BRIDGE)
    assert isinstance(outcome, Success)
    assert json.loads(outcome.after)["cells"][0]["source"] == "import petastorm_bridge.spark"
