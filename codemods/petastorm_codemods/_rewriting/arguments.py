"""Arguments of Petastorm's loader methods, and what becomes of each for streaming's classes."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.calls import is_none
from petastorm_codemods._meaning.effects import is_repeatable
from petastorm_codemods._meaning.places import reached
from petastorm_codemods._model import Fact, Pieces
from petastorm_codemods._petastorm.counterparts import original

from .given import Given, Stays, given_arguments, named
from .ranks import Shards, differs_by_rank, shards
from .sites import DROPPED, REFUSED, TRANSLATED
from .values import constants, values

_LOADERS = re.compile(r"petastorm\.pytorch\.(?:(Batched)DataLoader|DataLoader)")
# Functions that give numbers, never None, and `range`, which gives them one by one.
_NUMBERS = frozenset(
    {
        *("abs", "ceil", "floor", "getrandbits", "hash", "int", "integers", "len", "max", "min"),
        *("randint", "randrange", "range", "round", "suggest_int"),
    }
)
# What needs no brackets before ``is None`` and behind ``not``.
_SIMPLE = cst.Name | cst.Attribute | cst.Subscript | cst.Call | cst.Integer
_OPPOSITES: Mapping[type[cst.CSTNode], str] = {
    cst.Equal: "!=",
    cst.NotEqual: "==",
    cst.Is: "is not",
    cst.IsNot: "is",
}
_FOR_THEIR_SHARDS = {
    Shards.OTHER: Stays(
        "streaming takes ranks from its launcher, not cur_shard", frozenset({Fact.OTHER_RANKS})
    ),
    Shards.SOME: Stays(
        "some calls read a shard and others all rows; streaming would divide them in both"
    ),
    Shards.HOROVOD: Stays(
        "streaming does not know Horovod's ranks; launch with TorchDistributor and leave out "
        "cur_shard and shard_count to read natively",
        frozenset({Fact.HOROVOD}),
    ),
}
# The first rank of each machine shuffles for those there: the machines would divide different orders.
_SEED_OF_RANK = Stays(
    "its seed may differ among the ranks; streaming divides one order: give all the same seed to read natively"
)


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
        shuffle: Whether rows are shuffled.
        seed: The seed; empty if none is given.
        unseeded: What says that the seed is None; empty if it is none that may be.
        batch_size: Rows of a batch.
        again: The same where it has been written before; empty if it cannot be worked out twice.
        transform: What is made of a batch; empty for nothing.
        may_lack_transform: Whether that may be None.
        workers: Processes that work on transforms; empty for none.
        times: How often all rows come.
        epochs: The number, if one says it.
        several: Whether that may be more than one.
        drop_last: Whether all batches are full, as Petastorm's are where epochs have no end; empty for no.
        columnar: Whether the call asks for whole batches.
        lost: Arguments that are left out.
        ranks: Whether shards are asked for that streaming finds itself.
        comments: Those of Petastorm's arguments, by their names.
    """

    shuffle: Pieces
    seed: Pieces
    unseeded: Pieces
    batch_size: Pieces
    again: Pieces
    transform: Pieces
    may_lack_transform: bool
    workers: Pieces
    times: Times
    epochs: Pieces
    several: bool
    drop_last: Pieces
    columnar: bool
    lost: tuple[str, ...]
    ranks: bool
    comments: Mapping[str, Pieces]

    def commented(self, pieces: Pieces, *names: str) -> Pieces:
        """Return pieces with the comments of arguments behind them."""
        return (*pieces, *(piece for name in names for piece in self.comments.get(name, ())))


def reading_of(analysis: Analysis, call: cst.Call, positions: tuple[str, ...]) -> Reading | Stays:
    """Return what a call of one of the two methods asks for, or why streaming cannot give it."""
    given = given_arguments(analysis, call, positions)
    if not isinstance(given, Stays):
        return translated(analysis, given)
    kind = shards_of(analysis, call, positions)
    return given if kind is None else _FOR_THEIR_SHARDS.get(kind, given)


