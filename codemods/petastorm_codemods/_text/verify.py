"""Checks of our own output before it may be written."""

from __future__ import annotations

import ast
import bisect
import builtins
import re
import symtable
from collections import Counter
from collections.abc import Iterator, Sequence

from petastorm_codemods._model import Edit

from .sources import python_tree
from .tokens import line_starts

_KNOWN = frozenset(dir(builtins)) | {
    "__annotations__",
    "__builtins__",
    "__file__",
    "__path__",
    # What notebooks and Databricks put into every namespace.
    "dbutils",
    "display",
    "displayHTML",
    "get_ipython",
    "sc",
    "spark",
    "sqlContext",
}


def undefined_names(text: str) -> frozenset[str] | None:
    """Return the names that a module reads and nothing in it, nor Python, defines.

    The order of statements does not count. None if this Python cannot compile the text, which says
    nothing about it: it may be written for another version.
    """
    try:
        top = symtable.symtable(text, "<source>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    defined = {
        symbol.get_name()
        for symbol in top.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    read: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                defined.add(symbol.get_name())
            if symbol.is_referenced() and (symbol.is_global() or table is top):
                read.add(symbol.get_name())
    return frozenset(read - defined - _KNOWN)


def changed_statements(before: str, after: str, edits: Sequence[Edit]) -> bool:
    """Say whether any statement at the top that no edit touches has another meaning after a rewrite.

    An edit may swallow what follows, for instance by an open quote that closes later on. Says
    nothing of text that this Python cannot parse.
    """
    try:
        old, new = python_tree(before).body, python_tree(after).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    starts = [*line_starts(before), *(len(before),) * 2]
    ordered = sorted(edits)
    ends = [edit.end for edit in ordered]  # in order as well, because none overlaps another
    kept = []
    for node in old:
        first, last = starts[_first_line(node) - 1], starts[node.end_lineno or node.lineno]
        place = bisect.bisect_left(ends, first)
        if place == len(ends) or ordered[place].start > last:
            kept.append(node)
    return bool(Counter(_texts(before, kept)) - Counter(_texts(after, new)))


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _texts(text: str, statements: Sequence[ast.stmt]) -> Iterator[bytes]:
    """Yield the code of statements at the top, which says what they mean: exactly theirs, and not of whole lines."""
    data = text.encode()
    starts = [0, *(match.end() for match in re.finditer(rb"\r\n|\r|\n", data))]
    for node in statements:
        line = _first_line(node)
        column = node.col_offset if line == node.lineno else 0
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        yield data[starts[line - 1] + column : end]
