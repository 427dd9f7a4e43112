"""Of the page: the columns, those that differ in a table, all of them as cards with a histogram."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from petastorm_bridge.parity._result import ColumnResult, Profile, Result, State
from petastorm_bridge.parity.recorder import counted

_MARKS = {State.SAME: "✓", State.DIFFERENT: "✗", State.ALLOWED: "!", State.UNCHECKED: "–"}
_MOST_CARDS = 200
_FEW = 12  # columns that are shown unfolded and without a filter
# Of a histogram, in pixels.
_LEFT, _TOP, _WIDTH, _HEIGHT = 44, 8, 288, 72
_ROOM_BELOW = 16


def columns_part(result: Result) -> str:
    """Return everything about columns; empty if nothing is known of any."""
    if not any(column.a or column.b for column in result.columns):
        return ""
    differing = result.differing
    others = [column for column in result.columns if column.state is not State.DIFFERENT]
    number = len(result.columns)
    parts = ["<h3>Columns</h3><div class='all-columns'>"]
    if number > _FEW:
        parts += [
            "<div class='filter'><label>Filter <input type='search' placeholder='part of a name' ",
            f"data-columns='{number}'></label><span class='found meaning'></span></div>",
        ]
    if differing:
        parts.append(_table(result, differing))
        words = f"{counted(len(differing), 'column')} that {'differs' if len(differing) == 1 else 'differ'}"
        parts.append(
            _cards(result, differing, f"{words}, in detail", unfolded=len(differing) <= _FEW)
        )
    if others:
        words = f"{counted(len(others), 'column')} without a difference"
        parts.append(_cards(result, others, words, unfolded=not differing and len(others) <= _FEW))
    return "\n".join([*parts, "</div>"])


def state_mark(state: State) -> str:
    """Return how something fared, as a coloured word with a mark."""
    return f'<span class="state {state.value}">{_MARKS[state]} {state.word}</span>'


def _heads(result: Result) -> str:
    """Return the labels of both sides as cells of a table's head."""
    return (
        f'<th class="side-a">{escape(result.a.label)}</th>'
        f'<th class="side-b">{escape(result.b.label)}</th>'
    )


