"""Pictures of bars, from the recorded benchmark run: four for the README, and one for each subject of its races."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._command import figure
from benchmarks._settings import COSTS, RESULTS, SUBJECTS, TITLES

__all__ = ["best_first", "four_bars", "rows_a_second", "subject_path", "subject_pictures"]

_RACE = "torch-sequential"
# What the measurements call them, and how the picture does.
_FOUR = {
    "bridge DataLoader": "petastorm_bridge",
    "petastorm BatchedDataLoader": "Petastorm, BatchedDataLoader",
    "petastorm DataLoader": "Petastorm, DataLoader",
    "native StreamingDataLoader, 0 workers": "StreamingDataLoader",
}
# How the names of this project's contestants begin.
_OURS = (
    "bridge",
    "columnar",
    "converted, Columnar",
    "mapped",
    "MappedStreamingDataset",
    "petastorm-bridge",
    "petastorm_bridge",
)
_LONGEST, _HEIGHT, _STEP, _HEADING = 380, 18, 28, 40
# A letter of names, and of headings, is at most so wide on average, whatever font there is.
_LETTER, _BOLD_LETTER = 7.7, 8.3
_STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; }
  .bar { fill: #8c959f; }
  .ours { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .bar { fill: #6e7681; }
    .ours { fill: #4493f8; }
  }
"""


@dataclass(frozen=True)
class _Panel:
    """Bars that are compared with each other: their names, and figures that their lengths are proportional to."""

    title: str
    bars: dict[str, float]


def rows_a_second() -> dict[str, float]:
    """Return the recorded medians of the four, by the picture's names, in its order."""
    found = {one["name"]: one["median"] for one in _recorded() if one["group"] == _RACE}
    return {shown: found[name] for name, shown in _FOUR.items()}


def four_bars() -> str:
    """Return the README's picture as SVG."""
    title = (
        "Rows a second in a loop over make_torch_dataloader, 13 numeric columns (more is better)"
    )
    return _picture(title, [_Panel(title, rows_a_second())])


def subject_pictures() -> dict[str, Callable[[], str]]:
    """Return what draws the picture of each subject, by the place that it has below the guide."""
    return {subject_path(one): functools.partial(_subject_bars, one) for one in SUBJECTS}


def _subject_bars(subject: str) -> str:
    """Return the picture of the races of one subject as SVG."""
    panels = []
    for group in SUBJECTS[subject]:
        race = best_first([one for one in _recorded() if one["group"] == group])
        if race:
            unit = race[0]["unit"]
            better = "less" if unit in COSTS else "more"
            bars = {one["name"]: one["median"] for one in race}
            panels.append(_Panel(f"{TITLES[group]}: {unit}, {better} is better", bars))
    return _picture(subject, panels)


def subject_path(subject: str) -> str:
    """Return where a subject's picture lies, below the guide."""
    name = "".join(letter if letter.isalnum() else "_" for letter in subject.lower())
    return f"images/speed_{name}.svg"


def best_first(race: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the measurements of a race in the order of their medians."""
    return sorted(race, key=lambda one: one["median"] * (1 if one["unit"] in COSTS else -1))


def _recorded() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))["measurements"]
    return found


def _picture(title: str, panels: Sequence[_Panel]) -> str:
    """Readable on light and dark, and in any font."""
    names = max(len(name) for panel in panels for name in panel.bars)
    left = 24 + round(_LETTER * names)
    headings = 16 + round(_BOLD_LETTER * max(len(panel.title) for panel in panels))
    width = max(left + _LONGEST + 100, headings)
    lines: list[str] = []
    y = 0
    for panel in panels:
        lines.append(f'<text class="title" x="8" y="{y + 24}">{escape(panel.title)}</text>')
        y += _HEADING
        longest = max(panel.bars.values())
        for name, value in panel.bars.items():
            length = max(1.0, _LONGEST * value / longest)
            kind = "bar ours" if name.startswith(_OURS) else "bar"
            lines += [
                f'<text x="{left - 10}" y="{y + 14}" text-anchor="end">{escape(name)}</text>',
                f'<rect class="{kind}" x="{left}" y="{y}" width="{length:.1f}" height="{_HEIGHT}"/>',
                f'<text x="{left + length + 8:.1f}" y="{y + 14}">{figure(value, 2)}</text>',
            ]
            y += _STEP
        y += 12
    size, sides = f"{width} {y}", f'width="{width}" height="{y}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" {sides} role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
    ]
    return "\n".join([*head, *lines, "</svg>", ""])
