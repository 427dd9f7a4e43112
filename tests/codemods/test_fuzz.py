"""Mutations of valid sources never crash the tool nor make it write what does not parse."""

import pathlib
import re

import hypothesis
import libcst
import pytest
from hypothesis import strategies as st

from petastorm_codemods._engine import Settings, process
from petastorm_codemods._ipynb import code_cells
from petastorm_codemods._model import Destination, Failed, NeedsHuman, Outcome, Success
from petastorm_codemods._project import Project

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
    for folder in ("programs", "repositories"):
        for file in sorted((pathlib.Path(__file__).parent / folder).rglob("*.txt")):
            name = file.name.removesuffix(".txt")
            if name.endswith((".py", ".ipynb")):
                path = "n.ipynb" if name.endswith(".ipynb") else "x.py"
                texts += [(path, to.value, file.read_text("utf-8")) for to in Destination]
    return texts


def mutate(data, text):
    tokens = TOKEN.findall(text)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(tokens)))
        kind = data.draw(st.sampled_from(["drop", "insert", "swap", "cut"]))
        if kind == "insert":
            tokens.insert(at, data.draw(st.sampled_from(BITS)))
        elif kind == "drop":
            del tokens[at : at + data.draw(st.integers(1, 6))]
        elif kind == "swap" and at + 1 < len(tokens):
            tokens[at], tokens[at + 1] = tokens[at + 1], tokens[at]
        elif kind == "cut":
            tokens = tokens[: max(at, 1)]
    return "".join(tokens)


@hypothesis.settings(
    max_examples=500,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(data=st.data())
def test_mutations(sources, data):
    path, destination, text = data.draw(st.sampled_from(sources))
    mutated = mutate(data, text).encode()
    settings = Settings(
        Destination(destination),
        unsafe=data.draw(st.booleans()),
        project=Project(converters=data.draw(st.booleans()), modules=frozenset({"ours"})),
    )
    outcome = process(path, mutated, settings)
    assert isinstance(outcome, Outcome)
    if isinstance(outcome, Failed):
        # A file may be broken, but a rewrite that fails its checks would be a bug in a rule.
        assert "the rewrite" not in outcome.reason, (outcome.reason, mutated.decode())
    if isinstance(outcome, Success | NeedsHuman) and outcome.after != mutated:
        again = process(path, outcome.after, settings)
        assert getattr(again, "after", outcome.after) == outcome.after
        after = outcome.after.decode()
        if path.endswith(".ipynb"):
            assert len(code_cells(after)) == len(code_cells(mutated.decode()))
        elif "# Databricks" not in after:
            libcst.parse_module(after)
