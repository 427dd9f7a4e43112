"""Calls of the two methods that open loaders: which are a converter's, and what becomes of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, manual, once
from petastorm_codemods._meaning.flow import Provenance, flow_of
from petastorm_codemods._meaning.imports import imports, petastorm_imports, relative_names
from petastorm_codemods._meaning.support import is_support, opens_directory
from petastorm_codemods._model import Edit, Finding, Need, Safety
from petastorm_codemods._petastorm.counterparts import (
    ALIASES,
    BRIDGE,
    COUNTERPARTS,
    MAKERS,
    original,
)
from petastorm_codemods._petastorm.offered import NEW, is_petastorm

from .arguments import ALL, Stays, reading_of
from .contexts import rewritten
from .expressions import Native, native_call
from .ignored import is_ignored
from .moves import keeps_its_name, moves, opens_directories
from .placement import clashes
from .sites import METHODS, Method, Site, receiver_end, receiver_start

_SUCCESSORS = frozenset(COUNTERPARTS.values())


@dataclass(frozen=True)
class _Outcome:
    """What becomes of one use of a method.

    Attributes:
        site: The use.
        native: The call that takes its place, if one does.
        stays: Why it is left on the bridge, if it is.
        problem: Why nothing is done, and what a human has to do.
    """

    site: Site
    native: Native | None = None
    stays: Stays | None = None
    problem: str = ""


def loader_findings(analysis: Analysis, method: Method) -> Iterator[Finding]:
    """Yield a finding for each use of a method that may be a converter's."""
    outcomes = _outcomes(analysis)
    if not outcomes:
        return
    results = _results(analysis)
    for outcome in outcomes:
        site = outcome.site
        if site.method is not method:
            continue
        if outcome.problem:
            yield manual(method.code, site.start, outcome.problem)
        elif outcome.stays is not None:
            yield _left(analysis, site, outcome.stays)
        elif outcome.native is not None:
            yield _moved(analysis, site, outcome.native, results)


@once
def _outcomes(analysis: Analysis) -> tuple[_Outcome, ...]:
    """Return what becomes of every use of the methods in a source."""
    return tuple(_decide(analysis))


def _decide(analysis: Analysis) -> Iterator[_Outcome]:
    attributes = [each for each in analysis.nodes(cst.Attribute) if each.attr.value in METHODS]
    if not attributes:
        return
    flow = flow_of(analysis)
    calls = {id(call.func): call for call in analysis.nodes(cst.Call)}
    for attribute in attributes:
        site = Site.of(analysis, attribute, calls.get(id(attribute)))
        if is_ignored(analysis.source.text, site.start, site.method.code):
            continue
        above = analysis.parent(attribute)
        if not analysis.is_read(attribute) or isinstance(above, cst.Attribute):
            continue  # a stub of tests, or what such a stub has recorded
        kind = flow.provenance(attribute.value)
        known = kind is Provenance.CONVERTER or site.call is not None or is_partial(analysis, site)
        if not known and not _uses_converters(analysis):
            continue  # an option or a flag of that name
        if opens_directory(analysis, attribute.value):
            continue  # left on the bridge by an earlier run
        verdict = _verdict(analysis, site, kind)
        if verdict is not None:
            yield _outcome(analysis, site, verdict)


def _outcome(analysis: Analysis, site: Site, verdict: str) -> _Outcome:
    problem = verdict or _problem(analysis)
    if problem:
        return _Outcome(site, problem=problem)
    if site.call is None:
        how = "call it in a function that opens a loader"
        return _Outcome(site, stays=Stays(f"{site.method.name} is passed on; {how}"))
    found = reading_of(analysis, site.call, site.method.positions)
    if isinstance(found, Stays):
        return _Outcome(site, stays=found)
    native = native_call(analysis, site, found)
    clash = [] if isinstance(native, Stays) else clashes(analysis, native.needs)
    if clash:
        return _Outcome(site, stays=Stays(f"{', '.join(clash)} means something else in this file"))
    return _Outcome(site, stays=native) if isinstance(native, Stays) else _Outcome(site, native)


@once
def _results(analysis: Analysis) -> dict[Site, tuple[tuple[Edit, ...], tuple[str, ...], bool]]:
    """Return the edits of all native calls of a source, with comments to keep; see `rewritten`."""
    native = {each.site: each.native for each in _outcomes(analysis) if each.native is not None}
    return rewritten(analysis, native)


