"""Mutations of valid sources never crash the tool nor make it write what does not parse."""

import codecs
import collections
import json
import os
import pathlib
import re
from random import Random

import hypothesis
import libcst
import pytest
from hypothesis import strategies as st

from petastorm_codemods._engine import process
from petastorm_codemods._meaning.other_files import Project
from petastorm_codemods._model import Destination, Failed, NeedsHuman, Outcome, Success
from petastorm_codemods._settings import Settings
from petastorm_codemods._text.ipynb import read_notebook
from petastorm_codemods._text.sources import read_source

pytestmark = [pytest.mark.modern, pytest.mark.slow]

TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
BITS = [
    "(",
    ")",
    "\n",
    "    ",
    "'''",
    '"',
    "\\",
    "petastorm",
    "import ",
    "!pip install petastorm\n",
]
BITS += ["%", ":", ",", ".", " as x", "with ", "é", "\r\n", "#", "# COMMAND ----------\n", "async "]
BITS += [
    "\f",
    "\t",
    "\r",
    "\x00",
    "\\\n",
    "%%time\n",
    "# MAGIC %run ./x\n",
    "lambda: ",
    "*",
    "**",
    ";",
]
BITS += [
    "print 'old'\n",
    "from x import *\n",
    "data_loader_fn=DataLoader, ",
    "workers_count=2,\n",
    "µ = 1\n",
]


def in_latin(text):
    return ("# -*- coding: latin-1 -*-\n" + text).encode("latin-1", "replace")


def as_notebook(text):
    cells = [{"cell_type": "code", "source": part} for part in text.split("\n\n")]
    return json.dumps({"cells": cells, "nbformat": 4}).encode()


# What the same text may be as a file.
FORMS = {
    "plain": lambda text: text.encode(),
    "windows": lambda text: text.replace("\n", "\r\n").encode(),
    "old Macintosh": lambda text: text.replace("\n", "\r").encode(),
    "newlines of both kinds": lambda text: text.replace(
        "\n", "\r\n", text.count("\n") // 2
    ).encode(),
    "byte order mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "latin": in_latin,
    "wrong encoding": lambda text: b"# coding: ascii\n# \xe9\n" + text.encode(),
    "two bytes": lambda text: text.encode("utf-16"),
    "tabs": lambda text: text.replace("    ", "\t").encode(),
    "form feeds": lambda text: text.replace("\n\n", "\n\f\n").encode(),
    "Python 2": lambda text: ("print 'starts', 0777\n" + text).encode(),
    "Databricks": lambda text: ("# Databricks notebook source\n" + text).encode(),
    "a long line": lambda text: (
        text + f"\nnumbers, text = {[1] * 300}, '{'long ' * 20_000}'\n"
    ).encode(),
    "no last newline": lambda text: text.rstrip("\n").encode(),
    "one line": lambda text: text.replace("\n", ";").encode(),
    "empty": lambda text: text[:0].encode(),
    "blank": lambda text: re.sub(r"\S", " ", text).encode(),
}


@pytest.fixture(scope="module")
def sources():
    texts = []
    for file in sorted((pathlib.Path(__file__).parent / "cases").glob("*.case")):
        for part in re.split(r"^#### ", file.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            header, _, body = part.partition("\n")
            destination = "bridge" if file.stem.startswith("bridge") else "streaming"
            path = "n.ipynb" if "ipynb" in header else "x.py"
            if "dependencies" not in file.stem:
                texts.append((path, destination, body.partition("####>\n")[0]))
    for folder in ("programs", "repositories_hard"):
        for file in sorted((pathlib.Path(__file__).parent / folder).rglob("*.txt")):
            name = file.name.removesuffix(".txt")
            if name.endswith((".py", ".ipynb")):
                path = "n.ipynb" if name.endswith(".ipynb") else "x.py"
                texts += [(path, to.value, file.read_text("utf-8")) for to in Destination]
    return texts


def mutate(random, text):
    tokens = TOKEN.findall(text)
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(tokens))
        kind = random.choice(["drop", "insert", "swap", "cut"])
        if kind == "insert":
            tokens.insert(at, random.choice(BITS))
        elif kind == "drop":
            del tokens[at : at + random.randint(1, 6)]
        elif kind == "swap" and at + 1 < len(tokens):
            tokens[at], tokens[at + 1] = tokens[at + 1], tokens[at]
        elif kind == "cut":
            tokens = tokens[: max(at, 1)]
    return "".join(tokens)


