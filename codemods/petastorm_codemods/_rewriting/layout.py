"""Rewritten statements keep to the layout of their file: its line length, indentation and alignment.

Edits change words; what they make of a statement may be longer than the file's lines, or leave its
later lines aligned with nothing. Such a statement is laid out again as the formatters Black and Ruff do
it: what stands in brackets goes to lines of its own, all of it on one or each argument on one. Statements
with comments inside, strings over several lines or backslashes stay as the edits leave them.
"""

from __future__ import annotations

import ast
import bisect
import dataclasses
import itertools
import textwrap
import tokenize
from collections.abc import Iterator, Sequence

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Edit
from petastorm_codemods._text.brackets import brackets_open_after
from petastorm_codemods._text.edits import apply_edits
from petastorm_codemods._text.tokens import lines_of, tokens_of

from .alignment import indent_of, realigned
from .splitting import Splitter, Style, flattened, with_parentheses

# Formatters' usual limits; a file keeps to the smallest that its own lines keep to.
_LIMITS = (88, 100, 120)


def laid_out(analysis: Analysis, edits: Sequence[Edit]) -> list[Edit]:
    """Return edits with the same effect but for line breaks and indentation.

    Args:
        analysis: Of the source before the edits.
        edits: They do not overlap.
    """
    statements = sorted(_statements(analysis))
    starts = [start for start, _ in statements]
    text = analysis.source.text
    style = None
    # Insertions at one place keep their order.
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    removed = _removed_indents(analysis, ordered)
    result: list[Edit] = []
    for number, group in itertools.groupby(
        ordered, key=lambda edit: _index(statements, starts, edit)
    ):
        own = list(group)
        style = style or _style_of(text, analysis.source.newline)
        if number is None:
            result += [_laid_lines(edit, style) if edit.lines else edit for edit in own]
            continue
        start, end = statements[number]
        before = text[start:end]
        after = apply_edits(before, [Edit(e.start - start, e.end - start, e.text) for e in own])
        line, indent = analysis.line_start(start), analysis.indent(start)
        shift = removed.get(line, 0)
        before = _shifted(before, shift)
        laid = _layout(before, after, indent[shift:], start - line - shift, style)
        result += own if laid == after else [Edit(start, end, laid)]
    return result


def _removed_indents(analysis: Analysis, edits: Sequence[Edit]) -> dict[int, int]:
    """Return how much of their indentation lines lose, by where they start."""
    removed: dict[int, int] = {}
    text = analysis.source.text
    for edit in edits:
        if edit.start < edit.end and not edit.text:
            line = analysis.line_start(edit.start)
            if "\n" not in text[line : edit.end] and not text[line : edit.end].strip():
                removed[line] = removed.get(line, 0) + edit.end - edit.start
    return removed


def _shifted(statement: str, shift: int) -> str:
    """Return a statement with that much less indentation on all lines but the first."""
    if not shift:
        return statement
    first, *rest = statement.split("\n")
    return "\n".join([first, *(line[min(shift, indent_of(line)) :] for line in rest)])


def _laid_lines(edit: Edit, style: Style) -> Edit:
    """Return an edit that writes whole lines again, with each of their statements laid out."""
    lines = lines_of(edit.text)
    laid: list[str] = []
    done = 0
    for first, last in _logical_lines(edit.text):
        laid += lines[done:first]
        statement = style.newline.join(lines[first:last])
        own = statement.lstrip(" \t")
        indent = statement[: len(statement) - len(own)]
        laid.append(indent + _layout("", own, indent, len(indent), style))
        done = last
    return dataclasses.replace(edit, text=style.newline.join([*laid, *lines[done:]]))


def _logical_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the first line, from 0, and the one behind the last of each statement, or head of one."""
    first = None
    idle = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT}
    for token in tokens_of(text):
        if token.type == tokenize.NEWLINE and first is not None:
            yield first, token.start[0]
            first = None
        elif token.type not in idle and first is None:
            first = token.start[0] - 1


def _index(statements: Sequence[tuple[int, int]], starts: Sequence[int], edit: Edit) -> int | None:
    """Return the statement that an edit is in; None for lines of their own and what spans more."""
    number = bisect.bisect_right(starts, edit.start) - 1
    if (
        edit.lines
        or number < 0
        or edit.end > statements[number][1]
        or edit.text.endswith(("\n", "\r"))
    ):
        return None
    return number


def _statements(analysis: Analysis) -> Iterator[tuple[int, int]]:
    """Yield where simple statements and the heads of compound ones begin and end."""
    text = analysis.source.text
    for line in analysis.nodes(cst.SimpleStatementLine):
        yield analysis.span(line)
    heads: list[tuple[cst.CSTNode, cst.CSTNode]] = [
        *((node, node.items[-1]) for node in analysis.nodes(cst.With)),
        *((node, node.iter) for node in analysis.nodes(cst.For)),
        *((node, node.test) for node in analysis.nodes(cst.While)),
    ]
    for node, last in heads:
        colon = text.find(":", analysis.span(last)[1])
        if colon >= 0:
            yield analysis.start(node), colon + 1


def _style_of(text: str, newline: str) -> Style:
    lines = text.splitlines()
    code = [line for line in lines if not line.lstrip().startswith("#")]
    longest = max(map(len, code), default=0)
    limit = next((limit for limit in _LIMITS if longest <= limit), _LIMITS[-1])
    indents = (line[: len(line) - len(line.lstrip())] for line in code if line.strip())
    unit = min((indent for indent in indents if indent), key=len, default="    ")
    return Style(limit, "\t" if unit[0] == "\t" else " " * min(len(unit), 4), newline)


def _layout(before: str, after: str, indent: str, column: int, style: Style) -> str:
    """Return a rewritten statement in its file's layout; unchanged where nothing calls for more.

    Args:
        before: The original statement, without the indentation of its first line.
        after: The rewritten one.
        indent: Indentation of the first line.
        column: Where the statement starts in its line.
        style: The file's layout.
    """
    old, new = lines_of(before), lines_of(after)
    new = realigned(old, new, column)
    after = style.newline.join(new)
    limit = max(style.limit, _longest(old, column))
    if _longest(new, column) <= limit and not _hugs(old, new):
        return after
    flat = flattened(after)
    if flat is None:
        return after
    lines = Splitter(style, flat.exploded).split(with_parentheses(flat.line), indent)
    laid = style.newline.join(lines)[len(indent) :]
    return laid if _same_meaning(after, laid) else after


def _longest(lines: Sequence[str], column: int) -> int:
    return max([column + len(lines[0]), *map(len, lines[1:])])


def _hugs(old: Sequence[str], new: Sequence[str]) -> bool:
    """Say whether a rewrite opens several brackets where the original opened one and broke the line.

    ``f(`` may end a line, but what was put around it, ``g(f(``, asks for a line of its own.
    """
    return len(old) > 1 and len(brackets_open_after(old[:1])) == 1 < len(
        brackets_open_after(new[:1])
    )


def _same_meaning(one: str, other: str) -> bool:
    return _meaning(one) == _meaning(other) is not None


def _meaning(statement: str) -> str | None:
    body = "\n    pass" if statement.rstrip().endswith(":") else ""
    for prefix in ("", "async def _():\n"):
        text = f"{statement}{body}"
        if prefix:
            text = prefix + textwrap.indent(text, "    ")
        try:
            return ast.dump(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None
