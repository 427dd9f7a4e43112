"""One HTML page that needs nothing else: for people who would rather look than read."""

from __future__ import annotations

from html import escape

from petastorm_bridge import __version__
from petastorm_bridge.parity._result import (
    MEANING,
    PromiseResult,
    Report,
    Result,
    Sample,
    State,
    legible_report,
)
from petastorm_bridge.parity.recorder import counted

from .html_columns import columns_part, state_mark
from .style import SCRIPT, STYLE

_MOST_FINDINGS = 3
# More columns do not fit beside each other on a screen: each row is a block then.
_MOST_BESIDE = 8


def html_page(report: Report) -> str:
    """Return a report as one page."""
    report = legible_report(report)
    parts = [_banner(report), *(_section(result) for result in report.results)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + f"\n<footer>Written by petastorm-bridge {__version__}, command parity.</footer>\n"
        f"</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _banner(report: Report) -> str:
    kinds = {0: "same", 1: "different", 2: "problem"}
    verdicts = {
        0: "The batches are the same.",
        1: "The batches are not the same.",
        2: "Not everything could be compared.",
    }
    facts = "".join(f"<li><b>{escape(name)}</b> {escape(text)}</li>" for name, text in report.facts)
    problems = "".join(f'<p class="note">{escape(problem)}</p>' for problem in report.problems)
    inner = f"<ul class='facts'>{facts}</ul>" if facts else ""
    if len(report.results) > 1:
        rows = "".join(_glance(result) for result in report.results)
        inner = f"<h3>At a glance</h3><table class='glance'>{rows}</table>{inner}"
    made = "".join(f"<p>{_unbroken(text)}</p>" for text in report.made)
    more = f"<section>{inner}{problems}</section>" if inner or problems else ""
    return (
        f'<section class="banner {kinds[report.exit_code]}"><h1>{verdicts[report.exit_code]}</h1>'
        f"<p>{escape(report.title)}</p>{made}</section>{more}"
    )


def _unbroken(text: str) -> str:
    """Return a text whose words are broken only if they do not fit into a line: no option behind its hyphens."""
    return " ".join(f"<span class='word'>{escape(word)}</span>" for word in text.split(" "))


def _glance(result: Result) -> str:
    """Return one line for a comparison: who, how it went, and what was allowed or broken."""
    state = State.SAME if result.same else State.DIFFERENT
    names = f"{escape(result.a.label)} and {escape(result.b.label)}"
    parts = [f"{result.a.rows:,} and {result.b.rows:,} rows"]
    parts += [
        f"{promise.promise.value} {promise.state.word}"
        for promise in result.promises
        if promise.state is not State.SAME
    ]
    return (
        f"<tr><td><b>{names}</b></td><td>{state_mark(state)}</td><td>{', '.join(parts)}</td></tr>"
    )


def _section(result: Result) -> str:
    word = "give the same batches" if result.same else "do not give the same batches"
    heading = f"{escape(result.a.label)} and {escape(result.b.label)} {word}"
    parts = [f"<section><h2>{heading}</h2>", _sides(result), _promises(result)]
    failure = result.first_failure
    if failure is not None:
        parts.append(f'<div class="first"><b>First difference.</b> {escape(failure.message)}')
        for label, value in result.first_values:
            parts.append(f"<br>{escape(label)}: <code>{escape(value)}</code>")
        parts.append("</div>")
    if result.hint:
        parts.append(
            f'<div class="note">They are the same with <code>{_unbroken(result.hint)}</code>.</div>'
        )
    parts += [f'<div class="note">{escape(note)}</div>' for note in result.notes]
    parts.append(f'<p class="meaning">Rules: {escape(result.rules_text)}.</p>')
    parts += [_rows_part(result), columns_part(result), "</section>"]
    return "\n".join(parts)


def _sides(result: Result) -> str:
    rows = ""
    for side, css in ((result.a, "side-a"), (result.b, "side-b")):
        counts = {"rows": side.rows, "batches": side.batches, "ranks": len(side.ranks)}
        cells = "".join(
            f'<td class="number" data-heading="{name}">{n:,}</td>' for name, n in counts.items()
        )
        versions = ", ".join(f"{name} {version}" for name, version in side.versions.items())
        rows += (
            f'<tr><td><b class="{css}">{escape(side.label)}</b></td>{cells}'
            f"<td><code>{escape(side.source)}</code>"
            f'<div class="meaning">{escape(versions)}</div></td></tr>'
        )
    return (
        "<h3>What was compared</h3><div class='wide'><table class='sides'><tr><th></th>"
        "<th>rows</th><th>batches</th><th>ranks</th>"
        f"<th>loader and versions</th></tr>{rows}</table></div>"
    )


def _promises(result: Result) -> str:
    rows = "".join(_promise(promise) for promise in result.promises)
    return f"<h3>What is the same</h3><table class='promises'>{rows}</table>"


def _promise(promise: PromiseResult) -> str:
    name, meaning = promise.promise.value, MEANING[promise.promise]
    messages = "".join(
        f'<div class="meaning">{escape(f.message)}'
        + (f" (allowed: {escape(f.allowed)})" if f.allowed else "")
        + "</div>"
        for f in promise.findings[:_MOST_FINDINGS]
    )
    if len(promise.findings) > _MOST_FINDINGS:
        messages += '<div class="meaning">and more</div>'
    return (
        f"<tr><td><b>{name}</b><div class='meaning'>{escape(meaning)}</div></td>"
        f"<td>{state_mark(promise.state)}</td><td>{escape(promise.summary)}{messages}</td></tr>"
    )


def _rows_part(result: Result) -> str:
    """Return a table of the rows; empty if none differs."""
    if not result.samples:
        return ""
    names = "".join(f"<th>{escape(name)}</th>" for name in result.sample_columns)
    many = len(result.sample_columns) > _MOST_BESIDE
    rows = "".join(_sample(result, sample, many=many) for sample in result.samples)
    others = sum(c.differing > 0 and c.name not in result.sample_columns for c in result.columns)
    more = (
        f" {counted(others, 'more column')} {'differs' if others == 1 else 'differ'}."
        if others
        else ""
    )
    columns_text = "those that differ in the row" if many else "the columns that differ"
    return (
        "<h3>Rows that differ</h3><div class='wide' tabindex='0'>"
        f"<table class='{'rows many' if many else 'rows'}'><thead><tr><th>side</th><th>where</th>{names}</tr></thead>{rows}</table></div>"
        f"<p class='meaning'>The first few: some columns that agree, then {columns_text}.{more}"
        "</p>"
    )


def _sample(result: Result, sample: Sample, *, many: bool) -> str:
    """Return both sides of a row; of many columns without those that differ in other rows only."""
    elsewhere = [
        any(row.differs[at] for row in result.samples) for at in range(len(sample.differs))
    ]
    left_out = [
        many and any(sample.differs) and other and not here
        for other, here in zip(elsewhere, sample.differs, strict=True)
    ]
    lines = ""
    for label, css, place, values in (
        (result.a.label, "side-a", sample.place_a, sample.a),
        (result.b.label, "side-b", sample.place_b, sample.b),
    ):
        lines += (
            f"<tr><td class='{css}'>{escape(label)}</td><td>{escape(place or 'not there')}</td>"
        )
        cells = zip(result.sample_columns, values, sample.differs, left_out, strict=True)
        for name, value, differs, skipped in cells:
            if skipped:
                continue
            mark = " class='wrong'" if differs else ""
            lines += f"<td{mark} data-heading='{escape(name)}'><code>{escape(value)}</code></td>"
        lines += "</tr>"
    return f"<tbody>{lines}</tbody>"
