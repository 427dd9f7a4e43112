"""Whether converters of a source are written to a store, as its configuration says."""

from __future__ import annotations

import re

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once

from .values import values

_KEY = "petastorm.spark.converter.parentCacheDirUrl"
_CONSTANT = "PARENT_CACHE_DIR_URL_CONF"
# Not what is mounted: file:, dbfs:.
_STORE = re.compile(r"(?:s3|s3a|s3n|gs|abfss?|wasbs?|azure|oci|r2|hdfs)://", re.IGNORECASE)


@once
def is_in_store(analysis: Analysis) -> bool:
    """Say whether the directory of converters is a store's URL, where the source says what it is."""
    if not _STORE.search(analysis.source.text):
        return False
    for call in analysis.nodes(cst.Call):
        if len(call.args) == 2 and _is_key(call.args[0].value):
            leaves = values(analysis).of(call.args[1].value)
            if any(_STORE.match(_beginning(leaf)) for leaf in leaves):
                return True
    return False


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
