"""What a call is given, by name, also where dictionaries hold it: ``**options``, where the source says what is in it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import GlobalScope

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.calls import is_none, key_of, keyword, text_of
from petastorm_codemods._meaning.functions import functions_of
from petastorm_codemods._meaning.places import reached
from petastorm_codemods._model import Fact, Pieces

from .comments import comments_between
from .layout import ABOVE, BEHIND
from .values import values

_BY_NAME = "give the arguments by name, so that they can be translated"
# What changes a dictionary in a way that is not followed.
_CHANGING = frozenset({"clear", "pop", "popitem"})
# What changes it so that it has more.
_ADDING = frozenset({"setdefault", "update"})
# What Petastorm takes where an item is not there, for those that it does not take to be None.
_DEFAULTS = {"batch_size": ", 32", "shuffle_row_groups": ", True", "workers_count": ", 0"}


@dataclass(frozen=True)
class Given:
    """An argument of a call, which a dictionary may hold.

    Attributes:
        pieces: The expression, as it is written into rewritten code.
        node: The expression to learn from.
        comments: Its comments, each behind what says where it stands.
        is_certain: Whether it is given in any case; the expression is None where it is not, or Petastorm's default.
    """

    pieces: Pieces
    node: cst.BaseExpression
    comments: Pieces = ()
    is_certain: bool = True


@dataclass(frozen=True)
class Stays:
    """Why a call is left on the bridge.

    Attributes:
        reason: The reason, and what to do.
        facts: What is known of the call.
    """

    reason: str
    facts: frozenset[Fact] = frozenset()


def named(call: cst.Call, positions: Sequence[str]) -> list[tuple[str | None, cst.Arg]]:
    """Return the arguments of a call with their names; None for starred ones."""
    arguments: list[tuple[str | None, cst.Arg]] = []
    for number, argument in enumerate(call.args):
        positional = not argument.keyword and not argument.star and number < len(positions)
        arguments.append((positions[number] if positional else keyword(argument), argument))
    return arguments


@once
def given_arguments(
    analysis: Analysis, call: cst.Call, positions: tuple[str, ...]
) -> Mapping[str, Given] | Stays:
    """Return the arguments of a call by their names, also those in dictionaries of the source.

    An argument whose None means the default is not given then.
    """
    given: dict[str, Given] = {}
    comments = _comments(analysis, call)
    for name, argument in named(call, positions):
        if name is not None:
            if argument.keyword is None and isinstance(argument.value, cst.NamedExpr):
                return Stays(_BY_NAME)
            value = (_value_span(analysis, argument),)
            given[name] = Given(value, argument.value, comments.get(argument, ()))
        elif argument.star == "**":
            items = items_of(analysis, argument.value)
            if items is None or are_in_doubt(items, given):
                return Stays("its arguments are in a dictionary; give them by name")
            given |= items
        else:
            return Stays(_BY_NAME)
    return {
        name: each for name, each in given.items() if name == "num_epochs" or not is_none(each.node)
    }


def _comments(analysis: Analysis, call: cst.Call) -> dict[cst.Arg, Pieces]:
    """Return the comments of each argument: those above it, and the one behind it on its line."""
    if not call.args:
        return {}
    text = analysis.source.text
    spans = [analysis.span(each) for each in call.args]
    start = text.find("(", analysis.span(call.func)[1])
    edges = [(start, start), *spans, (analysis.span(call)[1],) * 2]
    comments: dict[cst.Arg, Pieces] = {}
    for number, ((_, first), (last, _)) in enumerate(itertools.pairwise(edges)):
        for place, end in comments_between(text, first, last):
            alone = "\n" in text[first:place]
            argument = call.args[min(max(number - (not alone), 0), len(call.args) - 1)]
            comments[argument] = (
                *comments.get(argument, ()),
                ABOVE if alone else BEHIND,
                (place, end),
            )
    return comments


def _value_span(analysis: Analysis, argument: cst.Arg) -> tuple[int, int]:
    """Return where the value of an argument stands, its own parentheses included."""
    start, end = analysis.span(argument)
    if argument.keyword is not None:
        text = analysis.source.text
        start = text.index("=", analysis.span(argument.keyword)[1]) + 1
        start += len(text[start:end]) - len(text[start:end].lstrip())
    return start, end


# --- dictionaries -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Item:
    """What a dictionary has by a key.

    Attributes:
        values: The expressions that may have given it.
        is_certain: Whether it is there in any case.
    """

    values: tuple[cst.BaseExpression, ...]
    is_certain: bool = True

    @functools.cached_property
    def node(self) -> cst.BaseExpression:
        """What it may be, as an expression may be either."""
        others = self.values[1:] if self.is_certain else (*self.values[1:], cst.Name("None"))
        value = self.values[0]
        for other in others:
            value = cst.IfExp(test=cst.Name("True"), body=value, orelse=other)
        return value

    def written(self, key: str, quote: str, place: tuple[int, int]) -> Given:
        """Return the item of the dictionary that stands at a place."""
        name = f"{quote}{key}{quote}"
        code = f"[{name}]" if self.is_certain else f".get({name}{_DEFAULTS.get(key, '')})"
        return Given((place, code), self.node, is_certain=self.is_certain)


_Items = dict[str, _Item]


def items_of(analysis: Analysis, node: cst.BaseExpression) -> Mapping[str, Given] | None:
    """Return the arguments in a dictionary, by name; None if the source does not say all of them."""
    if not isinstance(node, cst.Name | cst.Attribute):
        return None  # it would have to be written twice
    # Those of attributes are not the same in each class.
    items = _items(analysis, values(analysis).alike(node) if isinstance(node, cst.Name) else node)
    if items is None:
        return None
    place = analysis.span(node)
    return {key: item.written(key, analysis.quote, place) for key, item in items.items()}


@once
def _items(analysis: Analysis, node: cst.CSTNode) -> _Items | None:
    """Return the items of a dictionary that has a name, with all that is done to it; None if some are unknown."""
    dictionaries = _Dictionaries(analysis)
    items = dictionaries.of(node)
    return None if items is None else _added(items, dictionaries.changed)


def _added(items: _Items, values: Mapping[str, Collection[cst.BaseExpression]]) -> _Items:
    """Return items with values that some of them may get, or have got."""
    nothing = _Item((), is_certain=False)
    more = {key: _joined(items.get(key, nothing), given) for key, given in values.items()}
    return {**items, **more}


def _joined(item: _Item, values: Iterable[cst.BaseExpression]) -> _Item:
    """Return an item that may have other values."""
    return _Item(tuple(dict.fromkeys([*item.values, *values])), item.is_certain)


def _either(several: Sequence[_Items]) -> _Items:
    """Return the items of what may be any of several dictionaries."""
    merged: _Items = {}
    for key in dict.fromkeys(key for items in several for key in items):
        having = [items[key] for items in several if key in items]
        values = tuple(dict.fromkeys(value for each in having for value in each.values))
        certain = len(having) == len(several) and all(each.is_certain for each in having)
        merged[key] = _Item(values, certain)
    return merged


_Part = tuple[str | None, cst.BaseExpression] | None
_Values = dict[str, list[cst.BaseExpression]]


def are_in_doubt(items: Mapping[str, Given], names: Collection[str]) -> bool:
    """Say whether it is uncertain for one of some names that a dictionary gives it."""
    return any(not item.is_certain for key, item in items.items() if key in names)


def _parts(node: cst.CSTNode) -> Iterator[_Part]:
    """Yield the items of a dictionary, without a name for those that it takes in; None if unknown."""
    if isinstance(node, cst.Dict):
        for element in node.elements:
            if isinstance(element, cst.StarredDictElement):
                yield None, element.value
            else:
                key = text_of(element.key) if isinstance(element, cst.DictElement) else ""
                yield (key, element.value) if key else None
    elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitOr):
        yield from ((None, node.left), (None, node.right))
    elif isinstance(node, cst.Call) and get_full_name_for_node(node.func) == "dict":
        for argument in node.args:
            known = argument.star != "*"
            yield (keyword(argument), argument.value) if known else None
    else:
        yield None


class _Dictionaries:
    """Finds the items of dictionaries, also of those that take in others.

    Attributes:
        changed: Keys that these dictionaries may get, or other values for, with these values.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._open: set[cst.CSTNode] = set()
        self.changed: _Values = {}

    def of(self, node: cst.CSTNode) -> _Items | None:
        """Return the items of what an expression is; None if the source does not say all of them."""
        if not isinstance(node, cst.Name | cst.Attribute):
            return self._of_leaf(node)
        leaves = [each for each in values(self._analysis).of(node) if not is_none(each)]
        if not leaves or self._may_change(node):
            return None
        several = [self._of_leaf(each) for each in leaves]
        known = [each for each in several if each is not None]
        return _either(known) if len(known) == len(several) else None

    def _of_leaf(self, node: cst.CSTNode) -> _Items | None:
        if node in self._open:
            return None  # it is made of itself
        if isinstance(node, cst.Param):
            return self._of_keywords(node)
        self._open.add(node)
        items = self._merged(_parts(node))
        self._open.remove(node)
        return items

    def _of_keywords(self, parameter: cst.Param) -> _Items | None:
        """Return what calls give by other names than a function has: any of it, as other calls may."""
        analysis, functions = self._analysis, functions_of(self._analysis)
        function = analysis.enclosing(parameter, cst.FunctionDef, cst.Lambda)
        if not isinstance(function, cst.FunctionDef) or function.decorators:
            return None
        calls = functions.calls(function)
        if not calls or functions.is_called_unseen(function):
            return None
        declared = {
            each.name.value for each in (*function.params.params, *function.params.kwonly_params)
        }
        given: _Values = {}
        for argument in (each for call in calls for each in call.args if each.keyword):
            name = keyword(argument) or ""
            if name not in declared:
                given.setdefault(name, []).append(argument.value)
        return _added({}, given)

    def _may_change(self, node: cst.Name | cst.Attribute) -> bool:
        """Say whether anything unknown may change a dictionary, by any of the names that led to it."""
        analysis = self._analysis
        for each in values(analysis).passed(node):
            if isinstance(each, cst.Name | cst.Attribute):
                changes = _changes(analysis, _name(each))
                for key, given in (changes or {}).items():
                    self.changed.setdefault(key, []).extend(given)
                if changes is None or _is_handled(analysis, each):
                    return True
        return False

    def _merged(self, parts: Iterable[_Part]) -> _Items | None:
        merged: _Items = {}
        for part in parts:
            if part is None:
                return None
            name, value = part
            items = self.of(value) if name is None else {name: _Item((value,))}
            if items is None:
                return None
            for key, item in items.items():
                before = merged.get(key)
                merged[key] = (
                    item if before is None or item.is_certain else _joined(before, item.values)
                )
        return merged


