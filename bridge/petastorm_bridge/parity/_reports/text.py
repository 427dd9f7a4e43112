"""Reports of comparisons: terminal, JSON, JUnit XML and Markdown (`html` has the page to look at)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.text import Text

from petastorm_bridge import __version__
from petastorm_bridge.parity._result import (
    ColumnResult,
    Finding,
    PromiseResult,
    Report,
    Result,
    State,
    legible_report,
)
from petastorm_bridge.parity.recorder import counted

from .html import html_page

_STYLES = {
    State.SAME: "green",
    State.DIFFERENT: "bold red",
    State.ALLOWED: "magenta",
    State.UNCHECKED: "dim",
}
_MARKS = {State.SAME: "✅ ", State.DIFFERENT: "❌ ", State.ALLOWED: "⚠️ ", State.UNCHECKED: ""}
_MOST_COLUMNS = 20


def print_report(report: Report, console: Console) -> None:
    """Print a report for people at a terminal."""
    report = legible_report(report)
    console.print(Text(report.title, style="bold"))
    for name, text in report.facts:
        console.print(Text.assemble((f"  {name}: ", "dim"), text))
    for result in report.results:
        console.print()
        for line in _terminal(result):
            console.print(line)
    for problem in report.problems:
        console.print(Text(f"\ncould not be compared: {problem}", style="red"))


def _terminal(result: Result) -> Iterator[Text]:
    """Yield the lines of one comparison."""
    yield _verdict(result)
    yield from _promise_lines(result)
    for promise in result.promises:
        for finding in promise.findings:
            if finding.allowed:
                yield Text(f"allowed by {finding.allowed}: {finding.message}", style="magenta")
    failure = result.first_failure
    if failure is not None:
        text = Text("first difference  ", style="bold").append(f"[{failure.promise.value}] ", "red")
        text.append(failure.message, "default")
        for label, value in result.first_values:
            text.append(f"\n  {label}: ", "dim").append(value, "default")
        yield text
    if result.differing:
        yield from _column_lines(result.differing)
        yield from _column_values(result, result.differing)
    if result.hint:
        yield Text(f"hint: they are the same with {result.hint}", style="cyan")
    yield from (Text(f"note: {note}", style="magenta") for note in result.notes)


def _verdict(result: Result) -> Text:
    names = f"{result.a.label} and {result.b.label}"
    if result.same:
        return Text(f"SAME  {names} give the same batches", style="bold green")
    return Text(f"DIFFERENT  {names} do not give the same batches", style="bold red")


def _promise_lines(result: Result) -> Iterator[Text]:
    rows = []
    for promise in result.promises:
        state = promise.state
        word = state.word.upper() if state is State.DIFFERENT else state.word
        cells = (promise.promise.value, word, promise.summary)
        rows.append([Text(cell) for cell in cells])
        rows[-1][1].stylize(_STYLES[state])
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[Text]], right: Sequence[int] = ()) -> Iterator[Text]:
    """Yield rows as lines; nothing is cut, wrapped or padded at the end, since lines may go into a file.

    Args:
        rows: Cells of the rows.
        right: Columns that are set flush right.
    """
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        line = Text("  ")
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            cell.align("right" if place in right else "left", width)
            line.append_text(cell).append("  ")
        line.rstrip()
        yield line


def _column_lines(columns: list[ColumnResult]) -> Iterator[Text]:
    headings = ("column", "differing rows", "share", "at most")
    rows = [[Text(heading, "dim") for heading in headings]]
    for column in columns[:_MOST_COLUMNS]:
        number, share, how_far = column.counts
        cells = (column.name, number, share, how_far.removeprefix("by at most "))
        rows.append([Text(cell) for cell in cells])
    return _aligned(rows, right=(1, 2, 3))


def _column_values(result: Result, columns: list[ColumnResult]) -> Iterator[Text]:
    """Yield both values of every column's first row that differs."""
    for column in columns[:_MOST_COLUMNS]:
        if column.first is not None:
            place, one, other = column.first
            line = Text.assemble((f"  {column.name} ", "bold"), (f"in {place}  ", "dim"))
            line.append(f"{result.a.label}: ", "dim").append(one)
            yield line.append(f"  {result.b.label}: ", "dim").append(other)
    left_out = len(columns) - _MOST_COLUMNS
    if left_out > 0:
        yield Text(f"  and {counted(left_out, 'more column')}")


