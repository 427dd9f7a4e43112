"""``make_spark_converter`` becomes ``dataframe_to_mds``, which writes MDS shards.

It is streaming's function with the casts and column types that give the same batches. What it returns
is a small handle with ``path``, ``len()`` and ``delete()``, so that it may be stored, passed and pickled as a
converter was; annotations and the key of the cache directory follow. A size of Parquet row groups
becomes the size limit of shards; Parquet's compression codec has no meaning there and goes.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from petastorm_codemods._analysis import Analysis
from petastorm_codemods._calls import argument_edits, drop
from petastorm_codemods._imports import petastorm_imports
from petastorm_codemods._model import Destination, Edit, Finding, Safety
from petastorm_codemods._moves import move_edits, moves, reason
from petastorm_codemods._native import COUNTERPARTS, MAKERS, clashes, original
from petastorm_codemods._registry import rule

_BEFORE = """from petastorm.spark import SparkDatasetConverter, make_spark_converter

spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, url)
conv = make_spark_converter(df)"""
_AFTER = """from petastorm_bridge.native import MdsDirectory, dataframe_to_mds

spark.conf.set(MdsDirectory.CACHE_DIR_CONF, url)
conv = dataframe_to_mds(df)"""


@rule(
    "PM101",
    "converter",
    "make_spark_converter becomes dataframe_to_mds",
    safety=Safety.SAFE,
    destinations=[Destination.STREAMING],
    text=__doc__,
    before=_BEFORE,
    after=_AFTER,
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each import statement with its uses, and one for each call."""
    for move in moves(analysis):
        if not move.changes():
            continue
        names = tuple(COUNTERPARTS[original(each.path)] for each in move.native)
        what = ", ".join(each.path for each in (*move.native, *move.bridged))
        clash = clashes(analysis, names)
        start = analysis.start(move.statement)
        if clash:
            message = f"{', '.join(clash)} means something else in this file; rename it first"
            yield Finding("PM101", start, message, Safety.MANUAL)
            continue
        message = f"{what} comes from petastorm_bridge"
        yield Finding("PM101", start, message, Safety.SAFE, tuple(move_edits(analysis, move)))
    for call in analysis.nodes(cst.Call):
        if original(analysis.imported(call.func) or "") in MAKERS and _is_movable(analysis, call):
            edits = tuple(_call_edits(analysis, call))
            if edits:
                message = "arguments that Parquet needed become those of shards"
                yield Finding("PM101", analysis.start(call), message, Safety.SAFE, edits)


@rule(
    "PM104",
    "no-counterpart",
    "streaming has no counterpart of this name",
    safety=Safety.MANUAL,
    destinations=[Destination.STREAMING],
    text="""Readers, loaders on readers and predicates have no counterpart in streaming.

    They run on the bridge, and their import is moved there; a name that the bridge does not have either
    is left as it is. Imports of the package itself are left too: import the names instead.""",
    before="from petastorm.pytorch import DataLoader",
)
def check_missing(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each import statement that leaves something to a human."""
    for move in moves(analysis):
        rest = (*move.missing, *move.bridged)
        # What is on the bridge already has been marked, or was put there on purpose.
        if rest and not move.from_bridge:
            message = "; ".join(dict.fromkeys(map(reason, rest)))
            start = analysis.start(move.statement)
            yield Finding("PM104", start, message, Safety.MANUAL)
    plain = [each for each in petastorm_imports(analysis) if isinstance(each.statement, cst.Import)]
    for each in plain:
        message = (
            f"import the names from {each.path} instead of the module, so that they can be moved"
        )
        yield Finding("PM104", analysis.start(each.statement), message, Safety.MANUAL)


def _is_movable(analysis: Analysis, call: cst.Call) -> bool:
    """Say whether the called name is moved; guarded imports are not."""
    path = analysis.imported(call.func)
    return any(each.path == path for move in moves(analysis) for each in move.native)


def _call_edits(analysis: Analysis, call: cst.Call) -> Iterator[Edit]:
    keywords = {"df": "dataframe", "parquet_row_group_size_bytes": "size_limit"}
    yield from argument_edits(analysis, call, keywords, ["compression_codec"])
    positional = [each for each in call.args if each.keyword is None and not each.star]
    for argument, name in zip(positional[1:], ("size_limit", "", "dtype"), strict=False):
        if name:
            start = analysis.start(argument)
            yield Edit(start, start, f"{name}=")
    if len(positional) > 2:
        yield from drop(analysis, call, [positional[2]])
