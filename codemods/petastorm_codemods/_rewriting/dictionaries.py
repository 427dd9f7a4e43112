"""Dictionaries of arguments: ``**options``, where the source says what is in ``options``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import GlobalScope

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.calls import is_none
from petastorm_codemods._meaning.functions import functions_of
from petastorm_codemods._meaning.other_files import stem_of
from petastorm_codemods._model import Pieces

from .values import values

# What changes a dictionary in a way that is not followed.
_CHANGING = frozenset({"clear", "pop", "popitem"})
# What changes it so that it has more.
_ADDING = frozenset({"setdefault", "update"})
# What Petastorm takes where an item is not there, for those that it does not take to be None.
_DEFAULTS = {"batch_size": ", 32", "shuffle_row_groups": ", True", "workers_count": ", 0"}


@dataclass(frozen=True)
class Written:
    """An argument that is in a dictionary.

    Attributes:
        pieces: The expression, as it is written into rewritten code.
        value: The expression to learn from.
        is_certain: Whether the dictionary has it in any case.
    """

    pieces: Pieces
    value: cst.BaseExpression
    is_certain: bool = True


@dataclass(frozen=True)
class _Item:
    """What a dictionary has by a key.

    Attributes:
        values: The expressions that may have given it.
        is_certain: Whether it is there in any case.
    """

    values: tuple[cst.BaseExpression, ...]
    is_certain: bool = True

    def written(self, key: str, place: tuple[int, int]) -> Written:
        """Return the item of the dictionary that stands at a place."""
        others = self.values[1:] if self.is_certain else (*self.values[1:], cst.Name("None"))
        value = self.values[0]
        for other in others:  # what it may be, as an expression may be either
            value = cst.IfExp(test=cst.Name("True"), body=value, orelse=other)
        code = f'["{key}"]' if self.is_certain else f'.get("{key}"{_DEFAULTS.get(key, "")})'
        return Written((place, code), value, self.is_certain)


_Items = dict[str, _Item]


def items_of(analysis: Analysis, node: cst.BaseExpression) -> Mapping[str, Written] | None:
    """Return the arguments in a dictionary, by name; None if the source does not say all of them."""
    dictionaries = _Dictionaries(analysis)
    if not isinstance(node, cst.Name | cst.Attribute):
        return _items_written_here(analysis, dictionaries.parts(node))
    items = dictionaries.of(node)
    if items is None:
        return None
    place = analysis.span(node)
    all_items = _added(items, dictionaries.changed)
    return {key: item.written(key, place) for key, item in all_items.items()}


def _added(items: _Items, values: Mapping[str, Collection[cst.BaseExpression]]) -> _Items:
    """Return items with values that some of them may get, or have got."""
    all_items = dict(items)
    for key, more in values.items():
        known = items.get(key, _Item((), is_certain=False))
        all_items[key] = _Item(tuple(dict.fromkeys([*known.values, *more])), known.is_certain)
    return all_items


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


def _items_written_here(analysis: Analysis, parts: Iterable[_Part]) -> Mapping[str, Written] | None:
    """Return the arguments in a dictionary that is written where it is needed; None if one is unknown."""
    written: dict[str, Written] = {}
    for part in parts:
        name, value = part or (None, None)
        if value is None or _has_brackets(value):
            return None
        items = (
            items_of(analysis, value)
            if name is None
            else {name: Written((analysis.span(value),), value)}
        )
        if items is None or are_in_doubt(items, written):
            return None
        written |= items
    return written


def are_in_doubt(items: Mapping[str, Written], names: Collection[str]) -> bool:
    """Say whether it is uncertain for one of some names that a dictionary gives it."""
    return any(not item.is_certain for key, item in items.items() if key in names)


def _has_brackets(node: cst.BaseExpression) -> bool:
    """Say whether an expression has parentheses, which are not in its span."""
    brackets: Sequence[cst.LeftParen] = getattr(node, "lpar", ())
    return bool(brackets)


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
        if self._analysis.parent(node) is self._analysis.module:
            return None  # a name in a dictionary of another module
        leaves = [each for each in self._leaves(node) if not is_none(each)]
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
        items = self._merged(self.parts(node))
        self._open.remove(node)
        return items

    def _of_keywords(self, parameter: cst.Param) -> _Items | None:
        """Return what calls give by other names than a function has: any of it, as other calls may."""
        analysis, functions = self._analysis, functions_of(self._analysis)
        function = analysis.enclosing(parameter, cst.FunctionDef, cst.Lambda)
        if not isinstance(function, cst.FunctionDef) or function.decorators:
            return None
        calls = [*analysis.calls(functions.called_as(function))]
        if not calls or functions.is_called_unseen(function):
            return None
        declared = {
            each.name.value for each in (*function.params.params, *function.params.kwonly_params)
        }
        given: _Values = {}
        for argument in (each for call in calls for each in call.args if each.keyword):
            name = argument.keyword.value if argument.keyword is not None else ""
            if name not in declared:
                given.setdefault(name, []).append(argument.value)
        return _added({}, given)

    def _may_change(self, node: cst.Name | cst.Attribute) -> bool:
        """Say whether anything unknown may change a dictionary, by any of the names that led to it."""
        analysis = self._analysis
        for each in values(analysis).passed(node):
            if isinstance(each, cst.Name | cst.Attribute):
                changes = _changes(analysis, each)
                for key, given in (changes or {}).items():
                    self.changed.setdefault(key, []).extend(given)
                if changes is None or _is_handled(analysis, each):
                    return True
        return False

    def _leaves(self, node: cst.Name | cst.Attribute) -> list[cst.CSTNode]:
        """Return what a name was given, or an attribute, also in the body of its class or in another module."""
        leaves = values(self._analysis).of(node)
        if leaves == [node] and isinstance(node, cst.Attribute):
            leaves = _given_in_class(self._analysis, node) or leaves
        return [_imported(self._analysis, each) or each for each in leaves]

    def parts(self, node: cst.CSTNode) -> Iterator[_Part]:
        """Yield the items of a dictionary, without a name for those that it takes in; None if unknown."""
        if isinstance(node, cst.Dict):
            for element in node.elements:
                if isinstance(element, cst.StarredDictElement):
                    yield None, element.value
                else:
                    key = element.key if isinstance(element, cst.DictElement) else None
                    name = key.evaluated_value if isinstance(key, cst.SimpleString) else None
                    yield (name, element.value) if isinstance(name, str) else None
        elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitOr):
            yield from ((None, node.left), (None, node.right))
        elif isinstance(node, cst.Call) and get_full_name_for_node(node.func) == "dict":
            for argument in node.args:
                known = argument.star != "*"
                name = argument.keyword.value if argument.keyword is not None else None
                yield (name, argument.value) if known else None
        else:
            yield None

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
                merged[key] = item if item.is_certain or before is None else _joined(before, item)
        return merged


def _joined(before: _Item, after: _Item) -> _Item:
    """Return an item of a dictionary that may take it in from another one."""
    return _Item((*before.values, *after.values), before.is_certain)


def _given_in_class(analysis: Analysis, node: cst.Attribute) -> list[cst.CSTNode]:
    """Return what classes give an attribute of ``self``, ``cls`` or a class, if its own one does.

    Annotated ones are left out: they may be defaults of arguments to a constructor that nobody has written.
    """
    by_class: dict[cst.CSTNode, cst.CSTNode] = {}
    for assign in analysis.nodes(cst.Assign):
        target = assign.targets[0].target
        if isinstance(target, cst.Name) and target.value == node.attr.value:
            home = analysis.enclosing(assign, cst.ClassDef, cst.FunctionDef)
            if isinstance(home, cst.ClassDef):
                by_class[home] = assign.value
    base = node.value.value if isinstance(node.value, cst.Name) else ""
    if base in {"self", "cls"}:
        is_own = analysis.enclosing(node, cst.ClassDef) in by_class
    else:
        is_own = base in {home.name.value for home in by_class if isinstance(home, cst.ClassDef)}
    return list(by_class.values()) if is_own else []


@once
def _imported(analysis: Analysis, node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return the dictionary that another module of the project has by the name that an expression is.

    None if it is none that nothing may change. Names in it mean nothing here.
    """
    path = analysis.imported(node) if isinstance(node, cst.Name | cst.Attribute) else None
    module, _, name = (path or "").rpartition(".")
    code = analysis.project.dictionaries.get((stem_of(module), name))
    is_own = module.startswith(".") or analysis.project.owns(module)
    return cst.parse_expression(code) if code is not None and is_own else None


