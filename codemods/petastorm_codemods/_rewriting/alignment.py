"""Lines of a statement that are aligned with what follows an open bracket."""

from __future__ import annotations

from collections.abc import Sequence

from petastorm_codemods._text.brackets import brackets_open_after


def realigned(old: Sequence[str], new: Sequence[str], column: int) -> list[str]:
    """Return lines with those moved that were aligned with what follows an open bracket."""
    places = [
        (_alignment(old[:number], column), indent_of(old[number])) for number in range(1, len(old))
    ]
    if not any(wanted == there for wanted, there in places):
        return list(new)
    everywhere = all(wanted in {None, there} for wanted, there in places)
    result = [new[0]]
    for number, line in enumerate(new[1:]):
        same = len(old) == len(new) and places[number][0] == places[number][1]
        wanted = _alignment(result, column) if same or everywhere else None
        result.append(line if wanted is None else " " * wanted + line.lstrip())
    return result


def indent_of(line: str) -> int:
    """Return how many characters of whitespace a line begins with."""
    return len(line) - len(line.lstrip())


def _alignment(lines: Sequence[str], column: int) -> int | None:
    """Return the column behind the innermost open bracket; None if there is none, or its line ends."""
    open_brackets = brackets_open_after(lines)
    if not open_brackets:
        return None
    row, at = open_brackets[-1]
    rest = lines[row - 1][at + 1 :].partition("#")[0]
    return at + 1 + (column if row == 1 else 0) if rest.strip() else None
