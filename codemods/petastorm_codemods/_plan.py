"""What is done about one source: which findings of the rules are rewritten, marked or only reported."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from ._meaning.analysis import Analysis
from ._meaning.imports import imports_petastorm, names_bridge
from ._model import Edit, Fact, Finding, ImportSlot, Need, Requirement, Safety, Site, State
from ._petastorm.counterparts import MAKERS, original
from ._project.dependency_files import CODE as REQUIREMENT
from ._rewriting.comments import is_ignored
from ._rewriting.layout import laid_out
from ._rewriting.markers import beside_what_stays, comments, markers
from ._rewriting.noted import noted
from ._rewriting.sites import METHODS
from ._rewriting.statements import with_imports
from ._rewriting.unused import unused_variables
from ._settings import Settings, rules_for
from ._text.edits import Edits, resolved
from ._text.sources import Source


@dataclass(frozen=True)
class Plan:
    """What becomes of one source.

    Attributes:
        edits: Everything that is changed; the edits do not overlap.
        sites: What was found.
        noted: Sites without edits of their own, for reports alone.
    """

    edits: tuple[Edit, ...]
    sites: tuple[Site, ...]
    noted: tuple[Site, ...] = ()


def plan_for(source: Source, settings: Settings) -> Plan:
    """Decide what to do about everything that the rules find.

    What becomes of lines that install Petastorm follows from what the others leave of it.
    """
    plan = _plan(source, settings)
    if not any(site.code == REQUIREMENT for site in plan.sites):
        return plan
    target, after = settings.target, source.render(plan.edits)
    if names_bridge(after):
        target = dataclasses.replace(target, bridged=True)
    if target.requirement is Requirement.REPLACED and imports_petastorm(after):
        others = [site.state for site in plan.sites if site.code != REQUIREMENT]
        moved = State.REWRITTEN in others
        fate = Requirement.JOINED if moved else Requirement.KEPT
        target = dataclasses.replace(target, requirement=fate)
    if target == settings.target:
        return plan
    return _plan(source, dataclasses.replace(settings, target=target))


def changes(source: Source, settings: Settings) -> bool:
    """Say whether the plan for a source has edits, without laying them out."""
    findings = _found(_analysis(source, settings), settings)
    if any(finding.code == REQUIREMENT for finding in findings):
        return bool(plan_for(source, settings).edits)
    return bool(_decided(source, findings, unsafe=settings.unsafe).edits)


def _analysis(source: Source, settings: Settings) -> Analysis:
    return Analysis(source, settings.destination, settings.project, settings.target)


def _found(analysis: Analysis, settings: Settings) -> list[Finding]:
    """Return what the rules find and the file does not have ignored."""
    findings = [
        finding
        for rule in rules_for(settings)
        for finding in rule.check(analysis)  # several rules may share one check
        if finding.code == rule.code
        and not is_ignored(analysis.source.text, finding.offset, finding.code)
    ]
    return _in_company(findings, unsafe=settings.unsafe)


def _plan(source: Source, settings: Settings) -> Plan:
    analysis = _analysis(source, settings)
    findings = _found(analysis, settings)
    decided = _decided(source, findings, unsafe=settings.unsafe)
    # A file in which nothing moves is not changed for a comment: the report names its places.
    left = decided.left if decided.edits else []
    # Where several insert at one place, lines of their own come before rewrites.
    lines = [*markers(analysis, left, decided.edits)]
    lines += comments(analysis, decided.said, decided.edits)
    edits = beside_what_stays(resolved([*lines, *decided.edits], source.text))
    edits += unused_variables(analysis, edits)
    edits = with_imports(analysis, edits, decided.needed, decided.slots)
    known = {finding.offset for finding in findings}
    codes = {rule.code for rule in rules_for(settings)}
    quiet = (
        _site(source, finding, state)
        for finding, state in noted(analysis, decided.edits)
        if finding.offset not in known
        and finding.code in codes
        and not is_ignored(source.text, finding.offset, finding.code)
    )
    sites = [*decided.sites, *_hidden(analysis, settings)] if settings.shadow else decided.sites
    return Plan(tuple(laid_out(analysis, edits)), tuple(sites), tuple(quiet))


def _hidden(analysis: Analysis, settings: Settings) -> Iterator[Site]:
    """Yield the calls that stay on the bridge because a module of the user's hides streaming."""
    message = (
        f"stays on the bridge: {settings.shadow} is imported in place of mosaicml-streaming; "
        "rename it to go on"
    )
    for call in analysis.nodes(cst.Call):
        method = METHODS.get(call.func.attr.value) if isinstance(call.func, cst.Attribute) else None
        made = original(analysis.imported(call.func) or "") in MAKERS
        code = method.code if method is not None else "PM101" if made else ""
        if code and not is_ignored(analysis.source.text, analysis.start(call), code):
            facts = frozenset({Fact.ON_BRIDGE} if method is not None else ())
            start = analysis.start(call)
            finding = Finding(code, start, message, Safety.SAFE, told=True, facts=facts)
            yield _site(analysis.source, finding, State.WORKS)


