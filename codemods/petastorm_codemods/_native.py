"""Names of ``petastorm_bridge.native``, the support module of rewritten code, and their imports."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ._analysis import Analysis
from ._imports import imports
from ._model import Edit
from ._offered import NEW, OLD

MODULE = f"{NEW}.native"

# Petastorm's names that have a counterpart, wherever they are imported from.
COUNTERPARTS = {
    "petastorm.TransformSpec": "TransformSpec",
    "petastorm.transform.TransformSpec": "TransformSpec",
    "petastorm.spark.SparkDatasetConverter": "MdsDirectory",
    "petastorm.spark.make_spark_converter": "dataframe_to_mds",
    "petastorm.spark.spark_dataset_converter.SparkDatasetConverter": "MdsDirectory",
    "petastorm.spark.spark_dataset_converter.make_spark_converter": "dataframe_to_mds",
}
MAKERS = frozenset(old for old, new in COUNTERPARTS.items() if new == "dataframe_to_mds")


def original(path: str) -> str:
    """Return Petastorm's path for one of Petastorm or of the bridge."""
    return OLD + path[len(NEW) :] if path == NEW or path.startswith(f"{NEW}.") else path


def clashes(analysis: Analysis, names: tuple[str, ...]) -> list[str]:
    """Return those of some names that mean something else in a source than the support module's."""
    bound = {each.local: each.path for each in imports(analysis) if each.local in names}
    found = {
        local
        for local, path in bound.items()
        if path != f"{MODULE}.{local}" and COUNTERPARTS.get(original(path)) != local
    }
    found |= {node.name.value for node in analysis.nodes(cst.FunctionDef)} & {*names}
    found |= {node.name.value for node in analysis.nodes(cst.ClassDef)} & {*names}
    for target in analysis.nodes(cst.AssignTarget):
        if isinstance(target.target, cst.Name) and target.target.value in names:
            found.add(target.target.value)
    return sorted(found)


def import_edits(analysis: Analysis, needed: set[str]) -> Iterator[Edit]:
    """Yield the edit that imports names which the source does not import at its top yet."""
    known = {
        each.local
        for each in imports(analysis)
        if each.path == f"{MODULE}.{each.local}" and _is_top(analysis, each.statement)
    }
    names = ", ".join(sorted(needed - known))
    if not names:
        return
    if analysis.import_slot is not None:
        yield Edit(analysis.import_slot, analysis.import_slot, f", {names}")
        return
    line = f"from {MODULE} import {names}"
    newline = analysis.source.newline
    place = _place(analysis)
    text = analysis.source.text
    if place > 0 and text[place - 1] not in "\r\n":
        yield Edit(place, place, f"{newline}{line}")
    else:
        yield Edit(place, place, f"{line}{newline}")


def _is_top(analysis: Analysis, statement: cst.CSTNode) -> bool:
    return analysis.parent(analysis.parent(statement)) is analysis.module


def _place(analysis: Analysis) -> int:
    """Return the end of the first import at the top, or the start of the first statement."""
    body = analysis.module.body
    rest = [node for node in body if not _is_preamble(node, first=node is body[0])]
    for node in rest:
        if isinstance(node, cst.SimpleStatementLine) and isinstance(
            node.body[0], cst.Import | cst.ImportFrom
        ):
            return _after_line(analysis, analysis.span(node)[1])
    if rest:
        decorators = getattr(rest[0], "decorators", ())
        return analysis.line_start(analysis.start(decorators[0] if decorators else rest[0]))
    return _after_line(analysis, analysis.span(body[-1])[1]) if body else 0


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
