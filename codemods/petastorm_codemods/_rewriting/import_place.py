"""Where a new import goes: to Petastorm's own, or where the order of the file's imports wants it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import libcst as cst
from libcst.helpers import get_full_name_for_node

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._petastorm.offered import NEW, OLD

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
    rest = [node for node in body if not _is_preamble(node, first=node is body[0])]
    rest = [node for node in rest if analysis.start(node) >= restart] or rest
    found = _beside_petastorm(analysis, restart)
    if found is None:
        found = _in_order(analysis, rest, module)
    if found is not None:
        start, end = analysis.span(found)
        return _after_line(analysis, end), analysis.indent(start)
    if rest:
        decorators = getattr(rest[0], "decorators", ())
        start = analysis.start(decorators[0] if decorators else rest[0])
        return analysis.line_start(start), ""
    return (_after_line(analysis, analysis.span(body[-1])[1]) if body else 0), ""


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


def _in_order(
    analysis: Analysis, nodes: Sequence[cst.BaseStatement], module: str
) -> cst.CSTNode | None:
    """Return the last of the first imports of a source that sorts before a new one.

    Where the new one sorts before all of them it goes behind the first nevertheless: what stands above
    the imports, say a docstring or a comment about the file, is nobody's to part from them.
    """
    leading: list[tuple[cst.CSTNode, _Import]] = []
    for node in nodes:
        small = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
        if isinstance(small, cst.Import | cst.ImportFrom):
            leading.append((node, small))
        elif leading:
            break
    if not leading:
        return None
    wanted = (_THIRD_PARTY, True, module)
    before = [node for node, small in leading if _order(analysis, small) < wanted]
    return before[-1] if before else leading[0][0]


def _order(analysis: Analysis, statement: _Import) -> tuple[int, bool, str]:
    """Return what isort and Ruff sort an import by: section, form, module."""
    name = next(iter(_modules(statement)), "")
    root = name.split(".")[0]
    if isinstance(statement, cst.ImportFrom) and statement.relative:
        section = _OWN
    elif root == "__future__":
        section = _FUTURE
    elif root in sys.stdlib_module_names:
        section = _STANDARD
    else:
        section = _OWN if root in analysis.project.modules else _THIRD_PARTY
    return section, isinstance(statement, cst.ImportFrom), name.lower()


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


def _after_line(analysis: Analysis, offset: int) -> int:
    """Return the start of the next line; the end of the cell if there is none."""
    text = analysis.source.text
    end = min((at for at in (text.find("\n", offset), len(text)) if at >= 0), default=offset)
    cell = analysis.source.cell_end(offset)
    return min(end + 1, cell) if end < len(text) else len(text)
