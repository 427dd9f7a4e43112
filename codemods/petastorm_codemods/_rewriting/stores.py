"""Whether converters of a source are written to a store, as its configuration says."""

from __future__ import annotations

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.other_files import STORE

from .values import values

_KEY = "petastorm.spark.converter.parentCacheDirUrl"
_CONSTANT = "PARENT_CACHE_DIR_URL_CONF"


@once
def is_in_store(analysis: Analysis) -> bool:
    """Say whether the directory of converters is a store's URL.

    Where the source does not say what it is, another file of the run may.
    """
    calls = [
        call
        for call in analysis.nodes(cst.Call)
        if len(call.args) == 2 and _is_key(call.args[0].value)
    ]
    leaves = [leaf for call in calls for leaf in values(analysis).of(call.args[1].value)]
    return any(STORE.match(_beginning(leaf)) for leaf in leaves) or (
        not calls and analysis.project.stores
    )


def _is_key(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Attribute):
        return node.attr.value == _CONSTANT
    return isinstance(node, cst.SimpleString) and node.evaluated_value == _KEY


def _beginning(node: cst.CSTNode) -> str:
    """Return what a text begins with, as far as it is written down."""
    while isinstance(node, cst.BinaryOperation):
        node = node.left
    if isinstance(node, cst.SimpleString):
        value = node.evaluated_value
        return value if isinstance(value, str) else ""
    if isinstance(node, cst.FormattedString) and node.parts:
        first = node.parts[0]
        return first.value if isinstance(first, cst.FormattedStringText) else ""
    return ""