def _is_handled(analysis: Analysis, node: cst.Name | cst.Attribute) -> bool:
    """Say whether another file may change a dictionary that a name of the module has, or an attribute."""
    if isinstance(node, cst.Name):
        bound = [each for each in analysis.assignments(node) if isinstance(each.scope, GlobalScope)]
        return bool(bound) and analysis.project.handles(analysis.source.path, node.value)
    return analysis.project.handles(analysis.source.path, node.attr.value)


# The name of a variable, or of an attribute, which is then that of whichever object: (False, "options").
_Name = tuple[bool, str]


def _name(node: cst.CSTNode) -> _Name | None:
    """Return the name that a dictionary may have; None for other expressions."""
    if isinstance(node, cst.Attribute):
        return True, node.attr.value
    return (False, node.value) if isinstance(node, cst.Name) else None


@once
def _changes(analysis: Analysis, name: _Name | None) -> _Values | None:
    """Return the keys of a dictionary of this name that get values, with these; None if more is done to it.

    That may also be done by who has it by another name, and by a function of the project that gets it.
    """
    changes: _Values = {}
    for each in reached([name], lambda each: _other_names(analysis, each)):
        more = _values_set(analysis, each) if each is not None else None
        if more is None:
            return None
        for key, given in more.items():
            changes.setdefault(key, []).extend(given)
    return changes