def is_partial(analysis: Analysis, site: Site) -> bool:
    """Say whether a method is what ``functools.partial`` is called with."""
    argument = analysis.parent(site.attribute)
    call = analysis.parent(argument)
    return (
        isinstance(call, cst.Call)
        and analysis.imported(call.func) == "functools.partial"
        and argument is call.args[0]
    )


def _verdict(analysis: Analysis, site: Site, kind: Provenance) -> str | None:
    """Return why a use is left to a human; empty if it is certainly or most likely a converter's.

    None if it is not, or if nothing but the name of the method says so.
    """
    name, call = site.method.name, site.call
    if kind is Provenance.CONVERTER:
        return ""
    if kind is Provenance.FILES:
        return "this converter is made from files by hand; streaming reads MDS only"
    here = _uses_converters(analysis)
    if kind is Provenance.FOREIGN or not (here or analysis.project.converters):
        return None
    if kind is Provenance.DOUBTFUL:
        message = f"this may be another object than a converter; annotate it if {name} is its"
        return message if here else None
    own = name in analysis.project.defines or _is_defined(analysis, name)
    strange = call is not None and not all(
        each.star == "**" or (each.keyword is not None and each.keyword.value in ALL)
        for each in call.args
    )
    if own or strange:
        message = f"{name} may be another class's; annotate the converter to have it moved"
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
        or (
            each.path.startswith(NEW)
            and not is_support(each.path, analysis)
            and not opens_directories(analysis, each)
        )
        or (is_support(each.path, analysis) and each.path.rpartition(".")[2] in _SUCCESSORS)
        for each in imports(analysis)
    )


@once
def _problem(analysis: Analysis) -> str:
    """Return why no call in a source can be rewritten; empty if they can."""
    found = petastorm_imports(analysis)
    makers = [each for each in found if each.path in MAKERS]
    movable = {id(each.alias) for move in moves(analysis) for each in move.native}
    guarded = {id(each.alias) for each in imports(analysis) if each.path in MAKERS}
    if any(id(each.alias) not in movable for each in makers) or guarded - {
        id(each.alias) for each in makers
    }:
        return "make_spark_converter may come from elsewhere; decide on one source first"
    return ""


def _moved(
    analysis: Analysis,
    site: Site,
    native: Native,
    results: dict[Site, tuple[tuple[Edit, ...], tuple[str, ...], bool]],
) -> Finding:
    edits, comments, as_context = results[site]
    needs = (*native.needs, *((Need("contextlib", "", "contextlib"),) if as_context else ()))
    clash = clashes(analysis, needs)
    if clash:
        return _left(analysis, site, Stays(f"{', '.join(clash)} means something else in this file"))
    return Finding(
        site.method.code,
        site.start,
        native.message,
        Safety.SAFE,
        edits,
        needs=needs,
        comments=comments,
        told=native.told,
    )


@once
def _opener(analysis: Analysis) -> Need:
    """Return the need of the bridge's function, which may take the name that Petastorm's had."""
    name = "make_spark_converter"
    paths = {each.path for each in imports(analysis) if each.local == name}
    taken = any(analysis.bindings(name)) or name in relative_names(analysis)
    taken |= not {original(path) for path in paths} <= MAKERS
    unknown = any(not analysis.assignments(read) for read in analysis.reads(name))
    if taken or unknown or keeps_its_name(analysis, name):
        return Need(BRIDGE, name, ALIASES[name])
    return Need(BRIDGE, name, name)


def _left(analysis: Analysis, site: Site, stays: Stays) -> Finding:
    """Return the finding of a use that runs on the bridge, over the same directory."""
    wanted = _opener(analysis)
    clash = clashes(analysis, [wanted]) if wanted.local != wanted.name else []
    if clash:
        problem = f"{', '.join(clash)} means something else in this file; rename it first"
        return manual(site.method.code, site.start, problem)
    start, end = receiver_start(analysis, site.attribute), receiver_end(analysis, site.attribute)
    text = analysis.source.text
    space = " " if text[max(start - 1, 0) : start].isidentifier() else ""
    edits = (
        Edit(start, start, f"{space}{wanted.local}("),
        Edit(end, end, ".cache_dir_url)"),
    )
    return Finding(
        site.method.code,
        site.start,
        f"stays on the bridge, over the same directory: {stays.reason}",
        Safety.SAFE,
        edits,
        needs=(wanted,),
        remark=f"stays on the bridge: {stays.reason}" if stays.marked else "",
        told=True,
    )
