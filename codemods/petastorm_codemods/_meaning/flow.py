"""What an expression may hold: one of Petastorm's converters, something else, or who knows.

The methods that open loaders have names that other classes use as well. Whether a call is
Petastorm's is settled by where the object comes from: imports, assignments, annotations, the
returns of functions, and what functions of the file are called with.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment, BaseAssignment, ImportAssignment

from .analysis import Analysis, once
from .functions import functions_of
from .origins import Bindings, Origins
from .questions import Answer, Question, Questions
from .reexports import is_reexported, unseen_reads
from .support import is_class, is_maker, is_support

_COPIES = frozenset({"copy.copy", "copy.deepcopy"})
# Functions and methods that hand on what they are called with, or on.
_PASSING = frozenset({"enumerate", "iter", "list", "next", "reversed", "sorted", "tuple", "zip"})
_MEMBERS = frozenset({"get", "items", "pop", "setdefault", "values"})
_LOADING = re.compile(r"ray\.get|(?:joblib|(?:cloud)?pickle|dill|torch)\.loads?")


class Provenance(enum.Enum):
    """What is known about an object."""

    CONVERTER = "a converter, or a collection with one"
    FILES = "a converter that was made from files by hand"
    UNKNOWN = "nothing says what it is"
    DOUBTFUL = "it may be something else"
    FOREIGN = "something else"


_Answer = Answer[Provenance]


class Flow:
    """Follows the expressions of one source back to where their objects come from.

    Each method that begins with ``_of`` answers one sort of question, and asks for what it needs;
    an answer of None stands for the literal ``None``, or for nothing that is assigned.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._origins = Origins(analysis)
        self._functions = functions_of(analysis)
        self._unseen = frozenset(unseen_reads(analysis))
        self._questions: Questions[Provenance] = Questions()
        self._instances: dict[object, bool] = {None: False}  # by what binds names or attributes

    def provenance(self, node: cst.CSTNode) -> Provenance:
        """Return what is known about the object that an expression gives."""
        return self._questions.answer(self._provenance(node)) or Provenance.UNKNOWN

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

    def _provenance(self, node: cst.CSTNode) -> Question:
        return (self._of, node)

    def _of(self, node: cst.CSTNode) -> _Answer:  # noqa: PLR0911, PLR0912 - one line for each syntax
        if isinstance(node, cst.Name):
            return None if node.value == "None" else (yield from self._of_name(node))
        if isinstance(node, cst.Attribute):
            return (yield from self._of_attribute(node))
        if isinstance(node, cst.Call):
            return (yield from self._of_call(node))
        if isinstance(node, cst.IfExp):
            return (yield from self._of_any((node.body, node.orelse)))
        if isinstance(node, cst.BooleanOperation):
            return (yield from self._of_any((node.left, node.right)))
        if isinstance(node, cst.Await):
            return (yield self._provenance(node.expression))
        if isinstance(node, cst.Subscript):
            return (yield from self._of_member(node.value))
        if isinstance(node, cst.NamedExpr | cst.Element | cst.StarredElement):
            return (yield self._provenance(node.value))
        if isinstance(node, cst.Tuple | cst.List | cst.Set):
            return (yield from self._of_any(node.elements))
        if isinstance(node, cst.Dict):
            return (yield from self._of_any(element.value for element in node.elements))
        if isinstance(node, cst.ListComp | cst.GeneratorExp | cst.SetComp):
            return (yield self._provenance(node.elt))
        if isinstance(node, cst.DictComp):
            return (yield self._provenance(node.value))
        if isinstance(node, cst.BaseString | cst.BaseNumber | cst.Lambda | cst.Comparison):
            return Provenance.FOREIGN
        return Provenance.UNKNOWN

    def _of_member(self, holder: cst.CSTNode) -> _Answer:
        """What a collection has in it, or what an object gives by its own ``__getitem__`` and the like."""
        held = yield self._provenance(holder)
        is_object = held is Provenance.FOREIGN and self.is_instance(holder)
        return Provenance.UNKNOWN if is_object else held

    def _gets_instance(self, target: cst.CSTNode) -> bool:
        if isinstance(target, cst.Param):
            return target.annotation is not None and self._is_class(target.annotation.annotation)
        above = self._analysis.parent(target)
        value = self._analysis.assigned(above) if isinstance(above, cst.AssignTarget) else None
        return isinstance(value, cst.Call) and self._is_class(value.func)

    def _is_class(self, node: cst.CSTNode) -> bool:
        path = self._analysis.imported(node) or ""
        is_imported = path.rpartition(".")[2][:1].isupper() and self._origins.is_own_name(node)
        return is_imported or bool(self._functions.classes(node))

    def _of_any(self, nodes: Iterable[cst.CSTNode]) -> _Answer:
        return (yield from _any_of(map(self._provenance, nodes)))

    # --- calls ------------------------------------------------------------------------------------

    def _of_call(self, node: cst.Call) -> _Answer:  # noqa: PLR0911 - one for each callee
        path = self._analysis.imported(node.func)
        if path is not None:
            return (yield from self._of_imported_call(node, path))
        meanings = {meaning.name for meaning in self._analysis.meanings(node.func)}
        if any(is_maker(meaning, self._analysis) for meaning in meanings):
            return Provenance.DOUBTFUL  # and something else
        if node.func in self._unseen:
            return Provenance.CONVERTER
        classes = self._functions.classes(node.func)
        if classes:
            return _combined(map(self._of_class, classes))
        functions = self._functions.called(node)
        if functions:
            return (yield from _any_of((self._of_returns, each) for each in functions))
        name = get_full_name_for_node(node.func) or ""
        if isinstance(node.func, cst.Name) and name in _PASSING:
            return (yield from self._of_any(argument.value for argument in node.args[:2]))
        if isinstance(node.func, cst.Name) and name == "super":
            owner = self._analysis.enclosing(node, cst.ClassDef)
            return self._of_class(owner) if owner else Provenance.UNKNOWN
        if isinstance(node.func, cst.Attribute) and node.func.attr.value in _MEMBERS:
            return (yield from self._of_member(node.func.value))
        return Provenance.UNKNOWN

    def _of_returns(self, function: cst.FunctionDef) -> _Answer:
        return (yield from self._of_any(self._functions.returned(function)))

    def _of_imported_call(self, node: cst.Call, path: str) -> _Answer:
        if is_maker(path, self._analysis) or is_reexported(self._analysis, path):
            return Provenance.CONVERTER
        if is_class(path, self._analysis):
            return Provenance.CONVERTER if is_support(path, self._analysis) else Provenance.FILES
        if path in _COPIES:
            return (yield from self._of_any(argument.value for argument in node.args[:1]))
        is_class_name = path.rpartition(".")[2][:1].isupper()
        is_own = self._origins.is_own_name(node.func)
        if _LOADING.fullmatch(path) or (is_own and not is_class_name):
            return Provenance.UNKNOWN
        return Provenance.FOREIGN if is_class_name else Provenance.DOUBTFUL

    def _of_class(self, owner: cst.ClassDef) -> Provenance:
        bases = [self._analysis.imported(base.value) for base in owner.bases]
        extends = any(is_class(base, self._analysis) for base in bases)
        return Provenance.CONVERTER if extends else Provenance.FOREIGN

    # --- names ------------------------------------------------------------------------------------

    def _of_name(self, node: cst.Name) -> _Answer:
        bindings = self._origins.bindings(node)
        if bindings is None:
            return Provenance.UNKNOWN
        last = self._origins.last(node, bindings)
        return (yield (self._of_assignment, last) if last else (self._of_bindings, bindings))

    def _of_bindings(self, bindings: Bindings) -> _Answer:
        return (yield from _any_of((self._of_assignment, each) for each in bindings.assignments))

    def _of_assignment(self, assignment: BaseAssignment) -> _Answer:
        if isinstance(assignment, ImportAssignment):
            return Provenance.UNKNOWN if self._origins.is_own(assignment) else Provenance.FOREIGN
        if not isinstance(assignment, Assignment):
            return Provenance.UNKNOWN
        node = assignment.node
        if isinstance(node, cst.Param):
            return (yield from self._of_parameter(node))
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            return Provenance.FOREIGN
        return (yield from self._of_target(node))

    def _of_target(self, node: cst.CSTNode) -> _Answer:
        """What is bound to a name, wherever in a target it stands."""
        above = self._analysis.parent(node)
        if isinstance(above, cst.Element | cst.StarredElement):
            return (yield from self._of_unpacked(above))
        if isinstance(above, cst.AssignTarget | cst.AnnAssign | cst.NamedExpr):
            annotation = above.annotation if isinstance(above, cst.AnnAssign) else None
            annotated = self._of_annotation(annotation) if annotation else None
            value = self._analysis.assigned(above)
            return annotated or ((yield self._provenance(value)) if value is not None else None)
        if isinstance(above, cst.For | cst.CompFor):
            return (yield from self._of_member(above.iter))
        if isinstance(above, cst.AsName):
            item = self._analysis.parent(above)
            return (
                (yield from self._of_member(item.item))
                if isinstance(item, cst.WithItem)
                else Provenance.FOREIGN
            )
        return Provenance.UNKNOWN

    def _of_unpacked(self, element: cst.CSTNode) -> _Answer:
        """One of several targets: the same place on the right, where there are places."""
        targets = self._analysis.parent(element)
        above = self._analysis.parent(targets)
        if not isinstance(targets, cst.Tuple | cst.List):
            return Provenance.UNKNOWN
        place = next(n for n, each in enumerate(targets.elements) if each is element)
        loop = above.iter if isinstance(above, cst.For | cst.CompFor) else None
        value = loop or self._analysis.assigned(above)
        return (yield (self._of_place, value, place)) if value is not None else Provenance.UNKNOWN

    def _of_place(self, value: cst.CSTNode, place: int) -> _Answer:
        if isinstance(value, cst.Tuple | cst.List) and place < len(value.elements):
            chosen = value.elements[place]
            if not any(isinstance(each, cst.StarredElement) for each in value.elements):
                return (yield self._provenance(chosen.value))
        if isinstance(value, cst.Call):
            name = get_full_name_for_node(value.func)
            if name == "zip" and place < len(value.args):
                return (yield self._provenance(value.args[place].value))
            functions = self._functions.called(value)
            returned = [each for one in functions for each in self._functions.returned(one)]
            if returned:
                return (yield from _any_of((self._of_place, each, place) for each in returned))
        return (yield from self._of_member(value))

    # --- parameters, annotations and attributes ---------------------------------------------------

    def _of_parameter(self, parameter: cst.Param) -> _Answer:
        annotated = self._of_annotation(parameter.annotation) if parameter.annotation else None
        if annotated:
            return annotated
        function = self._analysis.enclosing(parameter, cst.FunctionDef, cst.Lambda)
        if not isinstance(function, cst.FunctionDef):
            return Provenance.UNKNOWN
        owner = self._functions.instance_of(parameter, function)
        if owner:
            return self._of_class(owner)
        default = (yield self._provenance(parameter.default)) if parameter.default else None
        given = list(self._functions.given(parameter, function))
        if not given:
            return default or Provenance.UNKNOWN
        return _combined([default, (yield from self._of_any(given))])

    def _of_annotation(self, annotation: cst.Annotation) -> Provenance | None:
        says = self._origins.annotates_converter(annotation)
        if says is None:
            return None
        return Provenance.CONVERTER if says else Provenance.FOREIGN

    def _of_attribute(self, node: cst.Attribute) -> _Answer:
        if self._analysis.imported(node) is not None:
            return Provenance.UNKNOWN if self._origins.is_own_name(node) else Provenance.FOREIGN
        owner = self._origins.self_class(node.value)
        assigned = yield (self._of_field, node.attr.value, owner)
        if assigned is not None:
            return assigned
        if owner:
            return Provenance.UNKNOWN  # set by a base class, or from outside
        if node.attr.value in {"value", "values"}:
            return (yield self._provenance(node.value))
        return Provenance.UNKNOWN

    def _of_field(self, name: str, owner: cst.ClassDef | None) -> _Answer:
        """What is assigned to an attribute of this name, in a class or in the whole file."""
        targets = self._origins.fields(name, owner)
        return (yield from _any_of((self._of_target, each) for each in targets))


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


def _any_of(questions: Iterable[Question]) -> _Answer:
    """Return what is known about an object that may be what any of some questions are about."""
    known: Provenance | None = None
    for question in questions:
        known = _combined([known, (yield question)])
    return known


@once
def flow_of(analysis: Analysis) -> Flow:
    """Return the flow of a source; all rules share its answers."""
    return Flow(analysis)
