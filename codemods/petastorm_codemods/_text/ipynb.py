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
# Python under any name: ipython3, pyspark, synapse_pyspark, pyspark3kernel, xpython.
_PYTHON = re.compile(r"python|pyspark", re.IGNORECASE)
# In C and in one go. Numbers are of no interest here, and int() refuses those with many digits.
_DECODER = json.JSONDecoder(parse_int=float)


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


@dataclass(frozen=True)
class Notebook:
    """The code of a notebook.

    Attributes:
        language: What its code is in where a cell does not say; empty for Python.
        cells: The sources of the code cells, in order.
    """

    language: str
    cells: tuple[CellSource, ...]


def read_notebook(document: str) -> Notebook:
    """Return the code of a notebook.

    Raises:
        ValueError: The text is not JSON, or not a notebook.
    """
    try:
        notebook = _DECODER.decode(document)
        language = _language(notebook.get("metadata") or {})
        places = _places(document, notebook["cells"])
        cells = [
            _cell(document, number, cell, places[number])
            for number, cell in enumerate(notebook["cells"])
            if cell.get("cell_type") == "code" and number in places
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no notebook of format 4: {type(error).__name__} {error}") from error
    except RecursionError as error:
        raise ValueError("no notebook: its JSON is nested too deep") from error
    return Notebook(language, tuple(cells))


def _language(metadata: dict[str, dict[str, str]]) -> str:
    """Return the language of a notebook if it is not Python; where nothing says so, it is."""
    kernel = metadata.get("kernelspec") or {}
    candidates = [
        (metadata.get("language_info") or {}).get("name"),
        kernel.get("language"),
        kernel.get("name"),
    ]
    names = [str(name) for name in candidates if name]
    return "" if any(map(_PYTHON.search, names)) else next(iter(names), "")


def _cell(document: str, number: int, cell: dict[str, object], place: int) -> CellSource:
    source = cell["source"]
    if isinstance(source, str):
        return CellSource(number + 1, source, ((place, _end(document, place)),), listed=False)
    if not isinstance(source, list) or not all(isinstance(each, str) for each in source):
        raise ValueError(f"no notebook of format 4: the source of cell {number + 1} is no text")
    strings = tuple((start, _end(document, start)) for start in _items(document, place))
    return CellSource(number + 1, "".join(source), strings, listed=True)


def replace_source(document: str, cell: CellSource, text: str) -> list[tuple[int, int, str]]:
    """Return the replacements in the JSON text that give a cell another source.

    Strings of unchanged lines keep their spelling.
    """
    if not cell.listed:
        ((start, end),) = cell.strings
        return [(start, end, _encode(text, document))]
    old = [scanstring(document, start + 1)[0] for start, _ in cell.strings]
    if not text and cell.strings:
        start, end = cell.strings[0][0], cell.strings[-1][1]
        before = document[:start].rstrip(" \t\r\n")
        return [(len(before), _skip_space(document, end), "")]
    by_lines = not any("\n" in each[:-1] for each in old)
    head, tail, start, end = 0, len(old), 0, len(text)
    while head < tail - 1 and text.startswith(old[head], start):
        start += len(old[head])
        head += 1
    while tail - 1 > head and text.endswith(old[tail - 1], start, end):
        cut = end - len(old[tail - 1])
        if by_lines and cut and text[cut - 1] != "\n":
            break
        tail, end = tail - 1, cut
    if by_lines and start == end:  # lines only went, so a neighbour has to carry the commas
        if head:
            head, start = head - 1, start - len(old[head - 1])
        else:
            tail, end = tail + 1, end + len(old[tail])
    changed = _lines(text[start:end]) if by_lines else [text[start:end]]
    between = ",\n    "
    if len(cell.strings) > 1:
        between = document[cell.strings[0][1] : cell.strings[1][0]]
    first, last = cell.strings[head][0], cell.strings[tail - 1][1]
    return [(first, last, between.join(_encode(each, document) for each in changed))]


def _lines(text: str) -> list[str]:
    """Return lines as Jupyter parts them; a carriage return in one ends none."""
    if "\r" in text:
        return re.findall(r"[^\n]*\n|[^\n]+", text)
    return text.splitlines(keepends=True)


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
    position = _skip_space(document, position + 1)
    while document[position] != "]":
        yield position
        position = _next_item(document, _end(document, position))


def _next_item(document: str, position: int) -> int:
    position = _skip_space(document, position)
    return _skip_space(document, position + 1) if document[position] == "," else position


def _end(document: str, position: int) -> int:
    return _DECODER.raw_decode(document, position)[1]


def _places(document: str, cells: object) -> dict[int, int]:
    """Return where the source of each cell that has one begins, by its number from 0.

    Raises:
        TypeError: The cells are not a list of objects.
    """
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise TypeError("cells are a list of objects")
    top = _value_of(document, _skip_space(document, 0), "cells")
    starts = _items(document, top) if cells and top is not None else ()
    places = {}
    for number, start in enumerate(starts):
        place = _value_of(document, start, "source")
        if place is not None:
            places[number] = place
    return places


def _value_of(document: str, position: int, key: str) -> int | None:
    """Return where the value of a key begins in an object; the last one, as JSON has it."""
    last = None
    for name, start in _members(document, position):
        if name == key:
            last = start
    return last