def check(path, mutated, settings):
    """A file is rewritten so that it can be read as before and a second run changes nothing."""
    if re.search(rb"^\s*\\", mutated, re.MULTILINE) or re.search(rb"\f[ \t]*[^\s\\]", mutated):
        return None  # LibCST misplaces what follows, so that the file is left alone
    outcome = process(path, mutated, settings)
    assert isinstance(outcome, Outcome)
    if isinstance(outcome, Failed):
        # A file may be broken, but a rewrite that fails its checks would be a bug in a rule.
        assert "the rewrite" not in outcome.reason, (outcome.reason, mutated[:2000])
    if not isinstance(outcome, Success | NeedsHuman) or outcome.after == mutated:
        return outcome
    again = process(path, outcome.after, settings)
    assert getattr(again, "after", outcome.after) == outcome.after
    before, after = read_source(path, mutated), read_source(path, outcome.after)
    assert len(before.cells) == len(after.cells)
    assert after.decoded.encoding == before.decoded.encoding
    assert after.decoded.mark == before.decoded.mark
    kept = before.newline in after.decoded.text  # of both kinds, the lines of one may all be gone
    assert after.newline == before.newline or not kept
    if path.endswith(".ipynb"):
        cells = [read_notebook(each.decoded.text).cells for each in (before, after)]
        assert len(cells[0]) == len(cells[1])
    elif not any(cell.problem for cell in before.cells):
        libcst.parse_module(after.masked)
    return outcome


PROFILE = hypothesis.settings(
    max_examples=500,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)


def settings_of(random, destination):
    name = ("x", "make_spark_converter")
    return Settings(
        Destination(destination),
        unsafe=random.choice([True, False]),
        project=Project(
            converters=random.choice([True, False]),
            modules=frozenset({"ours"}),
            importers=frozenset({name, ("ours", "SparkDatasetConverter")}),
            reexported=random.choice([frozenset(), frozenset({name})]),
        ),
    )


# One draw for all that is random in a mutation: there is nothing to shrink in most of it.
RANDOM = st.randoms(use_true_random=True)


@PROFILE
@hypothesis.given(random=RANDOM)
def test_mutations(sources, random):
    path, destination, text = random.choice(sources)
    mutated = mutate(random, text)
    form = "plain" if path.endswith(".ipynb") else random.choice(sorted(FORMS))
    check(path, FORMS[form](mutated), settings_of(random, destination))


@hypothesis.settings(PROFILE, max_examples=100)
@hypothesis.given(random=RANDOM)
def test_mutations_of_notebooks(sources, random):
    _, destination, text = random.choice([each for each in sources if each[0] == "x.py"])
    mutated = as_notebook(mutate(random, text)).decode()
    if random.choice([True, False]):
        mutated = mutate(random, mutated)  # which may be no notebook any more
    check("n.ipynb", mutated.encode(), settings_of(random, destination))


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("destination", list(Destination), ids=str)
def test_forms(sources, form, destination):
    """Sources in every form: what can be parsed is rewritten, and stays in its form."""
    settings = Settings(destination, project=Project(converters=True))
    texts = [text for path, to, text in sources if path == "x.py" and to == destination.value]
    outcomes = [check("x.py", FORMS[form](text), settings) for text in texts[::5]]
    rewritten = sum(isinstance(outcome, Success) for outcome in outcomes)
    unreadable = {"wrong encoding", "two bytes", "Python 2", "empty", "blank"}
    assert (rewritten > 3) == (form not in unreadable) or form == "one line", rewritten


# Mutations of the bytes and values of files; the whole of them takes half an hour.
MUTATIONS = int(os.environ.get("PETASTORM_BRIDGE_MUTATIONS", "700"))
VALUES = (None, True, -1, 1e999, "", "x", [], {}, [None], {"a": 1}, "\ud800", "%%bash\n", ["a\nb"])


def damage_bytes(random, data):
    for _ in range(random.randint(1, 3)):
        at = random.randint(0, max(len(data) - 1, 0))
        kind = random.randrange(4)
        if kind == 0:
            data = data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at]
        elif kind == 2:
            data = data[:at] + data[at : at + random.randint(1, 40)] * 2 + data[at:]
        else:
            lines = data.splitlines(keepends=True) or [b""]
            del lines[random.randrange(len(lines))]
            data = b"".join(lines)
    return data


def damage_value(random, value):
    """Put something else in the place of one value somewhere in JSON."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.15:
        return random.choice(VALUES)
    key = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
    changed = value.copy()
    if random.random() < 0.1:
        del changed[key]
    else:
        changed[key] = damage_value(random, value[key])
    return changed


def damaged(random, path, text):
    """A file with damage of some kind, as a path and bytes."""
    if path == "x.py" and random.random() < 0.4:
        path, text = "n.ipynb", as_notebook(text).decode()
    if path == "n.ipynb" and random.random() < 0.6:
        try:
            return path, json.dumps(damage_value(random, json.loads(text))).encode()
        except ValueError:
            return path, damage_bytes(random, text.encode())
    if path == "x.py" and random.random() < 0.2:
        text = "# Databricks notebook source\n" + text.replace("\n\n", "\n# COMMAND ----------\n")
    return path, damage_bytes(random, text.encode())


def test_damaged_files(sources):
    """Never an exception, nor a rewrite that fails its checks or is not the last one."""
    tally = collections.Counter()
    for seed in range(MUTATIONS):
        random = Random(seed)
        path, destination, text = random.choice(sources)
        path, data = damaged(random, path, text)
        try:
            outcome = check(path, data, settings_of(random, destination))
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        tally[type(outcome).__name__] += 1
    print(dict(tally))
    assert tally["Success"] > MUTATIONS / 12, tally
