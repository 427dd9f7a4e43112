"""One file: read, let the rules look at it, decide, rewrite, verify."""

from __future__ import annotations

import bisect
import dataclasses
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from ._meaning.analysis import Analysis
from ._meaning.imports import imports_petastorm, names_bridge
from ._meaning.other_files import Project
from ._model import (
    Destination,
    Edit,
    Failed,
    Finding,
    NeedsHuman,
    Outcome,
    Requirement,
    Safety,
    Site,
    State,
    Success,
    Target,
    Unchanged,
)
from ._petastorm.counterparts import import_edits
from ._project.install_commands import CODE as REQUIREMENT
from ._registry import Rule, all_rules, selected
from ._rewriting.import_lines import joined_imports
from ._rewriting.layout import laid_out
from ._rewriting.noted import noted
from ._rewriting.unused import without_unused
from ._text.edits import Edits
from ._text.sources import Source, read_source
from ._text.verify import changed_statements, parses, undefined_names

MARK = "petastorm-bridge:"
_IGNORE = re.compile(
    r"#\s*(?:petastorm-bridge:\s*ignore(?:\[(?P<own>[\w, ]*)\])?|noqa:\s*(?P<noqa>PM\d[\w, ]*))",
    re.IGNORECASE,
)
_LEFT = {
    Destination.BRIDGE: re.compile(r"petastorm(?![_-]bridge)", re.IGNORECASE),
    Destination.STREAMING: re.compile(
        r"petastorm(?![_-]bridge)|petastorm_bridge(?!\.native(?:_fast)?\b)"
        r"|make_torch_dataloader|make_tf_dataset",
        re.IGNORECASE,
    ),
}
# What makes a cell that does not parse worth a word.
_TELLING = re.compile(
    r"petastorm|make_(?:spark_converter|torch_dataloader|tf_dataset)|SparkDatasetConverter",
    re.IGNORECASE,
)
# Characters of a comment that is left in the code, without its code and link.
_LONGEST_REMARK = 80
# Findings of the engine itself.
UNPARSABLE = "PM000"


@dataclass(frozen=True)
class Settings:
    """What a run is asked to do.

    Attributes:
        destination: Where call sites are taken.
        select: Codes or prefixes of codes; empty for all.
        ignore: Codes or prefixes of codes.
        unsafe: Whether behaviour-changing rewrites are made.
        target: What code that is rewritten for streaming imports.
        vendor: Whether the support module becomes a file of the repository.
        lift_pyarrow: Whether limits on pyarrow that contradict the bridge's are raised.
        project: What is known of the other files.
    """

    destination: Destination = Destination.STREAMING
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    unsafe: bool = False
    target: Target = field(default_factory=Target)
    vendor: bool = False
    lift_pyarrow: bool = False
    project: Project = field(default_factory=Project)


@dataclass(frozen=True)
class _Plan:
    edits: tuple[Edit, ...]
    sites: tuple[Site, ...]
    noted: tuple[Site, ...] = ()


def process(path: str, data: bytes, settings: Settings) -> Outcome:
    """Return what becomes of a file with Python in it; nothing is written, nothing raised."""
    with warnings.catch_warnings():
        # Python's parser warns of the user's invalid escapes and comparisons; that is not our job.
        warnings.simplefilter("ignore")
        return _process(path, data, settings)


def _process(path: str, data: bytes, settings: Settings) -> Outcome:
    try:
        source = read_source(path, data)
        plan = _plan(source, settings)
        if not plan.edits:
            if any(site.state is not State.REWRITTEN for site in plan.sites):
                return NeedsHuman(path, data, data, plan.sites, plan.noted)
            return Unchanged(path, noted=plan.noted)
        after = source.render(plan.edits)
        problem = _problem(source, plan.edits, after, settings)
    except Exception as error:  # noqa: BLE001 – one bad file never stops a run
        deep = isinstance(error, RecursionError)
        reason = "left alone, because its code is nested too deep" if deep else str(error)
        abnormal = not isinstance(error, ValueError | SyntaxError | RecursionError)
        return Failed(path, reason or type(error).__name__, abnormal=abnormal)
    if problem:
        return Failed(path, f"left alone, because the rewrite {problem}", plan.sites)
    if all(site.state is State.REWRITTEN for site in plan.sites):
        return Success(path, data, after, plan.sites, plan.noted)
    return NeedsHuman(path, data, after, plan.sites, plan.noted)


