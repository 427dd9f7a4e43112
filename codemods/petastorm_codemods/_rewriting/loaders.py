"""Calls of the two methods that open loaders, rewritten where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, manual, once
from petastorm_codemods._meaning.flow import Provenance, flow_of
from petastorm_codemods._meaning.imports import imports, petastorm_imports
from petastorm_codemods._model import Edit, Finding, Safety
from petastorm_codemods._petastorm.counterparts import (
    COUNTERPARTS,
    MAKERS,
    clashes,
    is_support,
    spelled_import,
    spelling,
)
from petastorm_codemods._petastorm.offered import NEW, is_petastorm

from .arguments import ALL, DROPPED, argument_problem, dataset_arguments, named
from .moves import moves

_SUCCESSORS = frozenset(COUNTERPARTS.values())
# Who gives these asks for speed.
_FASTER = frozenset({"data_loader_fn", "reader_pool_type", "workers_count"})
_LINE_BREAK = re.compile(r"\s*?((?:\r\n?|\n)[ \t]*)(?=\S)")


@dataclass(frozen=True)
class Method:
    """One of the two methods and what stands in its place.

    Attributes:
        code: Code of the rule.
        name: The method.
        opening: What is called with the dataset.
        bound: What takes the place of the method where it is passed on instead of called.
        positions: The method's arguments, in order.
    """

    code: str
    name: str
    opening: str
    bound: str
    positions: tuple[str, ...]


def loader_findings(analysis: Analysis, method: Method) -> Iterator[Finding]:
    """Yield a finding for each use of a method that may be a converter's."""
    attributes = [each for each in analysis.nodes(cst.Attribute) if each.attr.value == method.name]
    if not attributes:
        return
    flow = flow_of(analysis)
    calls = {id(call.func): call for call in analysis.nodes(cst.Call)}
    for attribute in attributes:
        above = analysis.parent(attribute)
        if not analysis.is_read(attribute) or isinstance(above, cst.Attribute):
            continue  # a stub of tests, or what such a stub has recorded
        call = calls.get(id(attribute))
        kind = flow.provenance(attribute.value)
        known = kind is Provenance.CONVERTER or call is not None or _is_bound(analysis, attribute)
        if not known and not _uses_converters(analysis):
            continue  # an option or a flag of that name
        verdict = _verdict(analysis, method, kind, call)
        if verdict is None:
            continue
        start = analysis.span(attribute)[1] - len(method.name)
        problem = verdict or _problem(analysis, method, call)
        if problem:
            yield manual(method.code, start, problem)
        elif call is None:
            yield _passed_on(analysis, method, attribute, start)
        else:
            yield _called(analysis, method, call, start)


def _verdict(
    analysis: Analysis, method: Method, kind: Provenance, call: cst.Call | None
) -> str | None:
    """Return why a use is left to a human; empty if it is certainly or most likely a converter's.

    None if it is not, or if nothing but the name of the method says so.
    """
    if kind is Provenance.CONVERTER:
        return ""
    if kind is Provenance.FILES:
        return "this converter is made from files by hand; streaming reads MDS only"
    here = _uses_converters(analysis)
    if kind is Provenance.FOREIGN or not (here or analysis.project.converters):
        return None
    if kind is Provenance.DOUBTFUL:
        message = (
            f"this may be another object than a converter; annotate it if {method.name} is its"
        )
        return message if here else None
    own = method.name in analysis.project.defines or _is_defined(analysis, method.name)
    strange = call is not None and not all(
        each.star == "**" or (each.keyword is not None and each.keyword.value in ALL)
        for each in call.args
    )
    if own or strange:
        message = f"{method.name} may be another class's; annotate the converter to have it moved"
        return message if here else None
    return ""


@once
def _is_defined(analysis: Analysis, name: str) -> bool:
    return any(node.name.value == name for node in analysis.nodes(cst.FunctionDef))


@once
def _uses_converters(analysis: Analysis) -> bool:
    """Say whether the source imports anything of Petastorm's, or what has come in its place.

    Not what a rewritten loader call imports: a second run is to see what the first one saw.
    """
    return any(
        is_petastorm(each.path)
        or (each.path.startswith(NEW) and not is_support(each.path, analysis))
        or (is_support(each.path, analysis) and each.path.rpartition(".")[2] in _SUCCESSORS)
        for each in imports(analysis)
    )


def _problem(analysis: Analysis, method: Method, call: cst.Call | None) -> str:
    problem = _problem_of_source(analysis, method)
    return problem or (argument_problem(analysis, call, method.positions) if call else "")


