"""Where a new import goes: to Petastorm's own, or to the first ones of the file. Sorting them is a tool's job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.imports import modules_of
from petastorm_codemods._petastorm.offered import NEW, OLD
from petastorm_codemods._text.tokens import next_line

_RESTART = re.compile(r"library\.restartPython\(\)")


@dataclass(frozen=True)
class Place:
    """Where new import lines go.

    Attributes:
        start: Where the first of them starts.
        indent: Their indentation.
        below: How many go below.
    """

    start: int
    indent: str = ""
    below: int = 0


def import_place(analysis: Analysis, used: int) -> Place:
    """Return where an import of a library goes.

    It follows the last import of Petastorm or the bridge at the top of the source, also within a
    ``with`` block there; without one, the first imports at the top, above the package's own; else it is the first
    statement.
    So it is if those imports stand below the first use, as in notebooks whose cells import what they need.

    Args:
        analysis: Of the source.
        used: Where the import has to be done.
    """
    body = analysis.module.body
    restart = _last_restart(analysis, used)
    rest = _below_preamble(analysis, restart)
    neighbour = _beside_petastorm(analysis, restart, used)
    if neighbour is not None:
        return Place(beside(analysis, neighbour), analysis.indent(analysis.start(neighbour)))
    first = _first_imports(rest)
    if first and analysis.start(first[0]) < used:
        others = [each for each in first if not getattr(each.body[0], "relative", ())]
        return Place(beside(analysis, (others or first)[-1]))
    if rest:
        decorators = getattr(rest[0], "decorators", ())
        start = analysis.start(decorators[0] if decorators else rest[0])
        blank = 2 if isinstance(rest[0], cst.FunctionDef | cst.ClassDef) else 1
        return Place(analysis.line_start(start), below=blank)
    return Place(_after_line(analysis, analysis.span(body[-1])[1]) if body else 0)


def beside(analysis: Analysis, line: cst.CSTNode) -> int:
    """Return the start of the line below an import; that of its own if it has other statements on it."""
    start, end = analysis.span(line)
    alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    return _after_line(analysis, end) if alone else analysis.line_start(start)


def _below_preamble(analysis: Analysis, restart: int) -> Sequence[cst.BaseStatement]:
    """Return the statements at the top behind a place, without what has to stay above everything else."""
    body = analysis.module.body
    rest: list[cst.BaseStatement] = [
        node
        for node in body
        if not _is_preamble(node, first=node is body[0]) and not _is_magic(analysis, node)
    ]
    return [node for node in rest if analysis.start(node) >= restart] or rest


def _beside_petastorm(analysis: Analysis, restart: int, used: int) -> cst.CSTNode | None:
    """Return the last line above a place, at the top or in a ``with`` there, that imports Petastorm or the bridge."""
    last = None
    for line in analysis.nodes(cst.SimpleStatementLine):
        block = analysis.parent(line)
        owner = analysis.parent(block)
        at_top = block is analysis.module or (
            isinstance(owner, cst.With) and analysis.parent(owner) is analysis.module
        )
        modules = modules_of(line.body[0])
        if analysis.start(line) > used:
            continue
        if at_top and any(name.split(".")[0] in {OLD, NEW} for name in modules):
            last = line if analysis.start(line) >= restart else last
    return last


def _first_imports(nodes: Sequence[cst.BaseStatement]) -> list[cst.SimpleStatementLine]:
    """Return the first imports that follow each other."""
    imports: list[cst.SimpleStatementLine] = []
    for node in nodes:
        if isinstance(node, cst.SimpleStatementLine) and isinstance(
            node.body[0], cst.Import | cst.ImportFrom
        ):
            imports.append(node)
        elif imports:
            break
    return imports


def _last_restart(analysis: Analysis, used: int) -> int:
    """Return where the last cell above a use ends that installs packages, after which names may be gone."""
    text = analysis.source.text
    ends = [end for start, end in analysis.source.shell if "install" in text[start:end]]
    ends += [match.end() for match in _RESTART.finditer(text)]
    return max((end for end in ends if end <= used), default=0)


def _is_preamble(node: cst.CSTNode, *, first: bool) -> bool:
    if not isinstance(node, cst.SimpleStatementLine):
        return False
    small = node.body[0]
    if isinstance(small, cst.ImportFrom):
        return isinstance(small.module, cst.Name) and small.module.value == "__future__"
    if isinstance(small, cst.Expr):
        documentation = isinstance(small.value, cst.SimpleString | cst.ConcatenatedString)
        return first and documentation
    return False


def _is_magic(analysis: Analysis, node: cst.CSTNode) -> bool:
    """Say whether a statement stands for a line of IPython's, such as ``%%time``."""
    return analysis.source.text.startswith(("%", "!", "?"), analysis.start(node))


def _after_line(analysis: Analysis, offset: int) -> int:
    """Return the start of the next line; the end of this one if it is the last one of its cell."""
    text = analysis.source.text
    end, cell_end = next_line(text, offset), analysis.source.cell_end(offset)
    if end < cell_end or end == len(text):
        return end
    return offset + len(text[offset:cell_end].rstrip("\r\n"))
