"""What an expression may hold: one of Petastorm's converters, something else, or who knows.

The methods that open loaders have names that other classes use as well. Whether a call is
Petastorm's is settled by where the object comes from: imports, assignments, annotations, the
returns of functions, and what functions of the file are called with.
"""

from __future__ import annotations

import functools
import re

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment

from petastorm_codemods._petastorm.counterparts import is_class, is_maker, is_support

from .kinds import Kind, combine
from .origins import Origins
from .questions import Answer, Question, any_of
from .shared import is_lent, unseen

_COPIES = frozenset({"copy.copy", "copy.deepcopy"})
# Functions and methods that hand on what they are called with, or on.
_PASSING = frozenset({"enumerate", "iter", "list", "next", "reversed", "sorted", "tuple", "zip"})
_MEMBERS = frozenset({"get", "items", "pop", "setdefault", "values"})
_LOADING = re.compile(r"ray\.get|(?:joblib|(?:cloud)?pickle|dill|torch)\.loads?")


class Flow(Origins):
    """Follows the expressions of one source back to where their objects come from."""

    def kind(self, node: cst.CSTNode) -> Kind:
        """Return what is known about the object that an expression gives."""
        return self._questions.answer(self._kind(node)) or Kind.UNKNOWN

    def _kind(self, node: cst.CSTNode) -> Question:
        return (self._of, node)

    def _of(self, node: cst.CSTNode) -> Answer:  # noqa: PLR0911 - one line for each syntax
        if isinstance(node, cst.Name):
            return None if node.value == "None" else (yield from self._of_name(node))
        if isinstance(node, cst.Attribute):
            return (yield from self._of_attribute(node))
        if isinstance(node, cst.Call):
            return (yield from self._of_call(node))
        if isinstance(node, cst.IfExp):
            return (yield from any_of(map(self._kind, (node.body, node.orelse))))
        if isinstance(node, cst.BooleanOperation):
            return (yield from any_of(map(self._kind, (node.left, node.right))))
        if isinstance(node, cst.Await):
            return (yield self._kind(node.expression))
        if isinstance(node, cst.NamedExpr | cst.Subscript | cst.Element | cst.StarredElement):
            return (yield self._kind(node.value))
        if isinstance(node, cst.Tuple | cst.List | cst.Set):
            return (yield from any_of(map(self._kind, node.elements)))
        if isinstance(node, cst.Dict):
            return (yield from any_of(self._kind(element.value) for element in node.elements))
        if isinstance(node, cst.ListComp | cst.GeneratorExp | cst.SetComp):
            return (yield self._kind(node.elt))
        if isinstance(node, cst.DictComp):
            return (yield self._kind(node.value))
        if isinstance(node, cst.BaseString | cst.BaseNumber | cst.Lambda | cst.Comparison):
            return Kind.FOREIGN
        return Kind.UNKNOWN

    # --- calls ------------------------------------------------------------------------------------

    def _of_call(self, node: cst.Call) -> Answer:  # noqa: PLR0911 - one for each callee
        path = self._analysis.imported(node.func)
        if path is not None:
            return (yield from self._of_imported_call(node, path))
        meanings = {meaning.name for meaning in self._analysis.meanings(node.func)}
        if any(is_maker(meaning, self._analysis) for meaning in meanings):
            return Kind.DOUBTFUL  # and something else
        if node.func in self._unseen:
            return Kind.CONVERTER
        classes = self._classes(node.func)
        if classes:
            return combine(map(self._of_class, classes))
        functions = self._called(node)
        if functions:
            return (yield from any_of((self._of_returns, each) for each in functions))
        name = get_full_name_for_node(node.func) or ""
        if isinstance(node.func, cst.Name) and name in _PASSING:
            return (yield from any_of(self._kind(each.value) for each in node.args[:2]))
        if isinstance(node.func, cst.Name) and name == "super":
            owner = self._analysis.enclosing(node, cst.ClassDef)
            return self._of_class(owner) if owner else Kind.UNKNOWN
        if isinstance(node.func, cst.Attribute) and node.func.attr.value in _MEMBERS:
            return (yield self._kind(node.func.value))
        return Kind.UNKNOWN

    def _of_returns(self, function: cst.FunctionDef) -> Answer:
        return (yield from any_of(map(self._kind, self._returns(function))))

    def _of_imported_call(self, node: cst.Call, path: str) -> Answer:
        if is_maker(path, self._analysis) or is_lent(self._analysis, path):
            return Kind.CONVERTER
        if is_class(path, self._analysis):
            return Kind.CONVERTER if is_support(path, self._analysis) else Kind.FILES
        if path in _COPIES:
            return (yield from any_of(self._kind(each.value) for each in node.args[:1]))
        name = path.rpartition(".")[2]
        if _LOADING.fullmatch(path) or (self._is_own_name(node.func) and not _is_class_name(name)):
            return Kind.UNKNOWN
        return Kind.FOREIGN if _is_class_name(name) else Kind.DOUBTFUL

    @functools.cached_property
    def _unseen(self) -> frozenset[cst.CSTNode]:
        return frozenset(unseen(self._analysis))

    def _classes(self, node: cst.CSTNode) -> list[cst.ClassDef]:
        if not isinstance(node, cst.Name):
            return []
        found = self._analysis.assignments(node)
        return [
            each.node
            for each in found
            if isinstance(each, Assignment) and isinstance(each.node, cst.ClassDef)
        ]

    def _called(self, node: cst.Call) -> list[cst.FunctionDef]:
        """Return the functions of the file that a call may run."""
        if isinstance(node.func, cst.Name):
            found = self._analysis.assignments(node.func)
            return [
                each.node
                for each in found
                if isinstance(each, Assignment) and isinstance(each.node, cst.FunctionDef)
            ]
        if isinstance(node.func, cst.Attribute):
            return self._functions.get(node.func.attr.value, [])
        return []

    def _returns(self, function: cst.FunctionDef) -> list[cst.BaseExpression]:
        return self._returned.get(function, [])

    @functools.cached_property
    def _returned(self) -> dict[cst.FunctionDef, list[cst.BaseExpression]]:
        """What each function returns or yields."""
        analysis = self._analysis
        found: list[cst.Return | cst.Yield] = [*analysis.nodes(cst.Return)]
        found += analysis.nodes(cst.Yield)
        returned: dict[cst.FunctionDef, list[cst.BaseExpression]] = {}
        for each in found:
            owner = analysis.enclosing(each, cst.FunctionDef, cst.Lambda)
            if isinstance(owner, cst.FunctionDef) and isinstance(each.value, cst.BaseExpression):
                returned.setdefault(owner, []).append(each.value)
        return returned


def _is_class_name(name: str) -> bool:
    return name[:1].isupper()
