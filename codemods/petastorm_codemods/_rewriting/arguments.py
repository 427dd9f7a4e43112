"""Arguments of Petastorm's loader methods, and what becomes of each for streaming's classes."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from petastorm_bridge._tables.options import OPTIONS
from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.calls import is_none, keyword
from petastorm_codemods._model import Piece
from petastorm_codemods._petastorm.counterparts import original

from .dictionaries import items_of
from .ranks import Shards, shards
from .repeatable import is_repeatable
from .values import constants, values

Pieces = tuple[Piece, ...]

_TRANSLATED = frozenset(
    {
        "batch_size",
        "cur_shard",
        "data_loader_fn",
        "num_epochs",
        "seed",
        "shard_count",
        "shard_seed",
        "shuffle_row_groups",
        "shuffle_rows",
        "shuffling_queue_capacity",
        "transform_spec",
        "workers_count",
    }
)
# Arguments that change what is read.
_REFUSED = {
    "drop_last": "leave it out: streaming repeats rows where a rank lacks some",
    "filters": "filter the DataFrame",
    "predicate": "filter the DataFrame",
    "rowgroup_selector": "filter the DataFrame",
    "schema_fields": "select the columns of the DataFrame, or name them in a PandasCollate",
}
_METHODS = frozenset({"make_batch_reader", "make_tf_dataset", "make_torch_dataloader"})
ALL = frozenset(
    {option.name for option in OPTIONS if option.api in _METHODS}
    | {"min_after_retrieve"}  # of older releases of Petastorm
)
# They say how rows are read, not which; streaming finds its ranks by itself.
_DROPPED = ALL - _TRANSLATED - _REFUSED.keys() - {"dataset_url_or_urls"}
_LOADERS = re.compile(r"petastorm\.pytorch\.(?:(Batched)DataLoader|DataLoader)")
_BY_NAME = "give the arguments by name, so that they can be translated"
HOROVOD = (
    "streaming does not know Horovod's ranks; launch with TorchDistributor and leave out "
    "cur_shard and shard_count to read natively"
)


@dataclass(frozen=True)
class Given:
    """An argument of a call.

    Attributes:
        pieces: The expression, as it is written into rewritten code.
        node: The expression to learn from.
    """

    pieces: Pieces
    node: cst.BaseExpression


class Times(enum.Enum):
    """How often a loader gives all rows."""

    ONCE = "once"
    ENDLESS = "without end"
    SOME = "as often as a number says"
    OPEN = "as often as a number says, or without end if it is None"


@dataclass(frozen=True)
class Reading:
    """What a call asks for, in streaming's words.

    Attributes:
        dataset: Arguments of the dataset but for its place.
        batch_size: Rows of a batch.
        again: The same where it has been written before; empty if it cannot be worked out twice.
        transform: What is made of a batch; empty for nothing.
        workers: Processes that work on transforms; empty for none.
        times: How often all rows come.
        epochs: The number, if one says it.
        columnar: Whether the call asks for whole batches.
        lost: Arguments that are left out.
        notes: What else is to be said of the rewrite.
    """

    dataset: tuple[tuple[str, Pieces], ...]
    batch_size: Pieces
    again: Pieces
    transform: Pieces
    workers: Pieces
    times: Times
    epochs: Pieces
    columnar: bool
    lost: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Stays:
    """Why a call is left on the bridge.

    Attributes:
        reason: The reason, and what to do.
        marked: Whether a comment in the code says so.
    """

    reason: str
    marked: bool = True


def reading_of(analysis: Analysis, call: cst.Call, positions: Sequence[str]) -> Reading | Stays:
    """Return what a call of one of the two methods asks for, or why streaming cannot give it."""
    given = given_arguments(analysis, call, positions)
    return given if isinstance(given, Stays) else translated(analysis, given)


def translated(analysis: Analysis, given: Mapping[str, Given]) -> Reading | Stays:
    """Return what arguments ask for, or why streaming cannot give it."""
    problem = _problem(analysis, given)
    if problem:
        return Stays(problem)
    found = shards(analysis, _node(given, "cur_shard"), _node(given, "shard_count"))
    if found is Shards.HOROVOD:
        return Stays(HOROVOD, marked=False)
    if found is Shards.OTHER:
        return Stays("streaming takes ranks from its launcher, not cur_shard")
    notes = []
    if found is Shards.STREAMING:
        notes.append("streaming splits rows by rank, with as many batches on each")
    columnar = _loader_class(analysis, given) == "Batched"
    transform = _pieces(given, "transform_spec")
    workers = _pieces(given, "workers_count") if transform else ()
    lost = {*given} & _DROPPED
    lost |= {"workers_count"} if "workers_count" in given and not workers else set()
    times, epochs = _times(analysis, given)
    return Reading(
        dataset=(("shuffle", _shuffle(given)), *_seed(given), ("batch_size", _batch_size(given))),
        batch_size=_batch_size(given),
        again=_batch_size_again(analysis, given),
        transform=transform,
        workers=workers,
        times=times,
        epochs=epochs,
        columnar=columnar,
        lost=tuple(sorted(lost)),
        notes=tuple(notes),
    )


def named(call: cst.Call, positions: Sequence[str]) -> list[tuple[str | None, cst.Arg]]:
    """Return the arguments of a call with their names; None for starred ones."""
    found: list[tuple[str | None, cst.Arg]] = []
    for number, argument in enumerate(call.args):
        positional = not argument.keyword and not argument.star and number < len(positions)
        found.append((positions[number] if positional else keyword(argument), argument))
    return found


def given_arguments(
    analysis: Analysis, call: cst.Call, positions: Sequence[str]
) -> dict[str, Given] | Stays:
    """Return the arguments of a call by their names, also those in dictionaries of the source.

    An argument whose None means the default is not given then.
    """
    given: dict[str, Given] = {}
    for name, argument in named(call, positions):
        if name is not None:
            if argument.keyword is None and isinstance(argument.value, cst.NamedExpr):
                return Stays(_BY_NAME)
            given[name] = Given((_value_span(analysis, argument),), argument.value)
        elif argument.star == "**":
            items = items_of(analysis, argument.value)
            if items is None:
                return Stays("its arguments are in a dictionary; give them by name")
            place = analysis.span(argument.value)
            given |= {key: Given((place, f'["{key}"]'), value) for key, value in items.items()}
        else:
            return Stays(_BY_NAME)
    return {
        name: each for name, each in given.items() if name == "num_epochs" or not is_none(each.node)
    }


def _value_span(analysis: Analysis, argument: cst.Arg) -> tuple[int, int]:
    """Return where the value of an argument stands, its own parentheses included."""
    start, end = analysis.span(argument)
    if argument.keyword is not None:
        text = analysis.source.text
        start = text.index("=", analysis.span(argument.keyword)[1]) + 1
        start += len(text[start:end]) - len(text[start:end].lstrip())
    return start, end


def _problem(analysis: Analysis, given: Mapping[str, Given]) -> str:
    """Return why the arguments of a call cannot be translated; empty if they can."""
    for name in given:
        if name == "data_loader_fn" and _loader_class(analysis, given) is None:
            return "streaming has no counterpart of data_loader_fn; give its loader a collate_fn"
        if name not in _TRANSLATED and name not in _DROPPED:
            what = _REFUSED.get(name, "remove it")
            return f"streaming has no counterpart of {name}; {what}"
    return ""


def _loader_class(analysis: Analysis, given: Mapping[str, Given]) -> str | None:
    """Return ``Batched``, or nothing, for Petastorm's loaders; None for another one."""
    node = _node(given, "data_loader_fn")
    if node is None:
        return ""
    found = _LOADERS.fullmatch(original(analysis.imported(node) or ""))
    return (found[1] or "") if found else None


