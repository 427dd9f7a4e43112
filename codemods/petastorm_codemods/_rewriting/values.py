"""What an argument of a call may be: its names followed back to what they were given."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import libcst as cst
from libcst.metadata import Assignment

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.functions import functions_of


class Values:
    """Follows the expressions of one source back to others, within that source.

    What cannot be followed stands for itself: calls, names of other modules, targets of loops. A parameter
    that no call in the source gives a value stands for whatever it is given elsewhere.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._functions = functions_of(analysis)

    def of(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the expressions that an expression may have its value from, each once."""
        found: list[cst.CSTNode] = []
        seen: set[cst.CSTNode] = set()
        left = [node]
        while left:
            each = left.pop()
            if each in seen:
                continue
            seen.add(each)
            further = list(self.behind(each))
            left += further
            if not further:
                found.append(each)
        return found

    def behind(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield what an expression has its value from; nothing if that is where it ends."""
        if isinstance(node, cst.Name):
            yield from self._behind_name(node)
        elif isinstance(node, cst.Attribute):
            if self._analysis.imported(node) is None:
                yield from self._fields.get(node.attr.value, ())
        elif isinstance(node, cst.IfExp):
            yield from (node.body, node.orelse)
        elif isinstance(node, cst.BooleanOperation):
            yield from (node.left, node.right)
        elif isinstance(node, cst.Call):
            yield from self._behind_call(node)

    def _behind_name(self, node: cst.Name) -> Iterator[cst.CSTNode]:
        bound = (each for each in self._analysis.assignments(node) if isinstance(each, Assignment))
        for each in bound:
            if isinstance(each.node, cst.Param):
                yield from self._behind_parameter(each.node)
            elif not isinstance(each.node, cst.FunctionDef | cst.ClassDef):
                yield self._behind_target(each.node)

    def _behind_target(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the value that a target gets, or what it is one by one; else what it stands in."""
        analysis = self._analysis
        above, place = analysis.parent(node), None
        if isinstance(above, cst.Element):
            targets = analysis.parent(above)
            if isinstance(targets, cst.Tuple | cst.List):
                place = next(n for n, each in enumerate(targets.elements) if each is above)
                above = analysis.parent(targets)
        if isinstance(above, cst.For | cst.CompFor):
            return above.iter
        value = analysis.assigned(above)
        if value is not None and place is not None:
            listed = value.elements if isinstance(value, cst.Tuple | cst.List) else ()
            value = listed[place].value if place < len(listed) else None
        return above if value is None else value

    def _behind_parameter(self, parameter: cst.Param) -> Iterator[cst.CSTNode]:
        function = self._analysis.enclosing(parameter, cst.FunctionDef, cst.Lambda)
        given: list[cst.BaseExpression] = []
        if isinstance(function, cst.FunctionDef):
            given += self._functions.given(parameter, function)
        if parameter.default is not None:
            yield parameter.default
        yield from given
        if not given:
            yield self._analysis.parent(parameter)  # whatever others give it

    def _behind_call(self, node: cst.Call) -> Iterator[cst.CSTNode]:
        if isinstance(node.func, cst.Name) and node.func.value == "int" and len(node.args) == 1:
            yield node.args[0].value
        elif isinstance(node.func, cst.Name):
            for function in self._functions.called(node):
                yield from self._functions.returned(function)

    @functools.cached_property
    def _fields(self) -> dict[str, list[cst.CSTNode]]:
        """What attributes are assigned, by their names."""
        found: dict[str, list[cst.CSTNode]] = {}
        for attribute in self._analysis.nodes(cst.Attribute):
            if not self._analysis.is_read(attribute):
                values = found.setdefault(attribute.attr.value, [])
                values.append(self._behind_target(attribute))
        return found


@once
def values(analysis: Analysis) -> Values:
    """Return what follows the expressions of a source."""
    return Values(analysis)


def constants(nodes: Sequence[cst.CSTNode]) -> list[int | None]:
    """Return the numbers among some expressions; None for None."""
    found: list[int | None] = []
    for node in nodes:
        if isinstance(node, cst.Integer):
            found.append(node.evaluated_value)
        elif isinstance(node, cst.Name) and node.value == "None":
            found.append(None)
    return found
