"""The histograms of both sides of a column in one drawing, with axes."""

from __future__ import annotations

from html import escape

from petastorm_bridge.parity._result import ColumnResult

__all__ = ["histogram"]

_LEFT, _TOP, _WIDTH, _HEIGHT = 44, 8, 288, 72
_ROOM_BELOW = 16


def histogram(column: ColumnResult, labels: tuple[str, str]) -> str:
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
