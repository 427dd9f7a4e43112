"""Rewritten imports: one statement for each module in a block and cell."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Edit
from petastorm_codemods._text.edits import apply_edits
from petastorm_codemods._text.tokens import next_line

from .layout import import_of

# Between the cells of a Databricks notebook, which people run one by one.
_COMMAND = re.compile(r"^# COMMAND -+", re.MULTILINE)
# Modules in the order of the text, each with the names that are imported from it, with aliases.
_Modules = dict[str, list[str]]


@dataclass
class _Statement:
    """A line that holds nothing but one import of names, as it is after the edits.

    Attributes:
        line: The original.
        modules: What it imports.
        rewritten: Whether edits are made in it.
        on_one_line: Whether it was on one.
        in_order: Whether its names were sorted, and so are to be again where it is on one line or written anew.
        changes: Whether it is written anew: names have come or gone that the edits do not know of, or the edits
            put names beside one that has a line of its own, or leave one line of several.
    """

    line: cst.SimpleStatementLine
    modules: _Modules
    rewritten: bool
    on_one_line: bool
    in_order: bool
    changes: bool = False


def joined_imports(analysis: Analysis, edits: Sequence[Edit]) -> list[Edit]:
    """Return edits after which no rewritten import of a block names the module of another one.

    Names join the first statement of their module in the same block and cell. Statements with comments or
    with something beside them stay as the edits leave them.
    """
    kinds = cst.Import | cst.ImportFrom
    lines = [
        line
        for line in analysis.nodes(cst.SimpleStatementLine)
        if len(line.body) == 1 and isinstance(line.body[0], kinds)
    ]
    around = _around(analysis, lines, edits)
    inside: dict[cst.CSTNode, list[Edit]] = {}
    for edit, line in zip(edits, around, strict=True):
        if line is not None:
            inside.setdefault(line, []).append(edit)
    blocks = {analysis.parent(line) for line in inside}
    statements = list(
        _statements(analysis, [line for line in lines if analysis.parent(line) in blocks], inside)
    )
    commands = [match.end() for match in _COMMAND.finditer(analysis.source.text)]
    first: dict[tuple[cst.CSTNode, int, int, str], _Statement] = {}
    for each in statements:
        start = analysis.start(each.line)
        cell = (analysis.source.cell_end(start), bisect.bisect(commands, start))
        for module, names in list(each.modules.items()):
            target = first.setdefault((analysis.parent(each.line), *cell, module), each)
            if target is not each and (each.rewritten or target.rewritten):
                del each.modules[module]
                known = target.modules[module]
                known += [name for name in names if name not in known]
                target.changes = each.changes = True
    for each in statements:
        if each.in_order and (each.changes or (each.rewritten and each.on_one_line)):
            each.changes |= not _is_sorted(each.modules)
            each.modules = {module: sorted(names) for module, names in each.modules.items()}
        if each.on_one_line and each.rewritten:  # it may have become too long for that
            each.changes |= any("(" in line for line in _lines(analysis, each))
    changed = {each.line: each for each in statements if each.changes}
    kept = [edit for edit, line in zip(edits, around, strict=True) if line not in changed]
    return [*kept, *(_written(analysis, each) for each in changed.values())]


def _around(
    analysis: Analysis, lines: Sequence[cst.SimpleStatementLine], edits: Sequence[Edit]
) -> list[cst.SimpleStatementLine | None]:
    """Return the import that each edit is in; None if in none, as lines that are put above one."""
    starts = [analysis.start(line) for line in lines]
    around: list[cst.SimpleStatementLine | None] = []
    for edit in edits:
        number = bisect.bisect_right(starts, edit.start) - 1
        outside = (
            number < 0
            or edit.end > analysis.span(lines[number])[1]
            or edit.text.endswith(("\n", "\r"))
        )
        around.append(None if outside else lines[number])
    return around


def _is_sorted(modules: _Modules) -> bool:
    return all(names == sorted(names) for names in modules.values())


def _written(analysis: Analysis, statement: _Statement) -> Edit:
    """Return the edit that writes a statement anew; its line goes if nothing is left of it."""
    start, end = analysis.span(statement.line)
    lines = _lines(analysis, statement)
    if not lines:
        below = min(next_line(analysis.source.text, end), analysis.source.cell_end(end))
        return Edit(analysis.line_start(start), below, "")
    between = analysis.source.newline + analysis.indent(start)
    return Edit(start, end, between.join(lines), written=True)


def _lines(analysis: Analysis, statement: _Statement) -> list[str]:
    """Return the imports that a statement is to become."""
    width = analysis.source.width - len(analysis.indent(analysis.start(statement.line)))
    return [import_of(*item, width) for item in statement.modules.items()]


def _statements(
    analysis: Analysis,
    lines: Sequence[cst.SimpleStatementLine],
    inside: Mapping[cst.CSTNode, Sequence[Edit]],
) -> Iterator[_Statement]:
    """Yield those lines that are imports of names before and after the edits in them."""
    text = analysis.source.text
    for line in lines:
        start, end = analysis.span(line)
        if text[end : next_line(text, end)].strip() or "#" in text[start:end]:
            continue
        edits = inside.get(line, ())
        plain = isinstance(line.body[0], cst.Import) and not edits
        before = None if plain else _modules(text[start:end])
        after = apply_edits(text, edits, start, end)
        modules = _modules(after) if edits else before
        if modules is not None:
            on_one_line = "\n" not in text[start:end]
            in_order = _is_sorted(before or {})
            grows = any(edit.text.startswith(",") for edit in edits)
            shrinks = "\n" not in after  # to one line, within brackets that it does without
            changes = not on_one_line and (grows or shrinks)
            yield _Statement(line, modules, line in inside, on_one_line, in_order, changes)


def _modules(text: str) -> _Modules | None:
    """Return what imports of names import from which modules; None if there is anything else."""
    try:
        body = ast.parse("\n".join(line.lstrip() for line in text.splitlines())).body
    except SyntaxError:
        return None
    modules: _Modules = {}
    for node in body:
        if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
            return None
        if node.names[0].name == "*":
            return None
        modules.setdefault(node.module, []).extend(map(ast.unparse, node.names))
    return modules
