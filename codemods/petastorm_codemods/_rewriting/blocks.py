"""Blocks of ``with`` one level out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Edit, Piece, Pieces
from petastorm_codemods._text.tokens import next_line

from .comments import comments_outside
from .layout import call_of

# What has a block that may move one level out.
_Holder = cst.With | cst.Try | cst.Finally
# What may stand between the last item of a `with` and its colon.
_STRINGS: tuple[type[cst.CSTNode], ...] = (cst.SimpleString, cst.FormattedString)
if hasattr(cst, "TemplatedString"):  # since LibCST 1.8.3
    _STRINGS += (cst.TemplatedString,)
_BEFORE_COLON = re.compile(r"(?:[\s,)\\]|#[^\r\n]*[\r\n])*:")


@dataclass(frozen=True)
class Result:
    """What becomes of a call, or of a ``with`` of which some items become assignments.

    Attributes:
        edits: The edits.
        comments: Comments that have no place in them.
    """

    edits: tuple[Edit, ...] = ()
    comments: tuple[str, ...] = ()

    def joined(self, others: Iterable[Result]) -> Result:
        """Return it with others, of which several may have the same edits."""
        results = (self, *others)
        edits = dict.fromkeys(edit for each in results for edit in each.edits)
        comments = dict.fromkeys(text for each in results for text in each.comments)
        return Result(tuple(edits), tuple(comments))


def lifts(
    analysis: Analysis,
    plain: Mapping[cst.WithItem, Pieces],
    loops: Mapping[cst.CSTNode, Pieces] | None = None,
) -> dict[cst.WithItem, Result]:
    """Return how some items of ``with`` statements become assignments; without those that cannot.

    Args:
        analysis: Of the source.
        plain: The items, with the statements that assign; empty for an item that only goes.
        loops: The heads of the loops in whose place a ``with`` of which no item stays is left.
    """
    blocks: dict[cst.CSTNode, dict[cst.WithItem, Pieces]] = {}
    for item, statement in plain.items():
        blocks.setdefault(analysis.parent(item), {})[item] = statement
    made: dict[cst.WithItem, Result] = {}
    for block, items in blocks.items():
        if not isinstance(block, cst.With) or block.asynchronous is not None:
            continue
        if isinstance(block.body, cst.IndentedBlock):
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
    return Result((Edit(start, end, whole_text(analysis, pieces), pieces),), comments)


def _lift(
    analysis: Analysis,
    node: cst.With,
    plain: Mapping[cst.WithItem, Pieces],
    loop: Pieces = (),
) -> Result | None:
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
    holes = [piece for piece in pieces if not isinstance(piece, str)]
    comments = comments_outside(analysis, begin, end, holes)
    line = analysis.line_start(begin)
    head = Edit(line, end, whole_text(analysis, pieces), tuple(pieces) or ("",), lines=True)
    dedented = () if kept or loop else tuple(dedents(analysis, node, _head_end(analysis, node)))
    return Result((head, *dedented), tuple(dict.fromkeys(comments)))


def _head(
    analysis: Analysis,
    node: cst.With,
    plain: Mapping[cst.WithItem, Pieces],
    *,
    inside: bool,
) -> list[Piece]:
    """Return the lines of the assignments, inside of the ``with`` or before it, and of the ``with`` if an item stays."""
    begin, newline = analysis.start(node), analysis.source.newline
    indent: Piece = (analysis.line_start(begin), begin)
    inner = _inner_indent(analysis, node) if inside else ""
    assigned: list[Piece] = []
    for statement in filter(None, (plain.get(item) for item in node.items)):
        assigned += [indent, inner, *statement, newline]
    items = [item for item in node.items if item not in plain]
    kept = [(analysis.span(item),) for item in items]
    # Older versions of Python know no parentheses here.
    in_brackets = len(kept) > 1 and isinstance(node.lpar, cst.LeftParen)
    listed = call_of("", [("", each) for each in kept]) if in_brackets else _listed(kept)
    head: list[Piece] = [indent, "with ", *listed, ":", newline] if kept else []
    return [*head, *assigned] if inside else [*assigned, *head]


def _listed(parts: Sequence[Pieces]) -> Iterator[Piece]:
    for number, part in enumerate(parts):
        yield from (", ", *part) if number else part


def _is_used_by_later(
    analysis: Analysis, items: Sequence[cst.WithItem], apart: Collection[cst.WithItem]
) -> bool:
    """Say whether an item uses a name that one before it binds, and that will be apart, after the others."""
    names: set[str] = set()
    for item in items:
        if item in apart and item.asname is not None:
            names |= {each.value for each in analysis.within(item.asname, cst.Name)}
        elif names & {each.value for each in analysis.within(item.item, cst.Name)}:
            return True
    return False


def _head_end(analysis: Analysis, node: cst.With) -> int:
    """Return where the head of a ``with`` ends, its line break included."""
    text = analysis.source.text
    match = _BEFORE_COLON.match(text, analysis.span(node.items[-1])[1])
    assert match is not None
    return next_line(text, match.end())


def _inner_indent(analysis: Analysis, node: _Holder) -> str:
    """Return what the lines of a block are indented by, beyond those around it."""
    first = analysis.indent(analysis.start(node.body.body[0]))
    return first[len(analysis.indent(analysis.start(node))) :]


def dedents(analysis: Analysis, node: _Holder, start: int) -> Iterator[Edit]:
    """Yield the edits that take one level of indentation from the lines of a block, the first of which starts there."""
    if not isinstance(node.body, cst.IndentedBlock):
        return
    text = analysis.source.text
    outer = analysis.indent(analysis.start(node))
    inner = outer + _inner_indent(analysis, node)
    last = analysis.span(node.body.body[-1])[1]
    strings = _inside_strings(analysis, start, last)
    while start < len(text):
        end = next_line(analysis.source.text, start)
        line = text[start:end]
        is_comment = line.startswith(inner) and line.lstrip().startswith("#")
        if start >= last and line.strip() and not is_comment:
            return  # no comment of the block behind its last statement
        if line.startswith(inner) and start not in strings:
            yield Edit(start + len(outer), start + len(inner), "")
        start = end


def _inside_strings(analysis: Analysis, start: int, end: int) -> set[int]:
    """Return where lines start that are within a string of several lines."""
    starts: set[int] = set()
    for kind in _STRINGS:
        for node in analysis.nodes(kind):
            first, last = analysis.span(node)
            if first >= start and last <= end:
                place = next_line(analysis.source.text, first)
                while place < last:
                    starts.add(place)
                    place = next_line(analysis.source.text, place)
    return starts


def whole_text(analysis: Analysis, pieces: Sequence[Piece]) -> str:
    """Return what pieces are without any edits."""
    text = analysis.source.text
    return "".join(each if isinstance(each, str) else text[slice(*each)] for each in pieces)


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
