"""How a program takes batches from the loader that a ``with`` opens: the first one only, by counting, or too late.

What is read after the ``with`` is an error with Petastorm, as its reader has stopped. A loader without end would give
batches for ever there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.calls import call_with

from .arguments import Reading, Times
from .blocks import whole_text
from .bound_reads import is_repeated, reads_of
from .given import Stays
from .values import values

_TOO_LATE = Stays("it is read after its with has closed it; read it in that block")
_COUNTED_TWICE = Stays(
    "the file counts full batches of one pass, and of several passes together; count one way"
)


@dataclass(frozen=True)
class _Opened:
    """A loader and the block that has it open.

    Attributes:
        name: What the ``with`` calls it.
        block: The ``with``.
    """

    name: cst.Name
    block: cst.With


def as_taken(analysis: Analysis, call: cst.Call, reading: Reading) -> Reading | Stays:
    """Return what a call asks for, as far as the program takes batches of it, or why that stays on the bridge.

    Of all passes over the rows, one is enough for the first batch. Where the program counts full batches, the short
    one at the end of each pass would come in the middle of the run; Petastorm's comes at its end.
    """
    opened = _opened(analysis, call)
    if opened is None or reading.times is Times.ONCE:
        return reading
    if _takes_first_only(analysis, opened):
        return replace(reading, times=Times.ONCE, epochs=(), drop_last=())
    if reading.times is not Times.SOME and _is_taken_later(analysis, opened):
        return _TOO_LATE
    if reading.times is not Times.ENDLESS and _counts_full(analysis, call, opened, reading):
        # Passes without their short batches have fewer than the rows of all of them would fill.
        if _divided(analysis, call, reading) in _steps_of_passes(analysis):
            return _COUNTED_TWICE
        return replace(reading, drop_last=("True",))
    return reading


def _opened(analysis: Analysis, call: cst.Call) -> _Opened | None:
    """Return the loader that a call opens for a block; None if it has no name there."""
    item = analysis.parent(call)
    if not isinstance(item, cst.WithItem) or item.asname is None:
        return None
    name, block = item.asname.name, analysis.parent(item)
    if isinstance(name, cst.Name) and isinstance(block, cst.With):
        return _Opened(name, block)
    return None


# --- after the block ------------------------------------------------------------------------------


def _is_taken_later(analysis: Analysis, opened: _Opened) -> bool:
    """Say whether a loader, or its iterator, is read behind its block or returned from it."""
    iterators = (_iterator(analysis, read) for read in reads_of(analysis, opened.name))
    return any(
        _is_later(analysis, read, opened.block)
        for name in (opened.name, *filter(None, iterators))
        for read in reads_of(analysis, name)
    )


def _is_later(analysis: Analysis, read: cst.Name, block: cst.With) -> bool:
    return analysis.start(read) >= analysis.span(block)[1] or _is_returned(analysis, read)


def _is_returned(analysis: Analysis, read: cst.Name) -> bool:
    above = analysis.above(_iter_of(analysis, read) or read)
    listing = cst.Element | cst.Tuple | cst.List
    return isinstance(next(each for each in above if not isinstance(each, listing)), cst.Return)


# --- the first batch ------------------------------------------------------------------------------


def _takes_first_only(analysis: Analysis, opened: _Opened) -> bool:
    """Say whether a block takes one batch of its loader, once."""
    taken: list[bool] = []
    for read in _reads_within(analysis, opened.name, opened.block):
        iterator = _iterator(analysis, read)
        if iterator is None:
            taken.append(_is_first_of(analysis, read, opened.block))
            continue
        for each in _reads_within(analysis, iterator, opened.block):
            following = call_with(analysis, each, "next")
            once = following is not None and not is_repeated(analysis, following, opened.block)
            taken.append(once)
    return taken == [True]


def _reads_within(analysis: Analysis, name: cst.Name, block: cst.With) -> Iterator[cst.Name]:
    yield from (each for each in reads_of(analysis, name) if not _is_later(analysis, each, block))


def _is_first_of(analysis: Analysis, read: cst.Name, block: cst.With) -> bool:
    """Say whether ``next(iter(loader))`` or a loop that ends in its first round takes one batch."""
    begun = _iter_of(analysis, read)
    taken = call_with(analysis, begun, "next") if begun is not None else None
    if taken is not None:
        return not is_repeated(analysis, taken, block)
    node: cst.CSTNode = begun or read
    node = call_with(analysis, node, "enumerate") or node
    loop = analysis.parent(node)
    if not isinstance(loop, cst.For) or loop.iter is not node or loop.orelse is not None:
        return False
    last = loop.body.body[-1]
    ends = isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Break)
    goes_on = any(analysis.within(loop.body, cst.Continue))
    return ends and not goes_on and not is_repeated(analysis, loop, block)


# --- counted batches ------------------------------------------------------------------------------


def _counts_full(analysis: Analysis, call: cst.Call, opened: _Opened, reading: Reading) -> bool:
    """Say whether a program counts the batches of a loader, none of which is short.

    That is ``len(converter) // batch_size``, and ``next()`` of an iterator, or a call that is given both.
    """
    if any(analysis.reads("StopIteration")):
        return False
    steps = _steps(analysis).get(_divided(analysis, call, reading), ())
    iterators = [_iterator(analysis, read) for read in reads_of(analysis, opened.name)]
    reads = [read for each in iterators if each is not None for read in reads_of(analysis, each)]
    known = bool(steps) and bool(reads) and None not in iterators
    return known and all(
        call_with(analysis, read, "next") is not None or _is_given_with(analysis, read, steps)
        for read in reads
    )


def _divided(analysis: Analysis, call: cst.Call, reading: Reading) -> tuple[str, str]:
    """Return the expressions of a loader's converter and of the size of its batches."""
    assert isinstance(call.func, cst.Attribute)
    return analysis.code(call.func.value), whole_text(analysis, reading.again)


