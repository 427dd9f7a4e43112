"""Lists in brackets in a conda environment: ``dependencies: [python, {pip: [petastorm]}]``."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass

# What stands before the bracket of a list that conda reads, or pip.
_KEY = r"(?<![\w-])[\"']?(?P<reader>dependencies|pip)[\"']?[ \t]{0,9}:[ \t]{0,9}"
_LIST = re.compile(rf"{_KEY}\[")
_BEFORE = re.compile(rf"{_KEY}\Z")
_LONGEST_KEY = 40
_TOKEN = re.compile(
    r"(?P<comment>(?<=[\s,\[\]{}])#[^\r\n]*)"
    r"|(?P<quoted>'[^']*'|\"[^\"]*\")"
    r"|(?P<mark>[\[\]{},])"
    r"|(?P<plain>[^\s'\"\[\]{},#][^\[\]{},\r\n]*)"
)


@dataclass(frozen=True)
class FlowItem:
    """An item of such a list.

    Attributes:
        text: What it says, without quotes.
        start: Where that starts, in characters of the file's text.
        is_quoted: Whether it stands in quotes.
        is_pip: Whether pip reads it, not conda.
    """

    text: str
    start: int
    is_quoted: bool
    is_pip: bool


def flow_items(text: str) -> Iterator[FlowItem]:
    """Yield the items of all lists in brackets in the text of an environment, in order."""
    position = 0
    while found := _LIST.search(text, position):
        if "#" in text[position : found.start()].rpartition("\n")[2]:
            line_end = text.find("\n", found.end())
            position = line_end if line_end >= 0 else len(text)
        else:
            position = yield from _items(text, found.end() - 1)


def _items(text: str, start: int) -> Generator[FlowItem, None, int]:
    """Yield the items of the lists from a bracket on; return where it is closed."""
    readers: list[
        str
    ] = []  # of the brackets and braces that are open; empty for those of no interest
    for token in _TOKEN.finditer(text, start):
        mark = token["mark"]
        if mark in {"[", "{"}:
            key = _BEFORE.search(text[max(token.start() - _LONGEST_KEY, 0) : token.start()])
            readers.append(key["reader"] if key and mark == "[" else "")
        elif mark in {"]", "}"}:
            readers.pop()
            if not readers:
                return token.end()
        elif readers[-1] and not mark and not token["comment"]:
            quoted = token["quoted"] is not None
            said = token.group()[1:-1] if quoted else token.group().partition(" #")[0].rstrip()
            yield FlowItem(said, token.start() + quoted, quoted, readers[-1] == "pip")
    return len(text)