def _other_names(analysis: Analysis, name: _Name | None) -> Iterable[_Name | None]:
    """Yield the names that a dictionary of a name also gets; None for what is no name, and for who knows."""
    for node in _handed_on(analysis).get(name, ()):
        if isinstance(node, cst.Assign):
            yield from (_name(each.target) for each in node.targets)
        elif _is_elsewhere(analysis, node.func):
            yield None
        else:
            for function in functions_of(analysis).run_by(node):
                of = function.params
                parameters = (*of.posonly_params, *of.params, *of.kwonly_params)
                yield from (_name(each.name) for each in parameters)


@once
def _handed_on(analysis: Analysis) -> Mapping[_Name | None, list[cst.Assign | cst.Call]]:
    """Return the assignments and the calls that names are given to."""
    given: dict[_Name | None, list[cst.Assign | cst.Call]] = {}
    for assign in analysis.nodes(cst.Assign):
        given.setdefault(_name(assign.value), []).append(assign)
    for call in analysis.nodes(cst.Call):
        for name in dict.fromkeys(_name(each.value) for each in call.args if not each.star):
            given.setdefault(name, []).append(call)
    given.pop(None, None)
    return given


@once
def _touched(analysis: Analysis) -> Mapping[_Name | None, list[cst.Subscript | cst.Call]]:
    """Return the items that are set, and the calls of methods, by the name of what has them."""
    touched: dict[_Name | None, list[cst.Subscript | cst.Call]] = {}
    for subscript in analysis.nodes(cst.Subscript):
        above = analysis.parent(subscript)
        grown = isinstance(above, cst.AugAssign) and above.target is subscript
        if grown or not analysis.is_read(subscript):
            touched.setdefault(_name(subscript.value), []).append(subscript)
    for call in analysis.nodes(cst.Call):
        if isinstance(call.func, cst.Attribute):
            touched.setdefault(_name(call.func.value), []).append(call)
    return touched


