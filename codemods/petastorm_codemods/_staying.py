"""Files whose converters stay on the bridge, because one of their loaders cannot be moved.

What ``dataframe_to_mds`` returns has no ``make_torch_dataloader``. Where a use of that method is left to a
human, the converter that it is called on has to keep it: the code runs as before until then.
"""

from __future__ import annotations

import functools

import libcst as cst

from ._analysis import Analysis
from ._arguments import ALL, argument_problem
from ._flow import Flow
from ._kinds import Kind
from ._native import COUNTERPARTS, MAKERS, clashes, constructions, is_class, original
from ._project import METHODS

_OPENINGS = dict(zip(METHODS, ("StreamingDataLoader", "tf_dataset"), strict=True))
_FIRST = ("batch_size", "num_epochs", "workers_count", "shuffling_queue_capacity", "data_loader_fn")
POSITIONS = {
    "make_torch_dataloader": _FIRST,
    "make_tf_dataset": ("batch_size", "prefetch", *_FIRST[1:4]),
}


def counterpart(analysis: Analysis, path: str) -> str | None:
    """Return the native name for a dotted path; None if there is none.

    A source that makes converters from files keeps the class: the files are Parquet. One with a
    loader that must stay keeps everything.
    """
    if stays(analysis) or (is_class(original(path), analysis) and constructions(analysis)):
        return None
    return COUNTERPARTS.get(original(path))


@functools.lru_cache(maxsize=2)
def stays(analysis: Analysis) -> str:
    """Return why the converters that a source makes stay on the bridge; empty if they move."""
    calls = {id(call.func): call for call in analysis.nodes(cst.Call)}
    uses = [node for node in analysis.nodes(cst.Attribute) if node.attr.value in METHODS]
    if not uses or not any(
        original(meaning.name) in MAKERS
        for call in calls.values()
        for meaning in analysis.meanings(call.func)
    ):
        return ""
    flow = None
    for use in uses:
        call = calls.get(id(use))
        problem = use_problem(analysis, use, call) if analysis.is_read(use) else ""
        if not problem:
            continue
        flow = flow or Flow(analysis)
        kind = flow.kind(use.value)
        if kind is Kind.CONVERTER or (kind is Kind.UNKNOWN and call and _is_petastorm(call)):
            return problem
    return ""


def _is_petastorm(call: cst.Call) -> bool:
    """Say whether all arguments of a call are ones of Petastorm's loader methods."""
    return all(
        each.star == "**" or (each.keyword is not None and each.keyword.value in ALL)
        for each in call.args
    )


def use_problem(analysis: Analysis, use: cst.Attribute, call: cst.Call | None) -> str:
    """Return why a use of a method that opens loaders cannot be rewritten; empty if it can."""
    name = use.attr.value
    clash = clashes(analysis, (_OPENINGS[name], analysis.target.dataset))
    if clash:
        return f"{', '.join(clash)} means something else in this file; rename it first"
    if call is not None:
        return argument_problem(analysis, call, POSITIONS[name])
    if not is_bound(analysis, use) and not isinstance(analysis.parent(use), cst.Attribute):
        return f"{name} is passed on; pass a function that opens a loader instead"
    return ""


def is_bound(analysis: Analysis, attribute: cst.Attribute) -> bool:
    """Say whether a method is what ``functools.partial`` is called with."""
    argument = analysis.parent(attribute)
    call = analysis.parent(argument)
    return (
        isinstance(call, cst.Call)
        and analysis.imported(call.func) == "functools.partial"
        and argument is call.args[0]
    )
