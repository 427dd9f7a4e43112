"""Blocks of ``with`` one level out, and statements taken away."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Edit, Piece, Pieces
from petastorm_codemods._text.tokens import next_line

from .comments import comments_outside

# Edits, and comments to keep.
Result = tuple[tuple[Edit, ...], tuple[str, ...]]
# A statement that may be taken away: one on a line, or a loop.
Left = cst.SimpleStatementLine | cst.SimpleStatementSuite | cst.For
# What has a block that may move one level out.
_Holder = cst.With | cst.Try | cst.Finally
# What may stand between the last item of a `with` and its colon.
_BEFORE_COLON = re.compile(r"(?:[\s,)\\]|#[^\r\n]*[\r\n])*:")


@dataclass(frozen=True)
class Lift:
    """A ``with`` of which some items become assignments.

    Attributes:
        edits: The edits.
        comments: Comments that have no place in what takes the place of its head.
    """

    edits: tuple[Edit, ...]
    comments: tuple[str, ...]


def lifts(
    analysis: Analysis,
    plain: Mapping[cst.WithItem, Pieces],
    loops: Mapping[cst.CSTNode, Pieces] | None = None,
) -> dict[cst.WithItem, Lift]:
    """Return how some items of ``with`` statements become assignments; without those that cannot.

    Args:
        analysis: Of the source.
        plain: The items, with the statements that assign; empty for an item that only goes.
        loops: The heads of the loops in whose place a ``with`` of which no item stays is left.
    """
    blocks: dict[cst.CSTNode, dict[cst.WithItem, Pieces]] = {}
    for item, statement in plain.items():
        blocks.setdefault(analysis.parent(item), {})[item] = statement
    made: dict[cst.WithItem, Lift] = {}
    for block, items in blocks.items():
        if isinstance(block, cst.With) and block.asynchronous is None:
            lifted = _lift(analysis, block, items, (loops or {}).get(block, ()))
            made |= dict.fromkeys(items, lifted) if lifted is not None else {}
    return made


def replaced(analysis: Analysis, node: cst.Call, pieces: Pieces) -> Result:
    """Return the edit that puts pieces in the place of a call, and the comments that have no place in them."""
    start, end = analysis.span(node)
    text = analysis.source.text
    if text[max(start - 1, 0) : start].isidentifier():
        pieces = (" ", *pieces)  # return(conv).make_…
    holes = [piece for piece in pieces if not isinstance(piece, str)]
    comments = tuple(dict.fromkeys(comments_outside(analysis, start, end, holes)))
    return (Edit(start, end, _whole_text(analysis, pieces), pieces),), comments


def _lift(
    analysis: Analysis,
    node: cst.With,
    plain: Mapping[cst.WithItem, Pieces],
    loop: Pieces = (),
) -> Lift | None:
    """Return how some items of a ``with`` become assignments.

    They stand before the ``with``, or first in its block if items that stay come before them. If none
    stays, the block moves one level out, or becomes that of a loop.

    Args:
        analysis: Of the source.
        node: The statement.
        plain: The items that become assignments, with the statements that assign; empty for an item that
            only goes.
        loop: The head of the loop, where no item stays.

    Returns:
        None if the order of the items does not allow it.
    """
    kept = [item for item in node.items if item not in plain]
    inside = bool(kept) and node.items[0] in kept
    apart = plain if inside else kept
    if _is_used_by_later(analysis, node.items, apart):
        return None
    begin, end = analysis.start(node), _head_end(analysis, node)
    pieces = _head(analysis, node, plain, inside=inside)
    if loop:
        pieces += [(analysis.line_start(begin), begin), *loop, analysis.source.newline]
    if isinstance(node.body, cst.SimpleStatementSuite):
        first, last = analysis.span(node.body)
        inner = _inner_indent(analysis, node) if kept else ""
        indent = (analysis.line_start(begin), begin)
        pieces += [indent, inner, (first, last), analysis.source.newline]
        end = _line_end(analysis, last)
    holes = [piece for piece in pieces if not isinstance(piece, str)]
    comments = comments_outside(analysis, begin, end, holes)
    line = analysis.line_start(begin)
    head = Edit(line, end, _whole_text(analysis, pieces), tuple(pieces) or ("",), lines=True)
    dedented = () if kept or loop else tuple(_dedents(analysis, node, _head_end(analysis, node)))
    return Lift((head, *dedented), tuple(dict.fromkeys(comments)))


def _head(
    analysis: Analysis,
    node: cst.With,
    plain: Mapping[cst.WithItem, Pieces],
    *,
    inside: bool,
) -> list[Piece]:
    """Return the lines of the assignments, and of the ``with`` if any of its items stays.

    Args:
        analysis: Of the source.
        node: The statement.
        plain: The items that become assignments, with the statements that assign.
        inside: Whether they stand in the block.
    """
    begin, newline = analysis.start(node), analysis.source.newline
    indent: Piece = (analysis.line_start(begin), begin)
    inner = _inner_indent(analysis, node) if inside else ""
    assigned: list[Piece] = []
    for statement in filter(None, (plain.get(item) for item in node.items)):
        assigned += [indent, inner, *statement, newline]
    kept = [(analysis.span(item),) for item in node.items if item not in plain]
    head: list[Piece] = [indent, "with ", *_listed(kept), ":", newline] if kept else []
    return [*head, *assigned] if inside else [*assigned, *head]


def _listed(parts: Sequence[Pieces]) -> Iterator[Piece]:
    for number, part in enumerate(parts):
        yield from (", ", *part) if number else part


def _is_used_by_later(
    analysis: Analysis, items: Sequence[cst.WithItem], apart: Collection[cst.WithItem]
) -> bool:
    """Say whether an item uses a name that one before it binds, which will come after it.

    Args:
        analysis: Of the source.
        items: All items, in order.
        apart: Those that come after the others.
    """
    names: set[str] = set()
    for item in items:
        if item in apart and item.asname is not None:
            names |= {each.value for each in analysis.within(item.asname, cst.Name)}
        elif names & {each.value for each in analysis.within(item.item, cst.Name)}:
            return True
    return False


def _head_end(analysis: Analysis, node: cst.With) -> int:
    """Return where the head of a ``with`` ends, its line break included.

    A block on the same line is not of the head.
    """
    text = analysis.source.text
    match = _BEFORE_COLON.match(text, analysis.span(node.items[-1])[1])
    assert match is not None
    if isinstance(node.body, cst.SimpleStatementSuite):
        return analysis.start(node.body)
    return _line_end(analysis, match.end())


def _line_end(analysis: Analysis, offset: int) -> int:
    return next_line(analysis.source.text, offset)


def _inner_indent(analysis: Analysis, node: _Holder) -> str:
    """Return what the lines of a block are indented by, beyond those around it."""
    if isinstance(node.body, cst.IndentedBlock) and node.body.body:
        first = analysis.indent(analysis.start(node.body.body[0]))
        return first[len(analysis.indent(analysis.start(node))) :]
    return "    "


def _dedents(analysis: Analysis, node: _Holder, start: int) -> Iterator[Edit]:
    """Yield the edits that take one level of indentation from the lines of a block, the first of which starts there."""
    if not isinstance(node.body, cst.IndentedBlock):
        return
    text = analysis.source.text
    outer = analysis.indent(analysis.start(node))
    inner = outer + _inner_indent(analysis, node)
    last = analysis.span(node.body.body[-1])[1]
    strings = _inside_strings(analysis, start, last)
    while start < len(text):
        end = _line_end(analysis, start)
        line = text[start:end]
        if start >= last and not line.startswith(f"{inner}#"):
            return  # no comment of the block behind its last statement
        if line.startswith(inner) and start not in strings:
            yield Edit(start + len(outer), start + len(inner), "")
        start = end


def _inside_strings(analysis: Analysis, start: int, end: int) -> set[int]:
    """Return where lines start that are within a string of several lines."""
    starts: set[int] = set()
    kinds: tuple[type[cst.CSTNode], ...] = (cst.SimpleString, cst.FormattedString)
    for kind in kinds:
        for node in analysis.nodes(kind):
            first, last = analysis.span(node)
            if first >= start and last <= end:
                place = _line_end(analysis, first)
                while place < last:
                    starts.add(place)
                    place = _line_end(analysis, place)
    return starts


def _text(analysis: Analysis, piece: Piece) -> str:
    return piece if isinstance(piece, str) else analysis.source.text[piece[0] : piece[1]]


def _whole_text(analysis: Analysis, pieces: Sequence[Piece]) -> str:
    """Return what pieces are without any edits."""
    return "".join(_text(analysis, piece) for piece in pieces)


def removals(analysis: Analysis, lines: Collection[Left]) -> Iterator[Edit]:
    """Yield the edits that take statements away, and what around them has nothing left to do.

    That are conditions, attempts, and what had to be done finally. What else has to have a block keeps ``pass`` in it.
    """
    gone: set[cst.CSTNode] = set(lines)
    pending: list[cst.CSTNode] = list(lines)
    while pending:
        node = pending.pop()
        block = analysis.parent(node)
        if isinstance(node, cst.SimpleStatementSuite):
            block = node
        owner = block if isinstance(node, cst.Finally) else analysis.parent(block)
        if owner not in gone and _is_idle(analysis, owner, gone):
            gone.add(owner)
            pending.append(owner)
    kept: set[cst.CSTNode] = set()
    for node in sorted(gone, key=analysis.start):
        block = analysis.parent(node)
        owner = analysis.parent(block)
        if block in gone or owner in gone:
            continue
        first, last = analysis.span(node)
        if isinstance(node, cst.SimpleStatementSuite):
            yield Edit(first, last, "pass", ("pass",))
        elif block in kept or not _is_emptied(block, gone):
            yield Edit(analysis.line_start(first), _line_end(analysis, last), "", ("",))
            if isinstance(block, cst.Try) and not block.handlers:
                yield from _unwrapped(analysis, block, block)
        else:
            finally_ = _all_that_stays(owner, block)
            if finally_ is not None:
                gone.add(block)
                yield from _unwrapped(analysis, owner, finally_)
            else:
                kept.add(block)
                yield Edit(first, last, "pass", ("pass",))


def _all_that_stays(owner: cst.CSTNode, emptied: cst.CSTNode) -> cst.Finally | None:
    """Return the ``finally`` of an attempt of nothing; None for all else."""
    if isinstance(owner, cst.Try) and owner.body is emptied and owner.orelse is None:
        finally_ = owner.finalbody
        if finally_ is not None and isinstance(finally_.body, cst.IndentedBlock):
            return finally_
    return None


def _unwrapped(
    analysis: Analysis, attempt: cst.CSTNode, kept: cst.Try | cst.Finally
) -> Iterator[Edit]:
    """Yield the edits that leave the block of an attempt, or of its ``finally``, one level out."""
    end = _line_end(analysis, analysis.start(kept))
    yield Edit(analysis.line_start(analysis.start(attempt)), end, "", ("",))
    yield from _dedents(analysis, kept, end)


def _is_emptied(block: cst.CSTNode, gone: Collection[cst.CSTNode]) -> bool:
    """Say whether nothing stays of a block."""
    inside = block.body if isinstance(block, cst.IndentedBlock) else ()
    return bool(inside) and all(each in gone for each in inside)


def _is_idle(analysis: Analysis, node: cst.CSTNode, gone: Collection[cst.CSTNode]) -> bool:
    """Say whether a statement with blocks, or a ``finally``, has nothing left to do without what is gone."""
    if not isinstance(node, cst.If | cst.Try | cst.Finally):
        return False
    if node.body not in gone and not _is_emptied(node.body, gone):
        return False
    above = analysis.parent(node)
    if isinstance(node, cst.If):
        return node.orelse is None and not isinstance(above, cst.If | cst.Else)
    if isinstance(node, cst.Try):
        return node.orelse is None and (node.finalbody is None or node.finalbody in gone)
    first, last = analysis.span(node)
    plain = isinstance(above, cst.Try) and isinstance(above.body, cst.IndentedBlock)
    return plain and "#" not in analysis.source.text[first:last]


class Indents:
    """Indentation of the lines of a source after some edits.

    Args:
        analysis: Of the source.
        edits: The edits.
    """

    def __init__(self, analysis: Analysis, edits: Sequence[Edit]) -> None:
        self._analysis = analysis
        self._removed: dict[int, int] = {}
        text = analysis.source.text
        for edit in {each for each in edits if not each.text and not each.pieces}:
            line = analysis.line_start(edit.start)
            if "\n" not in text[line : edit.end] and not text[line : edit.end].strip():
                self._removed[line] = self._removed.get(line, 0) + edit.end - edit.start

    def at(self, offset: int) -> str:
        """Return the indentation that the line of a character has then."""
        indent = self._analysis.indent(offset)
        return indent[self._removed.get(self._analysis.line_start(offset), 0) :]
