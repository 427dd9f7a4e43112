"""Imports of Petastorm's loaders that a rewrite leaves without use are removed by it.

``data_loader_fn=BatchedDataLoader`` goes with the other arguments that streaming has no use for; an
import that is left over would keep the bridge, or Petastorm, a requirement.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.calls import remove
from petastorm_codemods._meaning.imports import Imported, petastorm_imports
from petastorm_codemods._meaning.reexports import is_read
from petastorm_codemods._model import Edit
from petastorm_codemods._text.edits import overlaps


def without_unused(analysis: Analysis, edits: Sequence[Edit]) -> list[Edit]:
    """Return edits that also remove the imports of loaders which they remove all uses of."""
    if analysis.source.path.endswith("__init__.py"):
        return list(edits)  # others import from here
    gone = [each for each in petastorm_imports(analysis) if _is_unused(analysis, each, edits)]
    result = list(edits)
    for statement in {id(each.statement): each.statement for each in gone}.values():
        names = [each.alias for each in gone if each.statement is statement and each.alias]
        first, last = analysis.span(statement)
        listed = statement.names if isinstance(statement.names, Sequence) else ()
        if len(names) < len(listed):
            more = list(remove(analysis, listed, names))
            result += more if not overlaps([*result, *more]) else []
        elif _is_alone(analysis, statement):
            inside = [each for each in result if first <= each.start and each.end <= last]
            end = analysis.source.text.find("\n", last) + 1
            if end and not analysis.source.text[last:end].strip():
                result = [each for each in result if each not in inside]
                result.append(Edit(analysis.line_start(first), end, ""))
    return result


def _is_unused(analysis: Analysis, each: Imported, edits: Sequence[Edit]) -> bool:
    if not each.path.startswith("petastorm.pytorch.") or each.alias is None:
        return False
    spans = [analysis.span(read) for read in _reads(analysis, each)]
    removals = sorted(edit for edit in edits if each.local not in edit.text)
    starts = [edit.start for edit in removals]
    # Edits do not overlap, so that only the last one before a use can cover it.
    before = [bisect.bisect_right(starts, start) - 1 for start, _ in spans]
    return bool(spans) and all(
        place >= 0 and end <= removals[place].end
        for place, (_, end) in zip(before, spans, strict=True)
    )


def _reads(analysis: Analysis, each: Imported) -> Iterator[cst.Name]:
    return (read for read in analysis.reads(each.local) if is_read(analysis, read))


def _is_alone(analysis: Analysis, statement: cst.CSTNode) -> bool:
    """Say whether a statement has a line of its own in a block that has others."""
    line = analysis.parent(statement)
    block = analysis.parent(line)
    return (
        isinstance(line, cst.SimpleStatementLine)
        and len(line.body) == 1
        and isinstance(block, cst.Module | cst.IndentedBlock)
        and len(block.body) > 1
    )
