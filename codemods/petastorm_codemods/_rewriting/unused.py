"""Imports that a rewrite leaves without use are removed by it.

``data_loader_fn=BatchedDataLoader`` and the ranks that streaming finds itself go with the other arguments that it
has no use for; an import that is left over would keep the bridge, or Petastorm, a requirement.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.calls import remove
from petastorm_codemods._meaning.imports import Imported, imports
from petastorm_codemods._meaning.reexports import is_taken_from_here, uses_of
from petastorm_codemods._model import Edit
from petastorm_codemods._petastorm.counterparts import original
from petastorm_codemods._petastorm.offered import NEW, OLD, canonical
from petastorm_codemods._text.edits import overlaps
from petastorm_codemods._text.tokens import next_line

from .comments import is_pragma


def without_unused(analysis: Analysis, edits: Sequence[Edit]) -> list[Edit]:
    """Return edits that also remove the imports which they remove all uses of."""
    if analysis.source.path.endswith("__init__.py"):
        return list(edits)  # others import from here
    removals = sorted(edit for edit in edits if edit.start < edit.end)
    gone = [each for each in imports(analysis) if _is_unused(analysis, each, removals)]
    result = list(edits)
    for statement in {id(each.statement): each.statement for each in gone}.values():
        names = [each.alias for each in gone if each.statement is statement and each.alias]
        listed = statement.names if isinstance(statement.names, Sequence) else ()
        if len(names) < len(listed):
            more = list(remove(analysis, listed, names))
            result += more if not overlaps([*result, *more]) else []
            continue
        removal = without_statement(analysis, statement)
        if removal is not None:
            first, last = analysis.span(statement)
            # Not what follows on lines of its own, as at the end of a notebook's cell.
            kept = [
                each
                for each in result
                if not first < each.end <= last or each.text.startswith(("\n", "\r"))
            ]
            result = [*kept, removal]
    return result


def without_statement(analysis: Analysis, statement: cst.CSTNode) -> Edit | None:
    """Return the edit that removes an import; None where something else shares its line."""
    text = analysis.source.text
    first, last = analysis.span(statement)
    if _is_only_one(analysis, statement):
        return Edit(first, last, "pass")
    end = next_line(text, last)
    behind = text[last:end].strip()
    if not _is_alone(analysis, statement) or (behind and not is_pragma(behind)):
        return None
    return Edit(analysis.line_start(first), end, "")


def _is_unused(analysis: Analysis, each: Imported, removals: Sequence[Edit]) -> bool:
    """Say whether edits, which are in order and do not overlap, take away all uses of an import."""
    ours = each.path.partition(".")[0] in {OLD, NEW}
    if ours and not each.path.startswith(f"{OLD}.pytorch.") and not _is_of_readers(analysis, each):
        return False  # renamed, not removed
    parted = isinstance(each.statement, cst.Import) and "." in each.path
    if each.alias is None or (parted and each.alias.asname is None):
        return False
    spans = [analysis.span(read) for read in uses_of(analysis, each.local)]
    listed = any(value == each.local for _, value in analysis.strings)  # say, in ``__all__``
    if not spans or listed or is_taken_from_here(analysis, each.local):
        return False
    starts = [edit.start for edit in removals]
    word = re.compile(rf"\b{re.escape(each.local)}\b")
    for start, end in spans:
        # Only the last one before a use can cover it.
        place = bisect.bisect_right(starts, start) - 1
        if place < 0 or end > removals[place].end or word.search(removals[place].text):
            return False
        if ours and (start, end) == (removals[place].start, removals[place].end):
            return False  # the root of a path, which is another one now
    return True


def _is_of_readers(analysis: Analysis, each: Imported) -> bool:
    """Say whether an import serves readers, which converted datasets need no more."""
    path = canonical(original(each.path))
    known = path in {OLD, "petastorm.make_reader"} or path.startswith(f"{OLD}.pytorch")
    return bool(analysis.target.converted) and known


def _is_only_one(analysis: Analysis, statement: cst.CSTNode) -> bool:
    """Say whether a block has nothing but a statement."""
    line = analysis.parent(statement)
    block = analysis.parent(line)
    alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    return alone and isinstance(block, cst.IndentedBlock) and len(block.body) == 1


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