def _problem(source: Source, edits: Sequence[Edit], after: bytes, settings: Settings) -> str:
    """Return what is wrong with a rewrite; empty if nothing is."""
    try:
        result = read_source(source.path, after)
    except ValueError as error:
        return f"does not parse: {error}"
    if len(result.cells) != len(source.cells) or any(
        after.problem and not before.problem
        for before, after in zip(source.cells, result.cells, strict=False)
    ):
        return "has a cell that does not parse"
    if parses(source.masked) and not parses(result.masked):
        return "is not accepted by this Python"
    problem = _harm(source, result, edits)
    if problem:
        return problem
    # Analysis is what takes time; without these words no rule finds anything in a second run.
    if _LEFT[settings.destination].search(result.text) and _plan(result, settings).edits:
        return "would be rewritten again by a second run"
    return ""


def _harm(source: Source, result: Source, edits: Sequence[Edit]) -> str:
    if changed_statements(source.masked, result.masked, edits):
        return "changes statements that it should not touch"
    before, after = undefined_names(source.masked), undefined_names(result.masked)
    if before is not None and after is not None and after - before:
        return f"uses names that nothing defines: {', '.join(sorted(after - before))}"
    return ""


def _plan(source: Source, settings: Settings) -> _Plan:
    """Decide what to do about everything that the rules find.

    What becomes of lines that install Petastorm follows from what the others leave of it.
    """
    plan = _plan_for(source, settings)
    if not any(site.code == REQUIREMENT for site in plan.sites):
        return plan
    target, after = settings.target, source.render(plan.edits)
    if names_bridge(after):
        target = dataclasses.replace(target, package=Target().package)
    if target.requirement is Requirement.REPLACED and imports_petastorm(after):
        others = [site.state for site in plan.sites if site.code != REQUIREMENT]
        moved = State.REWRITTEN in others
        fate = Requirement.JOINED if moved else Requirement.KEPT
        target = dataclasses.replace(target, requirement=fate)
    if target == settings.target:
        return plan
    return _plan_for(source, dataclasses.replace(settings, target=target))


def _plan_for(source: Source, settings: Settings) -> _Plan:
    analysis = Analysis(source, settings.destination, settings.project, settings.target)
    findings = [
        finding
        for rule in selected(settings.destination, settings.select, settings.ignore)
        for finding in rule.check(analysis)
        if not _is_ignored(source.text, finding)
    ]
    findings = _in_company(findings, unsafe=settings.unsafe)
    edits: list[Edit] = []
    accepted = Edits()
    sites: list[Site] = list(_passed_over(source))
    left: list[Finding] = []
    needed: list[tuple[int, str]] = []
    for finding in sorted(findings, key=lambda each: (each.offset, each.code)):
        # A name that is imported twice has the same uses twice.
        own = [edit for edit in finding.edits if edit.start == edit.end or edit not in accepted]
        state = _state(finding, unsafe=settings.unsafe)
        if state is State.REWRITTEN and not accepted.add(own):
            state = State.MANUAL
        if state is State.REWRITTEN:
            edits += own
            needed += [(finding.offset, name) for name in finding.needs]
        elif finding.marker:
            left.append(finding)
        sites.append(_site(source, finding, state))
    # Where several insert at one place, lines of their own come before rewrites.
    lines = [*import_edits(analysis, needed)]
    if edits or lines:
        # A file in which nothing moves is not changed for a comment: the report names its places.
        lines += _markers(analysis, left)
    rewritten = joined_imports(analysis, [*lines, *without_unused(analysis, edits)])
    known = {finding.offset for finding in findings}
    codes = {rule.code for rule in selected(settings.destination, settings.select, settings.ignore)}
    quiet = (
        _site(source, finding, state)
        for finding, state in noted(analysis, edits)
        if finding.offset not in known
        and finding.code in codes
        and not _is_ignored(source.text, finding)
    )
    return _Plan(tuple(laid_out(analysis, rewritten)), tuple(sites), tuple(quiet))


def _site(source: Source, finding: Finding, state: State) -> Site:
    cell, line, column = source.locate(finding.offset)
    where = (finding.code, line, column, cell)
    return Site(*where, finding.message, finding.safety, state, finding.told)


