"""Comments that go into a source: those that mark what is left, and those of rewritten calls."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
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
    if not findings:
        return
    starts = sorted(_statement_starts(analysis))
    indents = Indents(analysis, edits)
    written: set[tuple[int, str]] = set()
    below = _imports_below_imports(analysis)
    last = (-1, "")
    for finding in findings:
        at = bisect.bisect_right(starts, finding.offset) - 1
        if at < 0:
            continue
        what = f"{finding.code}: {_brief(finding.remark or finding.message)}"
        follows, last = last in {(at - 1, what), (at, what)}, (at, what)
        if follows:
            continue
        place = analysis.line_start(starts[at])
        if (place, finding.code) in written or _is_marked(analysis, place, finding.code):
            continue
        written.add((place, finding.code))
        newline = analysis.source.newline
        blank = newline if place in below else ""
        comment = f"# {MARK} {what}"
        yield Edit(place, place, f"{blank}{indents.at(starts[at])}{comment}{newline}")


def _imports_below_imports(analysis: Analysis) -> set[int]:
    """Return where the lines of imports at the top start that follow another one without a blank line."""
    starts: set[int] = set()
    kinds = (cst.Import, cst.ImportFrom)
    for above, line in itertools.pairwise(analysis.module.body):
        both = [each for each in (above, line) if isinstance(each, cst.SimpleStatementLine)]
        imports = len(both) == 2 and all(isinstance(each.body[0], kinds) for each in both)
        if imports and not both[1].leading_lines:
            starts.add(analysis.line_start(analysis.start(line)))
    return starts


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
    if not findings:
        return
    starts = sorted(_statement_starts(analysis))
    indents = Indents(analysis, edits)
    written: set[tuple[int, str]] = set()
    for finding in findings:
        at = bisect.bisect_right(starts, finding.offset) - 1
        for comment in finding.comments if at >= 0 else ():
            place = analysis.line_start(starts[at])
            if (place, comment) not in written:
                written.add((place, comment))
                text = f"{indents.at(starts[at])}{comment}{analysis.source.newline}"
                yield Edit(place, place, text)


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
