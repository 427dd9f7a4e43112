"""Arguments of Petastorm's loader methods, and what becomes of each for streaming's dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.calls import drop, is_none, keyword
from petastorm_codemods._model import Edit
from petastorm_codemods._petastorm.counterparts import original

KEPT = {
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
DROPPED = frozenset(
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
# Arguments of make_batch_reader that change what is read.
_REFUSED = {
    "filters": "filter the DataFrame",
    "predicate": "filter the DataFrame",
    "rowgroup_selector": "filter the DataFrame",
    "schema_fields": "select the columns of the DataFrame, or name them in a TransformSpec",
}
ALL = frozenset({*KEPT, *DROPPED, *_REFUSED, "dataset_url_or_urls"})
_LOADERS = re.compile(r"petastorm\.pytorch\.(?:Batched)?DataLoader")

Named = tuple[str | None, cst.Arg]


def named(call: cst.Call, positions: Sequence[str]) -> list[Named]:
    """Return the arguments of a call with their names; None for starred ones."""
    found: list[Named] = []
    for number, argument in enumerate(call.args):
        positional = not argument.keyword and not argument.star and number < len(positions)
        found.append((positions[number] if positional else keyword(argument), argument))
    return found


def argument_problem(analysis: Analysis, call: cst.Call, positions: Sequence[str]) -> str:
    """Return why the arguments of a call cannot be translated; empty if they can."""
    for name, argument in named(call, positions):
        unnamed = argument.keyword is None and isinstance(argument.value, cst.NamedExpr)
        if (name is None and argument.star != "**") or unnamed:
            return "give the arguments by name, so that they can be translated"
        if name == "data_loader_fn" and not _is_usual_loader(analysis, argument.value):
            return "data_loader_fn: wrap the loader, or give StreamingDataLoader a collate_fn"
        if name is not None and name not in KEPT and name not in DROPPED:
            what = _REFUSED.get(name, "remove it")
            return f"streaming has no counterpart of {name}; {what}"
    return ""


def _is_usual_loader(analysis: Analysis, node: cst.BaseExpression) -> bool:
    path = original(analysis.imported(node) or "")
    return is_none(node) or _LOADERS.fullmatch(path) is not None


def dataset_arguments(
    analysis: Analysis, call: cst.Call, positions: Sequence[str]
) -> tuple[list[str], list[Edit] | None]:
    """Return the arguments to write first, and the edits of those of the call; None if all go.

    Petastorm's defaults are not streaming's: without num_epochs a loader never ends, and without
    shuffle_row_groups it shuffles.
    """
    given = named(call, positions)
    dropped = {*DROPPED, *_nones(given)}
    kept = [(name, argument) for name, argument in given if name not in dropped]
    names = {name for name, _ in kept}
    first = [] if "num_epochs" in names else ["num_epochs=None"]
    first += [] if "shuffle_row_groups" in names else ["shuffle=True"]
    if not kept:
        return first, None
    edits = list(drop(analysis, call, [each for name, each in given if name in dropped]))
    for name, argument in kept:
        edits += _renamed(analysis, name or "", argument)
        if name == "shuffle_row_groups":
            edits += _shuffled(analysis, argument, dict(given))
    return first, edits


def _renamed(analysis: Analysis, name: str, argument: cst.Arg) -> Iterator[Edit]:
    if argument.keyword is None:
        start = analysis.start(argument)
        yield Edit(start, start, f"{KEPT[name]}=")
    elif KEPT[name] != name:
        yield analysis.replace(argument.keyword, KEPT[name])


def _shuffled(
    analysis: Analysis, groups: cst.Arg, given: dict[str | None, cst.Arg]
) -> Iterator[Edit]:
    """Rows pass through a shuffling queue even where row groups come in order."""
    if not isinstance(groups.value, cst.Name) or groups.value.value != "False":
        return
    for name in ("shuffling_queue_capacity", "shuffle_rows"):
        argument = given.get(name)
        if argument is None or analysis.code(argument.value) in {"0", "None", "False"}:
            continue
        text = analysis.code(argument.value)
        literal = text == "True" or isinstance(argument.value, cst.Integer)
        yield analysis.replace(groups.value, "True" if literal else f"bool({text})")
        return


def _nones(given: Sequence[Named]) -> Iterator[str]:
    """Yield the arguments whose None means the default, and all but one of two seeds."""
    for name, argument in given:
        if name in {"batch_size", "seed", "shard_seed"} and is_none(argument.value):
            yield name
    seeds = [
        name for name, each in given if name in {"seed", "shard_seed"} and not is_none(each.value)
    ]
    if len(seeds) == 2:
        yield "shard_seed"
