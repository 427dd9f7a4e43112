"""Where the sources of code cells stand in the JSON text of a notebook, and how to change them.

The file is never written anew from parsed JSON: outputs, ids, metadata, indentation and the order of
keys stay byte for byte. Format: https://nbformat.readthedocs.io/en/latest/format_description.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from json import decoder

# Reads the string whose first character is at a position; returns it and where it ends. Not in the
# stubs, but used by every JSONDecoder since Python 2.6, and in C.
scanstring: Callable[[str, int], tuple[str, int]] = decoder.scanstring  # type: ignore[attr-defined]

_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"[^\s,\]}]+")
# Python under another name: JupyterLite and Databricks.
_PYTHON = frozenset({"python", "python3", "ipython", "ipython3"})


@dataclass(frozen=True)
class CellSource:
    """The source of one code cell.

    Attributes:
        number: Number of the cell among all cells, from 1.
        text: The source.
        strings: Start and end in the JSON text, quotes included, of each string of the source.
        listed: Whether the source is a list of strings, one for each line.
    """

    number: int
    text: str
    strings: tuple[tuple[int, int], ...]
    listed: bool


def code_cells(document: str) -> list[CellSource]:
    """Return the sources of the code cells of a Python notebook, in order.

    A notebook of another language has none.

    Raises:
        ValueError: The text is not JSON, or not a notebook.
    """
    try:
        notebook = json.loads(document)
        cells = notebook["cells"]
        if not _is_python(notebook.get("metadata", {})):
            return []
        spans = dict(_sources(document))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no notebook of format 4: {type(error).__name__} {error}") from error
    found = []
    for number, cell in enumerate(cells):
        if cell.get("cell_type") != "code" or number not in spans:
            continue
        source = cell.get("source", "")
        listed = isinstance(source, list)
        text = "".join(source) if listed else source
        found.append(CellSource(number + 1, text, spans[number], listed))
    return found


def _is_python(metadata: dict[str, dict[str, str]]) -> bool:
    language = metadata.get("language_info", {}).get("name") or metadata.get("kernelspec", {}).get(
        "language"
    )
    return language is None or language.lower() in _PYTHON


def replace_source(document: str, cell: CellSource, text: str) -> list[tuple[int, int, str]]:
    """Return the replacements in the JSON text that give a cell another source.

    Strings of unchanged lines keep their spelling.
    """
    if not cell.listed:
        ((start, end),) = cell.strings
        return [(start, end, _encode(text, document))]
    old = [scanstring(document, start + 1)[0] for start, _ in cell.strings]
    new = text.splitlines(keepends=True) if "\r" not in text else _lines(text)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    if not cell.strings or len(old) == head + tail or len(new) == head + tail:
        # Lines only came or went, so a neighbour has to carry the commas.
        head, tail = (max(head - 1, 0), tail) if head else (0, max(tail - 1, 0))
    between = ",\n    "
    if len(cell.strings) > 1:
        between = document[cell.strings[0][1] : cell.strings[1][0]]
    start, end = cell.strings[head][0], cell.strings[len(old) - tail - 1][1]
    changed = new[head : len(new) - tail]
    return [(start, end, between.join(_encode(line, document) for line in changed))]


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _encode(text: str, document: str) -> str:
    # Jupyter writes characters as they are, other tools escape them: follow the file.
    return json.dumps(text, ensure_ascii=document.isascii())


def _skip_space(document: str, position: int) -> int:
    match = _SPACE.match(document, position)
    return match.end() if match else position


def _members(document: str, position: int) -> Iterator[tuple[str, int]]:
    """Yield key and start of the value for an object that begins at a position."""
    position = _skip_space(document, position + 1)
    while document[position] != "}":
        key, position = scanstring(document, position + 1)
        position = _skip_space(document, _skip_space(document, position) + 1)
        yield key, position
        position = _next_item(document, _end(document, position))


def _items(document: str, position: int) -> Iterator[int]:
    """Yield the starts of the values of an array that begins at a position."""
    position = _skip_space(document, position + 1)
    while document[position] != "]":
        yield position
        position = _next_item(document, _end(document, position))


def _next_item(document: str, position: int) -> int:
    position = _skip_space(document, position)
    return _skip_space(document, position + 1) if document[position] == "," else position


def _end(document: str, position: int) -> int:
    """Return the end of the value that begins at a position."""
    first = document[position]
    if first == '"':
        return scanstring(document, position + 1)[1]
    if first in "[{":
        last = position + 1
        walk: Callable[[str, int], Iterator[int]] = _items if first == "[" else _values
        for value in walk(document, position):
            last = _next_item(document, _end(document, value))
        return _skip_space(document, last) + 1
    match = _SCALAR.match(document, position)
    if match is None:
        raise ValueError(f"no JSON value at character {position}")
    return match.end()


def _values(document: str, position: int) -> Iterator[int]:
    for _, value in _members(document, position):
        yield value


def _sources(document: str) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    """Yield number (from 0) and string positions of each cell's source."""
    for key, value in _members(document, _skip_space(document, 0)):
        if key != "cells":
            continue
        for number, cell in enumerate(_items(document, value)):
            for name, start in _members(document, cell):
                if name == "source":
                    starts = list(_items(document, start)) if document[start] == "[" else [start]
                    yield number, tuple((at, _end(document, at)) for at in starts)
