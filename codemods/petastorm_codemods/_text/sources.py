"""Modules, Databricks source notebooks and ``.ipynb`` files as one kind of thing to rewrite.

Whatever the file, rules see one text of Python in which names are resolved over all cells in order.
Parts that are not Python or do not parse are comments of the same length there.
"""

from __future__ import annotations

import ast
import bisect
import dataclasses
import functools
import itertools
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import libcst as cst

from petastorm_codemods._model import Edit

from .decode import Decoded, decode_python, decode_utf8, newline_of
from .edits import apply_edits
from .ipynb import CellSource, read_notebook, replace_source
from .magics import blank, is_python_cell, language_of, mask, says_python
from .tokens import line_starts, lines_of

_DATABRICKS = re.compile(r"# Databricks notebook source[ \t]*\r?\n")
_COMMAND = re.compile(r"^# COMMAND -+[ \t]*\r?$\n?", re.MULTILINE)
# Cells of Databricks sources in comments, but for those that hold no commands.
_MAGIC_CELL = re.compile(
    r"^# MAGIC[ \t]+(?!%(?:md|md-sandbox|sql|scala|r)\b).*(?:\n# MAGIC\b.*)*", re.MULTILINE
)


# Cells of Databricks sources that are code of another language, or Python in comments.
_FOREIGN_CELL = re.compile(r"^# MAGIC[ \t]+%(python|scala|r)\b.*(?:\n# MAGIC\b.*)*", re.MULTILINE)

# A file is as wide as its own lines, between the usual limits of two formatters.
_NARROWEST, _WIDEST = 88, 100

Foreign = tuple[int, int, str]


@dataclass(frozen=True)
class Cell:
    """A stretch of a source's text.

    Attributes:
        start: First character.
        text: The original.
        masked: What is parsed instead, of the same length.
        shell: Lines that are no Python but may install packages, as positions in the source.
        problem: Why the cell does not parse; empty if it does, or is no Python.
        notebook: The cell in the ``.ipynb``.
    """

    start: int
    text: str
    masked: str
    shell: tuple[tuple[int, int], ...] = ()
    problem: str = ""
    notebook: CellSource | None = None


@dataclass(frozen=True)
class Source:
    """A file's Python.

    Attributes:
        path: Path of the file.
        decoded: The file's own text.
        cells: The stretches; one for a module that parses.
        masked: What is parsed, of the same length as the text.
        text: The original text; in an ``.ipynb``, cells one after the other.
        newline: How lines end.
        foreign: Cells that are no Python, as start, end, and what they are in; empty if no code.
    """

    path: str
    decoded: Decoded
    cells: tuple[Cell, ...]
    masked: str = field(repr=False)
    text: str = field(repr=False)
    newline: str
    foreign: tuple[Foreign, ...] = ()

    @functools.cached_property
    def module(self) -> cst.Module:
        """The parsed masked text."""
        return _parsed(self.masked)

    @functools.cached_property
    def width(self) -> int:
        """How many characters its lines of code may have."""
        return min(max([_NARROWEST, *map(len, self.code_lines)]), _WIDEST)

    @functools.cached_property
    def code_lines(self) -> list[str]:
        """The lines that are neither empty nor comments."""
        lines = lines_of(self.masked)
        return [line for line in lines if line.strip()[:1] not in {"", "#"}]

    @property
    def shell(self) -> tuple[tuple[int, int], ...]:
        """Positions of lines that are no Python but may install packages."""
        return tuple(itertools.chain.from_iterable(cell.shell for cell in self.cells))

    def locate(self, offset: int) -> tuple[int | None, int, int]:
        """Return cell (None outside an ``.ipynb``), line and column of a character, from 1."""
        cell = self.cells[self._cell_at(offset)]
        line = bisect.bisect_right(self._lines, offset) - 1
        first = bisect.bisect_right(self._lines, cell.start) - 1 if cell.notebook else 0
        number = cell.notebook.number if cell.notebook else None
        return number, line - first + 1, offset - self._lines[line] + 1

    def cell_end(self, offset: int) -> int:
        """Return the end of the cell of a character."""
        cell = self.cells[self._cell_at(offset)]
        return cell.start + len(cell.text)

    def render(self, edits: Sequence[Edit]) -> bytes:
        """Return the file's bytes after edits.

        Raises:
            ValueError: Edits overlap, or one spans two cells.
            UnicodeEncodeError: New text does not fit the file's encoding.
        """
        if self.cells[0].notebook is None:
            return self.decoded.encode(apply_edits(self.text, edits))
        document = self.decoded.text
        replaced: list[Edit] = []
        for number, group in itertools.groupby(
            sorted(edits, key=lambda edit: edit.start),  # those at one place keep their order
            key=lambda edit: self._cell_at(edit.start),
        ):
            cell = self.cells[number]
            assert cell.notebook is not None
            shifted = [Edit(e.start - cell.start, e.end - cell.start, e.text) for e in group]
            text = _edited(cell.text, shifted)
            replaced += [Edit(*span) for span in replace_source(document, cell.notebook, text)]
        return self.decoded.encode(apply_edits(document, replaced))

    def _cell_at(self, offset: int) -> int:
        return max(bisect.bisect_right(self._starts, offset) - 1, 0)

    @functools.cached_property
    def _starts(self) -> Sequence[int]:
        return [cell.start for cell in self.cells]

    @functools.cached_property
    def _lines(self) -> Sequence[int]:
        """Where lines start."""
        return line_starts(self.text)


