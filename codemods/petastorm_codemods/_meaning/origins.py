"""What gives the names and attributes of one source their objects: assignments, imports, annotations."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import Assignment, BaseAssignment, ImportAssignment, QualifiedNameSource

from .analysis import Analysis
from .calls import is_none
from .imports import modules_of, root_name
from .support import is_class

_VAGUE = re.compile(r"\b(?:Any|object|T|Generic|Protocol)\b")
# No class of these has such methods, so that an annotation with one is loose or out of date.
_SILENT = frozenset(
    {"abc", "collections", "contextlib", "numpy", "pandas", "pyspark", "torch", "typing"}
)
_LOOSE = frozenset({"any", "callable", "iter"})  # functions that people write as annotations


@dataclass(frozen=True, eq=False)
class Bindings:
    """Everything that binds a name.

    Attributes:
        assignments: In the order of the text.
        starts: Where they stand; None if there is only one, or if they are of several scopes.
        scope: The function, lambda or class that they are of; None for the module.
    """

    assignments: tuple[BaseAssignment, ...]
    starts: Sequence[int] | None
    scope: cst.CSTNode | None


class Origins:
    """Looks up what binds the names and attributes of one source; it judges nothing."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._bindings: dict[int, Bindings] = {}

    # --- names ------------------------------------------------------------------------------------

    def bindings(self, node: cst.Name) -> Bindings | None:
        """Return everything that binds a name which is read; None if nothing in the source does.

        Reads that share their bindings get the same object.
        """
        assignments = self._analysis.assignments(node)
        if not assignments:
            return None
        # The analysis keeps these tuples, one for all reads in functions that share a name.
        if id(assignments) not in self._bindings:
            self._bindings[id(assignments)] = self._bindings_of(assignments)
        return self._bindings[id(assignments)]

    def _bindings_of(self, assignments: tuple[BaseAssignment, ...]) -> Bindings:
        analysis = self._analysis
        nodes = [each.node for each in assignments if isinstance(each, Assignment)]
        scopes = {self._scope(each) for each in nodes}
        starts = [0 if isinstance(each, cst.Param) else analysis.start(each) for each in nodes]
        ordered = 1 < len(nodes) == len(assignments) and len(scopes) == 1
        return Bindings(assignments, starts if ordered else None, next(iter(scopes), None))

    def _scope(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self._analysis.enclosing(node, cst.FunctionDef, cst.Lambda, cst.ClassDef)

    def last(self, node: cst.Name, bindings: Bindings) -> Assignment | None:
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
        return last if any(each is block for each in analysis.above(node)) else None

    # --- attributes -------------------------------------------------------------------------------

    def fields(self, name: str, owner: cst.ClassDef | None) -> Sequence[cst.CSTNode]:
        """Return the targets that assign to an attribute, in a class or in the whole source."""
        return self._fields.get((name, owner), ())

    def is_assigned(self, name: str, owner: cst.ClassDef | None) -> bool:
        """Say whether an attribute is given anything but None, in a class or in the whole source."""
        above = (self._analysis.parent(each) for each in self.fields(name, owner))
        values = (self._analysis.assigned(each) for each in above)
        return any(value is None or not is_none(value) for value in values)

    @functools.cached_property
    def _fields(self) -> dict[tuple[str, cst.ClassDef | None], list[cst.CSTNode]]:
        """What is assigned to, by name and class; those of all classes without one."""
        analysis = self._analysis
        fields: dict[tuple[str, cst.ClassDef | None], list[cst.CSTNode]] = {}
        for attribute in analysis.nodes(cst.Attribute):
            if not analysis.is_read(attribute):
                for owner in {None, analysis.enclosing(attribute, cst.ClassDef)}:
                    fields.setdefault((attribute.attr.value, owner), []).append(attribute)
        targets: list[cst.AnnAssign | cst.AssignTarget] = [*analysis.nodes(cst.AnnAssign)]
        for target in (*targets, *analysis.nodes(cst.AssignTarget)):
            inside = analysis.enclosing(target, cst.ClassDef, cst.FunctionDef)
            if isinstance(inside, cst.ClassDef) and isinstance(target.target, cst.Name):
                for owner in (None, inside):
                    fields.setdefault((target.target.value, owner), []).append(target.target)
        return fields

    def self_class(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """Return the class whose instance a name is by convention: ``self`` or ``cls``."""
        if isinstance(node, cst.Name) and node.value in {"self", "cls"}:
            return self._analysis.enclosing(node, cst.ClassDef)
        return None

    # --- imports ----------------------------------------------------------------------------------

    def is_own_name(self, node: cst.CSTNode) -> bool:
        """Say whether a name, or the class of an object that is made here, is imported from the project's own modules."""
        while isinstance(node, cst.Attribute | cst.Call):
            node = node.func if isinstance(node, cst.Call) else node.value
        root = root_name(node)
        assignments = self._analysis.assignments(root) if root else ()
        return any(
            isinstance(assignment, ImportAssignment) and self.is_own(assignment)
            for assignment in assignments
        )

    def is_own(self, assignment: ImportAssignment) -> bool:
        """Say whether an import is from the project's own modules."""
        statement = assignment.node
        relative = isinstance(statement, cst.ImportFrom) and bool(statement.relative)
        return relative or any(map(self._analysis.project.owns, modules_of(statement)))

    # --- annotations ------------------------------------------------------------------------------

    def annotates_converter(self, node: cst.BaseExpression) -> bool | None:
        """Say whether what has a type is a converter; None if the type does not tell."""
        text = self._analysis.code(node)
        for name in self._analysis.within(node, cst.Name):
            if is_class(self._analysis.imported(name), self._analysis):
                return True
        if re.search(r"\b(?:SparkDatasetConverter|MdsDirectory)\b", text):
            quoted = isinstance(node, cst.SimpleString) or "." in text or "'" in text or '"' in text
            return True if quoted else None
        if _VAGUE.search(text) or isinstance(node, cst.SimpleString):
            return None
        return False if self._is_library_class(node) else None

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
            meaning.source is not QualifiedNameSource.IMPORT or not self.is_own_name(node)
            for meaning in meanings
        )