def _table(result: Result, differing: Sequence[ColumnResult]) -> str:
    """Return a line for each column that differs: how, where first, and what would accept it."""
    rows = ""
    for column in differing:
        place, one, other = column.first or ("", "", "")
        values = "".join(
            f"<td data-heading='{escape(side.label)}'><code>{escape(text)}</code></td>"
            for side, text in ((result.a, one), (result.b, other))
        )
        accepted = f"<code>{escape(column.accepted)}</code>" if column.accepted else ""
        rows += (
            f"<tr data-column='{escape(column.name)}'><td><b>{escape(column.name)}</b></td>"
            f"<td>{escape(difference(result, column))}</td>"
            f"<td data-heading='first in'>{escape(place)}</td>{values}"
            f"<td data-heading='accepted by'>{accepted}</td></tr>"
        )
    return (
        "<div class='wide' tabindex='0'><table class='differing'><thead><tr><th>column</th>"
        f"<th>difference</th><th>first in</th>{_heads(result)}<th>accepted by</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cards(result: Result, columns: Sequence[ColumnResult], words: str, *, unfolded: bool) -> str:
    cards = "\n".join(_card(result, column) for column in columns[:_MOST_CARDS])
    left_out = len(columns) - _MOST_CARDS
    more = f"<p class='meaning'>{counted(left_out, 'more column')}.</p>" if left_out > 0 else ""
    opened = " open" if unfolded else ""
    return (
        f"<details{opened}><summary>{escape(words)}</summary>"
        f'<div class="columns">{cards}</div>{more}</details>'
    )


def _card(result: Result, column: ColumnResult) -> str:
    sides = (column.a, column.b)
    lengths = column.measures == "lengths"
    rows = [
        ("dtype", [f"{p.dtype}{p.shape}" if p else "not there" for p in sides]),
        ("missing", [_missing(p) for p in sides]),
        ("shortest" if lengths else "least", [p.least if p else "" for p in sides]),
        ("longest" if lengths else "greatest", [p.greatest if p else "" for p in sides]),
    ]
    table = "".join(
        f"<tr><th>{name}</th>" + "".join(f"<td>{escape(text)}</td>" for text in texts) + "</tr>"
        for name, texts in rows
        if any(texts)
    )
    message = difference(result, column)
    return (
        f'<article class="column {column.state.value}" data-column="{escape(column.name)}">'
        f"<header><b>{escape(column.name)}</b>{state_mark(column.state)}</header>"
        f"<table><tr><th></th>{_heads(result)}</tr>{table}</table>"
        f"{_histogram(column, (result.a.label, result.b.label))}"
        + (f"<p class='meaning'>{escape(message)}</p>" if message else "")
        + "</article>"
    )


def difference(result: Result, column: ColumnResult) -> str:
    """Say in words how a column differs; empty if it does not."""
    texts = [_schema(result, column)]
    if column.differing:
        verb = "differs" if column.differing == 1 else "differ"
        share = column.differing / max(1, column.compared)
        text = f"{column.differing:,} of {counted(column.compared, 'row')} {verb} ({share:.2%})"
        texts.append(f"{text}; {column.how_far}" if column.how_far else text)
    elif column.schema and not column.compared:
        texts.append("its values are not compared")
    return "; ".join(filter(None, texts))


def _schema(result: Result, column: ColumnResult) -> str:
    """Say what differs besides values."""
    if not column.schema:
        return ""
    if column.schema == "missing":
        for profile, label in ((column.a, result.a.label), (column.b, result.b.label)):
            if profile is None:
                return f"not there in {label}"
        return "not there in some batches"
    if column.a is not None and column.b is not None:
        texts = [
            p.dtype if column.schema == "dtype" else p.shape or "[]" for p in (column.a, column.b)
        ]
        if column.schema != "form" and texts[0] != texts[1]:
            return f"{column.schema} {texts[0]} and {texts[1]}"
    return f"another {column.schema}"


def _missing(profile: Profile | None) -> str:
    if profile is None:
        return ""
    words = [f"{profile.nulls:,} null" if profile.nulls else ""]
    words.append(f"{profile.nans:,} NaN" if profile.nans else "")
    return ", ".join(filter(None, words)) or "none"


def _histogram(column: ColumnResult, labels: tuple[str, str]) -> str:
    """Return a drawing with bars for the first side and an outline for the second; empty without counts."""
    sides = [
        (profile.bins, css, label)
        for profile, css, label in zip((column.a, column.b), "ab", labels, strict=True)
        if profile and profile.bins
    ]
    highest = max((max(bins) for bins, *_ in sides), default=0)
    if not highest:
        return ""
    drawn = "".join(
        f'<path class="bars-{css}" d="{_outline(bins, highest)}"/>' for bins, css, _ in sides
    )
    names = " and ".join(label for *_, label in sides)
    title = f"{column.measures} of {column.name}: {names}"
    bottom, right = _TOP + _HEIGHT, _LEFT + _WIDTH
    return (
        f'<figure><svg role="img" viewBox="0 0 {right + 8} {bottom + _ROOM_BELOW}">'
        f"<title>{escape(title)}</title>{drawn}"
        f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>'
        f'<text x="{_LEFT - 4}" y="{_TOP + 8}" text-anchor="end">{_short(highest)}</text>'
        f'<text x="{_LEFT - 4}" y="{bottom}" text-anchor="end">0</text>'
        f'<text x="{_LEFT}" y="{bottom + 12}">{escape(column.axis[0])}</text>'
        f'<text x="{right}" y="{bottom + 12}" text-anchor="end">{escape(column.axis[1])}</text>'
        f"</svg><figcaption>{column.measures}: bars <span class='side-a'>{escape(labels[0])}</span>, "
        f"line <span class='side-b'>{escape(labels[1])}</span></figcaption></figure>"
    )


def _outline(bins: tuple[int, ...], highest: int) -> str:
    """Return the outline of all bars as a path; where nothing is counted it is on the axis."""
    step, bottom = _WIDTH / len(bins), _TOP + _HEIGHT
    parts = [f"M{_LEFT} {bottom}"]
    for number, count in enumerate(bins):
        height = count / highest * _HEIGHT
        parts.append(f"V{bottom - height:.1f}H{_LEFT + (number + 1) * step:.1f}")
    return "".join([*parts, f"V{bottom}"])


def _short(number: int) -> str:
    """Write a count in few characters."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if number >= size:
            return f"{number / (1000 if unit == 'k' else size):.3g}{unit}"
    return f"{number:,}"
