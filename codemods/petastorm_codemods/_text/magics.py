"""IPython's magics, shell lines and help lines, masked so that the rest parses as Python.

A mask has the length of what it covers: positions in the masked text are positions in the original,
and nothing has to be restored, because rewrites are applied to the original.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Cell magics whose body is Python.
_PYTHON_CELLS = frozenset(
    {
        *("capture", "memit", "prun", "px", "time", "timeit"),
        *("ipython", "local", "pyspark", "python", "python3", "spark"),
    }
)
# Those of them that say which language a cell is in.
_SAY_PYTHON = frozenset({"ipython", "local", "pyspark", "python", "python3"})
_OTHER_SPARK = re.compile(r"\s*%%spark\b.*(?:-l|--language)[ =]*(?!python)\w")
# What is written there is no code that could run on Petastorm, or only installs it.
_NO_CODE = frozenset(
    {
        *("bash", "conda", "fs", "html", "latex", "markdown", "md", "md-sandbox", "pip", "run"),
        *("script", "sh", "sql"),
    }
)
# Databricks writes the language of a cell as a line magic on its first line.
_OTHER_LANGUAGES = frozenset({"fs", "md", "md-sandbox", "r", "scala", "sh", "sql"})
_FIRST = re.compile(r"\s*(%{1,2})([\w-]+)")
_MAGIC = re.compile(r"[ \t]*([%!?].*|[\w.]+\?{1,2}[ \t]*)\Z")
_ASSIGNED = re.compile(r"([\w.,\[\] \t]+=[ \t]*)([%!](?!=).*)\Z")
_TOKEN = re.compile(
    r"#.*|\\.|[()\[\]{}]|"
    r"'''|\"\"\"|'(?:[^'\\\n]|\\.)*'?|\"(?:[^\"\\\n]|\\.)*\"?",
)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?")


@dataclass(frozen=True)
class Masked:
    """Text that parses where the original does not, and where it differs.

    Attributes:
        text: The masked text, as long as the original.
        shell: Start and end of each masked line.
    """

    text: str
    shell: tuple[tuple[int, int], ...]


def blank(text: str) -> str:
    """Return comments of the same length."""
    return re.sub(r"[^\r\n]", "#", text)


def is_python_cell(text: str) -> bool:
    """Say whether a notebook cell is in Python, by its first line."""
    match = _FIRST.match(text)
    if match is None:
        return True
    sign, name = match.groups()
    if sign == "%%":
        return name in _PYTHON_CELLS and not _OTHER_SPARK.match(text)
    return name not in _OTHER_LANGUAGES


def first_magic(text: str) -> str:
    """Return the magic that a notebook cell begins with, such as ``%%time``; empty if with none."""
    match = _FIRST.match(text)
    return "" if match is None else "".join(match.groups())


def says_python(text: str) -> bool:
    """Say whether a notebook cell says on its first line that it is in Python."""
    match = _FIRST.match(text)
    return match is not None and match[2] in _SAY_PYTHON


def language_of(text: str, default: str) -> str:
    """Return what a cell is in by the magic on its first line; empty if that is no code."""
    match = _FIRST.match(text)
    if match is None:
        return default
    return "" if match[2] in _NO_CODE else first_magic(text)


def mask(text: str) -> Masked:
    """Mask the lines that only IPython understands; lines inside strings and brackets are not."""
    parts: list[str] = []
    shell: list[tuple[int, int]] = []
    position, state, continued = 0, _State(), False
    for line in _LINE.findall(text):
        body = line.rstrip("\r\n")
        masked = body
        if continued:
            masked = " " * len(body)
        elif state.at_start():
            masked = _mask_line(body)
        if continued or masked != body:
            shell.append((position, position + len(body)))
            continued = body.endswith("\\")
        else:
            state.read(body)
        parts.append(masked + line[len(body) :])
        position += len(line)
    return Masked("".join(parts), tuple(shell))


def _mask_line(body: str) -> str:
    match = _MAGIC.match(body)
    if match:
        start = match.start(1)
    else:
        match = _ASSIGNED.match(body)
        if match is None:
            return body
        start = match.start(2)
    return body[:start] + "0" + " " * (len(body) - start - 1)


class _State:
    """Whether a line begins a statement: not inside brackets or a string of several lines."""

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""
        self._continued = False

    def at_start(self) -> bool:
        return not (self._depth or self._quote or self._continued)

    def read(self, line: str) -> None:
        position = 0
        self._continued = False
        while position < len(line):
            if self._quote:
                end = line.find(self._quote, position)
                if end < 0:
                    return
                position, self._quote = end + 3, ""
                continue
            match = _TOKEN.search(line, position)
            if match is None:
                break
            self._take(match.group())
            position = match.end()
        self._continued = not self._quote and line.endswith("\\")

    def _take(self, token: str) -> None:
        if token in {"'''", '"""'}:
            self._quote = token
        elif token in {"(", "[", "{"}:
            self._depth += 1
        elif token in {")", "]", "}"}:
            self._depth = max(self._depth - 1, 0)
