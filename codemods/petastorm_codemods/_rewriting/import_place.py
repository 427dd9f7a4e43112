"""Where a new import goes: to Petastorm's own, or where the order of the file's imports wants it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import libcst as cst
from libcst.helpers import get_full_name_for_node

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._petastorm.offered import NEW, OLD
from petastorm_codemods._text.tokens import next_line

_RESTART = re.compile(r"library\.restartPython\(\)")
# Sections of imports, in the order of isort and Ruff.
_FUTURE, _STANDARD, _THIRD_PARTY, _OWN = range(4)

_Import = cst.Import | cst.ImportFrom


def import_place(analysis: Analysis, module: str) -> tuple[int, str]:
    """Return where the line of a new ``from module import …`` starts, and its indentation.

    It follows the last import of Petastorm or the bridge at the top of the source, also within a
    ``with`` block there; without one, the last import of those at the top that sort before it.
    """
    body = analysis.module.body
    restart = _last_restart(analysis)
    rest = _below_preamble(analysis, restart)
    found = _beside_petastorm(analysis, restart)
    if found is None:
        leading = _leading(rest)
        wanted = (_THIRD_PARTY, True, module)
        # What stands above the imports, say a comment about the file, is nobody's to part from them.
        found = _in_order(analysis, leading, wanted) or next((node for node, _ in leading), None)
    if found is not None:
        return _beside(analysis, found), analysis.indent(analysis.start(found))
    if rest:
        decorators = getattr(rest[0], "decorators", ())
        start = analysis.start(decorators[0] if decorators else rest[0])
        return analysis.line_start(start), ""
    return (_after_line(analysis, analysis.span(body[-1])[1]) if body else 0), ""


def _below_preamble(analysis: Analysis, restart: int) -> Sequence[cst.BaseStatement]:
    """Return the statements at the top behind a place, without what has to stay above everything else."""
    body = analysis.module.body
    rest: list[cst.BaseStatement] = [
        node
        for node in body
        if not _is_preamble(node, first=node is body[0]) and not _is_magic(analysis, node)
    ]
    return [node for node in rest if analysis.start(node) >= restart] or rest


def behind(analysis: Analysis, start: int, module: str) -> tuple[int, str]:
    """Return where a new ``from module import …`` goes that follows the import at a place.

    Imports that follow it line by line, and sort before the new one, stay before it.
    """
    lines = [
        line
        for line in analysis.nodes(cst.SimpleStatementLine)
        if analysis.span(line)[0] <= start < analysis.span(line)[1]
    ]
    line: cst.BaseStatement = lines[-1]
    block = analysis.parent(line)
    following = block.body if isinstance(block, cst.Module | cst.IndentedBlock) else ()
    place = next((number for number, each in enumerate(following) if each is line), 0)
    wanted = (_section(analysis, module), True, module)
    for each in following[place + 1 :]:
        small = each.body[0] if isinstance(each, cst.SimpleStatementLine) else None
        adjacent = isinstance(each, cst.SimpleStatementLine) and not each.leading_lines
        if not adjacent or not isinstance(small, _Import) or _order(analysis, small) >= wanted:
            break
        line = each
    return _beside(analysis, line), analysis.indent(analysis.start(line))


def _beside(analysis: Analysis, line: cst.CSTNode) -> int:
    """Return the start of the line below an import; that of its own if it has other statements on it."""
    start, end = analysis.span(line)
    alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    return _after_line(analysis, end) if alone else analysis.line_start(start)


def _beside_petastorm(analysis: Analysis, restart: int) -> cst.CSTNode | None:
    """Return the last line at the top, or in a ``with`` there, that imports Petastorm or the bridge."""
    last = None
    for line in analysis.nodes(cst.SimpleStatementLine):
        if analysis.start(line) < restart or not isinstance(line.body[0], _Import):
            continue
        block = analysis.parent(line)
        owner = analysis.parent(block)
        at_top = block is analysis.module or (
            isinstance(owner, cst.With) and analysis.parent(owner) is analysis.module
        )
        if at_top and any(name.split(".")[0] in {OLD, NEW} for name in _modules(line.body[0])):
            last = line
    return last


def _leading(nodes: Sequence[cst.BaseStatement]) -> list[tuple[cst.CSTNode, _Import]]:
    """Return the first imports of some statements, up to what is none."""
    leading: list[tuple[cst.CSTNode, _Import]] = []
    for node in nodes:
        small = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
        if isinstance(small, cst.Import | cst.ImportFrom):
            leading.append((node, small))
        elif leading:
            break
    return leading


def _in_order(
    analysis: Analysis,
    leading: Sequence[tuple[cst.CSTNode, _Import]],
    wanted: tuple[int, bool, str],
) -> cst.CSTNode | None:
    """Return the last of the first imports that sort before a new one; None if none does."""
    before = [node for node, small in leading if _order(analysis, small) < wanted]
    return before[-1] if before else None


def _order(analysis: Analysis, statement: _Import) -> tuple[int, bool, str]:
    """Return what isort and Ruff sort an import by: section, form, module."""
    name = next(iter(_modules(statement)), "")
    relative = isinstance(statement, cst.ImportFrom) and bool(statement.relative)
    section = _OWN if relative else _section(analysis, name)
    return section, isinstance(statement, cst.ImportFrom), name.lower()


def _section(analysis: Analysis, module: str) -> int:
    root = module.split(".", maxsplit=1)[0]
    if root == "__future__":
        return _FUTURE
    if root in sys.stdlib_module_names:
        return _STANDARD
    return _OWN if root in analysis.project.modules else _THIRD_PARTY


def _modules(statement: cst.CSTNode) -> list[str]:
    if isinstance(statement, cst.Import):
        return [alias.evaluated_name for alias in statement.names]
    if isinstance(statement, cst.ImportFrom) and statement.module is not None:
        return [get_full_name_for_node(statement.module) or ""]
    return []


def _last_restart(analysis: Analysis) -> int:
    """Return where the last cell ends that installs packages, after which names may be gone."""
    text = analysis.source.text
    ends = [end for start, end in analysis.source.shell if "install" in text[start:end]]
    ends += [match.end() for match in _RESTART.finditer(text)]
    return max(ends, default=0)


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
