"""Statements taken away, and what is left with nothing to do without them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.effects import has_no_effect
from petastorm_codemods._model import Edit
from petastorm_codemods._text.tokens import next_line

from .blocks import dedents
from .comments import comments_outside

# A statement that may be taken away: one on a line, or a loop.
Left = cst.SimpleStatementLine | cst.For
# Whose hooks do nothing of themselves.
_LIGHTNING = ("lightning.", "pytorch_lightning.")


def removals(analysis: Analysis, lines: Collection[Left]) -> Iterator[Edit]:
    """Yield the edits that take statements away, and what around them has nothing left to do.

    That are conditions, attempts, what had to be done finally, and hooks of Lightning's that do nothing of themselves.
    What else has to have a block keeps ``pass`` in it.
    """
    gone: set[cst.CSTNode] = set(lines)
    pending: list[cst.CSTNode] = list(lines)
    while pending:
        node = pending.pop()
        block = analysis.parent(node)
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
        if block in kept or not _is_emptied(block, gone):
            text = _comments_within(analysis, node)
            yield Edit(
                analysis.line_start(first), next_line(analysis.source.text, last), text, (text,)
            )
            if isinstance(block, cst.Try) and not block.handlers:
                yield from _unwrapped(analysis, block, block)
        else:
            finally_ = _all_that_stays(owner, block)
            if finally_ is not None:
                gone.add(block)
                yield from _unwrapped(analysis, owner, finally_)
            elif isinstance(owner, cst.FunctionDef) and _is_idle_hook(analysis, owner):
                gone.add(block)
                yield _without_method(analysis, owner)
            else:
                kept.add(block)
                text = f"{_comments_within(analysis, node)}{analysis.indent(first)}pass".lstrip()
                yield Edit(first, last, text, (text,))


def _is_idle_hook(analysis: Analysis, function: cst.FunctionDef) -> bool:
    """Say whether an emptied function is a method that does the same where it is missing: one of Lightning's hooks.

    One with a comment, or that the file calls, stays.
    """
    name, body, text = function.name.value, analysis.parent(function), analysis.source.text
    owner = analysis.parent(body)
    if not isinstance(body, cst.IndentedBlock) or not isinstance(owner, cst.ClassDef):
        return False
    bases = [analysis.imported(each.value) or "" for each in owner.bases]
    of_lightning = bool(bases) and all(each.startswith(_LIGHTNING) for each in bases)
    if not of_lightning or not _is_hook(function) or all(map(_is_hook, body.body)):
        return False
    first, last = analysis.span(function)
    commented = "#" in text[first : next_line(text, last)]
    commented |= any(each.comment is not None for each in function.leading_lines)
    return not (function.decorators or commented or any(analysis.calls(name)))


def _is_hook(node: cst.CSTNode) -> bool:
    name = node.name.value if isinstance(node, cst.FunctionDef) else ""
    return name == "teardown" or name.startswith("on_")


def _without_method(analysis: Analysis, function: cst.FunctionDef) -> Edit:
    """Return the edit that takes a method away, with the empty lines that part it from its neighbour."""
    text, (first, last) = analysis.source.text, analysis.span(function)
    start, end = analysis.line_start(first), next_line(text, last)
    body = analysis.parent(function)
    assert isinstance(body, cst.IndentedBlock)
    if function is body.body[0]:
        while not text[end : next_line(text, end)].strip():
            end = next_line(text, end)
    else:
        start = next_line(text, len(text[:start].rstrip()))
    return Edit(start, end, "", ("",))


def _comments_within(analysis: Analysis, node: cst.CSTNode) -> str:
    """Return the lines of the comments in a statement, at its indentation."""
    first, last = analysis.span(node)
    start, newline = analysis.indent(first), analysis.source.newline
    comments = comments_outside(analysis, first, last, ())
    return "".join(f"{start}{comment}{newline}" for comment in comments)


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
    end = next_line(analysis.source.text, analysis.start(kept))
    yield Edit(analysis.line_start(analysis.start(attempt)), end, "", ("",))
    yield from dedents(analysis, kept, end)


def _is_emptied(block: cst.CSTNode, gone: Collection[cst.CSTNode]) -> bool:
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
        alone = node.orelse is None and not isinstance(above, cst.If | cst.Else)
        return alone and has_no_effect(node.test)
    if isinstance(node, cst.Try):
        return node.orelse is None and (node.finalbody is None or node.finalbody in gone)
    first, last = analysis.span(node)
    plain = isinstance(above, cst.Try) and isinstance(above.body, cst.IndentedBlock)
    return plain and "#" not in analysis.source.text[first:last]