def _is_handled(analysis: Analysis, node: cst.Name | cst.Attribute) -> bool:
    """Say whether another file may change a dictionary that a name of the module has, or an attribute."""
    if isinstance(node, cst.Name):
        bound = [each for each in analysis.assignments(node) if isinstance(each.scope, GlobalScope)]
        return bool(bound) and analysis.project.handles(analysis.source.path, node.value)
    return analysis.project.handles(analysis.source.path, node.attr.value)


def _changes(
    analysis: Analysis, node: cst.Name | cst.Attribute, seen: frozenset[str] = frozenset()
) -> _Values | None:
    """Return the keys of a dictionary of this name that get values, with these; None if more is done to it.

    That may also be done by who has it by another name, and by a function of the project that gets it.
    """
    code = analysis.code(node)
    if code in seen:
        return {}
    others: list[cst.CSTNode] = []
    for assign in analysis.nodes(cst.Assign):
        if _is_same(assign.value, node):
            others += [each.target for each in assign.targets]
    for call in analysis.nodes(cst.Call):
        if any(_is_same(each.value, node) for each in call.args if not each.star):
            if _is_elsewhere(analysis, call.func):
                return None
            others += _parameters(analysis, call.func)
    changes = _values_set(analysis, node)
    for each in others:
        more = None
        if isinstance(each, cst.Name | cst.Attribute):
            more = _changes(analysis, each, seen | {code})
        if changes is None or more is None:
            return None
        for key, given in more.items():
            changes.setdefault(key, []).extend(given)
    return changes


