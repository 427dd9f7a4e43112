"""The functions and classes of one source: which of them a call may run, and what goes in and comes out."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment

from .analysis import Analysis, Node, once


class Functions:
    """Looks up the functions and classes that one source defines."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    def called(self, call: cst.Call) -> Sequence[cst.FunctionDef]:
        """Return the functions that a call may run; a method may be that of any class."""
        if isinstance(call.func, cst.Name):
            return self._definitions(call.func, cst.FunctionDef)
        if isinstance(call.func, cst.Attribute):
            return self._by_name.get(call.func.attr.value, ())
        return ()

    def classes(self, node: cst.CSTNode) -> Sequence[cst.ClassDef]:
        """Return the classes that an expression may name."""
        return self._definitions(node, cst.ClassDef) if isinstance(node, cst.Name) else ()

    def returned(self, function: cst.FunctionDef) -> Sequence[cst.BaseExpression]:
        """Return the expressions that a function returns or yields."""
        return self._returned.get(function, ())

    def owner(self, function: cst.FunctionDef) -> cst.ClassDef | None:
        """Return the class that a function is a method of."""
        above = self._analysis.enclosing(
            self._analysis.parent(function), cst.ClassDef, cst.FunctionDef
        )
        return above if isinstance(above, cst.ClassDef) else None

    def instance_of(self, parameter: cst.Param, function: cst.FunctionDef) -> cst.ClassDef | None:
        """Return the class that a parameter is the instance of, as a method's first one is."""
        first = function.params.params[:1]
        is_first = bool(first) and first[0].name.value == parameter.name.value
        return self.owner(function) if is_first and not _is_static(function) else None

    def given(
        self, parameter: cst.Param, function: cst.FunctionDef
    ) -> Iterator[cst.BaseExpression]:
        """Yield what calls within the source give for a parameter of a function."""
        return (each for each in self.given_by_call(parameter, function) if each is not None)

    def given_by_call(
        self, parameter: cst.Param, function: cst.FunctionDef
    ) -> Iterator[cst.BaseExpression | None]:
        """Yield what each call within the source gives for a parameter of a function; None for nothing."""
        owner, name = self.owner(function), parameter.name.value
        names = [each.name.value for each in function.params.params]
        bound = owner is not None and not _is_static(function)
        place = names.index(name) - bound if name in names else None
        for call in self._analysis.calls(self.called_as(function)):
            positional = [each for each in call.args if not each.keyword]
            named = [each for each in call.args if each.keyword and each.keyword.value == name]
            if named:
                yield named[0].value
            elif any(each.star for each in positional):
                yield None
            elif place is not None and 0 <= place < len(positional):
                yield positional[place].value
            else:
                yield None

    def called_as(self, function: cst.FunctionDef) -> str:
        """Return the name that calls have which run a function: its own, or that of a constructor's class."""
        owner = self.owner(function)
        return (owner if owner and function.name.value == "__init__" else function).name.value

    def is_called(self, function: cst.FunctionDef) -> bool:
        """Say whether the source calls a function, by all appearance."""
        return any(self._analysis.calls(self.called_as(function)))

    def is_called_unseen(self, function: cst.FunctionDef) -> bool:
        """Say whether a function may be given what no call of the source shows.

        That is where it is passed on or gets what starred arguments hold, and where other files may call it.
        """
        name, project = self.called_as(function), self._analysis.project
        starred = any(each.star for call in self._analysis.calls(name) for each in call.args)
        elsewhere = project.gives(self._analysis.source.path, name)
        return starred or elsewhere or name in self._passed_on

    @functools.cached_property
    def _passed_on(self) -> frozenset[str]:
        """Names of what is read and not called."""
        analysis = self._analysis
        called = {id(call.func) for call in analysis.nodes(cst.Call)}
        inner = {id(each.value) for each in analysis.nodes(cst.Attribute)}
        inner |= {id(each.attr) for each in analysis.nodes(cst.Attribute)}
        inner |= {id(each.name) for each in analysis.nodes(cst.FunctionDef)}
        inner |= {id(each.name) for each in analysis.nodes(cst.ClassDef)}
        names = {
            each.value
            for each in analysis.nodes(cst.Name)
            if id(each) not in called and id(each) not in inner
        }
        attributes = (each for each in analysis.nodes(cst.Attribute) if id(each) not in called)
        return frozenset(names | {each.attr.value for each in attributes})

    def _definitions(self, name: cst.Name, kind: type[Node]) -> list[Node]:
        """Return the statements of a type that may have given a name its meaning."""
        return [
            assignment.node
            for assignment in self._analysis.assignments(name)
            if isinstance(assignment, Assignment) and isinstance(assignment.node, kind)
        ]

    @functools.cached_property
    def _by_name(self) -> dict[str, list[cst.FunctionDef]]:
        functions: dict[str, list[cst.FunctionDef]] = {}
        for function in self._analysis.nodes(cst.FunctionDef):
            functions.setdefault(function.name.value, []).append(function)
        return functions

    @functools.cached_property
    def _returned(self) -> dict[cst.FunctionDef, list[cst.BaseExpression]]:
        analysis = self._analysis
        statements: list[cst.Return | cst.Yield] = [*analysis.nodes(cst.Return)]
        statements += analysis.nodes(cst.Yield)
        returned: dict[cst.FunctionDef, list[cst.BaseExpression]] = {}
        for statement in statements:
            owner = analysis.enclosing(statement, cst.FunctionDef, cst.Lambda)
            value = statement.value
            if isinstance(owner, cst.FunctionDef) and isinstance(value, cst.BaseExpression):
                returned.setdefault(owner, []).append(value)
        return returned


def _is_static(function: cst.FunctionDef) -> bool:
    return any(
        get_full_name_for_node(each.decorator) == "staticmethod" for each in function.decorators
    )


@once
def functions_of(analysis: Analysis) -> Functions:
    """Return the functions and classes of a source; all that follow values share them."""
    return Functions(analysis)
