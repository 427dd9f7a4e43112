"""Applying edits to text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ._model import Edit


def overlaps(edits: Iterable[Edit]) -> bool:
    """Say whether two edits replace the same character, or insert into what another replaces."""
    last = 0
    for edit in sorted(edits):
        if edit.start < last:
            return True
        last = max(last, edit.end)
    return False


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