@dataclass
class _Decided:
    """What is decided about findings.

    Attributes:
        sites: What was found.
        edits: The rewrites that are made.
        needed: Offset and name of what they use.
        slots: Imports among them.
        said: The findings that they belong to and that have comments to be kept.
        left: The findings that get a comment if the file changes.
    """

    sites: list[Site] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    needed: list[tuple[int, Need]] = field(default_factory=list)
    slots: list[ImportSlot] = field(default_factory=list)
    said: list[Finding] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)


def _decided(source: Source, findings: Sequence[Finding], *, unsafe: bool) -> _Decided:
    """Accept the rewrites one after the other; one that overlaps another is a human's."""
    decided = _Decided()
    accepted = Edits()
    for finding in sorted(findings, key=lambda finding: (finding.offset, finding.code)):
        # A name that is imported twice has the same uses twice.
        edits = [edit for edit in finding.edits if edit.start == edit.end or edit not in accepted]
        state = _state(finding, unsafe=unsafe)
        if state is State.REWRITTEN and not accepted.add(edits):
            state = State.MANUAL
        if state is State.REWRITTEN:
            decided.edits += edits
            decided.needed += [(finding.offset, need) for need in finding.needs]
            decided.slots += finding.slots
            decided.said += [finding] if finding.comments else []
        if finding.remark if state in {State.REWRITTEN, State.WORKS} else finding.marker:
            decided.left.append(finding)
        decided.sites.append(_site(source, finding, state))
    return decided


def _site(source: Source, finding: Finding, state: State) -> Site:
    cell, line, column = source.locate(finding.offset)
    where = (finding.code, line, column, cell)
    return Site(*where, finding.message, finding.safety, state, finding.told, finding.facts)


def _in_company(findings: Sequence[Finding], *, unsafe: bool) -> list[Finding]:
    """Return findings again, with no edits for those that move with others only, if none does.

    Lines that install packages are no others: what becomes of them follows from the code.
    """
    if any(
        _state(finding, unsafe=unsafe) is State.REWRITTEN
        and not finding.alone
        and finding.code != REQUIREMENT
        for finding in findings
    ):
        return [*findings]
    return [
        dataclasses.replace(finding, message=finding.alone, safety=Safety.MANUAL, edits=())
        if finding.alone
        else finding
        for finding in findings
    ]


def _state(finding: Finding, *, unsafe: bool) -> State:
    if finding.safety is Safety.MANUAL:
        return State.MANUAL
    if not finding.edits:
        return State.WORKS
    if finding.safety is Safety.BEHAVIOUR and not unsafe:
        return State.NEEDS_UNSAFE
    return State.REWRITTEN
