"""Edits of the arguments of a call that leave the layout of the others alone."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

import libcst as cst

from petastorm_codemods._model import Edit
from petastorm_codemods._text.tokens import next_line

from .analysis import Analysis


def keyword(argument: cst.Arg) -> str | None:
    """Return the keyword of an argument; None for positional and starred ones."""
    return argument.keyword.value if argument.keyword else None


def first_given(call: cst.Call, name: str) -> cst.BaseExpression | None:
    """Return what a call gives for the argument of a name, which comes first; None if it does not say it by itself."""
    for argument in call.args:
        is_first = argument is call.args[0] and not argument.keyword and not argument.star
        if is_first or keyword(argument) == name:
            return argument.value
    return None


def call_with(analysis: Analysis, node: cst.CSTNode, function: str) -> cst.Call | None:
    """Return the call of a built-in function that an expression is an argument of; None if it is of none."""
    call = analysis.call_given(node)
    if call is not None and isinstance(call.func, cst.Name) and call.func.value == function:
        return call
    return None


def is_none(node: cst.CSTNode) -> bool:
    """Say whether an expression is the literal None."""
    return isinstance(node, cst.Name) and node.value == "None"


def text_of(node: cst.CSTNode | None) -> str:
    """Return the text that a literal is; empty for all else."""
    value: object = ""
    if isinstance(node, cst.SimpleString | cst.ConcatenatedString):
        value = node.evaluated_value
    return value if isinstance(value, str) else ""


def key_of(node: cst.Subscript) -> str:
    """Return the text by which something is asked for an item; empty for all else."""
    index = node.slice[0].slice if len(node.slice) == 1 else None
    return text_of(index.value) if isinstance(index, cst.Index) else ""


def argument_edits(
    analysis: Analysis,
    call: cst.Call,
    names: Mapping[str, str],
    dropped: Collection[cst.Arg],
) -> Iterator[Edit]:
    """Yield the edits that rename some keywords of a call and remove other arguments with their commas."""
    for argument in call.args:
        name = keyword(argument)
        kept = all(argument is not each for each in dropped)
        if argument.keyword and name is not None and kept and names.get(name, name) != name:
            yield analysis.replace(argument.keyword, names[name])
    yield from remove(analysis, call.args, dropped)


def remove(
    analysis: Analysis,
    listed: Sequence[cst.Arg] | Sequence[cst.ImportAlias],
    dropped: Collection[cst.CSTNode],
) -> Iterator[Edit]:
    """Yield the edits that remove some of the things that commas part; neighbours keep their lines."""
    gone = [any(each is other for other in dropped) for each in listed]
    if not any(gone):
        return
    spans = [analysis.span(each) for each in listed]
    kept = [number for number, away in enumerate(gone) if not away]
    if not kept:
        end = spans[-1][1]
        if isinstance(listed[-1].comma, cst.Comma):
            end = analysis.source.text.index(",", end) + 1
        yield Edit(spans[0][0], end, "")
        return
    for first, last in _runs(gone[: kept[-1]]):
        yield Edit(spans[first][0], spans[last + 1][0], "")
    if gone[-1]:
        text, (start, end) = analysis.source.text, (spans[kept[-1]][1], spans[-1][1])
        first, below = spans[kept[-1] + 1][0], next_line(text, end)
        rest = text[end:below].partition("#")[0]
        if "#" in text[start:first] and rest.strip() in {"", ","}:
            # Comments stay with what they stand beside: that of the last one here, and that of what goes.
            start, end = analysis.line_start(first), below
        yield Edit(start, end, "")


def _runs(gone: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last place of each run of what goes."""
    places = [number for number, away in enumerate(gone) if away]
    for first in places:
        if first - 1 not in places:
            yield first, next(n for n in itertools.count(first) if n + 1 not in places)
