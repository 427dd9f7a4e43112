"""Of the page: some rows that differ, both sides one above the other."""

from __future__ import annotations

from html import escape

from petastorm_bridge.parity._comparing.describe import counted
from petastorm_bridge.parity._result import Result, Sample

__all__ = ["rows_part"]


def rows_part(result: Result) -> str:
    """Return a table of the rows; empty if none differs."""
    if not result.samples:
        return ""
    names = "".join(f"<th>{escape(name)}</th>" for name in result.sample_columns)
    rows = "".join(_sample(result, sample) for sample in result.samples)
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
    return (
        "<h3>Rows that differ</h3><div class='wide' tabindex='0'><table class='rows'>"
        f"<thead><tr><th>side</th><th>where</th>{names}</tr></thead>{rows}</table></div>"
        f"<p class='meaning'>The first few, with the columns that differ behind some that agree.{more}"
        "</p>"
    )


def _sample(result: Result, sample: Sample) -> str:
    lines = ""
    for label, css, place, values in (
        (result.a.label, "side-a", sample.place_a, sample.a),
        (result.b.label, "side-b", sample.place_b, sample.b),
    ):
        lines += (
            f"<tr><td class='{css}'>{escape(label)}</td><td>{escape(place or 'not there')}</td>"
        )
        cells = zip(result.sample_columns, values, sample.differs, strict=True)
        for name, value, differs in cells:
            mark = " class='wrong'" if differs else ""
            lines += f"<td{mark} data-heading='{escape(name)}'><code>{escape(value)}</code></td>"
        lines += "</tr>"
    return f"<tbody>{lines}</tbody>"
