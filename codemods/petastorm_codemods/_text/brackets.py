"""The brackets of a statement, and what commas part within them."""

from __future__ import annotations

import tokenize
from collections.abc import Iterator, Sequence

from .tokens import tokens_of

OPENING, CLOSING = "([{", ")]}"


def _brackets(line: str) -> Iterator[tuple[int, str]]:
    """Yield the columns of the brackets and commas of a line, and which they are."""
    for kind, text, (_, column), _, _ in tokens_of(line):
        if kind == tokenize.OP and text in OPENING + CLOSING + ",":
            yield column, text


def openings(line: str) -> list[int]:
    """Return the columns of the opening brackets of a line."""
    return [at for at, text in _brackets(line) if text in OPENING]


def outermost_pairs(line: str) -> list[tuple[int, int]]:
    """Return the outermost pairs of brackets; one that is open at the end, or was before, counts not."""
    pairs, open_brackets = [], []
    for at, text in _brackets(line):
        if text in OPENING:
            open_brackets.append(at)
        elif text in CLOSING and open_brackets:
            opened = open_brackets.pop()
            if not open_brackets:
                pairs.append((opened, at))
    return pairs


def at_commas(body: str) -> list[str]:
    """Return what commas part in the content of brackets."""
    depth, start, parts = 0, 0, []
    for at, text in _brackets(body):
        if text == ",":
            if not depth:
                parts.append(body[start:at].strip())
                start = at + 1
        else:
            depth += 1 if text in OPENING else -1
    last = body[start:].strip()
    return [*parts, last] if last else parts


def brackets_open_after(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return line (from 1) and column of the brackets that are open after some lines."""
    open_brackets: list[tuple[int, int]] = []
    for kind, text, place, _, _ in tokens_of("\n".join(lines)):
        if kind == tokenize.OP and text in OPENING:
            open_brackets.append(place)
        elif kind == tokenize.OP and text in CLOSING and open_brackets:
            open_brackets.pop()
    return open_brackets
