"""Checks of our own output before it may be written."""

from __future__ import annotations

import ast
import bisect
import builtins
import re
import symtable
from collections import Counter
from collections.abc import Sequence

from petastorm_codemods._model import Edit

_KNOWN = frozenset(dir(builtins)) | {
    "__annotations__",
    "__builtins__",
    "__doc__",
    "__file__",
    "__loader__",
    "__name__",
    "__package__",
    "__path__",
    "__spec__",
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
    defined = {symbol.get_name() for symbol in top.get_symbols() if _defines(symbol)}
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


def _defines(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()


def changed_statements(before: str, after: str, edits: Sequence[Edit]) -> bool:
    """Say whether any statement at the top that no edit touches has another meaning after a rewrite.

    An edit may swallow what follows, for instance by an open quote that closes later on. Says
    nothing of text that this Python cannot parse.
    """
    try:
        old, new = ast.parse(before).body, ast.parse(after).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    starts = _line_starts(before)
    ordered = sorted(edits)
    ends = [edit.end for edit in ordered]  # in order as well, because none overlaps another
    kept = []
    for node in old:
        first = starts[
            min(each.lineno for each in (node, *getattr(node, "decorator_list", ()))) - 1
        ]
        last = starts[(node.end_lineno or node.lineno)]
        place = bisect.bisect_left(ends, first)
        if place == len(ends) or ordered[place].start > last:
            kept.append(ast.dump(node))
    return bool(Counter(kept) - Counter(map(ast.dump, new)))


def _line_starts(text: str) -> list[int]:
    """Return where lines start, as Python counts them, and the end of the text twice."""
    starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]
    return [*starts, len(text), len(text)]
