"""One statement on one line, and that line broken into several."""

from __future__ import annotations

import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from petastorm_codemods._text.brackets import (
    CLOSING,
    OPENING,
    at_commas,
    openings,
    outermost_pairs,
)
from petastorm_codemods._text.tokens import lines_of, tokens_of


@dataclass(frozen=True)
class Style:
    """How a file is laid out.

    Attributes:
        limit: Characters in a line.
        unit: One level of indentation.
        newline: How lines end.
    """

    limit: int
    unit: str
    newline: str


def with_parentheses(line: str) -> str:
    """Return an import of names with the parentheses that let it be broken."""
    head, word, names = line.partition(" import ")
    if not head.startswith("from ") or not word or names.startswith(("(", "*")):
        return line
    return f"{head} import ({names})"


@dataclass(frozen=True)
class _Flat:
    """A statement on one line.

    Attributes:
        line: Its text, without indentation.
        exploded: Numbers of the opening brackets, counted from the left, whose content had a comma
            at its end before the closing bracket's line: each of it stays on a line of its own.
    """

    line: str
    exploded: frozenset[int]


def flattened(statement: str) -> _Flat | None:
    """Return a statement on one line; None if that would lose something or cannot be told."""
    lines = lines_of(statement)
    tokens = [token for token in tokens_of(statement) if token.string.strip()]
    known = {tokenize.OP, tokenize.NAME, tokenize.NUMBER, tokenize.STRING}
    broken = any(token.start[0] != token.end[0] for token in tokens)
    if broken or any(line.endswith("\\") for line in lines) or {t.type for t in tokens} - known:
        return None
    parts: list[str] = []
    open_brackets: list[int] = []
    exploded: set[int] = set()
    seen = 0
    for last, token in zip([None, *tokens], tokens, strict=False):
        text = token.string
        same_line = last is not None and last.end[0] == token.start[0]
        if text in CLOSING and open_brackets:
            opened = open_brackets.pop()
            if not same_line and parts[-1] == ",":
                exploded.add(opened)
                if not _is_one_tuple([part for part in parts if part.strip()]):
                    parts.pop()
        if last is not None:
            parts.append(_space(last, token, lines))
        parts.append(text)
        if text in OPENING:
            open_brackets.append(seen)
            seen += 1
    return _Flat("".join(parts), frozenset(exploded))


def _space(last: tokenize.TokenInfo, token: tokenize.TokenInfo, lines: Sequence[str]) -> str:
    """Return what is between two tokens on one line."""
    if last.end[0] == token.start[0]:
        return lines[token.start[0] - 1][last.end[1] : token.start[1]]
    return "" if token.string in CLOSING or last.string in OPENING else " "


def _is_one_tuple(parts: Sequence[str]) -> bool:
    """Say whether a comma at the end of parts may make a tuple of one; calls have no such thing."""
    depth = 0
    for number in range(len(parts) - 2, -1, -1):
        if parts[number] in CLOSING:
            depth += 1
        elif parts[number] in OPENING:
            if depth:
                depth -= 1
                continue
            before = parts[number - 1] if number else ""
            return parts[number] == "(" and not (before.isidentifier() or before in CLOSING)
        elif parts[number] == "," and not depth:
            return False
    return False


class Splitter:
    """Breaks one line into several, as Black does with calls: the last bracket first."""

    def __init__(self, style: Style, exploded: frozenset[int]) -> None:
        self._style = style
        self._exploded = exploded

    def split(self, line: str, indent: str, first: int = 0) -> list[str]:
        """Return the lines of a line; `first` is the number of its first opening bracket."""
        pairs = outermost_pairs(line)
        numbers = {at: first + number for number, at in enumerate(openings(line))}
        must = [number for number in numbers.values() if number in self._exploded]
        outer = [pair for pair in pairs if line[pair[0] + 1 : pair[1]].strip()]
        if not outer or (not must and len(indent) + len(line) <= self._style.limit):
            return [indent + line]
        opening, closing = self._best(line, indent, outer, numbers if must else {})
        head, body, tail = line[: opening + 1], line[opening + 1 : closing], line[closing:]
        heads = self.split(head, indent, first)
        number = numbers[opening]
        inner = self._body(body.strip(), indent + self._style.unit, number, head)
        return [*heads, *inner, indent + tail]

    def _best(
        self,
        line: str,
        indent: str,
        pairs: Sequence[tuple[int, int]],
        numbers: dict[int, int],
    ) -> tuple[int, int]:
        """Return the brackets to break: the last ones, unless others alone make the line fit.

        Args:
            line: The line.
            indent: Its indentation.
            pairs: Its outermost brackets.
            numbers: By place, the brackets of which some must be broken; empty if none must.
        """
        broken = {at for at, number in numbers.items() if number in self._exploded}
        holders = [pair for pair in pairs if any(pair[0] <= at < pair[1] for at in broken)]
        if holders:
            return holders[-1]
        for opening, closing in reversed(pairs):
            head, tail = indent + line[: opening + 1], indent + line[closing:]
            if max(len(head), len(tail)) <= self._style.limit:
                return opening, closing
        return pairs[-1]

    def _body(self, body: str, indent: str, number: int, head: str) -> list[str]:
        inside = range(number + 1, number + 1 + len(openings(body)))
        explode = number in self._exploded
        fits = len(indent) + len(body) <= self._style.limit
        if (
            fits
            and not explode
            and not self._exploded & set(inside)
            and "import" not in head.split()
        ):
            return [indent + body]
        parts = at_commas(body)
        if len(parts) == 1 and not explode:
            return self.split(body, indent, number + 1)
        lines: list[str] = []
        first = number + 1
        for part in parts:
            lines += self.split(f"{part},", indent, first)
            first += len(openings(part))
        return lines