def _values_set(analysis: Analysis, name: _Name) -> _Values | None:
    """Return the keys that get values in a dictionary by this name, with these; None if more is done to its items."""
    touched = _touched(analysis).get(name, ())
    values_set: _Values = {}
    for key, value in (each for node in touched for each in _values_given(analysis, node)):
        if not key or value is None:
            return None
        values_set.setdefault(key, []).append(value)
    return None if _is_named_in_text(analysis, name[1]) else values_set


def _values_given(
    analysis: Analysis, node: cst.Subscript | cst.Call
) -> Iterator[tuple[str, cst.BaseExpression | None]]:
    """Yield the values that a dictionary gets, by key; an empty one, or None, where these are unknown."""
    if isinstance(node, cst.Subscript):
        above = analysis.parent(node)
        yield (
            key_of(node),
            analysis.assigned(above) if isinstance(above, cst.AssignTarget) else None,
        )
    elif isinstance(node.func, cst.Attribute):
        if node.func.attr.value in _CHANGING:
            yield "", None
        elif node.func.attr.value in _ADDING:
            yield from _values_added(node)


def _values_added(call: cst.Call) -> Iterator[tuple[str, cst.BaseExpression]]:
    """Yield what ``update`` or ``setdefault`` gives a dictionary, by key; an empty one where it is unknown."""
    first = call.args[0].value if call.args else None
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "setdefault":
        value = call.args[1].value if len(call.args) > 1 else cst.Name("None")
        yield (text_of(first), value)
        return
    for argument in call.args:
        if isinstance(argument.value, cst.Dict) and not argument.star and not argument.keyword:
            for element in argument.value.elements:
                key = element.key if isinstance(element, cst.DictElement) else None
                yield text_of(key), element.value
        else:
            yield keyword(argument) or "", argument.value


def _is_named_in_text(analysis: Analysis, name: str) -> bool:
    """Say whether a source may get at a name by a string: ``globals()["options"]``, ``setattr(job, "options", …)``."""
    by_name = any(any(analysis.calls(each)) for each in ("globals", "setattr", "vars"))
    return by_name and any(value == name for _, value in analysis.strings)


def _is_elsewhere(analysis: Analysis, function: cst.BaseExpression) -> bool:
    """Say whether another module of the project has a function; those of packages are taken to change nothing."""
    module = (analysis.imported(function) or "-").partition(".")[0]
    return not module or module in analysis.project.modules