def shards_of(analysis: Analysis, call: cst.Call, positions: tuple[str, ...]) -> Shards | None:
    """Return whose shards a call of one of the two methods reads; None where its arguments are not known."""
    given = given_arguments(analysis, call, positions)
    if not isinstance(given, Stays):
        return shards(analysis, _node(given, "cur_shard"), _node(given, "shard_count"))
    by_name = {name: argument.value for name, argument in named(call, positions)}
    if {"cur_shard", "shard_count"} <= by_name.keys():  # which a dictionary cannot give again
        return shards(analysis, by_name["cur_shard"], by_name["shard_count"])
    return None


def translated(analysis: Analysis, given: Mapping[str, Given]) -> Reading | Stays:
    """Return what arguments ask for, or why streaming cannot give it."""
    problem = _problem(analysis, given)
    if problem:
        return Stays(problem)
    kind = shards(analysis, _node(given, "cur_shard"), _node(given, "shard_count"))
    if kind in _FOR_THEIR_SHARDS:
        return _FOR_THEIR_SHARDS[kind]
    columnar = _loader_class(analysis, given) == "Batched"
    transform = _pieces(given, "transform_spec")
    node = _node(given, "transform_spec")
    maybe = node is not None and None in _constants(analysis, values(analysis).alike(node))
    workers = _pieces(given, "workers_count") if transform else ()
    lost = {*given} & DROPPED
    lost |= {"workers_count"} if "workers_count" in given and not workers else set()
    times, epochs = _times(analysis, given)
    node = _node(given, "num_epochs")
    several = node is not None and _may_be_several(analysis, values(analysis).alike(node))
    if times is Times.OPEN and node is not None and not is_repeatable(node):
        return Stays("its num_epochs is needed twice; put it into a variable")
    seed = "seed" if "seed" in given else "shard_seed"
    node = _node(given, seed)
    open_seed = node is not None and _may_be_none(analysis, values(analysis).alike(node))
    if open_seed and node is not None and not is_repeatable(node):
        return Stays("its seed is needed twice; put it into a variable")
    if kind is Shards.STREAMING and node is not None and differs_by_rank(analysis, node):
        return _SEED_OF_RANK
    number = _choice(analysis, given, seed)
    return Reading(
        shuffle=_shuffle(given),
        seed=_pieces(given, seed) if number is None else number.number,
        unseeded=_is_none_of(analysis, given, seed) if open_seed else (),
        batch_size=_batch_size(given),
        again=_batch_size_again(analysis, given),
        transform=transform,
        may_lack_transform=maybe,
        workers=workers,
        times=times,
        epochs=epochs,
        several=several,
        drop_last=_drop_last(analysis, given, times),
        columnar=columnar,
        lost=tuple(sorted(lost)),
        ranks=kind is Shards.STREAMING,
        comments={name: each.comments for name, each in given.items() if each.comments},
    )


def _problem(analysis: Analysis, given: Mapping[str, Given]) -> str:
    """Return why the arguments of a call cannot be translated; empty if they can."""
    for name in given:
        if name == "data_loader_fn" and _loader_class(analysis, given) is None:
            return "streaming has no counterpart of data_loader_fn; give its loader a collate_fn"
        if name not in TRANSLATED and name not in DROPPED:
            what = REFUSED.get(name, "remove it")
            return f"streaming has no counterpart of {name}; {what}"
    return ""


def _loader_class(analysis: Analysis, given: Mapping[str, Given]) -> str | None:
    """Return ``Batched``, or nothing, for Petastorm's loaders; None for another one."""
    node = _node(given, "data_loader_fn")
    if node is None:
        return ""
    match = _LOADERS.fullmatch(original(analysis.imported(node) or ""))
    return (match[1] or "") if match else None


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


@once
def _constants(analysis: Analysis, node: cst.CSTNode) -> frozenset[int | None]:
    """Return the numbers, or None, that an expression may be by its looks."""
    return frozenset(constants(values(analysis).of(node)))


@once
def _may_be_none(analysis: Analysis, node: cst.CSTNode) -> bool:
    ends = reached([node], lambda each: () if _is_number(each) else values(analysis).behind(each))
    return any(is_last and not _is_number(each) for each, is_last in ends.items())


@once
def _may_be_several(analysis: Analysis, node: cst.CSTNode) -> bool:
    """Say whether an expression may be anything but 1 and None."""
    leaves = values(analysis).of(node)
    return any(not is_none(each) and constants([each]) != [1] for each in leaves)


