"""Strings that name a module or one of its members follow the imports.

``mock.patch("petastorm.spark.make_spark_converter")`` and ``importlib.import_module`` go by strings. A string changes if
the whole of it is the dotted path of something that has moved.

- Spark's configuration keys (``petastorm.spark.converter.parentCacheDirUrl``) stay: the bridge reads the same.
- Marked are a patch of what the bridge does not have, and for ``--to streaming`` the path of a converter's method, which
  no one calls any more.
- Reported is a string of several lines that imports Petastorm, as what is written to a file and run; documentation is
  not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, last_name, manual
from petastorm_codemods._meaning.imports import imports
from petastorm_codemods._model import Destination, Edit, Finding, Safety
from petastorm_codemods._petastorm.counterparts import COUNTERPARTS, original
from petastorm_codemods._petastorm.offered import NEW, OLD, is_offered, renamed
from petastorm_codemods._registry import Rule
from petastorm_codemods._rewriting.decisions import keeps_bridge
from petastorm_codemods._text.import_lines import first_import

_PATH = re.compile(r"petastorm(?:\.[A-Za-z_]\w*)*")
# Functions that take the name of a module; loggers have the names of modules.
_IMPORTERS = frozenset(
    {"__import__", "find_spec", "getLogger", "import_module", "importorskip"},
)


@Rule(
    "PM002",
    "module-string",
    "strings that name modules follow the imports",
    safety=Safety.SAFE,
    destinations=list(Destination),
    before='importlib.import_module("petastorm.pytorch")',
    after='importlib.import_module("petastorm_bridge.pytorch")',
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each string."""
    for node, value in analysis.strings:
        if OLD not in node.value:
            continue
        if "\n" in value and first_import(value, OLD) is not None:
            if not isinstance(analysis.parent(node), cst.Expr):
                yield _program(analysis, node)
            continue
        path = _of_petastorm(analysis, value)
        if not _PATH.fullmatch(path):
            continue
        if not is_offered(path) and path != OLD and _is_patched(analysis, node):
            message = f"the test is about Petastorm itself: nothing uses {value} any more"
            yield manual("PM002", analysis.start(node), message)
        if not is_offered(path) or not _is_reference(analysis, node, path):
            continue
        if _follows_its_module(analysis, node, path):
            continue
        after = _successor(analysis, path)
        if after is None:
            message = f"{value} is not used any more; name what took its place where it is used"
            yield manual("PM002", analysis.start(node), message)
        elif after != value and value in node.value:
            yield _renamed(analysis, node, value, after)


def _program(analysis: Analysis, node: cst.SimpleString) -> Finding:
    """Return the finding of a program in a string, where it imports Petastorm: a comment there silences it."""
    # Nowhere if the string is on one line.
    start = analysis.start(node) + (first_import(node.value, OLD) or 0)
    message = "a program in this string imports Petastorm; rewrite it by hand"
    return Finding("PM002", start, message, Safety.MANUAL, marker=False)


def _of_petastorm(analysis: Analysis, value: str) -> str:
    """Return Petastorm's path for one of the bridge that has a counterpart, as an earlier ``--to bridge`` wrote it."""
    path = original(value)
    if keeps_bridge(analysis):
        return value
    return path if any(f"{path}.".startswith(f"{old}.") for old in COUNTERPARTS) else value


def _renamed(analysis: Analysis, node: cst.SimpleString, value: str, after: str) -> Finding:
    start = analysis.start(node) + node.value.index(OLD)
    end = start + len(OLD)
    edit = Edit(start, end, NEW)
    if after != value.replace(OLD, NEW, 1):
        edit = Edit(start, start + len(value), after)
    message = f"the string {value} becomes {after}"
    return Finding("PM002", analysis.start(node), message, Safety.SAFE, (edit,))


def _is_patched(analysis: Analysis, node: cst.SimpleString) -> bool:
    """Say whether a string is the first argument of ``patch``."""
    call = analysis.call_given(node)
    return call is not None and call.args[0].value is node and last_name(call.func) == "patch"


def _successor(analysis: Analysis, value: str) -> str | None:
    """Return the path that something has now; None if nothing uses it any more."""
    if not keeps_bridge(analysis):
        if value in COUNTERPARTS:
            return f"{analysis.target.module}.{COUNTERPARTS[value]}"
        if any(value.startswith(f"{old}.") for old in COUNTERPARTS):
            return None
    return renamed(value)


def _follows_its_module(analysis: Analysis, node: cst.SimpleString, value: str) -> bool:
    """Say whether a string is a type that becomes native with what ``import petastorm…`` has imported."""
    return (
        not keeps_bridge(analysis)
        and value in COUNTERPARTS
        and analysis.is_type(node)
        and any(each.local in {OLD, NEW} for each in imports(analysis))
    )


def _is_reference(analysis: Analysis, node: cst.SimpleString, value: str) -> bool:
    if value != OLD:
        return not isinstance(analysis.parent(node), cst.Expr | cst.ConcatenatedString)
    call = analysis.call_given(node)
    return call is not None and last_name(call.func) in _IMPORTERS