def _values_set(analysis: Analysis, node: cst.Name | cst.Attribute) -> _Values | None:
    """Return the keys that get values in a dictionary by this name, with these; None if more is done to its items."""

    def is_it(changed: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Attribute):  # of whichever object
            name = changed.attr if isinstance(changed, cst.Attribute) else changed
            return isinstance(name, cst.Name) and name.value == node.attr.value
        return analysis.code(changed) == node.value

    values_set: _Values = {}
    for subscript in analysis.nodes(cst.Subscript):
        above = analysis.parent(subscript)
        grown = isinstance(above, cst.AugAssign) and above.target is subscript
        if (grown or not analysis.is_read(subscript)) and is_it(subscript.value):
            index = subscript.slice[0].slice
            name = _text(index.value) if isinstance(index, cst.Index) else ""
            value = analysis.assigned(above) if isinstance(above, cst.AssignTarget) else None
            if not name or not isinstance(value, cst.BaseExpression):
                return None
            values_set.setdefault(name, []).append(value)
    for call in analysis.nodes(cst.Call):
        method = call.func
        if not isinstance(method, cst.Attribute) or not is_it(method.value):
            continue
        added = [*_values_added(call)] if method.attr.value in _ADDING else []
        if method.attr.value in _CHANGING or not all(name for name, _ in added):
            return None
        for name, value in added:
            values_set.setdefault(name, []).append(value)
    return None if _is_named_in_text(analysis, node) else values_set


def _values_added(call: cst.Call) -> Iterator[tuple[str, cst.BaseExpression]]:
    """Yield what ``update`` or ``setdefault`` gives a dictionary, by key; an empty one where it is unknown."""
    first = call.args[0].value if call.args else None
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "setdefault":
        value = call.args[1].value if len(call.args) > 1 else cst.Name("None")
        yield (_text(first), value)
        return
    for argument in call.args:
        if isinstance(argument.value, cst.Dict) and not argument.star and not argument.keyword:
            for element in argument.value.elements:
                key = element.key if isinstance(element, cst.DictElement) else None
                yield _text(key), element.value
        else:
            yield (argument.keyword.value if argument.keyword is not None else ""), argument.value


def _text(node: cst.CSTNode | None) -> str:
    """Return the text that a literal is; empty for all else."""
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else ""
    return value if isinstance(value, str) else ""


def _is_named_in_text(analysis: Analysis, node: cst.Name | cst.Attribute) -> bool:
    """Say whether a source may get at a name by a string: ``globals()["options"]``, ``setattr(job, "options", …)``."""
    name = node.attr.value if isinstance(node, cst.Attribute) else node.value
    by_name = any(any(analysis.calls(each)) for each in ("globals", "setattr", "vars"))
    return by_name and any(value == name for _, value in analysis.strings)


def _is_same(one: cst.BaseExpression, other: cst.Name | cst.Attribute) -> bool:
    if isinstance(one, cst.Attribute) and isinstance(other, cst.Attribute):
        return one.attr.value == other.attr.value  # of whichever object
    return isinstance(one, cst.Name) and one.deep_equals(other)


def _is_elsewhere(analysis: Analysis, function: cst.BaseExpression) -> bool:
    """Say whether another module of the project has a function; those of packages are taken to change nothing."""
    module = (analysis.imported(function) or "-").partition(".")[0]
    return not module or module in analysis.project.modules


def _parameters(analysis: Analysis, function: cst.BaseExpression) -> list[cst.Name]:
    """Return the names of the parameters of the source's functions and classes of a name."""
    name = function.attr if isinstance(function, cst.Attribute) else function
    names: list[cst.Name] = []
    for each in analysis.nodes(cst.FunctionDef):
        owner = analysis.enclosing(each, cst.ClassDef)
        called = owner if owner is not None and each.name.value == "__init__" else each
        if isinstance(name, cst.Name) and called.name.value == name.value:
            of = each.params
            names += [one.name for one in (*of.posonly_params, *of.params, *of.kwonly_params)]
    return names