def _is_given_with(analysis: Analysis, read: cst.Name, steps: Collection[cst.CSTNode]) -> bool:
    """Say whether an iterator is given to a call together with the number of steps."""
    call = analysis.call_given(read)
    arguments = call.args if call is not None else ()
    given = (leaf for each in arguments for leaf in values(analysis).of(each.value))
    return any(leaf in steps for leaf in given)


@once
def _steps(analysis: Analysis) -> dict[tuple[str, str], set[cst.CSTNode]]:
    """Return the divisions of a converter's rows by the size of batches, by the expressions of both.

    ``max(1, …)`` is none, which is one as well where rows fill no batch.
    """
    steps: dict[tuple[str, str], set[cst.CSTNode]] = {}
    for division in _divisions(analysis):
        for rows in values(analysis).of(division.left):
            for key in _keys(analysis, rows, division):
                steps.setdefault(key, set()).add(division)
    return steps


@once
def _steps_of_passes(analysis: Analysis) -> set[tuple[str, str]]:
    """Return the same expressions of divisions of the rows of several passes."""
    return {
        key
        for division in _divisions(analysis)
        for product in values(analysis).of(division.left)
        if isinstance(product, cst.BinaryOperation)
        for factor in _factors(product)
        for rows in values(analysis).of(factor)
        for key in _keys(analysis, rows, division)
    }


def _divisions(analysis: Analysis) -> Iterator[cst.BinaryOperation]:
    for each in analysis.nodes(cst.BinaryOperation):
        if isinstance(each.operator, cst.FloorDivide) and not call_with(analysis, each, "max"):
            yield each


def _keys(
    analysis: Analysis, rows: cst.CSTNode, division: cst.BinaryOperation
) -> Iterator[tuple[str, str]]:
    """Yield the expressions of a converter, if rows are its length, and of each factor that they are divided by."""
    if isinstance(rows, cst.Call) and len(rows.args) == 1 and analysis.code(rows.func) == "len":
        for size in _factors(division.right):
            yield analysis.code(rows.args[0].value), analysis.code(size).strip("()")


def _factors(size: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(size, cst.BinaryOperation) and isinstance(size.operator, cst.Multiply):
        yield from (*_factors(size.left), *_factors(size.right))
    else:
        yield size


# --- names ------------------------------------------------------------------------------------


def _iterator(analysis: Analysis, read: cst.Name) -> cst.Name | None:
    """Return the name that ``iter(loader)`` is given, alone or in a tuple; None for any other use of a loader."""
    begun = _iter_of(analysis, read)
    above = analysis.parent(begun) if begun is not None else None
    if isinstance(above, cst.Assign) and len(above.targets) == 1:
        target: cst.CSTNode = above.targets[0].target
        return target if isinstance(target, cst.Name) else None
    listed = analysis.parent(above) if isinstance(above, cst.Element) else None
    statement = analysis.parent(listed) if isinstance(listed, cst.Tuple) else None
    if not isinstance(statement, cst.Assign) or len(statement.targets) > 1:
        return None
    assert isinstance(above, cst.Element)
    assert isinstance(listed, cst.Tuple)
    target = statement.targets[0].target
    names = [each.value for each in target.elements] if isinstance(target, cst.Tuple) else []
    plain = [each for each in names if isinstance(each, cst.Name)]
    is_matched = len(plain) == len(names) == len(listed.elements)
    return plain[listed.elements.index(above)] if is_matched else None


def _iter_of(analysis: Analysis, read: cst.CSTNode) -> cst.Call | None:
    return call_with(analysis, read, "iter")
