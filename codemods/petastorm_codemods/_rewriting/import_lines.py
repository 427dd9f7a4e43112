"""Rewritten imports: one statement for each module in a block and cell."""

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
from petastorm_codemods._text.tokens import next_line

# Between the cells of a Databricks notebook, which people run one by one.
_COMMAND = re.compile(r"^# COMMAND -+", re.MULTILINE)


@dataclass
class _Statement:
    """A line that holds nothing but one import of names, as it is after the edits.

    Attributes:
        start: Where the original starts.
        end: Where it ends.
        block: What it stands in.
        rewritten: Whether edits are made in it.
        in_order: Whether its names were sorted, on one line, and so are to be again.
        modules: Modules in the order of the text, each with the names that are imported from it, with aliases.
        changes: Whether names have come or gone that the edits do not know of.
    """

    start: int
    end: int
    block: cst.CSTNode
    rewritten: bool
    in_order: bool
    modules: dict[str, list[str]]
    changes: bool = False


def joined_imports(analysis: Analysis, edits: Sequence[Edit]) -> list[Edit]:
    """Return edits after which no rewritten import of a block names the module of another one.

    Names join the first statement of their module in the same block and cell. Statements with comments or
    with something beside them stay as the edits leave them.
    """
    if not edits:
        return []
    commands = [match.end() for match in _COMMAND.finditer(analysis.source.text)]
    first: dict[tuple[int, int, int, str], _Statement] = {}
    statements = list(_statements(analysis, edits))
    for each in statements:
        cell = (analysis.source.cell_end(each.start), bisect.bisect(commands, each.start))
        for module, names in list(each.modules.items()):
            target = first.setdefault((id(each.block), *cell, module), each)
            if target is not each and (each.rewritten or target.rewritten):
                del each.modules[module]
                own = target.modules[module]
                own += [name for name in names if name not in own]
                target.changes = each.changes = True
    for each in statements:
        if each.in_order and (each.rewritten or each.changes):
            each.changes |= not all(map(_is_sorted, each.modules.values()))
            each.modules = {module: sorted(names) for module, names in each.modules.items()}
    changed = {each.start: each for each in statements if each.changes}
    kept = [edit for edit, statement in _placed(analysis, edits) if statement not in changed]
    return [*kept, *(_written(analysis, each) for each in changed.values())]


def _is_sorted(names: Sequence[str]) -> bool:
    return list(names) == sorted(names)


def _written(analysis: Analysis, statement: _Statement) -> Edit:
    """Return the edit that writes a statement anew; its line goes if nothing is left of it."""
    start, end = statement.start, statement.end
    lines = [
        f"from {module} import {', '.join(names)}" for module, names in statement.modules.items()
    ]
    if not lines:
        below = min(next_line(analysis.source.text, end), analysis.source.cell_end(end))
        return Edit(analysis.line_start(start), below, "")
    between = analysis.source.newline + analysis.indent(start)
    return Edit(start, end, between.join(lines), written=True)


def _statements(analysis: Analysis, edits: Sequence[Edit]) -> Iterator[_Statement]:
    """Yield the imports of names in the blocks in which imports are rewritten."""
    text = analysis.source.text
    inside: dict[int, list[Edit]] = {}
    for edit, statement in _placed(analysis, edits):
        if statement is not None:
            inside.setdefault(statement, []).append(edit)
    blocks = {
        analysis.parent(line) for line in _import_lines(analysis) if analysis.start(line) in inside
    }
    for line in _import_lines(analysis):
        start, end = analysis.span(line)
        block = analysis.parent(line)
        behind = text[end : next_line(text, end)]
        if block not in blocks or behind.strip() or "#" in text[start:end]:
            continue
        own = [
            Edit(each.start - start, each.end - start, each.text) for each in inside.get(start, ())
        ]
        before = _modules(text[start:end])
        modules = _modules(apply_edits(text[start:end], own)) if own else before
        if modules is not None:
            in_order = "\n" not in text[start:end] and all(map(_is_sorted, (before or {}).values()))
            yield _Statement(start, end, block, start in inside, in_order, modules)


def _placed(analysis: Analysis, edits: Sequence[Edit]) -> Iterator[tuple[Edit, int | None]]:
    """Yield each edit with the start of the import that it is in; None if in none.

    Lines of their own that are put above an import are in none.
    """
    spans = sorted(analysis.span(line) for line in _import_lines(analysis))
    starts = [start for start, _ in spans]
    for edit in edits:
        number = bisect.bisect_right(starts, edit.start) - 1
        outside = number < 0 or edit.end > spans[number][1] or edit.text.endswith(("\n", "\r"))
        yield edit, None if outside else starts[number]


def _import_lines(analysis: Analysis) -> Iterator[cst.SimpleStatementLine]:
    """Yield the lines that hold nothing but one import."""
    for line in analysis.nodes(cst.SimpleStatementLine):
        if len(line.body) == 1 and isinstance(line.body[0], cst.Import | cst.ImportFrom):
            yield line


def _modules(text: str) -> dict[str, list[str]] | None:
    """Return what imports of names import from which modules; None if there is anything else."""
    try:
        body = ast.parse("\n".join(line.lstrip() for line in text.splitlines())).body
    except SyntaxError:
        return None
    modules: dict[str, list[str]] = {}
    for node in body:
        if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
            return None
        if node.names[0].name == "*":
            return None
        modules.setdefault(node.module, []).extend(map(ast.unparse, node.names))
    return modules
