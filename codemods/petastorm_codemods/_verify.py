"""Checks of our own output before it may be written."""

from __future__ import annotations

import ast
import builtins
import symtable

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


def parses(text: str) -> bool:
    """Say whether this Python accepts the syntax of a text."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
