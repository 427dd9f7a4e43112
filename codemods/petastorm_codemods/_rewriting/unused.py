"""Imports that nothing uses, and imports and variables that a rewrite leaves without use, are removed by it.

``data_loader_fn=BatchedDataLoader`` and the ranks that streaming finds itself go with the other arguments that it
has no use for; an import that is left over would keep the bridge, or Petastorm, a requirement, and linters complain of
a variable that nothing reads. Variables of a module stay, as others may read them.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

import libcst as cst
from libcst.metadata import Assignment, FunctionScope

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.effects import has_no_effect
from petastorm_codemods._meaning.functions import functions_of
from petastorm_codemods._meaning.imports import Imported, imports
from petastorm_codemods._meaning.other_files import module_at
from petastorm_codemods._meaning.reexports import is_run_with, is_taken_from_here, uses_of
from petastorm_codemods._model import Edit
from petastorm_codemods._petastorm.counterparts import COUNTERPARTS, original
from petastorm_codemods._petastorm.offered import NEW, OLD, canonical
from petastorm_codemods._text.edits import overlaps
from petastorm_codemods._text.tokens import lines_of, next_line

from .comments import is_pragma
from .decisions import opens_natively
from .values import is_followed

_WORD = re.compile(r"[A-Za-z_]\w*")
# Lines for IPython hold Python that is not parsed; those that install packages name them only.
_MAGIC = re.compile(r"^[ \t]*(?:# MAGIC[ \t]+)?[%!](?!%?(?:pip|conda)\b)(.*)", re.MULTILINE)


def is_unused(analysis: Analysis, each: Imported) -> bool:
    """Say whether nothing in a file uses an import, and other files have no reason to take it from it.

    A name in ``__all__``, or in any other string that is nothing but the name, counts as used.
    """
    name = each.local
    if each.alias is None or analysis.source.path.endswith("__init__.py"):
        return False
    if (
        analysis.project.gives(analysis.source.path, name)
        or is_taken_from_here(analysis, name)
        or is_run_with(analysis, name)
        or name in _written(analysis)
    ):
        return False
    return not uses_of(analysis, name)


def unused_advice(paths: Iterable[str]) -> str:
    """Return what to do about imports that nothing uses; empty if there are none."""
    names = [path[len(OLD) + 1 :] or OLD for path in paths]
    if not names:
        return ""
    # A comment in the code may end at the colon.
    return f"unused, remove the import: {', '.join(names)}"


@once
def _written(analysis: Analysis) -> frozenset[str]:
    """Return the names that stand in strings, in types in quotes, and in lines for IPython."""
    words: set[str] = set()
    for node, value in analysis.strings:
        if analysis.is_type(node):
            words.update(_WORD.findall(value))
        elif value != OLD:  # a name of many things, directories for instance
            words.add(value)
    for line in _MAGIC.findall(analysis.source.text):
        words.update(_WORD.findall(line))
    for cell in analysis.source.cells:
        words.update(_WORD.findall(cell.text) if cell.problem else ())
    return frozenset(words)


def goes_unused(analysis: Analysis, each: Imported, *, is_beside_used: bool = False) -> bool:
    """Say whether an import goes because nothing uses it, here or in another file.

    Args:
        analysis: Of the source.
        each: The import.
        is_beside_used: Whether its statement imports a converter's name that is used. Alone, such a name stays.
    """
    name = COUNTERPARTS.get(original(each.path))
    if name is None:
        may_go = not _is_only_one(analysis, each.statement)
    else:
        may_go = is_beside_used or name == "PandasCollate"
    # What others use of a file is known if it opens loaders.
    is_lent = module_at(analysis.source.path) in analysis.project.lenders
    return (
        may_go
        and (opens_natively(analysis) or not is_lent)
        and is_unused(analysis, each)
        and not _is_meant_for_others(analysis, each)
    )


def _is_meant_for_others(analysis: Analysis, each: Imported) -> bool:
    """Say whether a comment keeps linters from complaining that an import is unused."""
    first, last = analysis.span(each.statement)
    return "F401" in analysis.source.text[first : next_line(analysis.source.text, last)]


def unused_imports(analysis: Analysis, edits: Sequence[Edit]) -> list[Imported]:
    """Return the imports of which edits remove all uses."""
    if analysis.source.path.endswith("__init__.py"):
        return []  # others import from here
    removals = sorted(edit for edit in edits if edit.start < edit.end)
    return [each for each in imports(analysis) if _is_unused(analysis, each, removals)]


def without_line(analysis: Analysis, statement: cst.CSTNode, others: Sequence[Edit]) -> Edit | None:
    """Return the edit that removes an import with those blank lines below it that are there above it, or all at the top.

    None where something else shares its line.
    """
    removal = without_statement(analysis, statement)
    if removal is None or removal.text:
        return removal
    text, source = analysis.source.text, analysis.source
    top = max(cell.start for cell in source.cells if cell.start <= removal.start)
    above = lines_of(text[top : removal.start])[:-1]
    below = lines_of(text[removal.end : source.cell_end(removal.start)])[:-1]
    blank_above = len(list(itertools.takewhile(_is_blank, reversed(above))))
    blank_below = len(list(itertools.takewhile(_is_blank, below)))
    end = removal.end
    for _ in range(blank_below if blank_above == len(above) else min(blank_above, blank_below)):
        end = next_line(text, end)
    is_used = any(removal.start < each.end and each.start < end for each in others)
    is_used |= any(removal.end <= each.start < end for each in others)
    return removal if is_used else Edit(removal.start, end, "")


def _is_blank(line: str) -> bool:
    return not line.strip()


def without_statement(analysis: Analysis, statement: cst.CSTNode) -> Edit | None:
    """Return the edit that removes an import; None where something else shares its line."""
    text = analysis.source.text
    first, last = analysis.span(statement)
    if _is_only_one(analysis, statement):
        return Edit(first, last, "pass")
    end = next_line(text, last)
    behind = text[last:end].strip()
    if not _is_one_of_several(analysis, statement) or (behind and not is_pragma(behind)):
        return None
    return Edit(analysis.line_start(first), end, "")


def _is_unused(analysis: Analysis, each: Imported, removals: Sequence[Edit]) -> bool:
    """Say whether edits, which are in order and do not overlap, take away all uses of an import."""
    ours = each.path.partition(".")[0] in {OLD, NEW}
    if (
        ours
        and not original(each.path).startswith(f"{OLD}.pytorch.")
        and not _is_of_readers(analysis, each)
    ):
        return False  # renamed, not removed
    parted = isinstance(each.statement, cst.Import) and "." in each.path
    if each.alias is None or (parted and each.alias.asname is None):
        return False
    spans = [analysis.span(read) for read in uses_of(analysis, each.local)]
    listed = any(value == each.local for _, value in analysis.strings)  # say, in ``__all__``
    if not spans or listed or is_taken_from_here(analysis, each.local):
        return False
    gone = [_removal_of(span, each.local, removals) for span in spans]
    # The root of a path of ours is another one now.
    return all(
        removal is not None and not (ours and span == (removal.start, removal.end))
        for span, removal in zip(spans, gone, strict=True)
    )


def _removal_of(span: tuple[int, int], name: str, removals: Sequence[Edit]) -> Edit | None:
    """Return the edit that takes a use of a name away; None if none does, or if it uses the name again."""
    # Only the last one before a use can cover it.
    place = bisect.bisect_right(removals, span[0], key=lambda edit: edit.start) - 1
    if place < 0 or span[1] > removals[place].end:
        return None
    again = re.search(rf"\b{re.escape(name)}\b", removals[place].text)
    return removals[place] if again is None else None


# --- variables ------------------------------------------------------------------------------------


def unused_variables(analysis: Analysis, edits: Sequence[Edit]) -> Iterator[Edit]:
    """Yield the edits that remove what functions assign for uses that edits take away."""
    removals = sorted(edit for edit in edits if edit.start < edit.end)
    names = analysis.nodes(cst.Name)
    places = [analysis.start(each) for each in names]
    statements: dict[cst.Assign, None] = {}
    for edit in removals:
        first, last = (bisect.bisect_left(places, place) for place in (edit.start, edit.end))
        bound = filter(None, (_local_target(analysis, each) for each in names[first:last]))
        assigned = (analysis.enclosing(each, cst.Assign, cst.FunctionDef) for each in bound)
        statements |= {each: None for each in assigned if isinstance(each, cst.Assign)}
    for statement in statements:
        target = statement.targets[0].target
        targets = [e.value for e in target.elements] if isinstance(target, cst.Tuple) else [target]
        idle = len(statement.targets) == 1 and all(
            isinstance(each, cst.Name)
            and all(
                _removal_of(analysis.span(read), each.value, removals)
                for read in _reads_of_locals(analysis, each.value).get(each, (each,))
            )
            for each in targets
        )
        removal = _without_assignment(analysis, statement) if idle else None
        if removal is not None and not overlaps([*removals, removal]):
            yield removal


def _local_target(analysis: Analysis, read: cst.Name) -> cst.CSTNode | None:
    """Return the only place in a function that binds a name which is read; None for any other name."""
    bound = analysis.assignments(read)
    only = bound[0] if len(bound) == 1 else None
    if isinstance(only, Assignment) and isinstance(only.scope, FunctionScope):
        return only.node if only.node is not read else None
    return None


@once
def _reads_of_locals(analysis: Analysis, name: str) -> dict[cst.CSTNode, list[cst.Name]]:
    """Return the reads of the variables of a name that functions bind in one place."""
    reads: dict[cst.CSTNode, list[cst.Name]] = {}
    for read in analysis.reads(name):
        target = _local_target(analysis, read)
        if target is not None:
            reads.setdefault(target, []).append(read)
    return reads


def _without_assignment(analysis: Analysis, statement: cst.Assign) -> Edit | None:
    """Return the edit that removes an assignment in a function; None if it is more than that, or has a comment."""
    line = analysis.parent(statement)
    block = analysis.parent(line)
    if not isinstance(line, cst.SimpleStatementLine) or not _is_one_of_several(analysis, statement):
        return None
    commented = line.trailing_whitespace.comment or any(each.comment for each in line.leading_lines)
    if (
        commented
        or not isinstance(block, cst.IndentedBlock)
        or not _only_asks(analysis, statement.value)
    ):
        return None
    text, (first, last) = analysis.source.text, analysis.span(statement)
    start, end = analysis.line_start(first), next_line(text, last)
    if text[:start].endswith(("\n\n", ":\n")) and not text[end : next_line(text, end)].strip():
        end = next_line(text, end)
    return Edit(start, end, "")


def _only_asks(analysis: Analysis, value: cst.BaseExpression) -> bool:
    """Say whether an expression has no effect, also as the call of a function that only returns one."""
    if not isinstance(value, cst.Call) or value.args or not is_followed(value):
        return has_no_effect(value)
    functions = functions_of(analysis).called(value)
    returned = [each for function in functions for each in _only_returned(function)]
    only_return = bool(functions) and len(returned) == len(functions)
    return has_no_effect(value) or (only_return and all(map(has_no_effect, returned)))


def _only_returned(function: cst.FunctionDef) -> Iterator[cst.BaseExpression]:
    """Yield what a function returns if it does nothing else."""
    lines = function.body.body
    smalls = lines[0].body if isinstance(lines[0], cst.SimpleStatementLine) else lines
    if len(lines) == len(smalls) == 1 and isinstance(smalls[0], cst.Return) and smalls[0].value:
        yield smalls[0].value


def _is_of_readers(analysis: Analysis, each: Imported) -> bool:
    """Say whether an import serves readers, which converted datasets need no more."""
    path = canonical(original(each.path))
    known = path in {OLD, "petastorm.make_reader"} or path.startswith(f"{OLD}.pytorch")
    return bool(analysis.target.converted) and known


def is_alone(analysis: Analysis, statement: cst.CSTNode) -> bool:
    """Say whether no other statement shares the line of one."""
    line = analysis.parent(statement)
    return isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1


def _is_only_one(analysis: Analysis, statement: cst.CSTNode) -> bool:
    """Say whether a block has nothing but a statement."""
    block = analysis.parent(analysis.parent(statement))
    is_single = isinstance(block, cst.IndentedBlock) and len(block.body) == 1
    return is_single and is_alone(analysis, statement)


def _is_one_of_several(analysis: Analysis, statement: cst.CSTNode) -> bool:
    """Say whether a statement has a line of its own in a block that has others."""
    block = analysis.parent(analysis.parent(statement))
    has_others = isinstance(block, cst.Module | cst.IndentedBlock) and len(block.body) > 1
    return has_others and is_alone(analysis, statement)
