"""Imports of Petastorm's that a file makes no use of."""

from __future__ import annotations

import re
from collections.abc import Iterable

from petastorm_codemods._petastorm.offered import OLD

from .analysis import Analysis, once
from .imports import Imported
from .reexports import is_run_with, is_taken_from_here, uses_of

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
