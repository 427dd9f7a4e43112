"""Findings on calls of the two methods that open loaders."""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis, manual, once
from petastorm_codemods._meaning.imports import imports, relative_names
from petastorm_codemods._model import Edit, Finding, Need, Safety
from petastorm_codemods._petastorm.counterparts import ALIASES, BRIDGE, MAKERS, original

from .decisions import Outcome, is_made_on_bridge, keeps_bridge, outcomes
from .expressions import Native
from .given import Stays
from .moves import keeps_its_name
from .placement import clashes
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
            yield _moved(outcome, outcome.native)


def _moved(outcome: Outcome, native: Native) -> Finding:
    site, (edits, comments) = outcome.site, outcome.result
    return Finding(
        site.method.code,
        site.start,
        native.message,
        Safety.SAFE,
        edits,
        needs=native.needs,
        comments=comments,
        told=native.told,
        facts=native.facts,
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


def _comes_along(analysis: Analysis, opener: Need) -> bool:
    """Say whether an import at the top, which moves to the bridge as it is, gives the bridge's function."""
    return keeps_bridge(analysis) and any(
        original(each.path) in MAKERS
        and each.local == opener.local
        and analysis.parent(analysis.parent(each.statement)) is analysis.module
        for each in imports(analysis)
    )


def _left(analysis: Analysis, site: Site, stays: Stays) -> Finding:
    """Return the finding of a use that runs on the bridge, over the same directory."""
    edits: tuple[Edit, ...] = ()
    needs: tuple[Need, ...] = ()
    what = "stays on the bridge"
    if not is_made_on_bridge(analysis, site):
        what = "stays on the bridge, over the same directory"
        opener = _opener(analysis)
        needs = () if _comes_along(analysis, opener) else (opener,)
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
        remark=f"stays on the bridge: {stays.reason}" if stays.marked else "",
        told=True,
    )


def _opened(analysis: Analysis, site: Site, opener: str) -> tuple[Edit, ...]:
    """Return the edits that open the directory of a converter on the bridge."""
    start, end = analysis.start(site.attribute), receiver_end(analysis, site.attribute)
    text = analysis.source.text
    space = " " if text[max(start - 1, 0) : start].isidentifier() else ""
    return Edit(start, start, f"{space}{opener}("), Edit(end, end, ".cache_dir_url)")