def read_source(path: str, data: bytes, problem_in: Callable[[str], str] | None = None) -> Source:
    """Read a file's bytes as something to rewrite.

    Args:
        path: Its path, which only says which format it is.
        data: The bytes.
        problem_in: Returns why a text does not parse, empty if it does; None to ask LibCST's parser.

    Raises:
        ValueError: It cannot be decoded, is no notebook, or is a module that does not parse.
    """
    try:
        if path.endswith(".ipynb"):
            return _read_notebook(path, decode_utf8(data), problem_in or _problem_in)
        return _read_module(path, decode_python(data), problem_in or _problem_in)
    except (SyntaxError, UnicodeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _read_module(path: str, decoded: Decoded, problem_in: Callable[[str], str]) -> Source:
    text = decoded.text
    databricks = _DATABRICKS.match(text) is not None
    comments: tuple[tuple[int, int], ...] = ()
    foreign: tuple[Foreign, ...] = ()
    if databricks:
        comments = tuple(
            match.span()
            for match in _MAGIC_CELL.finditer(text)
            if not _line_above(text, match.start()).startswith("# MAGIC")
        )
        foreign = tuple((*each.span(), f"%{each[1]}") for each in _FOREIGN_CELL.finditer(text))
    newline = newline_of(text)
    problem = problem_in(text)
    if not problem:
        cell = Cell(0, text, text, comments)
        return Source(path, decoded, (cell,), text, text, newline, foreign)
    if not databricks:
        raise ValueError(problem)
    bounds = [0, *(match.end() for match in _COMMAND.finditer(text)), len(text)]
    cells = [
        _cell(text[start:end], start, problem_in)
        for start, end in itertools.pairwise(bounds)
        if end > start or end == 0
    ]
    cells[0] = dataclasses.replace(cells[0], shell=(*comments, *cells[0].shell))
    return _joined(path, decoded, cells, text, newline, foreign, problem_in)


def _line_above(text: str, offset: int) -> str:
    """Return the last line above an offset that is not empty."""
    while offset and text[offset - 1] in "\r\n":
        offset -= 1
    return text[text.rfind("\n", 0, offset) + 1 : offset]


def _read_notebook(path: str, decoded: Decoded, problem_in: Callable[[str], str]) -> Source:
    cells: list[Cell] = []
    foreign: list[Foreign] = []
    text = ""
    document = read_notebook(decoded.text)
    for source in document.cells:
        code = source.text
        start = len(text)
        if is_python_cell(code) and (not document.language or says_python(code)):
            cells.append(_cell(code, start, problem_in, source))
        else:
            shell = ((start, start + len(code)),)
            foreign.append((start, start + len(code), language_of(code, document.language)))
            cells.append(Cell(start, code, blank(code), shell, notebook=source))
        text += code if code.endswith("\n") else code + "\n"
    if not cells:
        cells = [Cell(0, "", "", notebook=CellSource(0, "", (), listed=False))]
    return _joined(path, decoded, cells, text, "\n", foreign, problem_in)


def _cell(
    text: str, start: int, problem_in: Callable[[str], str], notebook: CellSource | None = None
) -> Cell:
    """Parse a cell on its own, with magics masked if that helps."""
    if not problem_in(text):
        return Cell(start, text, text, notebook=notebook)
    masked = mask(text)
    shell = tuple((start + first, start + last) for first, last in masked.shell)
    problem = problem_in(masked.text)
    if problem:
        return Cell(start, text, blank(text), shell, problem, notebook=notebook)
    return Cell(start, text, masked.text, shell, notebook=notebook)


def _joined(  # noqa: PLR0917 - what a source is made of
    path: str,
    decoded: Decoded,
    cells: Sequence[Cell],
    text: str,
    newline: str,
    foreign: Sequence[Foreign],
    problem_in: Callable[[str], str],
) -> Source:
    masked = "".join(
        cell.masked + text[cell.start + len(cell.text) : follower]
        for cell, follower in zip(
            cells, [*(cell.start for cell in cells[1:]), len(text)], strict=True
        )
    )
    problem = problem_in(masked)
    if problem:
        raise ValueError(problem)
    return Source(path, decoded, tuple(cells), masked, text, newline, tuple(foreign))


def _edited(cell: str, edits: Sequence[Edit]) -> str:
    """Return the text of a notebook's cell after edits.

    The last line of a cell has no newline of its own. Edits of whole lines take one along; what is added
    behind the line then stands on a line of its own.

    Raises:
        ValueError: Edits overlap, or one goes on in the next cell.
    """
    added = "" if cell.endswith("\n") else "\n"
    if any(edit.end > len(cell) + len(added) for edit in edits):
        raise ValueError("a rewrite spans two cells")
    if not any(edit.end > len(cell) for edit in edits):
        return apply_edits(cell, edits)
    size = len(cell)
    whole = [
        Edit(size + 1, size + 1, f"{edit.text[1:]}\n")
        if edit.start == size and edit.text.startswith("\n")
        else edit
        for edit in edits
    ]
    return apply_edits(cell + added, whole).removesuffix(added)


@functools.lru_cache(
    maxsize=2
)  # a file as it was and as it becomes, of which several things are asked
def python_tree(text: str) -> ast.Module:
    """Return what this Python makes of a text.

    Raises:
        Exception: As `ast.parse` does.
    """
    return ast.parse(text)


def problem_of_python(text: str) -> str:
    """Return what this Python says of a text that does not parse; empty if it does."""
    try:
        python_tree(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        return f"line {line}: {getattr(error, 'msg', error)}" if line else str(error)
    return ""


def tree_of(path: str, data: bytes) -> ast.Module | None:
    """Return what this Python makes of a file or a notebook; None if it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is in other people's code
            return python_tree(read_source(path, data, problem_of_python).masked)
    except Exception:  # noqa: BLE001 - the parser may fail in any way on broken code
        return None


@functools.lru_cache(maxsize=1)  # what has been found to parse is asked for its tree next
def _parsed(text: str) -> cst.Module:
    return cst.parse_module(text)


def _problem_in(text: str) -> str:
    """Return why LibCST does not parse a text; empty if it does."""
    try:
        _parsed(text)
    except cst.ParserSyntaxError as error:
        return problem_of_python(text) or f"line {error.raw_line}: {error.message}"
    except Exception as error:  # noqa: BLE001 – the parser may fail in any way on broken code
        return f"{type(error).__name__}: {error}"
    return ""
