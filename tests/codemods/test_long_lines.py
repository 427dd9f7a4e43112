"""What is looked at as text costs in proportion to its length, also in one line of data: patterns count no calls."""

import time

import pytest

from petastorm_codemods._doctor.repository import _CACHE
from petastorm_codemods._project.dependency_files import Wanted, rewritten
from petastorm_codemods._project.distribution import bridge
from petastorm_codemods._project.requirements import entries
from petastorm_codemods._text.magics import mask
from petastorm_codemods._text.sources import problem_of_python, read_source

pytestmark = pytest.mark.modern


def lists(name, text):
    return rewritten(name, text.encode(), Wanted(bridge()))


LOOKS = {
    "a long line": lambda n: list(_CACHE.finditer("x = '" + "a" * n + "'\n")),
    "blanks in a requirement": lambda n: entries("requirements.txt", "a" + " " * n + "b\n"),
    "words in a list": lambda n: entries("pyproject.toml", "a" * n + "\n" + "b " * n),
    "keys": lambda n: entries("setup.cfg", "a" * n + "\n"),
    "pip's lists in conda's": lambda n: entries("environment.yml", "- pip:\n  - six\n" * (n // 20)),
    "requirements": lambda n: lists("requirements.txt", "petastorm==0.12\n" * (n // 40)),
    "repositories": lambda n: lists("requirements.txt", "petastorm\n" + "git+" * n),
    "names": lambda n: lists("a.json", '{"name": ' + " " * n + 'x "petastorm"}'),
    "blanks in a notebook": lambda n: mask("!ls\n" + " " * n + "x\n"),
    "cells that install": lambda n: read_source(
        "a.py",
        b"# Databricks notebook source\n"
        + b"# MAGIC %pip install a\n\n# COMMAND ----------\n\n" * (n // 20),
        problem_of_python,
    ),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_four_times_the_length_costs_no_more_than_in_proportion(look):
    def seconds(size):
        times = []
        for _ in range(3):
            start = time.thread_time()
            look(size)
            times.append(time.thread_time() - start)
        return min(times)

    look(100)
    assert seconds(40_000) < 9 * max(seconds(10_000), 0.01)
