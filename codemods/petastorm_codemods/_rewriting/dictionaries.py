"""Dictionaries of arguments: ``**options``, where the source says what is in ``options``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst
from libcst.helpers import get_full_name_for_node

from petastorm_codemods._meaning.analysis import Analysis

from .values import values

# What changes a dictionary.
_CHANGING = frozenset({"clear", "pop", "popitem", "setdefault", "update"})


_Items = dict[str, cst.BaseExpression]


def items_of(analysis: Analysis, node: cst.BaseExpression) -> _Items | None:
    """Return the items of a dictionary of arguments; None if the source does not say all of them."""
    if not isinstance(node, cst.Name | cst.Attribute):
        return None
    return _Dictionaries(analysis).of(node)


class _Dictionaries:
    """Finds the items of dictionaries, also of those that take in others."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._open: set[cst.CSTNode] = set()

    def of(self, node: cst.CSTNode) -> _Items | None:
        """Return the items of what an expression is; None if the source does not say all of them."""
        if isinstance(node, cst.Name | cst.Attribute):
            leaves = self._leaves(node)
            if len(leaves) != 1 or _may_change(self._analysis, node):
                return None
            node = leaves[0]
        if node in self._open:
            return None  # it is made of itself
        self._open.add(node)
        found = self._merged(self._parts(node))
        self._open.remove(node)
        return found

    def _leaves(self, node: cst.Name | cst.Attribute) -> list[cst.CSTNode]:
        """Return what a name was given, or an attribute, also in the body of its class."""
        leaves = values(self._analysis).of(node)
        if leaves == [node] and isinstance(node, cst.Attribute):
            return _given_in_class(self._analysis, node) or leaves
        return leaves

    def _parts(self, node: cst.CSTNode) -> Iterator[tuple[str | None, cst.BaseExpression] | None]:
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

    def _merged(
        self, parts: Iterable[tuple[str | None, cst.BaseExpression] | None]
    ) -> _Items | None:
        found: _Items = {}
        for part in parts:
            if part is None:
                return None
            name, value = part
            items = self.of(value) if name is None else {name: value}
            if items is None:
                return None
            found |= items
        return found


def _given_in_class(analysis: Analysis, node: cst.Attribute) -> list[cst.CSTNode]:
    """Return what classes give an attribute of ``self``, ``cls`` or a class, if its own one does.

    Annotated ones are left out: they may be defaults of arguments to a constructor that nobody has written.
    """
    found: dict[cst.CSTNode, cst.CSTNode] = {}
    for assign in analysis.nodes(cst.Assign):
        target = assign.targets[0].target
        if isinstance(target, cst.Name) and target.value == node.attr.value:
            home = analysis.enclosing(assign, cst.ClassDef, cst.FunctionDef)
            if isinstance(home, cst.ClassDef):
                found[home] = assign.value
    base = node.value.value if isinstance(node.value, cst.Name) else ""
    if base in {"self", "cls"}:
        is_own = analysis.enclosing(node, cst.ClassDef) in found
    else:
        is_own = base in {home.name.value for home in found if isinstance(home, cst.ClassDef)}
    return list(found.values()) if is_own else []


def _may_change(
    analysis: Analysis, node: cst.Name | cst.Attribute, seen: frozenset[str] = frozenset()
) -> bool:
    """Say whether anything puts items into a dictionary of this name, or takes some out.

    That may also be who has it by another name, and a function of the project that gets it.
    """
    code = analysis.code(node)
    if code in seen:
        return False
    if _is_changed(analysis, node):
        return True
    others: list[cst.CSTNode] = []
    for assign in analysis.nodes(cst.Assign):
        if _is_same(assign.value, node):
            others += [each.target for each in assign.targets]
    for call in analysis.nodes(cst.Call):
        if any(_is_same(each.value, node) for each in call.args if not each.star):
            if _is_elsewhere(analysis, call.func):
                return True
            others += _parameters(analysis, call.func)
    return any(
        not isinstance(each, cst.Name | cst.Attribute) or _may_change(analysis, each, seen | {code})
        for each in others
    )


def _is_changed(analysis: Analysis, node: cst.Name | cst.Attribute) -> bool:
    """Say whether anything changes the items of a dictionary by this name."""

    def is_it(changed: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Attribute):  # of whichever object
            name = changed.attr if isinstance(changed, cst.Attribute) else changed
            return isinstance(name, cst.Name) and name.value == node.attr.value
        return analysis.code(changed) == node.value

    for subscript in analysis.nodes(cst.Subscript):
        if not analysis.is_read(subscript) and is_it(subscript.value):
            return True
    for call in analysis.nodes(cst.Call):
        method = call.func
        if not isinstance(method, cst.Attribute) or method.attr.value not in _CHANGING:
            continue
        if is_it(method.value):
            return True
    return False


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
    found: list[cst.Name] = []
    for each in analysis.nodes(cst.FunctionDef):
        owner = analysis.enclosing(each, cst.ClassDef)
        called = owner if owner is not None and each.name.value == "__init__" else each
        if isinstance(name, cst.Name) and called.name.value == name.value:
            of = each.params
            found += [one.name for one in (*of.posonly_params, *of.params, *of.kwonly_params)]
    return found
