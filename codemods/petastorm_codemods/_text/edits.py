"""Applying edits to text."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

from petastorm_codemods._model import Edit, Piece


def overlaps(edits: Iterable[Edit]) -> bool:
    """Say whether two edits replace the same character, or insert into what another replaces."""
    last = 0
    for edit in sorted(edits):
        if edit.start < last:
            return True
        last = max(last, edit.end)
    return False


class Edits:
    """Edits that do not overlap, as they are accepted one after the other.

    Those made of pieces may have others within them.
    """

    def __init__(self) -> None:
        self._plain: list[Edit] = []
        self._starts: list[tuple[int, int]] = []  # of edits made of pieces: start, end
        self._ends: list[tuple[int, int]] = []  # end, start
        self._known: set[Edit] = set()

    def __contains__(self, edit: Edit) -> bool:
        return edit in self._known

    def add(self, edits: Sequence[Edit]) -> bool:
        """Accept all of some edits, or none where one overlaps another; say which."""
        for number, edit in enumerate(edits):
            if self._is_free(edit):
                self._insert(edit)
                continue
            for each in edits[:number]:
                self._remove(each)
            return False
        self._known.update(edits)
        return True

    def _is_free(self, edit: Edit) -> bool:
        start, end = edit.start, edit.end
        # Plain edits lie apart: those that overlap this one follow each other.
        first = bisect.bisect_right(self._plain, start, key=lambda each: each.end)
        last = bisect.bisect_left(self._plain, end, key=lambda each: each.start)
        inner = self._plain[first:last]
        if inner and not (edit.pieces and inner[0].start >= start and inner[-1].end <= end):
            return False
        return not self._crosses(edit)

    def _crosses(self, edit: Edit) -> bool:
        """Say whether one made of pieces is neither within an edit, nor around it, nor apart."""
        start, end = edit.start, edit.end
        starting = self._starts[_place(self._starts, start) : _place(self._starts, end)]
        ending = self._ends[_place(self._ends, start + 1) : _place(self._ends, end)]
        return any(other_start < start for _, other_start in ending) or any(
            not edit.pieces if other_end <= end else other_start > start
            for other_start, other_end in starting
        )

    def _insert(self, edit: Edit) -> None:
        if edit.pieces:
            bisect.insort(self._starts, (edit.start, edit.end))
            bisect.insort(self._ends, (edit.end, edit.start))
        else:
            bisect.insort(self._plain, edit)

    def _remove(self, edit: Edit) -> None:
        if edit.pieces:
            self._starts.remove((edit.start, edit.end))
            self._ends.remove((edit.end, edit.start))
        else:
            del self._plain[bisect.bisect_left(self._plain, edit)]


def _place(spans: Sequence[tuple[int, int]], first: int) -> int:
    """Return how many pairs have a smaller first number, of some that are in order."""
    return bisect.bisect_left(spans, (first, 0))


def resolved(edits: Iterable[Edit], text: str) -> list[Edit]:
    """Return edits with the same effect of which none is made of pieces.

    Args:
        edits: Those made of pieces may have others within them, which change what is kept of the
            source there.
        text: The text of the source.
    """
    result: list[Edit] = []
    around: list[tuple[Edit, list[Edit]]] = []

    def close(position: int) -> None:
        while around and around[-1][0].end <= position:
            edit, inner = around.pop()
            whole = "".join(_filled(piece, inner, text) for piece in edit.pieces)
            made = Edit(edit.start, edit.end, whole, lines=edit.lines)
            (around[-1][1] if around else result).append(made)

    # Insertions at the edge of an edit are outside of it.
    for edit in sorted(edits, key=_outer_first):
        close(edit.start)
        inside = bool(around) and (edit.start > around[-1][0].start or edit.start < edit.end)
        if edit.pieces:
            around.append((edit, []))
        else:
            (around[-1][1] if inside else result).append(edit)
    close(len(text) + 1)
    return result


def _outer_first(edit: Edit) -> tuple[int, bool, int, bool]:
    return edit.start, edit.start < edit.end, -edit.end, not edit.pieces


def _filled(piece: Piece, edits: Sequence[Edit], text: str) -> str:
    """Return a piece as it is after the edits within it."""
    if isinstance(piece, str):
        return piece
    start, end = piece
    inside = [each for each in edits if start <= each.start and each.end <= end]
    return apply_edits(text, inside, start, end)


def apply_edits(text: str, edits: Sequence[Edit], start: int = 0, end: int | None = None) -> str:
    """Return the text, or a part of it, with edits made; insertions at one place keep their order.

    Args:
        text: What the edits' places are in.
        edits: All within the part.
        start: Where the part begins.
        end: Where it ends; None for the end of the text.

    Raises:
        ValueError: Two edits overlap.
    """
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    if overlaps(ordered):
        raise ValueError("two rewrites want to change the same code")
    parts, position = [], start
    for edit in ordered:
        parts += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*parts, text[position:end]])
