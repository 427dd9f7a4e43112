"""Comments that go into a source: those that mark what is left, and those of rewritten calls."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator, Sequence

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Edit, Finding

from .blocks import Indents

# A mark names the command that explains it.
MARK = "petastorm-bridge rule"
# Characters of a comment that is left in the code, without the code of its rule.
_LONGEST_REMARK = 80
# Statements that may have a line of their own.
_STATEMENTS = (
    cst.SimpleStatementLine,
    cst.With,
    cst.For,
    cst.While,
    cst.If,
    cst.Try,
    cst.Match,
    cst.MatchCase,
    cst.FunctionDef,
    cst.ClassDef,
)


def markers(
    analysis: Analysis,
    findings: Sequence[Finding],
    edits: Sequence[Edit],
) -> Iterator[Edit]:
    """Yield a comment above the statement of each finding, unless it is there already.

    Statements that follow each other and have the same problem share the first one's comment.

    Args:
        analysis: Of the source.
        findings: In the order of the text.
        edits: The rewrites, which may change indentation.
    """
    written: set[tuple[int, str]] = set()
    last = (-1, "")
    for finding, at, place, indent in _statements_of(analysis, findings, edits):
        what = f"{finding.code}: {_brief(finding.remark or finding.message)}"
        follows, last = last in {(at - 1, what), (at, what)}, (at, what)
        is_written = (place, finding.code) in written or _is_marked(analysis, place, finding.code)
        if not follows and not is_written:
            written.add((place, finding.code))
            yield Edit(place, place, f"{indent}# {MARK} {what}{analysis.source.newline}")


def beside_what_stays(edits: Sequence[Edit]) -> list[Edit]:
    """Return edits with the marks of a ``with`` that stays in part right above what stays of it.

    Args:
        edits: Of which none is made of pieces. Assignments in the place of some items of a ``with`` come
            before the rest of it.
    """
    heads = {edit.start: edit for edit in edits if edit.lines and _rest_of_with(edit.text)}
    marks: dict[int, str] = {}
    result: list[Edit] = []
    for edit in edits:
        if edit.start == edit.end and edit.start in heads and f"# {MARK} " in edit.text:
            marks[edit.start] = marks.get(edit.start, "") + edit.text
        else:
            result.append(edit)
    for number, edit in enumerate(result):
        if edit.start in marks and edit is heads[edit.start]:
            place = _rest_of_with(edit.text)
            text = f"{edit.text[:place]}{marks[edit.start]}{edit.text[place:]}"
            result[number] = dataclasses.replace(edit, text=text)
    return result


def _rest_of_with(text: str) -> int:
    """Return where a ``with`` starts that follows other lines and is indented as they are; 0 if none does."""
    indent = text[: len(text) - len(text.lstrip(" \t"))]
    return text.find(f"\n{indent}with ") + 1


def comments(
    analysis: Analysis, findings: Sequence[Finding], edits: Sequence[Edit]
) -> Iterator[Edit]:
    """Yield the comments of calls that are rewritten, each above the statement that it was in."""
    lines = {
        (place, comment): indent
        for finding, _, place, indent in _statements_of(analysis, findings, edits)
        for comment in finding.comments
    }
    for (place, comment), indent in lines.items():
        yield Edit(place, place, f"{indent}{comment}{analysis.source.newline}")


def _statements_of(
    analysis: Analysis, findings: Sequence[Finding], edits: Sequence[Edit]
) -> Iterator[tuple[Finding, int, int, str]]:
    """Yield findings with the statement that each is in: its number, where its line starts, its indentation then."""
    starts = sorted(_statement_starts(analysis)) if findings else []
    indents = Indents(analysis, edits)
    for finding in findings:
        at = bisect.bisect_right(starts, finding.offset) - 1
        if at >= 0:
            yield finding, at, analysis.line_start(starts[at]), indents.at(starts[at])


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
        if f"{MARK} {code}: " in line:
            return True
        place = start
    return False
