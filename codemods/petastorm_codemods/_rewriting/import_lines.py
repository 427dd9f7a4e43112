"""Rewritten imports: one statement for each module, its names in the order that the file keeps."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Edit
from petastorm_codemods._text.edits import apply_edits

_Name = tuple[str, str | None]
# Between the cells of a Databricks notebook, which people run one by one.
_COMMAND = re.compile(r"^# COMMAND -+", re.MULTILINE)


@dataclass
class _Statement:
    """A rewritten ``from … import …`` at the top of a source.

    Attributes:
        start: Where the original starts.
        end: Where it ends.
        text: What the edits make of it.
        parts: Modules in the order of the text, each with the names that are imported from it.
        sorted: Whether the original's names were in the order of isort and Ruff.
    """

    start: int
    end: int
    text: str
    parts: dict[str, list[_Name]]
    sorted: bool


def joined_imports(analysis: Analysis, edits: Sequence[Edit]) -> list[Edit]:
    """Return edits after which no two rewritten imports at the top name the same module.

    Names join the first statement of their module in the same cell. Statements with comments, with
    several lines or with something beside them stay as the edits leave them.
    """
    commands = [match.end() for match in _COMMAND.finditer(analysis.source.text)]
    first: dict[tuple[int, int, str], _Statement] = {}
    joined: list[_Statement] = []
    for found in _rewritten(analysis, edits):
        cell = (analysis.source.cell_end(found.start), bisect.bisect(commands, found.start))
        for module in list(found.parts):
            target = first.setdefault((*cell, module), found)
            if target is not found:
                names = target.parts[module]
                names += [name for name in found.parts.pop(module) if name not in names]
        joined.append(found)
    replaced: dict[int, Edit] = {}
    for found in joined:
        text = analysis.source.newline.join(_lines(found))
        if text != found.text:
            end = found.end if text else _next_line(analysis, found.end)
            replaced[found.start] = Edit(found.start, end, text)
    kept = [edit for edit, statement in _placed(analysis, edits) if statement not in replaced]
    return [*kept, *replaced.values()]


def _rewritten(analysis: Analysis, edits: Sequence[Edit]) -> Iterator[_Statement]:
    text = analysis.source.text
    inside: dict[int, list[Edit]] = {}
    for edit, statement in _placed(analysis, edits):
        if statement is not None:
            inside.setdefault(statement, []).append(edit)
    for line in _imports_at_top(analysis):
        start, end = analysis.span(line)
        behind = text[end : _next_line(analysis, end)]
        if start not in inside or behind.strip() or "#" in text[start:end]:
            continue
        before = _parts(text[start:end])
        own = [Edit(each.start - start, each.end - start, each.text) for each in inside[start]]
        after = apply_edits(text[start:end], own)
        parts = _parts(after)
        if before is not None and parts is not None and len(before) == 1:
            names = next(iter(before.values()))
            yield _Statement(start, end, after, parts, names == sorted(names, key=_order))


def _placed(analysis: Analysis, edits: Sequence[Edit]) -> Iterator[tuple[Edit, int | None]]:
    """Yield each edit with the start of the import at the top that it is in; None if in none.

    Lines of their own that are put above an import are in none.
    """
    spans = sorted(analysis.span(line) for line in _imports_at_top(analysis))
    starts = [start for start, _ in spans]
    for edit in edits:
        number = bisect.bisect_right(starts, edit.start) - 1
        outside = number < 0 or edit.end > spans[number][1] or edit.text.endswith(("\n", "\r"))
        yield edit, None if outside else starts[number]


def _imports_at_top(analysis: Analysis) -> Iterator[cst.SimpleStatementLine]:
    """Yield the lines at the top of a source that hold nothing but one ``from … import …``."""
    for line in analysis.module.body:
        if isinstance(line, cst.SimpleStatementLine):
            is_import = isinstance(line.body[0], cst.ImportFrom)
            if is_import and len(line.body) == 1:
                yield line


def _parts(text: str) -> dict[str, list[_Name]] | None:
    """Return what one-line import statements import; None if there is anything else."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return None
    parts: dict[str, list[_Name]] = {}
    for node in body:
        if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
            return None
        if node.lineno != node.end_lineno or node.names[0].name == "*":
            return None
        parts.setdefault(node.module, []).extend((each.name, each.asname) for each in node.names)
    return parts


def _lines(found: _Statement) -> Iterator[str]:
    for module, names in found.parts.items():
        ordered = sorted(names, key=_order) if found.sorted else names
        words = (name if alias is None else f"{name} as {alias}" for name, alias in ordered)
        yield f"from {module} import {', '.join(words)}"


def _order(name: _Name) -> tuple[int, str]:
    """Return what isort and Ruff sort names by: constants, then classes, then the rest."""
    word = name[0]
    kind = 0 if word.isupper() and len(word) > 1 else 1 if word[:1].isupper() else 2
    return kind, word


def _next_line(analysis: Analysis, offset: int) -> int:
    text = analysis.source.text
    end = text.find("\n", offset)
    return min(end + 1 if end >= 0 else len(text), analysis.source.cell_end(offset))
