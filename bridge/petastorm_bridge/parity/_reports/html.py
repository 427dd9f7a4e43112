"""One HTML page that needs nothing else: for people who would rather look than read."""

from __future__ import annotations

from html import escape

from petastorm_bridge import __version__
from petastorm_bridge.parity._comparing.describe import counted
from petastorm_bridge.parity._result import (
    MEANING,
    ColumnResult,
    Profile,
    PromiseResult,
    Report,
    Result,
    Side,
    State,
)

__all__ = ["html_page"]

_WORDS = {
    State.SAME: "same",
    State.DIFFERENT: "different",
    State.ALLOWED: "allowed",
    State.UNCHECKED: "not compared",
}
_GLANCE = {
    State.DIFFERENT: "different",
    State.ALLOWED: "different as allowed",
    State.UNCHECKED: "not compared",
}
_MARKS = {State.SAME: "✓", State.DIFFERENT: "✗", State.ALLOWED: "!", State.UNCHECKED: "–"}
_MOST_COLUMNS = 200
_WIDTH, _HEIGHT = 168, 56

_STYLE = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #dfe4ea; --paper: #fff; --ground: #f4f6f8;
  --same: #17803d; --different: #c02626; --allowed: #a15c00; --unchecked: #6b7280;
  --a: #3867b8; --b: #d1792a; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 0; }