def _in_company(findings: Sequence[Finding], *, unsafe: bool) -> list[Finding]:
    """Return findings again, with no edits for those that move with others only, if none does.

    Lines that install packages are no others: what becomes of them follows from the code.
    """
    if any(
        _state(each, unsafe=unsafe) is State.REWRITTEN
        and not each.alone
        and each.code != REQUIREMENT
        for each in findings
    ):
        return [*findings]
    return [
        dataclasses.replace(each, message=each.alone, safety=Safety.MANUAL, edits=())
        if each.alone
        else each
        for each in findings
    ]


def _state(finding: Finding, *, unsafe: bool) -> State:
    if finding.safety is Safety.MANUAL or not finding.edits:
        return State.MANUAL
    if finding.safety is Safety.BEHAVIOUR and not unsafe:
        return State.NEEDS_UNSAFE
    return State.REWRITTEN


def _passed_over(source: Source) -> Iterator[Site]:
    """Yield a site for each cell that has telling words and is left alone as a whole."""
    for start, end, language in source.foreign:
        if language and _TELLING.search(source.text, start, end):
            number, line, column = source.locate(start)
            message = f"cell left alone, it is in {language.lstrip('%')}"
            if language.startswith("%%"):
                message = f"cell left alone, it is what {language} is given"
            yield Site(UNPARSABLE, line, column, number, message, Safety.MANUAL, State.MANUAL)
    for cell in source.cells:
        if cell.problem and _TELLING.search(cell.text):
            number, line, column = source.locate(cell.start)
            found = re.match(r"line (\d+): (.*)", cell.problem, re.DOTALL)
            line += int(found[1]) - 1 if found else 0
            message = "cell left alone, it does not parse: " + (found[2] if found else cell.problem)
            yield Site(UNPARSABLE, line, column, number, message, Safety.MANUAL, State.MANUAL)


def _is_ignored(text: str, finding: Finding) -> bool:
    start = text.rfind("\n", 0, finding.offset) + 1
    end = text.find("\n", finding.offset)
    match = _IGNORE.search(text[start : len(text) if end < 0 else end])
    if match is None:
        return False
    codes = match["own"] or match["noqa"]
    return codes is None or finding.code in re.findall(r"PM\d+", codes.upper())


def _markers(analysis: Analysis, findings: Iterable[Finding]) -> Iterator[Edit]:
    """Yield a comment above the statement of each finding, unless it is there already.

    Statements that follow each other and have the same problem share the first one's comment.
    """
    links = {rule.code: rule.link for rule in all_rules()}
    starts = sorted(_statement_starts(analysis))
    written: set[tuple[int, str]] = set()
    last = (-1, "")
    for finding in findings:
        at = bisect.bisect_right(starts, finding.offset) - 1
        if at < 0:
            continue
        what = f"{finding.code} {_brief(finding.message)}"
        follows, last = last in {(at - 1, what), (at, what)}, (at, what)
        if follows:
            continue
        place = analysis.line_start(starts[at])
        if (place, finding.code) in written or _is_marked(analysis, place, finding.code):
            continue
        written.add((place, finding.code))
        comment = f"# {MARK} {what} ({links[finding.code]})"
        indent = analysis.indent(starts[at])
        yield Edit(place, place, f"{indent}{comment}{analysis.source.newline}")


def _brief(message: str) -> str:
    """Return what a message says first: a comment is short, the report says all of it."""
    first = message.split("; ", maxsplit=1)[0]
    return first if len(first) <= _LONGEST_REMARK else first.split(": ")[0]


def _statement_starts(analysis: Analysis) -> Iterator[int]:
    """Yield where statements start that have a line of their own."""
    for kind in (
        cst.SimpleStatementLine,
        cst.With,
        cst.For,
        cst.While,
        cst.If,
        cst.Try,
        cst.FunctionDef,
        cst.ClassDef,
    ):
        for node in analysis.nodes(kind):
            decorators = getattr(node, "decorators", ())
            start = analysis.start(decorators[0] if decorators else node)
            if not analysis.source.text[analysis.line_start(start) : start].strip():
                yield start


def _is_marked(analysis: Analysis, place: int, code: str) -> bool:
    text = analysis.source.text
    while place > 0:
        end = place - 1 - text.endswith("\r\n", 0, place)
        start = analysis.line_start(end)
        line = text[start:end]
        if not line.lstrip().startswith("#"):
            return False
        if f"{MARK} {code} " in line:
            return True
        place = start
    return False


def rules_for(settings: Settings) -> tuple[Rule, ...]:
    """Return the rules of a run.

    Raises:
        ValueError: A selection matches no rule.
    """
    return tuple(selected(settings.destination, settings.select, settings.ignore))
