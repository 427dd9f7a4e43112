"""What a call is given, by name, also where dictionaries hold it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.calls import is_none, keyword
from petastorm_codemods._model import Fact, Pieces

from .comments import comments_between
from .dictionaries import Given, are_in_doubt, items_of
from .layout import ABOVE, BEHIND

_BY_NAME = "give the arguments by name, so that they can be translated"


@dataclass(frozen=True)
class Stays:
    """Why a call is left on the bridge.

    Attributes:
        reason: The reason, and what to do.
        facts: What is known of the call.
    """

    reason: str
    facts: frozenset[Fact] = frozenset()


def named(call: cst.Call, positions: Sequence[str]) -> list[tuple[str | None, cst.Arg]]:
    """Return the arguments of a call with their names; None for starred ones."""
    arguments: list[tuple[str | None, cst.Arg]] = []
    for number, argument in enumerate(call.args):
        positional = not argument.keyword and not argument.star and number < len(positions)
        arguments.append((positions[number] if positional else keyword(argument), argument))
    return arguments


@once
def given_arguments(
    analysis: Analysis, call: cst.Call, positions: tuple[str, ...]
) -> Mapping[str, Given] | Stays:
    """Return the arguments of a call by their names, also those in dictionaries of the source.

    An argument whose None means the default is not given then.
    """
    given: dict[str, Given] = {}
    comments = _comments(analysis, call)
    for name, argument in named(call, positions):
        if name is not None:
            if argument.keyword is None and isinstance(argument.value, cst.NamedExpr):
                return Stays(_BY_NAME)
            value = (_value_span(analysis, argument),)
            given[name] = Given(value, argument.value, comments.get(argument, ()))
        elif argument.star == "**":
            items = items_of(analysis, argument.value)
            if items is None or are_in_doubt(items, given):
                return Stays("its arguments are in a dictionary; give them by name")
            given |= items
        else:
            return Stays(_BY_NAME)
    return {
        name: each for name, each in given.items() if name == "num_epochs" or not is_none(each.node)
    }


def _comments(analysis: Analysis, call: cst.Call) -> dict[cst.Arg, Pieces]:
    """Return the comments of each argument: those above it, and the one behind it on its line."""
    if not call.args:
        return {}
    text = analysis.source.text
    spans = [analysis.span(each) for each in call.args]
    start = text.find("(", analysis.span(call.func)[1])
    edges = [(start, start), *spans, (analysis.span(call)[1],) * 2]
    comments: dict[cst.Arg, Pieces] = {}
    for number, ((_, first), (last, _)) in enumerate(itertools.pairwise(edges)):
        for place, end in comments_between(text, first, last):
            alone = "\n" in text[first:place]
            argument = call.args[min(max(number - (not alone), 0), len(call.args) - 1)]
            comments[argument] = (
                *comments.get(argument, ()),
                ABOVE if alone else BEHIND,
                (place, end),
            )
    return comments


def _value_span(analysis: Analysis, argument: cst.Arg) -> tuple[int, int]:
    """Return where the value of an argument stands, its own parentheses included."""
    start, end = analysis.span(argument)
    if argument.keyword is not None:
        text = analysis.source.text
        start = text.index("=", analysis.span(argument.keyword)[1]) + 1
        start += len(text[start:end]) - len(text[start:end].lstrip())
    return start, end
