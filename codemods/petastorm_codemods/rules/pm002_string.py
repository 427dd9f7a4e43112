"""Strings that name a module or one of its members follow the imports.

``mock.patch("petastorm.spark.make_spark_converter")`` and ``importlib.import_module`` go by strings. A
string changes if the whole of it is the dotted path of something the bridge offers. Spark's
configuration keys (``petastorm.spark.converter.parentCacheDirUrl``) stay: the bridge reads the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from libcst.helpers import get_full_name_for_node

from petastorm_codemods._analysis import Analysis
from petastorm_codemods._model import Destination, Edit, Finding, Safety
from petastorm_codemods._offered import NEW, OLD, is_offered, renamed
from petastorm_codemods._registry import rule

_PATH = re.compile(r"petastorm(?:\.[A-Za-z_]\w*)*")
# Functions that take the name of a module.
_IMPORTERS = frozenset({"__import__", "find_spec", "import_module", "importorskip"})


@rule(
    "PM002",
    "module-string",
    "strings that name modules say petastorm_bridge",
    safety=Safety.SAFE,
    destinations=[Destination.BRIDGE],
    text=__doc__,
    before='mock.patch("petastorm.spark.make_spark_converter")',
    after='mock.patch("petastorm_bridge.spark.make_spark_converter")',
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each string."""
    for node in analysis.nodes(cst.SimpleString):
        value = node.evaluated_value
        if not isinstance(value, str) or OLD not in node.value or not _PATH.fullmatch(value):
            continue
        if not is_offered(value) or not _is_reference(analysis, node, value):
            continue
        start = analysis.start(node) + node.value.index(OLD)
        edit = Edit(start, start + len(OLD), NEW)
        message = f"the string {value} becomes {renamed(value)}"
        yield Finding("PM002", analysis.start(node), message, Safety.SAFE, (edit,))


def _is_reference(analysis: Analysis, node: cst.SimpleString, value: str) -> bool:
    argument = analysis.parent(node)
    if value != OLD:
        return not isinstance(argument, cst.Expr | cst.ConcatenatedString)
    call = analysis.parent(argument)
    if not isinstance(argument, cst.Arg) or not isinstance(call, cst.Call):
        return False
    name = get_full_name_for_node(call.func) or ""
    return name.rpartition(".")[2] in _IMPORTERS
