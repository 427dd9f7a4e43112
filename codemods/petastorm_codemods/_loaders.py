"""Calls of the two methods that open a loader, rewritten where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from ._analysis import Analysis
from ._calls import argument_edits, is_none, keyword
from ._imports import petastorm_imports
from ._model import Edit, Finding, Safety
from ._moves import moves
from ._native import MAKERS, clashes, original

_KEPT = {
    "batch_size": "batch_size",
    "cur_shard": "cur_shard",
    "num_epochs": "num_epochs",
    "seed": "shuffle_seed",
    "shard_count": "shard_count",
    "shard_seed": "shuffle_seed",
    "shuffle_row_groups": "shuffle",
    "transform_spec": "transform_spec",
}
# They say how Petastorm works, not what it gives.
_DROPPED = frozenset(
    {
        "cache_extra_settings",
        "cache_location",
        "cache_row_size_estimate",
        "cache_size_limit",
        "cache_type",
        "convert_early_to_numpy",
        "data_loader_fn",
        "filesystem",
        "hdfs_driver",
        "min_after_retrieve",
        "prefetch",
        "reader_pool_type",
        "results_queue_size",
        "shuffle_row_drop_partitions",
        "shuffle_rows",
        "shuffling_queue_capacity",
        "storage_options",
        "workers_count",
        "zmq_copy_buffers",
    }
)
_LOADERS = re.compile(r"petastorm\.pytorch\.(?:Batched)?DataLoader")


def loader_findings(
    analysis: Analysis, code: str, method: str, opening: str, needs: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield a finding for each use of a method of converters.

    Args:
        analysis: The source.
        code: Code of the rule.
        method: Name of the method.
        opening: What is called with the dataset, for instance ``StreamingDataLoader``.
        needs: Names to import.
    """
    if any(node.name.value == method for node in analysis.nodes(cst.FunctionDef)):
        return  # the file's own method of that name
    called = {id(call.func) for call in analysis.nodes(cst.Call)}
    for node in analysis.nodes(cst.Attribute):
        if node.attr.value == method and id(node) not in called and _is_read(analysis, node):
            message = f"{method} is used without being called; write a function that opens a loader"
            yield Finding(code, analysis.start(node), message, Safety.MANUAL)
    for call in analysis.nodes(cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == method:
            start = analysis.span(call.func)[1] - len(method)
            problem = _problem(analysis, call, needs)
            if problem:
                yield Finding(code, start, problem, Safety.MANUAL)
                continue
            edits = tuple(_edits(analysis, call, opening))
            lost = sorted({keyword(each) or "" for each in call.args} & _DROPPED)
            message = f"{method} becomes {opening}(StreamingDataset(...))"
            if lost:
                message += f" without {', '.join(lost)}"
            extra = ("from_petastorm",) if any(each.star for each in call.args) else ()
            yield Finding(code, start, message, Safety.SAFE, edits, needs=(*needs, *extra))


def _is_read(analysis: Analysis, node: cst.Attribute) -> bool:
    above = analysis.parent(node)
    return not isinstance(above, cst.AssignTarget | cst.Del)


def _problem(analysis: Analysis, call: cst.Call, needs: tuple[str, ...]) -> str:
    clash = clashes(analysis, needs)
    if clash:
        return f"{', '.join(clash)} means something else in this file; rename it first"
    makers = [each for each in petastorm_imports(analysis) if each.path in MAKERS]
    movable = {id(each.alias) for move in moves(analysis) for each in move.native}
    if any(id(each.alias) not in movable for each in makers) or _guarded(analysis):
        return "make_spark_converter may come from elsewhere; decide on one source first"
    for argument in call.args:
        name = keyword(argument)
        if name is None and argument.star != "**":
            return "give the arguments by name, so that they can be translated"
        if name == "data_loader_fn" and not _is_usual_loader(analysis, argument.value):
            return "data_loader_fn: wrap the loader, or give StreamingDataLoader a collate_fn"
        if name is not None and name not in _KEPT and name not in _DROPPED:
            return f"streaming has no counterpart of {name}; select or filter in the DataFrame"
    return ""


def _guarded(analysis: Analysis) -> bool:
    from ._imports import imports

    moved = {id(each.alias) for each in petastorm_imports(analysis)}
    return any(each.path in MAKERS and id(each.alias) not in moved for each in imports(analysis))


def _is_usual_loader(analysis: Analysis, node: cst.BaseExpression) -> bool:
    path = original(analysis.imported(node) or "")
    return is_none(node) or _LOADERS.fullmatch(path) is not None


def _edits(analysis: Analysis, call: cst.Call, opening: str) -> Iterator[Edit]:
    assert isinstance(call.func, cst.Attribute)
    start, end = analysis.span(call)
    receiver_end = _receiver_end(analysis, call.func)
    text = analysis.source.text
    parenthesis = text.index("(", analysis.span(call.func)[1]) + 1
    yield Edit(start, start, f"{opening}(StreamingDataset(local=")
    if any(each.star == "**" for each in call.args):
        yield Edit(receiver_end, parenthesis, ".path, **from_petastorm(")
        yield Edit(end, end, "))")
        return
    dropped = {*_DROPPED, *_nones(call)}
    kept = [each for each in call.args if keyword(each) not in dropped]
    given = {keyword(each) for each in kept}
    first = [".path"]
    first += [] if "num_epochs" in given else ["num_epochs=None"]
    first += [] if "shuffle_row_groups" in given else ["shuffle=True"]
    if not kept:
        yield Edit(receiver_end, end, f"{', '.join(first)}))")
        return
    comma = "," if text[parenthesis] in "\r\n" else ", "
    yield Edit(receiver_end, parenthesis, ", ".join(first) + comma)
    yield from argument_edits(analysis, call, _KEPT, dropped)
    yield Edit(end, end, ")")


def _nones(call: cst.Call) -> Iterator[str]:
    """Yield the arguments whose None means the default, and all but one of two seeds."""
    for argument in call.args:
        name = keyword(argument)
        if name in {"batch_size", "seed", "shard_seed"} and is_none(argument.value):
            yield name
    seeds = [keyword(each) for each in call.args if keyword(each) in {"seed", "shard_seed"}]
    if len(seeds) == 2:
        yield "shard_seed"


def _receiver_end(analysis: Analysis, node: cst.Attribute) -> int:
    """Return where the expression before the method ends, its own parentheses included."""
    end = analysis.span(node.value)[1]
    for _ in getattr(node.value, "rpar", ()):
        end = analysis.source.text.index(")", end) + 1
    return end
