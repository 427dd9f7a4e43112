"""Of the page: some rows that differ, both sides one above the other."""

from __future__ import annotations

from html import escape

from petastorm_bridge.parity._comparing.describe import counted
from petastorm_bridge.parity._result import Result, Sample

__all__ = ["rows_part"]

# More columns do not fit beside each other on a screen: each row is a block then.
_MOST_BESIDE = 8


def rows_part(result: Result) -> str:
    """Return a table of the rows; empty if none differs."""
    if not result.samples:
        return ""
    names = "".join(f"<th>{escape(name)}</th>" for name in result.sample_columns)
    many = len(result.sample_columns) > _MOST_BESIDE
    rows = "".join(_sample(result, sample, many=many) for sample in result.samples)
    differing = sum(column.differing > 0 for column in result.columns)
    shown = sum(
        column.differing > 0 for column in result.columns if column.name in result.sample_columns
    )
    others = differing - shown
    more = (
        f" {counted(others, 'more column')} {'differs' if others == 1 else 'differ'}."
        if others
        else ""
    )
    told = "those that differ in the row" if many else "the columns that differ"
    return (
        "<h3>Rows that differ</h3><div class='wide' tabindex='0'>"
        f"<table class='{'rows many' if many else 'rows'}'><thead><tr><th>side</th><th>where</th>{names}</tr></thead>{rows}</table></div>"
        f"<p class='meaning'>The first few: some columns that agree, then {told}.{more}"
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
