"""Columns of timestamps that transforms look into: they are stored as integers, and PandasCollate has them as times."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.calls import first_given, key_of
from petastorm_codemods._meaning.functions import functions_of
from petastorm_codemods._model import Edit


def timestamps_edits(analysis: Analysis, call: cst.Call) -> Iterator[Edit]:
    """Yield the edit that names the columns whose times the function of a transform looks into, if it does."""
    columns = dict.fromkeys(column for _, column in _looks(analysis, call) if column)
    if not columns or any(each.star for each in call.args):
        return
    first, last = analysis.span(call.args[-1])
    line = analysis.line_start(first)
    alone = not analysis.source.text[line:first].strip()
    between = f",{analysis.source.newline}{analysis.source.text[line:first]}" if alone else ", "
    listed = ", ".join(f'"{column}"' for column in columns)
    yield Edit(last, last, f"{between}timestamps=[{listed}]")


@once
def _looks(analysis: Analysis, call: cst.Call) -> tuple[tuple[cst.Attribute, str], ...]:
    """Return where the function of a transform has ``rows["at"].dt`` or ``rows.at.dt``, with the columns.

    They are empty where it has made the column itself.
    """
    looks: list[tuple[cst.Attribute, str]] = []
    for function in _functions(analysis, call):
        made: dict[str, int] = {}
        for target in analysis.within(function, cst.AssignTarget):
            end = analysis.span(analysis.parent(target))[1]
            made.setdefault(_column(target.target), end)
        for look in analysis.within(function, cst.Attribute):
            column = _column(look.value) if look.attr.value == "dt" else ""
            if column:
                is_made = made.get(column, analysis.start(look)) < analysis.start(look)
                looks.append((look, "" if is_made else column))
    return tuple(looks)


def _functions(analysis: Analysis, call: cst.Call) -> Iterator[cst.CSTNode]:
    """Yield the functions that a transform may call, those with some arguments bound as well."""
    node = first_given(call, "func")
    bound = isinstance(node, cst.Call) and analysis.imported(node.func) == "functools.partial"
    if isinstance(node, cst.Call) and bound and node.args:
        node = node.args[0].value
    if isinstance(node, cst.Lambda):
        yield node
    elif node is not None:
        yield from functions_of(analysis).called(cst.Call(node))


def _column(node: cst.CSTNode) -> str:
    """Return the column that an expression takes from a DataFrame; empty if it is none by its looks."""
    if isinstance(node, cst.Attribute):
        return node.attr.value if isinstance(node.value, cst.Name) else ""
    key = key_of(node) if isinstance(node, cst.Subscript) else ""
    return key if key.isprintable() and not set(key) & set('"\\') else ""