h3 { font-size: 15px; margin: 24px 0 8px; color: var(--soft); font-weight: 600; }
section > h3:first-child { margin-top: 0; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: 20px 24px; margin: 18px 0; }
.banner { color: #fff; border: 0; } .banner p { margin: 2px 0 0; opacity: .93; }
.banner.same { background: var(--same); } .banner.different { background: var(--different); }
.banner.problem { background: var(--allowed); }
.facts { color: var(--soft); margin: 8px 0 0; padding: 0; list-style: none; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top;
  padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); font-size: 13px; } tr:last-child td { border-bottom: 0; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.state { font-weight: 600; white-space: nowrap; } .state.same { color: var(--same); }
.state.different { color: var(--different); } .state.allowed { color: var(--allowed); }
.state.unchecked { color: var(--unchecked); }
.meaning { color: var(--soft); font-size: 13px; }
.first { border-left: 4px solid var(--different); background: #fdf3f3; padding: 10px 14px;
  margin: 14px 0 0; border-radius: 4px; }
.note { border-left: 4px solid var(--allowed); background: #fdf8ef; padding: 8px 14px;
  margin: 10px 0 0; border-radius: 4px; }
code { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  overflow-wrap: anywhere; }
.columns { display: grid; grid-template-columns: repeat(auto-fill, minmax(460px, 1fr)); gap: 14px; }
.column { border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; min-width: 0; }
.column.different { border-color: var(--different); }
.column header { display: flex; justify-content: space-between; gap: 12px; margin-bottom: 6px; }
.column header b { overflow-wrap: anywhere; }
.column .inside { display: flex; gap: 16px; } .column table { font-size: 13px; }
.column th, .column td { padding: 2px 8px 2px 0; border: 0; } .column td { overflow-wrap: anywhere; }
.side-a { color: var(--a); } .side-b { color: var(--b); }
figure { margin: 0; } figcaption { font-size: 12px; color: var(--soft); }
footer { color: var(--soft); font-size: 13px; }
@media (max-width: 560px) { .columns { grid-template-columns: 1fr; }
  .column .inside { flex-direction: column; } }
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""


def html_page(report: Report) -> str:
    """Return a report as one page."""
    parts = [_banner(report), *(_section(result) for result in report.results)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + f"\n<footer>Written by petastorm-bridge {__version__}, command parity."
        + "".join(f"<br>{escape(text)}" for text in report.made)
        + "</footer>\n"
        "</main>\n</body>\n</html>\n"
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
        inner = f"<h3>At a glance</h3><table>{rows}</table>{inner}"
    more = f"<section>{inner}{problems}</section>" if inner or problems else ""
    return (
        f'<section class="banner {kinds[report.exit_code]}"><h1>{verdicts[report.exit_code]}</h1>'
        f"<p>{escape(report.title)}</p></section>{more}"
    )


def _glance(result: Result) -> str:
    """Return one line for a comparison: who, how it went, and what was allowed or broken."""
    state = State.SAME if result.same else State.DIFFERENT
    names = f"{escape(result.a.label)} and {escape(result.b.label)}"
    said = [f"{result.a.rows:,} and {result.b.rows:,} rows"]
    said += [
        f"{promise.promise.value} {_GLANCE[promise.state]}"
        for promise in result.promises
        if promise.state is not State.SAME
    ]
    return f"<tr><td><b>{names}</b></td><td>{_state(state)}</td><td>{', '.join(said)}</td></tr>"


def _section(result: Result) -> str:
    word = "give the same batches" if result.same else "do not give the same batches"
    heading = f"{escape(result.a.label)} and {escape(result.b.label)} {word}"
    parts = [f"<section><h2>{heading}</h2>", _sides(result), _promises(result)]
    failure = result.first_failure
    if failure is not None:
        parts.append(f'<div class="first"><b>First difference.</b> {escape(failure.message)}')
        for side, value in ((result.a, failure.a), (result.b, failure.b)):
            if value is not None:
                parts.append(f"<br>{escape(side.label)}: <code>{escape(value)}</code>")
        parts.append("</div>")
    if result.hint:
        parts.append(
            f'<div class="note">They are the same with <code>{escape(result.hint)}</code>.</div>'
        )
    parts += [f'<div class="note">{escape(note)}</div>' for note in result.notes]
    parts.append(f'<p class="meaning">Rules: {escape(result.rules_text)}.</p>')
    parts += [_columns(result), "</section>"]
    return "\n".join(parts)


def _sides(result: Result) -> str:
    rows = "".join(
        f'<tr><td><b class="{css}">{escape(side.label)}</b></td>'
        f'<td class="number">{side.rows:,}</td><td class="number">{side.batches:,}</td>'
        f'<td class="number">{len(side.ranks)}</td>'
        f"<td><code>{escape(side.source)}</code>"
        f'<div class="meaning">{escape(_versions(side))}</div></td></tr>'
        for side, css in ((result.a, "side-a"), (result.b, "side-b"))
    )
    return (
        "<h3>What was compared</h3><table><tr><th></th><th>rows</th><th>batches</th><th>ranks</th>"
        f"<th>loader and versions</th></tr>{rows}</table>"
    )


def _versions(side: Side) -> str:
    return ", ".join(f"{name} {version}" for name, version in side.versions.items())


def _promises(result: Result) -> str:
    rows = "".join(_promise(promise) for promise in result.promises)
    return f"<h3>Promises</h3><table>{rows}</table>"


def _promise(promise: PromiseResult) -> str:
    name, meaning = promise.promise.value, MEANING[promise.promise]
    said = "".join(
        f'<div class="meaning">{escape(f.message)}'
        + (f" (allowed: {escape(f.allowed)})" if f.allowed else "")
        + "</div>"
        for f in promise.findings[:3]
    )
    return (
        f"<tr><td><b>{name}</b><div class='meaning'>{escape(meaning)}</div></td>"
        f"<td>{_state(promise.state)}</td><td>{escape(promise.summary)}{said}</td></tr>"
    )


def _state(state: State) -> str:
    return f'<span class="state {state.value}">{_MARKS[state]} {_WORDS[state]}</span>'


def _columns(result: Result) -> str:
    if not any(column.a or column.b for column in result.columns):
        return ""
    # Differing columns first: a page is read from its top.
    ordered = sorted(result.columns, key=lambda column: column.state is not State.DIFFERENT)
    cards = "\n".join(_column(result, column) for column in ordered[:_MOST_COLUMNS])
    left_out = len(ordered) - _MOST_COLUMNS
    more = f"<p class='meaning'>{left_out} more columns.</p>" if left_out > 0 else ""
    return f'<h3>Columns</h3><div class="columns">{cards}</div>{more}'


def _column(result: Result, column: ColumnResult) -> str:
    sides = (column.a, column.b)
    rows = [
        ("type", [f"{p.dtype}{p.shape}" if p else "missing" for p in sides]),
        ("missing", [_missing(p) for p in sides]),
        ("least", [p.least if p else "" for p in sides]),
        ("greatest", [p.greatest if p else "" for p in sides]),
    ]
    table = "".join(
        f"<tr><th>{name}</th>" + "".join(f"<td>{escape(text)}</td>" for text in texts) + "</tr>"
        for name, texts in rows
        if any(texts)
    )
    said = _said(result, column)
    heads = (
        f'<tr><th></th><th class="side-a">{escape(result.a.label)}</th>'
        f'<th class="side-b">{escape(result.b.label)}</th></tr>'
    )
    return (
        f'<article class="column {column.state.value}"><header><b>{escape(column.name)}</b>'
        f"{_state(column.state)}</header><div class='inside'><table>{heads}{table}</table>"
        f"{_figures(result, column)}</div>{said}</article>"
    )


def _said(result: Result, column: ColumnResult) -> str:
    """Say how a column differs, and show the values of its first row that does."""
    texts = [f"another {column.schema}" if column.schema not in {"", "missing"} else column.schema]
    if column.differing:
        number, verb = column.differing, "differs" if column.differing == 1 else "differ"
        share = number / max(1, column.compared)
        text = f"{number:,} of {counted(column.compared, 'row')} {verb} ({share:.2%})"
        texts.append(f"{text}; {column.how_far}" if column.how_far else text)
    said = "; ".join(filter(None, texts))
    values = ""
    if column.first is not None:
        place, one, other = column.first
        values = f"<br>{escape(place)}: <span class='side-a'>{escape(result.a.label)}</span> "
        values += (
            f"<code>{escape(one)}</code>, <span class='side-b'>{escape(result.b.label)}</span> "
        )
        values += f"<code>{escape(other)}</code>"
    return f"<p class='meaning'>{escape(said)}{values}</p>" if said else ""


def _missing(profile: Profile | None) -> str:
    if profile is None:
        return ""
    words = [f"{profile.nulls:,} null" if profile.nulls else ""]
    words.append(f"{profile.nans:,} NaN" if profile.nans else "")
    return ", ".join(filter(None, words)) or "none"


def _figures(result: Result, column: ColumnResult) -> str:
    sides = [(column.a, "a", result.a.label), (column.b, "b", result.b.label)]
    highest = max((max(p.bins) for p, *_ in sides if p and p.bins), default=0)
    if not highest:
        return ""
    drawn = "".join(
        _histogram(p.bins, highest, css, f"{column.measures} of {column.name}, {label}")
        for p, css, label in sides
        if p and p.bins
    )
    return f"<figure>{drawn}<figcaption>{column.measures}</figcaption></figure>"


def _histogram(bins: tuple[int, ...], highest: int, css: str, title: str) -> str:
    step = _WIDTH / len(bins)
    bars = "".join(
        f'<rect x="{i * step:.1f}" y="{_HEIGHT - n / highest * _HEIGHT:.1f}" '
        f'width="{max(1.0, step - 1):.1f}" height="{n / highest * _HEIGHT:.1f}"/>'
        for i, n in enumerate(bins)
        if n
    )
    return (
        f'<svg role="img" width="{_WIDTH}" height="{_HEIGHT + 1}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT + 1}" fill="var(--{css})"><title>{escape(title)}</title>'
        f'<path d="M0 {_HEIGHT + 0.5}H{_WIDTH}" stroke="var(--line)"/>{bars}</svg>'
    )
