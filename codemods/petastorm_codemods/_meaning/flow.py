"""What an expression may hold: one of Petastorm's converters, something else, or who knows.

The methods that open loaders have names that other classes use as well. Whether a call is
Petastorm's is settled by where the object comes from: imports, assignments, annotations, the
returns of functions, and what functions of the file are called with.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment, BaseAssignment, ImportAssignment

from .analysis import Analysis, once
from .calls import is_none, key_of, text_of
from .functions import functions_of
from .origins import Bindings, Origins
from .other_files import CONVERTERS
from .places import reached
from .reexports import is_reexported, unseen_reads
from .support import is_class, is_maker, is_support

_COPIES = frozenset({"copy.copy", "copy.deepcopy"})
# Functions that hand on what they are called with, and how many arguments of each; None for all.
_PASSING: dict[str, int | None] = {"next": 2, "zip": None}
_PASSING |= dict.fromkeys(("enumerate", "iter", "list", "reversed", "sorted", "tuple"), 1)
# Methods that give what is in what they are called on.
_MEMBERS = frozenset({"get", "items", "pop", "setdefault", "values"})
# Modules whose objects have in them what they are given.
_HOLDING = frozenset({"collections", "dataclasses", "itertools"})
# Types that do not tell what an object is, or a collection has in it: names, and bases of the file's own.
_COLLECTIONS = frozenset({"dict", "list", "set", "tuple"})
_STRUCTURAL = frozenset(
    f"{module}.{name}"
    for module in ("typing", "typing_extensions")
    for name in ("Protocol", "TypedDict")
)
# Expressions whose objects are of built-in types.
_PLAIN = (cst.BaseString, cst.BaseNumber, cst.Lambda, cst.Comparison)
_LOADING = re.compile(r"ray\.get|(?:joblib|(?:cloud)?pickle|dill|torch)\.loads?")


class Provenance(enum.Enum):
    """What is known about an object."""

    CONVERTER = "a converter, or a collection with one"
    FILES = "a converter that was made from files by hand"
    UNKNOWN = "nothing says what it is"
    DOUBTFUL = "it may be something else"
    FOREIGN = "something else"


# What is asked next: a method of `Flow`, with its arguments.
_Step = tuple[Any, ...]
_Ways = Iterator[_Step | Provenance]
# What a collection is known by: the bindings of a name, or an attribute's name and class.
_Named = Bindings | tuple[str, cst.ClassDef | None]
_Items = dict[str, list[cst.BaseExpression]]


class Flow:
    """Follows the expressions of one source back to where their objects come from.

    Each method that begins with ``_of`` yields what one sort of thing may be, or what else says so; nothing for the
    literal ``None``. All that can be reached that way is what is known.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._origins = Origins(analysis)
        self._functions = functions_of(analysis)
        self._unseen = {each for each in unseen_reads(analysis) if each.value in CONVERTERS}
        self._known: dict[_Step, Provenance | None] = {}
        self._known_items: dict[_Named, _Items] = {}
        self._instances: dict[object, bool] = {None: False}  # by what binds names or attributes

    def provenance(self, node: cst.CSTNode) -> Provenance:
        """Return what is known about the object that an expression gives."""
        # What is behind a name is shared by all that read it.
        steps = (
            each if isinstance(each, Provenance) else self._reached(each) for each in self._of(node)
        )
        return _combined(steps) or Provenance.UNKNOWN

    def _reached(self, first: _Step) -> Provenance | None:
        """Return what is known at all ends that a step leads to, in whatever circle."""
        if first not in self._known:
            start: list[_Step | Provenance] = [first]
            ends = [each for each in reached(start, self._ways) if isinstance(each, Provenance)]
            self._known[first] = _combined(ends)
        return self._known[first]

    def _ways(self, step: _Step | Provenance) -> Iterable[_Step | Provenance]:
        """Return what a step leads to; where that was asked before, what is known at its ends."""
        if isinstance(step, Provenance):
            return ()
        if step in self._known:
            known = self._known[step]
            return (known,) if known else ()
        method, *arguments = step
        ways: _Ways = method(*arguments)
        return ways

    def is_instance(self, node: cst.CSTNode) -> bool:
        """Say whether an expression is an object of a class of this file or the project's."""
        if isinstance(node, cst.Call):
            return self._is_class(node.func)
        if self._origins.self_class(node):
            return True
        binds: object = None
        targets: Iterable[cst.CSTNode] = ()
        if isinstance(node, cst.Name):
            binds = bindings = self._origins.bindings(node)
            bound = bindings.assignments if bindings else ()
            targets = (each.node for each in bound if isinstance(each, Assignment))
        elif isinstance(node, cst.Attribute):
            owner = self._origins.self_class(node.value)
            binds, targets = (node.attr.value, owner), self._origins.fields(node.attr.value, owner)
        if binds not in self._instances:
            self._instances[binds] = any(map(self._gets_instance, targets))
        return self._instances[binds]

    def _of(self, node: cst.CSTNode) -> _Ways:  # noqa: PLR0912 - one line for each syntax
        if isinstance(node, cst.Name):
            yield from self._of_name(node) if node.value != "None" else ()
        elif isinstance(node, cst.Attribute):
            yield from self._of_attribute(node)
        elif isinstance(node, cst.Call):
            yield from self._of_call(node)
        elif isinstance(node, cst.IfExp):
            yield from self._of_any((node.body, node.orelse))
        elif isinstance(node, cst.BooleanOperation):
            yield from self._of_any((node.left, node.right))
        elif isinstance(node, cst.Await):
            yield (self._of, node.expression)
        elif isinstance(node, cst.Subscript):
            yield from self._of_item(node)
        elif isinstance(node, cst.NamedExpr):
            yield (self._of, node.value)
        elif isinstance(node, cst.Tuple | cst.List | cst.Set | cst.Dict):
            values = [element.value for element in node.elements]
            # Not the name or the size that a converter has beside it: these have no methods such as its.
            yield from self._of_any(each for each in values if not isinstance(each, _PLAIN))
        elif isinstance(node, cst.ListComp | cst.GeneratorExp | cst.SetComp):
            yield (self._of, node.elt)
        elif isinstance(node, cst.DictComp):
            yield (self._of, node.value)
        elif isinstance(node, _PLAIN):
            yield Provenance.FOREIGN
        else:
            yield Provenance.UNKNOWN

    def _of_any(self, nodes: Iterable[cst.CSTNode]) -> _Ways:
        yield from ((self._of, each) for each in nodes)

    def _of_member(self, holder: cst.CSTNode) -> _Ways:
        """What a collection has in it, or what an object gives by its own ``__getitem__`` and the like."""
        if self.is_instance(holder):
            yield Provenance.UNKNOWN
            return
        yield (self._of, holder)
        named = self._named(holder)
        if named in self._given_items:
            yield (self._of_given_items, named)

    def _of_given_items(self, named: _Named) -> _Ways:
        yield from self._of_any(
            each for values in self._given_items[named].values() for each in values
        )

    def _of_item(self, node: cst.Subscript) -> _Ways:
        """What a collection has by a key, where the source gives it something by this key; else what it has in it."""
        named, key = self._named(node.value), key_of(node)
        if named is not None and self._items(named).get(key):
            yield (self._of_key, named, key)
        else:
            yield from self._of_member(node.value)

    def _of_key(self, named: _Named, key: str) -> _Ways:
        yield from self._of_any(self._items(named)[key])

    def _named(self, node: cst.CSTNode) -> _Named | None:
        """Return what all that read a name have in common, or an attribute."""
        if isinstance(node, cst.Attribute):
            return node.attr.value, self._origins.self_class(node.value)
        return self._origins.bindings(node) if isinstance(node, cst.Name) else None

    def _items(self, named: _Named) -> _Items:
        """Return what the source gives a collection by keys: as it is made, or later."""
        if named not in self._known_items:
            items = {key: [*values] for key, values in self._given_items.get(named, {}).items()}
            if isinstance(named, Bindings):
                bound = [each.node for each in named.assignments if isinstance(each, Assignment)]
            else:
                bound = [*self._origins.fields(*named)]
            for target in bound:
                value = self._analysis.assigned(self._analysis.parent(target))
                for element in value.elements if isinstance(value, cst.Dict) else ():
                    key = text_of(element.key) if isinstance(element, cst.DictElement) else ""
                    items.setdefault(key, []).append(element.value)
            items.pop("", None)
            self._known_items[named] = items
        return self._known_items[named]

    @functools.cached_property
    def _given_items(self) -> dict[_Named, _Items]:
        """What items of collections are given, such as ``state["converter"] = converter``; by an empty key if by no text."""
        given: dict[_Named, _Items] = {}
        for target in self._analysis.nodes(cst.AssignTarget):
            value = self._analysis.assigned(target)
            if isinstance(target.target, cst.Subscript) and value is not None:
                named = self._named(target.target.value)
                # An attribute of self is also that of an object with any other name.
                for each in {named, (named[0], None) if isinstance(named, tuple) else named}:
                    if each is not None:
                        items = given.setdefault(each, {})
                        items.setdefault(key_of(target.target), []).append(value)
        return given

    def _gets_instance(self, target: cst.CSTNode) -> bool:
        if isinstance(target, cst.Param):
            return target.annotation is not None and self._is_class(target.annotation.annotation)
        above = self._analysis.parent(target)
        is_assigned = isinstance(above, cst.AssignTarget | cst.AnnAssign)
        value = self._analysis.assigned(above) if is_assigned else None
        return isinstance(value, cst.Call) and self._is_class(value.func)

    def _is_class(self, node: cst.CSTNode) -> bool:
        path = self._analysis.imported(node) or ""
        is_imported = path.rpartition(".")[2][:1].isupper() and self._origins.is_own_name(node)
        return is_imported or bool(self._functions.classes(node))

    # --- calls ------------------------------------------------------------------------------------

    def _of_call(self, node: cst.Call) -> _Ways:
        path = self._analysis.imported(node.func)
        meanings = {meaning.name for meaning in self._analysis.meanings(node.func)}
        name = get_full_name_for_node(node.func) or ""
        is_name = isinstance(node.func, cst.Name)
        owner = self._analysis.enclosing(node, cst.ClassDef)
        if path is not None:
            yield from self._of_imported_call(node, path)
        elif any(is_maker(meaning, self._analysis) for meaning in meanings):
            yield Provenance.DOUBTFUL  # and something else
        elif node.func in self._unseen:
            yield Provenance.CONVERTER
        elif classes := self._functions.classes(node.func):
            yield from map(self._of_class, classes)
        elif functions := self._functions.called(node):
            yield from ((self._of_returns, each) for each in functions)
        elif is_name and name in _PASSING:
            yield from self._of_any(argument.value for argument in node.args[: _PASSING[name]])
        elif is_name and name == "super" and owner:
            yield self._of_class(owner)
        elif isinstance(node.func, cst.Attribute) and node.func.attr.value in _MEMBERS:
            yield from self._of_member(node.func.value)
        else:
            yield Provenance.UNKNOWN

    def _of_returns(self, function: cst.FunctionDef) -> _Ways:
        yield from self._of_any(self._functions.returned(function))

    def _of_imported_call(self, node: cst.Call, path: str) -> _Ways:
        is_class_name = path.rpartition(".")[2][:1].isupper()
        is_own = self._origins.is_own_name(node.func)
        is_holding = path.partition(".")[0] in _HOLDING
        taken = is_reexported(self._analysis, path) and path.rpartition(".")[2] in CONVERTERS
        if taken or is_maker(path, self._analysis):
            yield Provenance.CONVERTER
        elif is_class(path, self._analysis):
            yield Provenance.CONVERTER if is_support(path, self._analysis) else Provenance.FILES
        elif path in _COPIES:
            yield from self._of_any(argument.value for argument in node.args[:1])
        elif path == "typing.cast" and len(node.args) == 2:
            kind, value = (argument.value for argument in node.args)
            yield self._of_type(kind) or (self._of, value)
        elif _LOADING.fullmatch(path) or is_holding or (is_own and not is_class_name):
            yield Provenance.UNKNOWN
        else:
            yield Provenance.FOREIGN if is_class_name else Provenance.DOUBTFUL

    def _of_class(self, owner: cst.ClassDef) -> Provenance:
        bases = [self._analysis.imported(base.value) for base in owner.bases]
        extends = any(is_class(base, self._analysis) for base in bases)
        return Provenance.CONVERTER if extends else Provenance.FOREIGN

    # --- names ------------------------------------------------------------------------------------

    def _of_name(self, node: cst.Name) -> _Ways:
        bindings = self._origins.bindings(node)
        if bindings is None:
            yield Provenance.UNKNOWN
            return
        last = self._origins.last(node, bindings)
        yield (self._of_assignment, last) if last else (self._of_bindings, bindings)

    def _of_bindings(self, bindings: Bindings) -> _Ways:
        yield from ((self._of_assignment, each) for each in bindings.assignments)

    def _of_assignment(self, assignment: BaseAssignment) -> _Ways:
        node = assignment.node if isinstance(assignment, Assignment) else None
        if isinstance(assignment, ImportAssignment):
            yield Provenance.UNKNOWN if self._origins.is_own(assignment) else Provenance.FOREIGN
        elif node is None:
            yield Provenance.UNKNOWN
        elif isinstance(node, cst.Param):
            yield from self._of_parameter(node)
        elif isinstance(node, cst.FunctionDef | cst.ClassDef):
            yield Provenance.FOREIGN
        else:
            yield from self._of_target(node)

    def _of_target(self, node: cst.CSTNode) -> _Ways:
        """What is bound to a name, wherever in a target it stands."""
        above = self._analysis.parent(node)
        item = self._analysis.parent(above)
        if isinstance(above, cst.Element | cst.StarredElement):
            yield from self._of_unpacked(above)
        elif isinstance(above, cst.AssignTarget | cst.AnnAssign | cst.NamedExpr):
            annotation = above.annotation if isinstance(above, cst.AnnAssign) else None
            annotated = self._of_type(annotation.annotation) if annotation else None
            value = self._analysis.assigned(above)
            if annotated:
                yield annotated
            elif value is not None:
                yield (self._of, value)
        elif isinstance(above, cst.For | cst.CompFor):
            yield from self._of_member(above.iter)
        elif isinstance(above, cst.AsName) and isinstance(item, cst.WithItem):
            yield from self._of_member(item.item)
        else:
            yield Provenance.FOREIGN if isinstance(above, cst.AsName) else Provenance.UNKNOWN

    def _of_unpacked(self, element: cst.CSTNode) -> _Ways:
        """One of several targets: the same place on the right, where there are places."""
        targets = self._analysis.parent(element)
        above = self._analysis.parent(targets)
        value = (
            above.iter
            if isinstance(above, cst.For | cst.CompFor)
            else self._analysis.assigned(above)
        )
        if not isinstance(targets, cst.Tuple | cst.List) or value is None:
            yield Provenance.UNKNOWN
            return
        place = next(n for n, each in enumerate(targets.elements) if each is element)
        if isinstance(above, cst.For | cst.CompFor) and isinstance(value, cst.Tuple | cst.List):
            yield from ((self._of_place, each.value, place) for each in value.elements)
        else:
            yield (self._of_place, value, place)

    def _of_place(self, value: cst.CSTNode, place: int) -> _Ways:
        listed = value.elements if isinstance(value, cst.Tuple | cst.List) else ()
        if place < len(listed) and not any(isinstance(each, cst.StarredElement) for each in listed):
            yield (self._of, listed[place].value)
            return
        if isinstance(value, cst.Call):
            if get_full_name_for_node(value.func) == "zip" and place < len(value.args):
                yield (self._of, value.args[place].value)
                return
            functions = self._functions.called(value)
            returned = [each for one in functions for each in self._functions.returned(one)]
            if returned:
                yield from ((self._of_place, each, place) for each in returned)
                return
        yield from self._of_member(value)

    # --- parameters, annotations and attributes ---------------------------------------------------

    def _of_parameter(self, parameter: cst.Param) -> _Ways:
        annotation = parameter.annotation
        annotated = self._of_type(annotation.annotation) if annotation else None
        function = self._analysis.enclosing(parameter, cst.FunctionDef, cst.Lambda)
        if annotated or not isinstance(function, cst.FunctionDef):
            yield annotated or Provenance.UNKNOWN
            return
        owner = self._functions.instance_of(parameter, function)
        if owner:
            yield self._of_class(owner)
            return
        given = list(self._functions.given(parameter, function))
        default = parameter.default
        if default is not None and not is_none(default):
            given.append(default)
        yield from self._of_any(given) if given else (Provenance.UNKNOWN,)

    def _of_type(self, node: cst.BaseExpression) -> Provenance | None:
        says = self._origins.annotates_converter(node)
        if says is None or self._is_loose(node):
            return None
        return Provenance.CONVERTER if says else Provenance.FOREIGN

    def _is_loose(self, kind: cst.BaseExpression) -> bool:
        """Say whether a type is a collection's or a protocol's, which does not tell what is in it, or behind it."""
        classes = self._functions.classes(kind)
        is_named = isinstance(kind, cst.Name) and kind.value in _COLLECTIONS
        return is_named or any(is_structural(self._analysis, each) for each in classes)

    def _of_attribute(self, node: cst.Attribute) -> _Ways:
        name, owner = node.attr.value, self._origins.self_class(node.value)
        if self._analysis.imported(node) is not None:
            yield Provenance.UNKNOWN if self._origins.is_own_name(node) else Provenance.FOREIGN
        elif self._origins.is_assigned(name, owner):
            yield (self._of_field, name, owner)
        elif not owner and name in {"value", "values"}:
            yield from self._of_member(node.value)
        else:
            yield Provenance.UNKNOWN  # set by a base class, or from outside

    def _of_field(self, name: str, owner: cst.ClassDef | None) -> _Ways:
        """What is assigned to an attribute of this name, in a class or in the whole file."""
        yield from ((self._of_target, each) for each in self._origins.fields(name, owner))


def _combined(provenances: Iterable[Provenance | None]) -> Provenance | None:
    """Return what is known about an object that may be any of several; None stands for ``None``."""
    possible = {one for one in provenances if one is not None}
    if len(possible) < 2:
        return next(iter(possible), None)
    if Provenance.FOREIGN in possible or Provenance.DOUBTFUL in possible:
        return Provenance.DOUBTFUL
    if Provenance.FILES in possible:
        return Provenance.FILES
    return Provenance.CONVERTER  # and UNKNOWN: another way to the same place


def is_structural(analysis: Analysis, owner: cst.ClassDef) -> bool:
    """Say whether a class only describes objects, which are of others: a protocol or a typed dictionary."""
    bases = (each.value for each in owner.bases)
    named = (each.value if isinstance(each, cst.Subscript) else each for each in bases)
    return any(analysis.imported(each) in _STRUCTURAL for each in named)


@once
def flow_of(analysis: Analysis) -> Flow:
    """Return the flow of a source; all rules share its answers."""
    return Flow(analysis)
