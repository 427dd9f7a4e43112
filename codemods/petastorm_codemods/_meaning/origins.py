"""Where the objects of names, parameters and attributes come from."""

from __future__ import annotations

import abc
import bisect
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment, BaseAssignment, ImportAssignment, QualifiedNameSource

from petastorm_codemods._petastorm.counterparts import is_class

from .analysis import Analysis
from .imports import root_name
from .kinds import Kind, combine
from .questions import Answer, Question, Questions, any_of

_VAGUE = re.compile(r"\b(?:Any|object|T|Generic|Protocol)\b")
# No class of these has such methods, so that an annotation with one is loose or out of date.
_SILENT = frozenset(
    {"abc", "collections", "contextlib", "numpy", "pandas", "pyspark", "torch", "typing"}
)
_LOOSE = frozenset({"any", "callable", "iter"})  # functions that people write as annotations


@dataclass(frozen=True, eq=False)
class _Bindings:
    """Everything that binds a name.

    Attributes:
        assignments: In the order of the text.
        starts: Where they stand; None if there is only one, or if they are of several scopes.
        scope: The function, lambda or class that they are of; None for the module.
    """

    assignments: tuple[BaseAssignment, ...]
    starts: Sequence[int] | None
    scope: cst.CSTNode | None


class Origins(abc.ABC):
    """Follows the names of one source; expressions are followed by the class that extends it."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._questions = Questions()
        self._bindings: dict[int, _Bindings] = {}
        self._functions: dict[str, list[cst.FunctionDef]] = {}
        for function in analysis.nodes(cst.FunctionDef):
            self._functions.setdefault(function.name.value, []).append(function)

    @abc.abstractmethod
    def _kind(self, node: cst.CSTNode) -> Question:
        """Return the question what is known about an expression; None for the literal None."""

    @abc.abstractmethod
    def _called(self, node: cst.Call) -> list[cst.FunctionDef]:
        """Return the functions of the file that a call may run."""

    @abc.abstractmethod
    def _returns(self, function: cst.FunctionDef) -> list[cst.BaseExpression]:
        """Return what a function returns or yields."""

    # --- names ------------------------------------------------------------------------------------

    def _of_name(self, node: cst.Name) -> Answer:
        assignments = self._analysis.assignments(node)
        if not assignments:
            return Kind.UNKNOWN
        if id(assignments) not in self._bindings:
            self._bindings[id(assignments)] = self._bindings_of(assignments)
        bindings = self._bindings[id(assignments)]
        last = self._last(node, bindings)
        return (yield (self._of_assignment, last) if last else (self._of_bindings, bindings))

    def _of_bindings(self, bindings: _Bindings) -> Answer:
        return (yield from any_of((self._of_assignment, each) for each in bindings.assignments))

    def _bindings_of(self, assignments: tuple[BaseAssignment, ...]) -> _Bindings:
        analysis = self._analysis
        nodes = [each.node for each in assignments if isinstance(each, Assignment)]
        scopes = {self._scope(each) for each in nodes}
        starts = [0 if isinstance(each, cst.Param) else analysis.start(each) for each in nodes]
        ordered = 1 < len(nodes) == len(assignments) and len(scopes) == 1
        return _Bindings(assignments, starts if ordered else None, next(iter(scopes), None))

    def _scope(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self._analysis.enclosing(node, cst.FunctionDef, cst.Lambda, cst.ClassDef)

    def _last(self, node: cst.Name, bindings: _Bindings) -> Assignment | None:
        """Return the assignment that certainly was the last before a use; None if that is open."""
        analysis = self._analysis
        if bindings.starts is None or bindings.scope is not self._scope(node):
            return None
        place = bisect.bisect_left(bindings.starts, analysis.start(node)) - 1
        if place < 0:
            return None
        last = bindings.assignments[place]
        assert isinstance(last, Assignment)
        block = analysis.enclosing(last.node, cst.IndentedBlock, cst.Module)
        above: cst.CSTNode = node
        while above is not block:
            if above is analysis.module:
                return None
            above = analysis.parent(above)
        return last

    def _of_assignment(self, assignment: BaseAssignment) -> Answer:
        if isinstance(assignment, ImportAssignment):
            return Kind.UNKNOWN if self._is_own(assignment) else Kind.FOREIGN
        if not isinstance(assignment, Assignment):
            return Kind.UNKNOWN
        node = assignment.node
        if isinstance(node, cst.Param):
            return (yield from self._of_parameter(node))
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            return Kind.FOREIGN
        return (yield from self._of_target(node))

    def _of_target(self, node: cst.CSTNode) -> Answer:  # noqa: PLR0911
        """What is bound to a name, wherever in a target it stands."""
        above = self._analysis.parent(node)
        if isinstance(above, cst.Element | cst.StarredElement):
            return (yield from self._of_unpacked(above))
        if isinstance(above, cst.AssignTarget):
            statement = self._analysis.parent(above)
            return (
                (yield self._kind(statement.value)) if isinstance(statement, cst.Assign) else None
            )
        if isinstance(above, cst.AnnAssign):
            said = self._of_annotation(above.annotation)
            return said or ((yield self._kind(above.value)) if above.value else None)
        if isinstance(above, cst.NamedExpr):
            return (yield self._kind(above.value))
        if isinstance(above, cst.For | cst.CompFor):
            return (yield self._kind(above.iter))
        if isinstance(above, cst.AsName):
            item = self._analysis.parent(above)
            return (yield self._kind(item.item)) if isinstance(item, cst.WithItem) else Kind.FOREIGN
        return Kind.UNKNOWN

    def _of_unpacked(self, element: cst.CSTNode) -> Answer:
        """One of several targets: the same place on the right, where there are places."""
        targets = self._analysis.parent(element)
        above = self._analysis.parent(targets)
        if not isinstance(targets, cst.Tuple | cst.List):
            return Kind.UNKNOWN
        place = next(n for n, each in enumerate(targets.elements) if each is element)
        if isinstance(above, cst.For | cst.CompFor):
            return (yield (self._of_place, above.iter, place))
        if isinstance(above, cst.AssignTarget):
            statement = self._analysis.parent(above)
            if isinstance(statement, cst.Assign):
                return (yield (self._of_place, statement.value, place))
        return Kind.UNKNOWN

    def _of_place(self, value: cst.CSTNode, place: int) -> Answer:
        if isinstance(value, cst.Tuple | cst.List) and place < len(value.elements):
            chosen = value.elements[place]
            if not any(isinstance(each, cst.StarredElement) for each in value.elements):
                return (yield self._kind(chosen.value))
        if isinstance(value, cst.Call):
            name = get_full_name_for_node(value.func)
            if name == "zip" and place < len(value.args):
                return (yield self._kind(value.args[place].value))
            returns = [each for f in self._called(value) for each in self._returns(f)]
            if returns:
                return (yield from any_of((self._of_place, each, place) for each in returns))
        return (yield self._kind(value))

    # --- parameters and annotations ---------------------------------------------------------------

    def _of_parameter(self, parameter: cst.Param) -> Answer:
        said = self._of_annotation(parameter.annotation) if parameter.annotation else None
        if said:
            return said
        function = self._analysis.enclosing(parameter, cst.FunctionDef, cst.Lambda)
        if not isinstance(function, cst.FunctionDef):
            return Kind.UNKNOWN
        names = [each.name.value for each in function.params.params]
        owner = self._owner(function)
        name = parameter.name.value
        if owner and names[:1] == [name] and not _is_static(function):
            return self._of_class(owner)
        default = (yield self._kind(parameter.default)) if parameter.default else None
        place = names.index(name) - (owner is not None) if name in names else None
        given = list(self._given(function, owner, name, place))
        if not given:
            return default or Kind.UNKNOWN
        return combine([default, (yield from any_of(map(self._kind, given)))])

    def _given(
        self, function: cst.FunctionDef, owner: cst.ClassDef | None, name: str, place: int | None
    ) -> Iterator[cst.CSTNode]:
        """Yield what calls within the file give for a parameter of a function."""
        called = function.name.value
        if owner and called == "__init__":
            called = owner.name.value
        for call in self._calls.get(called, ()):
            positional = [each for each in call.args if not each.keyword]
            for argument in call.args:
                if argument.keyword and argument.keyword.value == name:
                    yield argument.value
            if any(each.star for each in positional):
                continue
            if place is not None and place < len(positional):
                yield positional[place].value

    @functools.cached_property
    def _calls(self) -> dict[str, list[cst.Call]]:
        found: dict[str, list[cst.Call]] = {}
        for call in self._analysis.nodes(cst.Call):
            name = (get_full_name_for_node(call.func) or "").rpartition(".")[2]
            found.setdefault(name, []).append(call)
        return found

    def _of_annotation(self, annotation: cst.Annotation) -> Kind | None:
        node = annotation.annotation
        text = self._analysis.code(node)
        for name in self._analysis.within(node, cst.Name):
            if is_class(self._analysis.imported(name), self._analysis):
                return Kind.CONVERTER
        if re.search(r"\b(?:SparkDatasetConverter|MdsDirectory)\b", text):
            quoted = isinstance(node, cst.SimpleString) or "." in text or "'" in text or '"' in text
            return Kind.CONVERTER if quoted else None
        if _VAGUE.search(text) or isinstance(node, cst.SimpleString):
            return None
        return Kind.FOREIGN if self._is_library_class(node) else None

    def _is_library_class(self, node: cst.CSTNode) -> bool:
        """Say whether an annotation is a class of this file, of a library, or built in."""
        if not isinstance(node, cst.Name | cst.Attribute):
            return False
        path = self._analysis.imported(node)
        if path is not None and path.partition(".")[0] in _SILENT:
            return False
        if isinstance(node, cst.Name) and node.value in _LOOSE:
            return False
        meanings = self._analysis.meanings(node)
        return bool(meanings) and all(
            meaning.source is not QualifiedNameSource.IMPORT or not self._is_own_name(node)
            for meaning in meanings
        )

    def _is_own_name(self, node: cst.CSTNode) -> bool:
        """Say whether a name is imported from the project's own modules."""
        root = root_name(node)
        found = self._analysis.assignments(root) if root else ()
        return any(isinstance(each, ImportAssignment) and self._is_own(each) for each in found)

    def _is_own(self, assignment: ImportAssignment) -> bool:
        statement = assignment.node
        if isinstance(statement, cst.ImportFrom):
            module = get_full_name_for_node(statement.module) if statement.module else ""
            return bool(statement.relative) or self._analysis.project.owns(module or "")
        names = statement.names if isinstance(statement, cst.Import) else ()
        return any(self._analysis.project.owns(alias.evaluated_name) for alias in names)

    # --- attributes -------------------------------------------------------------------------------

    def _of_attribute(self, node: cst.Attribute) -> Answer:
        if self._analysis.imported(node) is not None:
            return Kind.UNKNOWN if self._is_own_name(node) else Kind.FOREIGN
        owner = self._self_class(node.value)
        kind = yield (self._of_field, node.attr.value, owner)
        if kind is not None:
            return kind
        if owner:
            return Kind.UNKNOWN  # set by a base class, or from outside
        if node.attr.value in {"value", "values"}:
            return (yield self._kind(node.value))
        return Kind.UNKNOWN

    def _of_field(self, name: str, owner: cst.ClassDef | None) -> Answer:
        """What is assigned to an attribute of this name, in a class or in the whole file."""
        targets = self._fields.get((name, owner), ())
        return (yield from any_of((self._of_target, each) for each in targets))

    @functools.cached_property
    def _fields(self) -> dict[tuple[str, cst.ClassDef | None], list[cst.CSTNode]]:
        """What is assigned to, by name and class; those of all classes without one."""
        analysis = self._analysis
        found: dict[tuple[str, cst.ClassDef | None], list[cst.CSTNode]] = {}
        for attribute in analysis.nodes(cst.Attribute):
            if not analysis.is_read(attribute):
                for owner in {None, analysis.enclosing(attribute, cst.ClassDef)}:
                    found.setdefault((attribute.attr.value, owner), []).append(attribute)
        targets: list[cst.AnnAssign | cst.AssignTarget] = [*analysis.nodes(cst.AnnAssign)]
        for target in (*targets, *analysis.nodes(cst.AssignTarget)):
            inside = analysis.enclosing(target, cst.ClassDef, cst.FunctionDef)
            if isinstance(inside, cst.ClassDef) and isinstance(target.target, cst.Name):
                for owner in (None, inside):
                    found.setdefault((target.target.value, owner), []).append(target.target)
        return found

    def _self_class(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """Return the class whose instance a name is by convention: ``self`` or ``cls``."""
        if isinstance(node, cst.Name) and node.value in {"self", "cls"}:
            return self._analysis.enclosing(node, cst.ClassDef)
        return None

    def _of_class(self, owner: cst.ClassDef) -> Kind:
        bases = [self._analysis.imported(base.value) for base in owner.bases]
        found = any(is_class(base, self._analysis) for base in bases)
        return Kind.CONVERTER if found else Kind.FOREIGN

    def _owner(self, function: cst.FunctionDef) -> cst.ClassDef | None:
        above = self._analysis.enclosing(
            self._analysis.parent(function), cst.ClassDef, cst.FunctionDef
        )
        return above if isinstance(above, cst.ClassDef) else None


def _is_static(function: cst.FunctionDef) -> bool:
    return any(
        get_full_name_for_node(each.decorator) == "staticmethod" for each in function.decorators
    )
