"""Call sites that need no edit of their own, for reports that name every one.

A call of ``make_spark_converter`` moves with its import, and Spark's configuration key for the cache
directory is the same for Petastorm and its successors.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.imports import root_name
from petastorm_codemods._model import Destination, Edit, Finding, Safety, State
from petastorm_codemods._petastorm.counterparts import MAKERS, original
from petastorm_codemods._petastorm.offered import canonical, is_petastorm

_KEY = "petastorm.spark.converter.parentCacheDirUrl"
_CONSTANT = "PARENT_CACHE_DIR_URL_CONF"
_MAKERS = frozenset(map(canonical, MAKERS))
# Without these words there is nothing to look for.
_TELLING = re.compile(rf"make_spark_converter|{_CONSTANT}|{re.escape(_KEY)}")


def noted(analysis: Analysis, edits: Sequence[Edit]) -> Iterator[tuple[Finding, State]]:
    """Yield what there is to say of each such site, and whether it moves by some edits."""
    if not _TELLING.search(analysis.source.text):
        return
    starts = sorted(edit.start for edit in edits)
    code = "PM001" if analysis.destination is Destination.BRIDGE else "PM101"
    for call in analysis.nodes(cst.Call):
        if canonical(original(analysis.imported(call.func) or "")) in _MAKERS:
            state = _state(analysis, call.func, starts)
            yield _finding(analysis, call, code, "make_spark_converter is called"), state
    for node in analysis.nodes(cst.Attribute):
        if node.attr.value != _CONSTANT:
            continue
        path = original(analysis.imported(node) or "")
        if is_petastorm(path) and path.endswith(f".SparkDatasetConverter.{_CONSTANT}"):
            state = _state(analysis, node, starts)
            yield _finding(analysis, node, code, f"the configuration key {_KEY}"), state
    for text, value in analysis.strings:
        if value == _KEY:
            yield _finding(analysis, text, "PM002", f"the configuration key {_KEY}"), State.WORKS


def _finding(analysis: Analysis, node: cst.CSTNode, code: str, message: str) -> Finding:
    return Finding(code, analysis.start(node), message, Safety.SAFE)


def _state(analysis: Analysis, used: cst.BaseExpression, starts: Sequence[int]) -> State:
    """Say whether an edit begins in an expression, or in an import that it gets its name from."""
    name = root_name(used)
    imports = analysis.imports_of(name) if name is not None else ()
    spans = (analysis.span(node) for node in (used, *imports))
    changes = (
        bisect.bisect_left(starts, end) > bisect.bisect_left(starts, at) for at, end in spans
    )
    return State.REWRITTEN if any(changes) else State.WORKS
