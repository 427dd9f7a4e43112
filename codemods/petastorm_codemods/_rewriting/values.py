"""What an argument of a call may be: its names followed back to what they were given."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Sequence

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment, GlobalScope, ImportAssignment

from petastorm_codemods._meaning.analysis import Analysis, last_name, once
from petastorm_codemods._meaning.functions import functions_of
from petastorm_codemods._meaning.places import reached

_PROPERTIES = frozenset({"property", "cached_property"})


class Values:
    """Follows the expressions of one source back to others, within that source.

    What cannot be followed stands for itself: calls, names of other modules, targets of loops. A parameter
    that no call in the source gives a value stands for whatever it is given elsewhere. What other files give
    as well, or set, is followed to the module, too, which nobody takes for a value.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._functions = functions_of(analysis)
        self._alike: dict[Hashable, cst.CSTNode] = {}

    def alike(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the first expression asked for that leads where this one does: another read of the same name, say.

        What is worked out for that one holds for all, and is worked out once.
        """
        key: Hashable = node
        if isinstance(node, cst.Name):
            key = id(self._analysis.assignments(node)), node.value
        elif isinstance(node, cst.Attribute) and self._analysis.imported(node) is None:
            key = node.attr.value
        return self._alike.setdefault(key, node)

    def of(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the expressions that an expression may have its value from, each once."""
        return [each for each, is_last in reached([node], self.behind).items() if is_last]

    def passed(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return an expression with those that lead to where it may have its value from, these included."""
        return [*reached([node], self.behind)]

    def behind(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield what an expression has its value from; nothing if that is where it ends."""
        if isinstance(node, cst.Name):
            yield from self._behind_name(node)
        elif isinstance(node, cst.Attribute):
            if self._analysis.imported(node) is None:
                yield from self._fields.get(node.attr.value, ())
                yield from self._elsewhere(node.attr.value)
        elif isinstance(node, cst.IfExp):
            yield from (node.body, node.orelse)
        elif isinstance(node, cst.BooleanOperation):
            yield from (node.left, node.right)
        elif isinstance(node, cst.Call):
            yield from self._behind_call(node)

    def _behind_name(self, node: cst.Name) -> Iterator[cst.CSTNode]:
        bound = self._analysis.assignments(node)
        if all(isinstance(each, ImportAssignment) for each in bound):
            return
        for each in (one for one in bound if isinstance(one, Assignment)):
            if isinstance(each.node, cst.Param):
                yield from self._behind_parameter(each.node)
            elif not isinstance(each.node, cst.FunctionDef | cst.ClassDef):
                yield from self._behind_target(each.node)
                if isinstance(each.scope, GlobalScope):
                    yield from self._elsewhere(node.value)

    def _elsewhere(self, name: str) -> Iterator[cst.CSTNode]:
        """Yield what stands for whatever other files give to what has a name here, if they do."""
        if self._analysis.project.gives(self._analysis.source.path, name):
            yield self._analysis.module

    def _behind_target(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the values that a target may get, or what it is one by one; else what it stands in."""
        analysis = self._analysis
        above, place = analysis.parent(node), None
        if isinstance(above, cst.Element):
            targets = analysis.parent(above)
            if isinstance(targets, cst.Tuple | cst.List):
                place = next(n for n, each in enumerate(targets.elements) if each is above)
                above = analysis.parent(targets)
        if isinstance(above, cst.For | cst.CompFor):
            yield above.iter
            return
        value = analysis.assigned(above)
        if value is None or place is None:
            yield above if value is None else value
            return
        for each in self._results(value):
            listed = each.elements if isinstance(each, cst.Tuple | cst.List) else ()
            known = place < len(listed) and not any(
                isinstance(one, cst.StarredElement) for one in listed
            )
            yield listed[place].value if known else above

    def _results(self, value: cst.CSTNode) -> Sequence[cst.CSTNode]:
        """Return what a choice, or a call of the source's functions, may give; what else an expression is, is itself."""
        returned = [*self._behind_call(value)] if isinstance(value, cst.Call) else []
        return [one for each in returned or [value] for one in _chosen(each)]

    def _behind_parameter(self, parameter: cst.Param) -> Iterator[cst.CSTNode]:
        function = self._analysis.enclosing(parameter, cst.FunctionDef, cst.Lambda)
        if isinstance(function, cst.FunctionDef) and parameter is function.params.star_kwarg:
            yield parameter  # the dictionary of what it is given by other names
            return
        if parameter.default is not None:
            yield parameter.default
        given: list[cst.BaseExpression] = []
        unseen = True
        if isinstance(function, cst.FunctionDef):
            given += self._functions.given(parameter, function)
            has_default = parameter.default is not None and self._functions.is_called(function)
            unseen = not (given or has_default) or self._functions.is_called_unseen(function)
        yield from given
        if unseen:
            yield self._analysis.parent(parameter)  # whatever others give it

    def _behind_call(self, node: cst.Call) -> Iterator[cst.CSTNode]:
        if isinstance(node.func, cst.Name) and node.func.value == "int" and len(node.args) == 1:
            yield node.args[0].value
        elif is_followed(node):
            for function in self._functions.called(node):
                yield from self._functions.returned(function)
                if isinstance(node.func, cst.Attribute):
                    yield from self._elsewhere(function.name.value)  # where it may be overridden

    @functools.cached_property
    def _fields(self) -> dict[str, list[cst.CSTNode]]:
        """What attributes are assigned, or give as properties, by their names."""
        fields: dict[str, list[cst.CSTNode]] = {}
        for attribute in self._analysis.nodes(cst.Attribute):
            above = self._analysis.parent(attribute)
            grown = isinstance(above, cst.AugAssign) and above.target is attribute
            if grown or not self._analysis.is_read(attribute):
                values = fields.setdefault(attribute.attr.value, [])
                values += self._behind_target(attribute)
        for function in self._analysis.nodes(cst.FunctionDef):
            if any(last_name(each.decorator) in _PROPERTIES for each in function.decorators):
                values = fields.setdefault(function.name.value, [])
                values += self._functions.returned(function)
        return fields


def is_followed(call: cst.Call) -> bool:
    """Say whether the functions of a name, or the methods of this object, are those that a call runs."""
    of_self = (
        isinstance(call.func, cst.Attribute) and get_full_name_for_node(call.func.value) == "self"
    )
    return of_self or isinstance(call.func, cst.Name)


def _chosen(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield what an expression is, or what it chooses from."""
    if isinstance(node, cst.IfExp):
        yield from (*_chosen(node.body), *_chosen(node.orelse))
    else:
        yield node


@once
def values(analysis: Analysis) -> Values:
    """Return what follows the expressions of a source."""
    return Values(analysis)


def opened_by(analysis: Analysis, call: cst.CSTNode) -> cst.CSTNode | None:
    """Return what values are followed back to of a loader: the ``as`` of a ``with``, or the call outside of one."""
    item = analysis.parent(call)
    return item.asname if isinstance(item, cst.WithItem) else call


def constants(nodes: Sequence[cst.CSTNode]) -> list[int | None]:
    """Return the numbers among some expressions; None for None."""
    numbers: list[int | None] = []
    for node in nodes:
        if isinstance(node, cst.Integer):
            numbers.append(node.evaluated_value)
        elif isinstance(node, cst.Name) and node.value == "None":
            numbers.append(None)
    return numbers
