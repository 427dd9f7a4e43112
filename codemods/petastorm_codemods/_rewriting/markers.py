"""Comments of ours in a source: those that mark what is left, and those by which users keep us away."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Edit, Finding

MARK = "petastorm-bridge:"
_IGNORE = re.compile(
    r"#\s*(?:petastorm-bridge:\s*ignore(?:\[(?P<own>[\w, ]*)\])?|noqa:\s*(?P<noqa>PM\d[\w, ]*))",
    re.IGNORECASE,
)
# Characters of a comment that is left in the code, without its code and link.
_LONGEST_REMARK = 80
# Statements that may have a line of their own.
_STATEMENTS = (
    cst.SimpleStatementLine,
    cst.With,
    cst.For,
    cst.While,
    cst.If,
    cst.Try,
    cst.FunctionDef,
    cst.ClassDef,
)


def is_ignored(text: str, finding: Finding) -> bool:
    """Say whether a comment in the line of a finding asks to leave it alone."""
    start = text.rfind("\n", 0, finding.offset) + 1
    end = text.find("\n", finding.offset)
    match = _IGNORE.search(text[start : len(text) if end < 0 else end])
    if match is None:
        return False
    codes = match["own"] or match["noqa"]
    return codes is None or finding.code in re.findall(r"PM\d+", codes.upper())


def markers(
    analysis: Analysis, findings: Iterable[Finding], links: Mapping[str, str]
) -> Iterator[Edit]:
    """Yield a comment above the statement of each finding, unless it is there already.

    Statements that follow each other and have the same problem share the first one's comment.

    Args:
        analysis: Of the source.
        findings: In the order of the text.
        links: Where the guide explains each rule, by the rules' codes.
    """
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
    for kind in _STATEMENTS:
        for node in analysis.nodes(kind):
            decorators = getattr(node, "decorators", ())
            start = analysis.start(decorators[0] if decorators else node)
            if not analysis.source.text[analysis.line_start(start) : start].strip():
                yield start


def _is_marked(analysis: Analysis, place: int, code: str) -> bool:
    """Say whether the comments right above a place have our mark with a code among them."""
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
