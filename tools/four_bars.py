"""The picture of four bars, from the recorded benchmark run: how fast one loop gets its rows."""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._figures import figure
from benchmarks._settings import RESULTS

__all__ = ["FOUR", "four_bars", "rows_a_second"]

RACE = "torch-sequential"
# What the measurements call them, and how the picture does.
FOUR = {
    "bridge DataLoader": "petastorm_bridge",
    "petastorm BatchedDataLoader": "Petastorm, BatchedDataLoader",
    "petastorm DataLoader": "Petastorm, DataLoader",
    "native StreamingDataLoader, 0 workers": "StreamingDataLoader",
}
_WIDTH, _LEFT, _LONGEST, _HEIGHT, _STEP = 760, 260, 380, 22, 36
_TOP = 44
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


def rows_a_second() -> dict[str, float]:
    """Return the recorded medians of the four, by the picture's names, in its order."""
    run = json.loads(RESULTS.read_text(encoding="utf-8"))
    found = {one["name"]: one["median"] for one in run["measurements"] if one["group"] == RACE}
    return {shown: found[name] for name, shown in FOUR.items()}


def four_bars() -> str:
    """Return the picture as SVG, readable on light and dark: lengths are proportional to rows a second."""
    medians = rows_a_second()
    height = _TOP + _STEP * len(medians) + 8
    title = (
        "Rows a second in a loop over make_torch_dataloader, 13 numeric columns (more is better)"
    )
    size, sides = f"{_WIDTH} {height}", f'width="{_WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" {sides} role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="8" y="24">{escape(title)}</text>',
    ]
    for place, (name, median) in enumerate(medians.items()):
        y = _TOP + _STEP * place
        length = max(1.0, _LONGEST * median / max(medians.values()))
        kind = "bar ours" if place == 0 else "bar"
        lines += [
            f'<text x="{_LEFT - 10}" y="{y + 16}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_HEIGHT}"/>',
            f'<text x="{_LEFT + length + 8:.1f}" y="{y + 16}">{figure(median, 2)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
