"""Whatever installs Petastorm installs ``petastorm-bridge`` instead.

Requirements files, ``pyproject.toml``, ``setup.py``, ``setup.cfg``, conda environments, Dockerfiles,
``%pip`` and ``!pip`` lines of notebooks, and commands that a program runs (``os.system``, ``subprocess``).
Version limits go, because they are Petastorm's; extras are translated. A requirement in a file of its own
stays as long as any file of the run still imports Petastorm; a line that installs then installs both.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst.helpers import get_full_name_for_node

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Edit, Finding, Requirement, Safety
from petastorm_codemods._petastorm.offered import OLD
from petastorm_codemods._project.install_commands import (
    CODE,
    by_conda,
    install_edits,
    is_conda_command,
    is_install,
    joined,
    package_for,
    word_edits,
)
from petastorm_codemods._registry import rule

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


@rule(
    CODE,
    "requirement",
    "requirements name petastorm-bridge",
    safety=Safety.SAFE,
    destinations=list(Destination),
    text=__doc__,
    before="%pip install petastorm==0.12.1",
    after="%pip install petastorm-bridge",
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each requirement in a command that installs packages."""
    text = analysis.source.text
    requirement = analysis.target.requirement
    if requirement is Requirement.KEPT:
        return
    for edit, conda in _edits(analysis):
        if conda:
            message = f"conda has no {edit.text}: install it with pip"
            yield Finding(CODE, edit.start, message, Safety.MANUAL, marker=False)
            continue
        made, message = edit, f"{text[edit.start : edit.end]} becomes {edit.text}"
        if requirement is Requirement.JOINED:
            both = joined(text, edit)
            if both is None:
                continue
            made, message = both, f"{edit.text} is needed beside {text[edit.start : edit.end]}"
        yield Finding(CODE, edit.start, message, Safety.SAFE, (made,))


def _edits(analysis: Analysis) -> Iterator[tuple[Edit, bool]]:
    """Yield the edit of each requirement, and whether conda installs it."""
    text, package = analysis.source.text, package_for(analysis.destination, analysis.target)
    for start, end in analysis.source.shell:
        for edit in install_edits(text, start, end, package):
            yield edit, is_conda_command(text, edit.start)
    for call in analysis.nodes(cst.Call):
        name = get_full_name_for_node(call.func) or ""
        if name.rpartition(".")[2] in _RUNNERS and OLD in analysis.code(call):
            yield from _call_edits(analysis, call, name, package)


def _call_edits(
    analysis: Analysis, call: cst.Call, name: str, package: str
) -> Iterator[tuple[Edit, bool]]:
    """Yield the same for a call that runs a command, given as one string or word by word."""
    text, words = analysis.source.text, list(_words(analysis, call))
    if name.endswith("session.install"):  # Nox: it is pip that installs
        name = f"pip {name}"
    command = " ".join([name, *(text[start:end] for start, end in words)])
    if not is_install(command):
        return
    for start, end in words:
        whole = is_install(text[start:end])
        for edit in (install_edits if whole else word_edits)(text, start, end, package):
            yield edit, by_conda(text[start : edit.start] if whole else command)


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