def json_text(report: Report) -> str:
    """Return a report as JSON; its keys are those of the classes in `_result`."""
    document = {**asdict(report), "version": __version__, "exit_code": report.exit_code}
    for result, data in zip(report.results, document["results"], strict=True):
        failure = result.first_failure
        data |= {"same": result.same, "first_failure": failure and asdict(failure)}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def junit_text(report: Report) -> str:
    """Return a report as JUnit XML: a suite for each comparison, a case for each promise."""
    report = legible_report(report)
    suites = ET.Element("testsuites", name="petastorm-bridge parity")
    for result in report.results:
        name = f"{result.a.label} and {result.b.label}"
        suite = ET.SubElement(suites, "testsuite", name=name, tests=str(len(result.promises)))
        for promise in result.promises:
            case = ET.SubElement(
                suite, "testcase", classname=f"parity.{name}", name=promise.promise.value
            )
            _add_outcome(case, promise, result.hint)
        _count(suite)
    for problem in report.problems:
        suite = ET.SubElement(suites, "testsuite", name="parity", tests="1")
        case = ET.SubElement(suite, "testcase", classname="parity", name="could not be compared")
        ET.SubElement(case, "error", message=problem)
        _count(suite)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _add_outcome(case: ET.Element, promise: PromiseResult, hint: str) -> None:
    if promise.state is State.DIFFERENT:
        lines = [_finding_text(finding) for finding in promise.findings]
        lines += [f"hint: they are the same with {hint}"] if hint else []
        failure = ET.SubElement(case, "failure", message=lines[0])
        failure.text = "\n".join(lines)
    elif promise.state is State.UNCHECKED:
        ET.SubElement(case, "skipped", message=promise.summary)
    else:
        ET.SubElement(case, "system-out").text = promise.summary


def _count(suite: ET.Element) -> None:
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))


def _finding_text(finding: Finding) -> str:
    values = [v for v in (finding.a, finding.b) if v is not None]
    what = f"[{finding.what}] " if finding.what else ""
    allowed = f" (allowed: {finding.allowed})" if finding.allowed else ""
    return what + finding.message + (f": {' | '.join(values)}" if values else "") + allowed


def markdown_text(report: Report) -> str:
    """Return a report for a pull request."""
    report = legible_report(report)
    marks = {0: "✅", 1: "❌", 2: "⚠️"}
    lines = [f"## {marks[report.exit_code]} {_cell(report.title)}", ""]
    lines += [f"- {name}: {_cell(text)}" for name, text in report.facts]
    lines += [f"- {_cell(text)}" for text in report.made]
    for result in report.results:
        lines += ["", *_markdown_result(result)]
    lines += ["", *(f"⚠️ **could not be compared**: {_cell(p)}" for p in report.problems)]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_result(result: Result) -> list[str]:
    word = "give the same batches" if result.same else "do **not** give the same batches"
    lines = [f"### {_code(result.a.label)} and {_code(result.b.label)} {word}", ""]
    lines += ["| compared | | |", "|---|---|---|"]
    for promise in result.promises:
        state = _MARKS[promise.state] + promise.state.word
        lines.append(f"| {promise.promise.value} | {state} | {_cell(promise.summary)} |")
    failure = result.first_failure
    if failure is not None:
        lines += ["", f"**First difference** ({failure.promise.value}): {_cell(failure.message)}"]
        lines += ["", *(f"- {_cell(label)}: {_code(v)}" for label, v in result.first_values)]
    lines += _markdown_columns(result)
    if result.hint:
        lines += ["", f"They are the same with {_code(result.hint)}."]
    lines += ["", f"Rules: {_cell(result.rules_text)}."]
    return lines + [f"\n> {_cell(note)}" for note in result.notes]


def _markdown_columns(result: Result) -> list[str]:
    if not result.differing:
        return []
    lines = ["", *_markdown_table(result, result.differing[:_MOST_COLUMNS])]
    others = result.differing[_MOST_COLUMNS:]
    if others:
        # Folded, so that what others say on the pull request stays in sight.
        words = f"{counted(len(others), 'more column')} that {'differs' if len(others) == 1 else 'differ'}"
        lines += ["", f"<details><summary>{words}</summary>", ""]
        lines += [*_markdown_table(result, others), "", "</details>"]
    return lines


def _markdown_table(result: Result, columns: list[ColumnResult]) -> list[str]:
    heads = ["column", "differing rows", "share", "how far", "first in"]
    heads += [_cell(result.a.label), _cell(result.b.label), "accepted by"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for column in columns:
        place, one, other = column.first or ("", "", "")
        values = [_code(text) if text else "" for text in (one, other)]
        accepted = _code(column.accepted) if column.accepted else ""
        cells = [_code(column.name), *map(_cell, (*column.counts, place)), *values, accepted]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _code(text: str) -> str:
    """Return a span of code, which more backticks begin and end than are in it."""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if len(fence) > 1 else ""
    return f"{fence}{space}{text.replace('|', chr(92) + '|')}{space}{fence}"


def _cell(text: str) -> str:
    return re.sub(r"([|`\[])", r"\\\1", text.replace("<", "&lt;"))


# Option of the command line → what writes the file.
WRITERS: dict[str, Callable[[Report], str]] = {
    "json": json_text,
    "junit": junit_text,
    "markdown": markdown_text,
    "html": html_page,
}