def _node(given: Mapping[str, Given], name: str) -> cst.BaseExpression | None:
    return given[name].node if name in given else None


def _pieces(given: Mapping[str, Given], name: str) -> Pieces:
    return given[name].pieces if name in given else ()


def _batch_size(given: Mapping[str, Given]) -> Pieces:
    """Return the size of batches: Petastorm's default is 32, and it took floats."""
    node = _node(given, "batch_size")
    if node is None:
        return ("32",)
    pieces = _pieces(given, "batch_size")
    divided = isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide)
    return (
        ("int", *pieces)
        if divided and node.lpar
        else (("int(", *pieces, ")") if divided else pieces)
    )


def _batch_size_again(analysis: Analysis, given: Mapping[str, Given]) -> Pieces:
    """Return what says the size of batches a second time; nothing if only one look at it is allowed."""
    each = given.get("batch_size")
    if each is None or len(each.pieces) > 1:  # the default, or an item of a dictionary
        return _batch_size(given)
    if isinstance(each.node, cst.NamedExpr):
        return (analysis.span(each.node.target),)
    return _batch_size(given) if is_repeatable(each.node) else ()


def _seed(given: Mapping[str, Given]) -> tuple[tuple[str, Pieces], ...]:
    pieces = _pieces(given, "seed") or _pieces(given, "shard_seed")
    return (("shuffle_seed", pieces),) if pieces else ()


def _shuffle(given: Mapping[str, Given]) -> Pieces:
    """Return whether rows are shuffled, as they are by default.

    Rows pass through a shuffling queue even where row groups come in order.
    """
    groups = _node(given, "shuffle_row_groups")
    if groups is None:
        return ("True",)
    if not isinstance(groups, cst.Name) or groups.value != "False":
        return _pieces(given, "shuffle_row_groups")
    for name in ("shuffling_queue_capacity", "shuffle_rows"):
        node = _node(given, name)
        if node is None or constants([node]) == [0] or _is(node, "False"):
            continue
        if _is(node, "True") or isinstance(node, cst.Integer):
            return ("True",)
        return ("bool(", *_pieces(given, name), ")")
    return ("False",)


def _is(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _times(analysis: Analysis, given: Mapping[str, Given]) -> tuple[Times, Pieces]:
    """Return how often all rows come, and the expression that says so."""
    node = _node(given, "num_epochs")
    if node is None or is_none(node):
        return Times.ENDLESS, ()
    if constants([node]) == [1]:
        return Times.ONCE, ()
    pieces = _pieces(given, "num_epochs")
    leaves = values(analysis).of(node)
    numbers = constants(leaves)
    if numbers and set(numbers) == {None} and len(numbers) == len(leaves):
        return Times.ENDLESS, ()
    known = len(numbers) == len(leaves) and None not in numbers
    return (Times.SOME if known else Times.OPEN), pieces
