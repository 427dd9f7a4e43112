"""What a program does with a reader of Petastorm's: a loader over it, or a loop over its rows."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.calls import call_with, first_given
from petastorm_codemods._meaning.reexports import is_taken_from_here
from petastorm_codemods._model import Edit
from petastorm_codemods._petastorm.counterparts import original
from petastorm_codemods._petastorm.offered import canonical

from .bound_reads import COMPREHENSIONS, is_repeated, reads_of, reads_within, straying_reads
from .given import Stays

_LOADERS = "petastorm.pytorch."
_LOADER = "petastorm.pytorch.DataLoader"
MORE_THAN_BATCHES = "more is done with its loader than reading batches"
_UNKNOWN = Stays("the codemod cannot tell who reads its rows")


@dataclass(frozen=True)
class Use:
    """What is done with a reader.

    Attributes:
        held: The item of a ``with`` that holds it; None if it is used where it is opened.
        loader: The loader over it; None if its rows are read one by one.
        names: What is read of its rows, if they are.
        reads: The edits that read it of dictionaries.
    """

    held: cst.WithItem | None
    loader: cst.Call | None = None
    names: tuple[str, ...] = ()
    reads: tuple[Edit, ...] = ()


def use_of(analysis: Analysis, opened: cst.Call) -> Use | Stays:
    """Return what is done with the reader that a call opens, or why that is not known."""
    above = analysis.parent(opened)
    held: cst.WithItem | None = None
    used: cst.BaseExpression = opened
    if isinstance(above, cst.WithItem):
        name = above.asname.name if above.asname is not None else None
        block = analysis.parent(above)
        reads = reads_within(analysis, name, block) if isinstance(name, cst.Name) else None
        if reads is None or len(reads) != 1:
            return Stays("its reader is used in more than one place")
        held, used = above, reads[0]
        if is_repeated(analysis, used, block):
            return Stays("its rows are read in a loop of passes")
    elif isinstance(above, cst.Assign):
        return Stays("its reader is kept in a variable; open it in a with")
    loader = _loader_over(analysis, used)
    if isinstance(loader, Stays):
        return loader
    if loader is not None:
        problem = _problem_of_loader(analysis, loader)
        return problem or Use(held, loader)
    return _rows(analysis, held, used)


# --- loaders ------------------------------------------------------------------------------------------


def _loader_over(analysis: Analysis, reader: cst.BaseExpression) -> cst.Call | Stays | None:
    """Return the call of Petastorm's loader that a reader is given to, or why it is no known one."""
    call = analysis.call_given(reader)
    if call is None or first_given(call, "reader") is not reader:
        return None
    path = canonical(original(analysis.imported(call.func) or ""))
    if path.startswith(_LOADERS) and path != _LOADER:
        name = path.rpartition(".")[2]
        return Stays(f"{name} has no counterpart for rows; DataLoader has")
    return call if path == _LOADER else None


def _problem_of_loader(analysis: Analysis, loader: cst.Call) -> Stays | None:
    """Return why a loader cannot become streaming's; None if it can."""
    above = analysis.parent(loader)
    target: cst.BaseExpression | None = None
    if isinstance(above, cst.WithItem) and above.asname is not None:
        target = above.asname.name
    elif isinstance(above, cst.Assign) and len(above.targets) == 1:
        target = above.targets[0].target
    if isinstance(target, cst.Name):
        known = not is_taken_from_here(analysis, target.value)
        reads = [*reads_of(analysis, target), *straying_reads(analysis, target)]
        known = known and all(_is_iterated(analysis, read) for read in reads)
    else:
        known = _is_iterated(analysis, loader)
    return None if known else Stays(MORE_THAN_BATCHES)


def _is_iterated(analysis: Analysis, node: cst.BaseExpression) -> bool:
    """Say whether an expression is gone through, or given to a call that does so by all appearance."""
    above = analysis.parent(node)
    if isinstance(above, cst.For | cst.CompFor):
        return above.iter is node
    # What enters a context would find that streaming's loader is none.
    entering = ("enter_context", "closing", "nullcontext")
    call = analysis.call_given(node)
    return call is not None and not analysis.code(call.func).endswith(entering)


# --- rows ---------------------------------------------------------------------------------------------


def _rows(analysis: Analysis, held: cst.WithItem | None, reader: cst.BaseExpression) -> Use | Stays:
    """Return the use of a reader whose rows are gone through once, each read by the names of its fields."""
    loop, target = _loop_over(analysis, reader)
    if loop is None:
        return _UNKNOWN
    reads = reads_within(analysis, target, loop) if isinstance(target, cst.Name) else None
    if reads is None:
        return _UNKNOWN
    names: list[str] = []
    edits: list[Edit] = []
    for read in reads:
        item = _item_read(analysis, read)
        if item is None:
            return Stays("a row is used as a whole; streaming's rows are dictionaries")
        names.append(item[0])
        edits.append(item[1])
    return Use(held, None, tuple(dict.fromkeys(names)), tuple(edits))


def _loop_over(
    analysis: Analysis, reader: cst.BaseExpression
) -> tuple[cst.CSTNode | None, cst.BaseExpression | None]:
    """Return the loop over a reader, or over its numbered rows, and what it binds each row to."""
    call = call_with(analysis, reader, "enumerate")
    counted = call is not None and call.args[0].value is reader
    used = call if call is not None and counted else reader
    above = analysis.parent(used)
    if not isinstance(above, cst.For | cst.CompFor) or above.iter is not used or above.asynchronous:
        return None, None
    target: cst.BaseExpression = above.target
    if counted:
        pair = target.elements if isinstance(target, cst.Tuple) else ()
        if len(pair) != 2:
            return None, None
        target = pair[1].value
    loop = analysis.parent(above) if isinstance(above, cst.CompFor) else above
    return (loop, target) if isinstance(loop, (cst.For, *COMPREHENSIONS)) else (None, None)


def _item_read(analysis: Analysis, read: cst.Name) -> tuple[str, Edit] | None:
    """Return the field that is read of a row, and the edit that reads it of a dictionary.

    None if something else is done with the row.
    """
    field = analysis.parent(read)
    if not isinstance(field, cst.Attribute) or field.value is not read or read.lpar:
        return None
    name, above = field.attr.value, analysis.parent(field)
    is_method = isinstance(above, cst.Call) and above.func is field
    if name.startswith("_") or is_method or not analysis.is_read(field):
        return None
    text = analysis.enclosing(field, cst.FormattedString)
    if text is not None and analysis.enclosing(analysis.parent(text), cst.FormattedString):
        return None
    quote = analysis.quote
    if text is not None:  # another one than around it
        quote = "'" if '"' in text.quote else '"'
    start, end = analysis.span(field.attr)
    dot = analysis.source.text.rindex(".", analysis.span(read)[1], start)
    item = f"[{quote}{name}{quote}]"
    return name, Edit(dot, end, item)
