"""How one requirement of a file is rewritten, in the form that it is written in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.markers import InvalidMarker

from petastorm_codemods._model import Edit
from petastorm_codemods._text.decode import newline_of

from . import limits as our_limits
from .install_commands import with_extras
from .manifests import Entry, Form
from .wanted import Wanted


@dataclass(frozen=True)
class Change:
    """A place in the file, what to say about it, and what to do unless that is a human's to do."""

    offset: int
    message: str
    edits: tuple[Edit, ...] = ()


def replacement(text: str, entry: Entry, want: Wanted, listed: Sequence[str]) -> Iterator[Change]:
    """Yield what becomes of one requirement on Petastorm.

    Args:
        text: The file's text.
        entry: The requirement.
        want: What takes its place.
        listed: Canonical names of everything that the file requires.
    """
    if want.reason:
        yield Change(entry.start, want.reason)
    if not want.package:
        return
    package = with_extras(want.package, entry.extras - {"torch"})
    if entry.form is Form.PACKAGE:  # a cluster has a Spark of its own
        package = re.sub(r"\bspark,|\[spark\]", "", package)
    beside = list(want.beside)
    if "torch" in entry.extras and "streaming" not in package and "torch" not in listed:
        beside.append("torch")
    there = package.partition("[")[0] in listed
    problem = _unwritable(entry, package)
    if problem:
        if not (want.joined and there):
            yield Change(entry.start, problem)
        return
    if want.joined:
        new = [*([] if there else [package]), *(each for each in beside if not there)]
        if new:
            message = f"{package} is needed beside {text[entry.start : entry.end]}"
            yield Change(entry.start, message, (_addition(text, entry, new),))
        return
    if there:
        yield _removal(text, entry, package)
        return
    spelled = _spelled(entry.form, package)
    if _is_in_flow(text, entry):
        spelled = _quoted(spelled)
    edits = [Edit(entry.start, entry.end, spelled)]
    message = f"{text[entry.start : entry.end]} becomes {package}"
    if beside:
        edits.append(_addition(text, entry, beside))
        message += f"; {', '.join(beside)} came with it"
    yield Change(entry.start, message, tuple(edits))


def _is_in_flow(text: str, entry: Entry) -> bool:
    """Say whether an entry stands without quotes in brackets or braces of YAML."""
    before = text[text.rfind("\n", 0, entry.start) + 1 : entry.start]
    is_open = before.count("{") > before.count("}")
    mapped = entry.form is Form.PACKAGE and is_open and before[-1:] not in {"'", '"'}
    return mapped or entry.form is Form.FLOW


def _quoted(package: str) -> str:
    """Return a requirement in quotes if YAML would take a bracket of its for a list."""
    return f'"{package}"' if "[" in package else package


def _unwritable(entry: Entry, package: str) -> str:
    """Return why another requirement cannot be written in an entry's place; empty if it can."""
    if entry.form is Form.CONDA:
        return f"conda has no {package}: list it under pip instead"
    if entry.form is Form.CONDA_WORD:
        return f"conda has no {package}: install it with pip"
    if entry.form is Form.ELSEWHERE:
        return f"petastorm is installed from elsewhere; {package} takes its place"
    if entry.marker:
        try:
            if our_limits.never_applies(entry.marker):
                pythons = our_limits.python_limit()
                return f"{package} needs Python {pythons}, which this marker excludes"
        except InvalidMarker:
            return f"its marker is none; {package} takes its place"
    return ""


def _removal(text: str, entry: Entry, package: str) -> Change:
    message = f"{package.partition('[')[0]} is listed already: petastorm goes"
    start = text.rfind("\n", 0, entry.start) + 1
    if entry.form not in {Form.LINE, Form.ITEM, Form.KEY}:
        return Change(entry.start, f"{message}, by hand")
    newline = re.compile(r"\r?\n|\r|").match(text, entry.line_end)
    end = newline.end() if newline else entry.line_end
    return Change(entry.start, message, (Edit(start, end, ""),))


def _spelled(form: Form, package: str) -> str:
    if form is not Form.KEY:
        return package
    name, _, extras = package.rstrip("]").partition("[")
    if not extras:
        return f'{name} = "*"'
    listed = ", ".join(f'"{extra}"' for extra in extras.split(","))
    return f'{name} = {{version = "*", extras = [{listed}]}}'


def _addition(text: str, entry: Entry, packages: Sequence[str]) -> Edit:
    """Return the edit that lists some requirements behind an entry, in its form."""
    if entry.form is Form.STRING or (
        entry.form is Form.WORD and text[entry.end : entry.end + 1] in {"'", '"'}
    ):
        return _quoted_addition(text, entry, packages)
    if entry.form is Form.WORD:
        return Edit(entry.end, entry.end, "".join(f" {each}" for each in packages))
    if entry.form is Form.FLOW:
        return Edit(entry.end, entry.end, "".join(f", {_quoted(each)}" for each in packages))
    start = text.rfind("\n", 0, entry.start) + 1
    before = text[start : entry.start].rstrip("'\"")
    if before.strip() not in {"", "-"}:  # deps = petastorm
        before = " " * 4
    marker = f" ; {entry.marker}" if entry.marker else ""
    newline = newline_of(text)
    lines = [f"{newline}{before}{_spelled(entry.form, each)}{marker}" for each in packages]
    return Edit(entry.line_end, entry.line_end, "".join(lines))


def _quoted_addition(text: str, entry: Entry, packages: Sequence[str]) -> Edit:
    quote = text[text.rfind("\n", 0, entry.start) + 1 : entry.start][-1:]
    if quote not in {"'", '"'}:  # the whole command is quoted
        return Edit(entry.end, entry.end, "".join(f" {each}" for each in packages))
    end = text.index(quote, entry.end) + 1
    marker = text[entry.end : end - 1]
    comma = "," if entry.form is Form.STRING else ""
    return Edit(end, end, "".join(f"{comma} {quote}{each}{marker}{quote}" for each in packages))
