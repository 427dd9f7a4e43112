"""Findings on calls of the two methods that open loaders."""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis, manual, once
from petastorm_codemods._meaning.imports import clashes, imports, relative_names
from petastorm_codemods._model import Edit, Fact, Finding, Need, Pieces, Safety
from petastorm_codemods._petastorm.counterparts import ALIASES, BRIDGE, MAKERS, original

from .blocks import replaced, whole_text
from .decisions import is_made_on_bridge, outcomes
from .expressions import Arguments
from .given import Stays
from .layout import call_of
from .moves import keeps_its_name
from .sites import Method, Site, receiver_end


def loader_findings(analysis: Analysis, method: Method) -> Iterator[Finding]:
    """Yield a finding for each use of a method that may be a converter's."""
    for outcome in outcomes(analysis):
        site = outcome.site
        if site.method is not method:
            continue
        if outcome.problem:
            yield manual(method.code, site.start, outcome.problem)
        elif outcome.stays is not None:
            yield _left(analysis, site, outcome.stays)
        elif outcome.native is not None:
            yield outcome.native.finding(method.code, site.start, outcome.result)


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
    edits: tuple[Edit, ...] = ()
    needs: tuple[Need, ...] = ()
    what = "stays on the bridge"
    if not is_made_on_bridge(analysis, site):
        what = "stays on the bridge, over the same directory"
        opener = _opener(analysis)
        needs = (opener,)
        clash = clashes(analysis, needs) if opener.local != opener.name else []
        if clash:
            problem = f"{', '.join(clash)} means something else in this file; rename it first"
            return manual(site.method.code, site.start, problem)
        edits = _opened(analysis, site, opener.local)
    return Finding(
        site.method.code,
        site.start,
        f"{what}: {stays.reason}",
        Safety.SAFE,
        edits,
        needs=needs,
        # Of Horovod's ranks the summary speaks, not every place.
        remark="" if Fact.HOROVOD in stays.facts else f"stays on the bridge: {stays.reason}",
        told=True,
        facts=stays.facts | {Fact.ON_BRIDGE},
    )


def _opened(analysis: Analysis, site: Site, opener: str) -> tuple[Edit, ...]:
    """Return the edits that open the directory of a converter on the bridge.

    A call whose arguments begin behind its bracket is laid out like one of ours, as its first line grows.
    """
    start, end = analysis.start(site.attribute), receiver_end(analysis, site.attribute)
    text = analysis.source.text
    space = " " if text[max(start - 1, 0) : start].isidentifier() else ""
    if site.call is None or "\n" in text[start:end]:
        return Edit(start, start, f"{space}{opener}("), Edit(end, end, ".cache_dir_url)")
    parts = [analysis.span(each) for each in site.call.args]
    kept = [(end, parts[0][0]), *parts] if parts else []
    several_lines = any("\n" in text[first:last] for first, last in kept)
    directory: Pieces = ((start, end), ".cache_dir_url")
    if not parts or several_lines or "#" in analysis.code(site.call):
        opened = (space, *call_of(opener, [("", directory)]))
        return (Edit(start, end, whole_text(analysis, opened), opened),)
    arguments: Arguments = [("", (part,)) for part in parts]
    pieces = (f"{opener}(", *directory, ").", *call_of(site.method.name, arguments))
    return replaced(analysis, site.call, pieces).edits
