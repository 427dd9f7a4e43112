"""Applying edits to text."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

from petastorm_codemods._model import Edit


def overlaps(edits: Iterable[Edit]) -> bool:
    """Say whether two edits replace the same character, or insert into what another replaces."""
    last = 0
    for edit in sorted(edits):
        if edit.start < last:
            return True
        last = max(last, edit.end)
    return False


class Edits:
    """Edits that do not overlap, as they are accepted one after the other."""

    def __init__(self) -> None:
        self._ordered: list[Edit] = []
        self._known: set[Edit] = set()

    def __contains__(self, edit: Edit) -> bool:
        return edit in self._known

    def add(self, edits: Sequence[Edit]) -> bool:
        """Accept all of some edits, or none where one overlaps another; say which."""
        for number, edit in enumerate(edits):
            place = bisect.bisect_right(self._ordered, edit)
            before, after = (
                self._ordered[max(place - 1, 0) : place],
                self._ordered[place : place + 1],
            )
            if any(each.end > edit.start for each in before) or any(
                each.start < edit.end for each in after
            ):
                for each in edits[:number]:
                    del self._ordered[bisect.bisect_left(self._ordered, each)]
                return False
            self._ordered.insert(place, edit)
        self._known.update(edits)
        return True


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Return the text with all edits made; insertions at one place keep their order.

    Raises:
        ValueError: Two edits overlap.
    """
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    if overlaps(ordered):
        raise ValueError("two rewrites want to change the same code")
    parts, position = [], 0
    for edit in ordered:
        parts += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*parts, text[position:]])