@once
def _problem_of_source(analysis: Analysis, method: Method) -> str:
    """Return why no call in a source can be rewritten; empty if they can."""
    local = [name.rpartition(" ")[2] for name in _needs(analysis, method)]
    clash = clashes(analysis, (*local, "from_petastorm"))
    if clash:
        return f"{', '.join(clash)} means something else in this file; rename it first"
    found = petastorm_imports(analysis)
    makers = [each for each in found if each.path in MAKERS]
    movable = {id(each.alias) for move in moves(analysis) for each in move.native}
    guarded = {id(each.alias) for each in imports(analysis) if each.path in MAKERS}
    if any(id(each.alias) not in movable for each in makers) or guarded - {
        id(each.alias) for each in makers
    }:
        return "make_spark_converter may come from elsewhere; decide on one source first"
    return ""


@once
def _needs(analysis: Analysis, method: Method) -> tuple[str, ...]:
    names = (method.opening, analysis.target.dataset)
    return tuple(spelled_import(name, spelling(analysis, name)) for name in names)


def _passed_on(analysis: Analysis, method: Method, attribute: cst.Attribute, start: int) -> Finding:
    """``partial(conv.make_torch_dataloader, …)`` becomes ``partial(open_torch, conv, …)``."""
    if not _is_bound(analysis, attribute):
        message = f"{method.name} is passed on; pass a function that opens a loader instead"
        return manual(method.code, start, message)
    edits = [
        Edit(analysis.start(attribute), analysis.start(attribute), f"{method.bound}, "),
        Edit(_receiver_end(analysis, attribute), analysis.span(attribute)[1], ""),
    ]
    message = f"partial({method.name}) becomes partial({method.bound}, converter)"
    return Finding(method.code, start, message, Safety.SAFE, tuple(edits), needs=(method.bound,))


def _is_bound(analysis: Analysis, attribute: cst.Attribute) -> bool:
    """Say whether a method is what ``functools.partial`` is called with."""
    argument = analysis.parent(attribute)
    call = analysis.parent(argument)
    return (
        isinstance(call, cst.Call)
        and analysis.imported(call.func) == "functools.partial"
        and argument is call.args[0]
    )


def _called(analysis: Analysis, method: Method, call: cst.Call, start: int) -> Finding:
    assert isinstance(call.func, cst.Attribute)
    given = named(call, method.positions)
    lost = sorted({name or "" for name, _ in given} & DROPPED)
    message = f"{method.name} becomes {method.opening}({analysis.target.dataset}(...))"
    if lost:
        message += f" without {', '.join(lost)}"
    slower = not analysis.target.fast and bool(_FASTER & {*lost})
    if slower:
        message += ", row by row in one process; --fast reads whole batches"
    extra = ("from_petastorm",) if any(each.star for each in call.args) else ()
    needs = (*_needs(analysis, method), *extra)
    edits = tuple(_edits(analysis, method, call))
    return Finding(method.code, start, message, Safety.SAFE, edits, needs=needs, told=slower)


def _edits(analysis: Analysis, method: Method, call: cst.Call) -> Iterator[Edit]:
    assert isinstance(call.func, cst.Attribute)
    start, end = analysis.span(call)
    receiver_end = _receiver_end(analysis, call.func)
    text = analysis.source.text
    parenthesis = text.index("(", analysis.span(call.func)[1]) + 1
    opening, dataset = (name.rpartition(" ")[2] for name in _needs(analysis, method))
    space = " " if text[max(start - 1, 0) : start].isidentifier() else ""  # return(conv).make_…
    head = f"{space}{opening}({dataset}("
    if any(each.star == "**" for each in call.args):
        yield Edit(start, start, f"{head}local=")
        yield Edit(receiver_end, parenthesis, ".path, **from_petastorm(")
        for name, argument in named(call, method.positions):
            if argument.keyword is None and not argument.star:
                at = analysis.start(argument)
                yield Edit(at, at, f"{name}=")
        yield Edit(end, end, "))")
        return
    first, edits = dataset_arguments(analysis, call, method.positions)
    if edits is None:
        yield Edit(start, start, f"{head}local=")
        yield Edit(receiver_end, end, f"{', '.join(['.path', *first])}))")
        return
    # Arguments below the parenthesis stay there, and the new ones come above them.
    below = _line_break(text, parenthesis)
    yield Edit(start, start, f"{head}{below}local=")
    added = f",{below or ' '}".join([".path", *first])
    yield Edit(receiver_end, parenthesis, added + ("," if below else ", "))
    yield from edits
    yield Edit(end, end, ")")


def _line_break(text: str, start: int) -> str:
    """Return the line break before what follows a place, with its indentation; empty if none."""
    found = _LINE_BREAK.match(text, start)
    return found[1] if found else ""


def _receiver_end(analysis: Analysis, node: cst.Attribute) -> int:
    """Return where the expression before the method ends, its own parentheses included."""
    end = analysis.span(node.value)[1]
    for _ in getattr(node.value, "rpar", ()):
        end = analysis.source.text.index(")", end) + 1
    return end
