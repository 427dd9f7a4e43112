"""The functions and classes of one source: which of them a call may run, and what goes in and comes out."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TypeVar

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment, ClassScope

from .analysis import Analysis, Node, last_name, once
from .imports import imports, relative_names
from .other_files import module_at, stem_of
from .places import grouped

_Definition = TypeVar("_Definition", cst.ClassDef, cst.FunctionDef)


class Functions:
    """Looks up the functions and classes that one source defines."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    def called(self, call: cst.Call) -> Sequence[cst.FunctionDef]:
        """Return the functions that a call may run; a method may be that of any class."""
        return self.named(call.func)

    def named(self, node: cst.CSTNode) -> Sequence[cst.FunctionDef]:
        """Return the functions that an expression may name; a method may be that of any class."""
        if isinstance(node, cst.Attribute):
            return self._attributes.get(node.attr.value, ())
        return self._definitions(node, cst.FunctionDef)

    def run_by(self, call: cst.Call) -> Sequence[cst.FunctionDef]:
        """Return the functions that a call may run, constructors included."""
        made = self.classes(call.func)
        if isinstance(call.func, cst.Attribute):
            made = self._classes.get(call.func.attr.value, ())
        constructors = (one for each in made for one in self._constructors.get(each, ()))
        return [*self.called(call), *constructors]

    def calls(self, function: cst.FunctionDef) -> Sequence[cst.Call]:
        """Return the calls of the source that may run a function."""
        return self._calls.get(function, ())

    def classes(self, node: cst.CSTNode) -> Sequence[cst.ClassDef]:
        """Return the classes that an expression may name."""
        return self._definitions(node, cst.ClassDef)

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
        for call in self.calls(function):
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

    def is_called(self, function: cst.FunctionDef) -> bool:
        """Say whether the source calls a function, by all appearance; a decorator may call it with more."""
        names = {get_full_name_for_node(each.decorator) for each in function.decorators}
        return names <= {"classmethod", "staticmethod"} and any(self.calls(function))

    def is_called_unseen(self, function: cst.FunctionDef) -> bool:
        """Say whether a function may be given what no call of the source shows.

        That is where it is passed on or gets what starred arguments hold, and where other files may call it.
        """
        called, name = self._called_for(function), self._called_for(function).name.value
        starred = any(each.star for call in self.calls(function) for each in call.args)
        elsewhere = self._analysis.project.gives(self._analysis.source.path, name)
        as_attribute = self.owner(function) is not None and name in self._attributes_read
        return starred or elsewhere or as_attribute or called in self._passed_on

    def _called_for(self, function: cst.FunctionDef) -> cst.FunctionDef | cst.ClassDef:
        """Return what is called to run a function: itself, or the class of a constructor."""
        owner = self.owner(function)
        return owner if owner is not None and function.name.value == "__init__" else function

    @functools.cached_property
    def _calls(self) -> dict[cst.FunctionDef, list[cst.Call]]:
        # super().__init__(…) is that of another class, which is passed on to be extended.
        return grouped(
            self._analysis.nodes(cst.Call),
            lambda call: self.run_by(call) if last_name(call.func) != "__init__" else (),
        )

    @functools.cached_property
    def _constructors(self) -> dict[cst.ClassDef, list[cst.FunctionDef]]:
        functions = self._by_name.get("__init__", ())
        return grouped(functions, lambda each: filter(None, [self.owner(each)]))

    @functools.cached_property
    def _classes(self) -> dict[str, list[cst.ClassDef]]:
        return self._named(cst.ClassDef)

    @functools.cached_property
    def _passed_on(self) -> frozenset[cst.CSTNode]:
        """Functions and classes that are used in other ways than by calls of their names."""
        analysis = self._analysis
        called = {call.func for call in analysis.nodes(cst.Call)}
        passed_on: set[cst.CSTNode] = set()
        for name in (each for each in analysis.nodes(cst.Name) if each not in called):
            above = analysis.parent(name)
            if not isinstance(above, cst.FunctionDef | cst.ClassDef):
                bound = analysis.assignments(name)
                if any(isinstance(each.scope, ClassScope) for each in bound):
                    passed_on.update(self._by_name.get(name.value, ()))  # as in fit = fit
                passed_on.update(self._definitions(name, cst.FunctionDef))
                if not isinstance(above, cst.Attribute):
                    passed_on.update(self._definitions(name, cst.ClassDef))
        # cls(…), self.__class__(…), type(self)(…)
        for call in analysis.calls("cls", "__class__", "type"):
            owner = analysis.enclosing(call, cst.ClassDef)
            passed_on |= {owner} if owner is not None else set()
        if any(analysis.calls("getattr", "globals")):
            for _, text in analysis.strings:
                passed_on.update(self._by_name.get(text, ()))
        return frozenset(passed_on)

    @functools.cached_property
    def _attributes_read(self) -> frozenset[str]:
        """Attributes that are read and not called."""
        called = {call.func for call in self._analysis.nodes(cst.Call)}
        attributes = self._analysis.nodes(cst.Attribute)
        return frozenset(each.attr.value for each in attributes if each not in called)

    def _definitions(self, node: cst.CSTNode, kind: type[Node]) -> list[Node]:
        """Return the statements of a type that may have given a name its meaning; none for other expressions."""
        return [
            assignment.node
            for assignment in (
                self._analysis.assignments(node) if isinstance(node, cst.Name) else ()
            )
            if isinstance(assignment, Assignment) and isinstance(assignment.node, kind)
        ]

    @functools.cached_property
    def _by_name(self) -> dict[str, list[cst.FunctionDef]]:
        return self._named(cst.FunctionDef)

    def _named(self, kind: type[_Definition]) -> dict[str, list[_Definition]]:
        return grouped(self._analysis.nodes(kind), lambda each: (each.name.value,))

    @functools.cached_property
    def _attributes(self) -> dict[str, list[cst.FunctionDef]]:
        """What objects may have as attributes: methods, what is passed on, and all of a module that gets at itself."""
        if self._gets_at_itself:
            return self._by_name
        return {
            name: [each for each in functions if self.owner(each) or each in self._passed_on]
            for name, functions in self._by_name.items()
        }

    @functools.cached_property
    def _gets_at_itself(self) -> bool:
        """Say whether a source imports itself, or takes itself from ``sys.modules``."""
        analysis = self._analysis
        imported = {stem_of(each.path) for each in imports(analysis)} | relative_names(analysis)
        modules = [each for each in analysis.nodes(cst.Attribute) if each.attr.value == "modules"]
        return not imported.isdisjoint({module_at(analysis.source.path), "__main__"}) or any(
            analysis.imported(each) == "sys.modules" for each in modules
        )

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