def _is_number(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Call):
        name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        return isinstance(name, cst.Name) and name.value in _NUMBERS
    if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or):
        return _is_number(node.right)  # None is not what `or` gives of its left
    return isinstance(node, cst.Integer | cst.BinaryOperation | cst.UnaryOperation)


def _drop_last(analysis: Analysis, given: Mapping[str, Given], times: Times) -> Pieces:
    if times is not Times.OPEN:
        return ("True",) if times is Times.ENDLESS else ()
    choice = _choice(analysis, given, "num_epochs")
    is_none = _is_none_of(analysis, given, "num_epochs")
    # Torch takes nothing else that is true.
    return is_none if choice is None or choice.is_bool else ("bool(", *is_none, ")")


def _is_none_of(analysis: Analysis, given: Mapping[str, Given], name: str) -> Pieces:
    """Return the expression that says whether an argument is None."""
    choice = _choice(analysis, given, name)
    if choice is not None:
        return choice.is_none
    node, pieces = _node(given, name), _pieces(given, name)
    return _is_none(node, pieces, is_item=len(pieces) > 1)


def _is_none(node: cst.BaseExpression | None, pieces: Pieces, *, is_item: bool = False) -> Pieces:
    whole = is_item or isinstance(node, _SIMPLE) or bool(getattr(node, "lpar", ()))
    return (*pieces, " is None") if whole else ("(", *pieces, ") is None")


def _is_false(node: cst.BaseExpression, pieces: Pieces) -> Pieces:
    return ("not ", *pieces) if isinstance(node, _SIMPLE) else ("not (", *pieces, ")")


@dataclass(frozen=True)
class _Choice:
    """An argument that is None under a condition, and a number else.

    Attributes:
        is_none: The condition.
        is_bool: Whether that is a bool in any case, and not what only counts as one.
        number: The number.
    """

    is_none: Pieces
    is_bool: bool
    number: Pieces


def _choice(analysis: Analysis, given: Mapping[str, Given], name: str) -> _Choice | None:
    """Return what an argument chooses by an ``if``, or by an ``or``, where it is given; None if it does not."""
    node = _node(given, name)
    if len(_pieces(given, name)) > 1:  # an item of a dictionary
        return None
    if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or):
        number: Pieces = (analysis.span(node.left),)
        return _Choice(_is_false(node.left, number), True, number) if is_none(node.right) else None
    if not isinstance(node, cst.IfExp):
        return None
    chosen, other = (node.body, node.orelse) if is_none(node.orelse) else (node.orelse, node.body)
    if not is_none(other):
        return None
    test, negated, number = node.test, other is node.orelse, (analysis.span(chosen),)
    if negated and analysis.code(test) == analysis.code(chosen):
        return _Choice(_is_false(test, number), True, number)
    if negated and isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test, negated = test.expression, False
    condition: Pieces = (analysis.span(test),)
    if negated:
        condition = _opposite(analysis, test) or _is_false(test, condition)
    if _may_be_none(analysis, values(analysis).alike(chosen)):
        condition = (*condition, " or ", *_is_none(chosen, number))
    return _Choice(condition, negated or _is_bool(test), number)


def _is_bool(test: cst.BaseExpression) -> bool:
    """Say whether a condition is a bool in any case, as a comparison of arrays is not."""
    if isinstance(test, cst.UnaryOperation):
        return isinstance(test.operator, cst.Not)
    return isinstance(test, cst.Comparison) and all(
        isinstance(each.operator, cst.Is | cst.IsNot) or isinstance(each.comparator, cst.BaseString)
        for each in test.comparisons
    )


def _opposite(analysis: Analysis, test: cst.BaseExpression) -> Pieces:
    """Return a comparison by the opposite operator; nothing where there is none, or brackets."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) > 1 or not _is_bool(test):
        return ()
    left, right = test.left, test.comparisons[0].comparator
    operator = _OPPOSITES.get(type(test.comparisons[0].operator))
    if operator is None or left.lpar or right.lpar:
        return ()
    return (analysis.span(left), f" {operator} ", analysis.span(right))


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
    is_open = _may_be_none(analysis, values(analysis).alike(node))
    return Times.OPEN if is_open else Times.SOME, _pieces(given, "num_epochs")
