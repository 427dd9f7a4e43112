"""Whatever installs Petastorm installs ``petastorm-bridge`` instead.

Requirements are rewritten as pip reads them:

- in requirements files, ``pyproject.toml``, ``setup.py``, ``setup.cfg`` and ``pip:`` lists of conda environments;
- in ``%pip`` and ``!pip`` lines of notebooks, and in commands that a program runs (``os.system``, ``subprocess``).

Dockerfiles, shell scripts, workflows, Poetry's and Pipenv's tables, JSON and other YAML are reported with the line.

- *Version*: the one that does the rewrite, or what ``--requirement`` says.
- *Extras*: translated. Notebooks of Databricks get none, because their runtimes have Spark, torch and TensorFlow. The
  second step, to streaming, adds the extra ``streaming``.
- *Petastorm stays required* as long as a file of the run still imports it; a line that installs then installs both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from libcst.helpers import get_full_name_for_node
from packaging.requirements import Requirement as Required

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._model import Destination, Edit, Finding, Requirement, Safety
from petastorm_codemods._petastorm.offered import OLD
from petastorm_codemods._project.dependency_files import CODE
from petastorm_codemods._project.distribution import (
    DISTRIBUTION,
    STREAMING,
    bridge,
    brings_streaming,
    extras_for,
    vendored,
    with_streaming,
)
from petastorm_codemods._project.requirements import (
    Entry,
    Form,
    added_word,
    as_word,
    form_of,
    installed,
    words_of,
)
from petastorm_codemods._registry import Rule

# Notebooks of Databricks: a second copy of Spark, torch or TensorFlow breaks a runtime that has them.
_MANAGED = re.compile(
    r"\A# Databricks notebook source|application/vnd\.databricks|\bdbutils\.|/dbfs/|\bdbfs:/"
)
_WITHOUT = ", without extras: the runtime brings Spark, torch and TensorFlow, and mosaicml-streaming from 15.2 ML on"
# Functions that run a command, by the last part of their names.
_RUNNERS = frozenset(
    [
        "Popen",
        "call",
        "check_call",
        "check_output",
        "getoutput",
        "getstatusoutput",
        "install",
        "main",
        "popen",
        "run",
        "run_cell_magic",
        "run_line_magic",
        "system",
    ]
)


@Rule(
    CODE,
    "requirement",
    "requirements name petastorm-bridge",
    safety=Safety.SAFE,
    destinations=list(Destination),
    before="%pip install petastorm==0.12.1",
    after=f"%pip install {bridge()}",
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each requirement in a command that installs packages."""
    text = analysis.source.text
    fate = analysis.target.requirement
    if fate is Requirement.KEPT:
        return
    for entry in _installed(analysis):
        if entry.name == DISTRIBUTION:
            yield from _with_streaming(analysis, entry)
        if entry.name != OLD or entry.requirement.url:
            continue
        package = _package(analysis, entry)
        if entry.form is Form.CONDA_WORD:
            message = f"conda has no {package}: install it with pip"
            yield Finding(CODE, entry.start, message, Safety.MANUAL, marker=False)
            continue
        old = text[entry.start : entry.end]
        if fate is Requirement.JOINED:
            edit = added_word(text, entry, package)
            message = f"{package} is needed beside {old}"
        else:
            edit = Edit(entry.start, entry.end, as_word(text, entry, package))
            message = f"{old} becomes {package}{_WITHOUT if _is_managed(analysis) else ''}"
        if edit is not None:
            yield Finding(CODE, entry.start, message, Safety.SAFE, (edit,))


def _with_streaming(analysis: Analysis, entry: Entry) -> Iterator[Finding]:
    """Yield what becomes of a bridge that is installed without streaming, in a source that goes there."""
    text = analysis.source.text
    end = text.find("\n", entry.end)
    if (
        analysis.destination is not Destination.STREAMING
        or entry.form is not Form.WORD
        or brings_streaming(entry.requirement.extras)
        or STREAMING in text[entry.end : len(text) if end < 0 else end]
        or _is_managed(analysis)
    ):
        return
    old = text[entry.start : entry.end]
    if analysis.target.bridged:
        package = with_streaming(old)
        edit: Edit | None = Edit(entry.start, entry.end, as_word(text, entry, package))
        message = f"{old} becomes {package}"
    else:
        package = vendored()
        edit, message = added_word(text, entry, package), f"{package} is needed beside {old}"
    if edit is not None:
        yield Finding(CODE, entry.start, message, Safety.SAFE, (edit,))


@once
def _is_managed(analysis: Analysis) -> bool:
    """Say whether a source is a notebook of Databricks."""
    return _MANAGED.search(analysis.source.decoded.text) is not None


def _package(analysis: Analysis, entry: Entry) -> Required:
    """Return what takes Petastorm's place in a command of a source."""
    target = analysis.target
    if not target.bridged:
        return vendored()
    if _is_managed(analysis):
        return bridge(target.bridge)
    extras = {"streaming"} if analysis.destination is Destination.STREAMING else set()
    return bridge(target.bridge, extras_for(entry.requirement.extras) | extras)


def _installed(analysis: Analysis) -> Iterator[Entry]:
    """Yield what the commands of a source install."""
    text = analysis.source.text
    for start, end in analysis.source.shell:
        yield from installed(text, start, end)
    for call in analysis.calls(*_RUNNERS):
        if OLD in analysis.code(call):
            yield from _by_call(analysis, call, get_full_name_for_node(call.func) or "")


def _by_call(analysis: Analysis, call: cst.Call, name: str) -> Iterator[Entry]:
    """Yield the same for a call that runs a command, given as one string or word by word."""
    text, words = analysis.source.text, list(_words(analysis, call))
    if name.endswith("session.install"):  # Nox: it is pip that installs
        name = f"pip {name}"
    form = form_of(" ".join([name, *(text[start:end] for start, end in words)]))
    for start, end in words if form else ():
        if form_of(text[start:end]):
            yield from installed(text, start, end)
        elif form:
            yield from words_of(text[start:end], start, form)


def _words(analysis: Analysis, call: cst.Call) -> Iterator[tuple[int, int]]:
    """Yield start and end of the strings, and of the texts of f-strings, of a call's command."""
    for argument in call.args[:2]:
        strings = analysis.within(argument, cst.SimpleString)
        texts = analysis.within(argument, cst.FormattedStringText)
        for node in (*strings, *texts):
            if analysis.enclosing(node, cst.Call) is call:
                start, end = analysis.span(node)
                quote = len(node.quote) if isinstance(node, cst.SimpleString) else 0
                prefix = len(node.prefix) if isinstance(node, cst.SimpleString) else 0
                yield start + prefix + quote, end - quote
