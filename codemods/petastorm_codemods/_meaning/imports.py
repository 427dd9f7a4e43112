"""The imports of a source that concern Petastorm, and what of them stays with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst
from libcst.helpers import get_full_name_for_node

from petastorm_codemods._model import Need
from petastorm_codemods._petastorm.counterparts import ALIASES, COUNTERPARTS, original
from petastorm_codemods._petastorm.offered import OLD, is_petastorm
from petastorm_codemods._text.import_lines import imported_modules

from .analysis import Analysis, once
from .places import grouped

ImportStatement = cst.Import | cst.ImportFrom


@dataclass(frozen=True)
class Imported:
    """One name of one import statement.

    Attributes:
        path: Dotted path of what is imported, for instance ``petastorm.spark``.
        local: The name it is bound to, for instance ``petastorm`` for ``import petastorm.spark``.
        alias: The node; None for ``import *``.
        statement: The statement.
    """

    path: str
    local: str
    alias: cst.ImportAlias | None
    statement: ImportStatement


def modules_of(statement: cst.CSTNode) -> list[str]:
    """Return the modules that a statement imports, or imports names from; dots before them do not count."""
    if isinstance(statement, cst.Import):
        return [alias.evaluated_name for alias in statement.names]
    if isinstance(statement, cst.ImportFrom) and statement.module is not None:
        return [get_full_name_for_node(statement.module) or ""]
    return []


@once
def imports(analysis: Analysis) -> tuple[Imported, ...]:
    """Return everything that the source imports absolutely, in no particular order."""
    return tuple(each for each in _all(analysis) if not each.path.startswith("."))


@once
def relative_names(analysis: Analysis) -> frozenset[str]:
    """Return the names that a source imports from modules beside it, by dots."""
    relative = (each for each in _all(analysis) if each.path.startswith("."))
    return frozenset(each.local for each in relative if each.alias is not None)


@once
def _all(analysis: Analysis) -> tuple[Imported, ...]:
    """Return everything that a source imports; the paths of what is beside it begin with a dot."""
    plain = [
        Imported(path, alias.evaluated_alias or path.split(".")[0], alias, statement)
        for statement in analysis.nodes(cst.Import)
        for alias in statement.names
        for path in [alias.evaluated_name]
    ]
    for statement in analysis.nodes(cst.ImportFrom):
        beside = [""] if statement.relative else []
        plain += _named(statement, ".".join([*beside, *modules_of(statement)]))
    return tuple(plain)


def _named(statement: cst.ImportFrom, module: str) -> Iterator[Imported]:
    if isinstance(statement.names, cst.ImportStar):
        yield Imported(f"{module}.*", "*", None, statement)
        return
    for alias in statement.names:
        name = alias.evaluated_name
        yield Imported(f"{module}.{name}", alias.evaluated_alias or name, alias, statement)


@once
def petastorm_imports(analysis: Analysis) -> tuple[Imported, ...]:
    """Return what is imported from Petastorm and has no alternative beside it."""
    return tuple(
        each
        for each in imports(analysis)
        if is_petastorm(each.path) and not _has_alternative(analysis, each)
    )


def _has_alternative(analysis: Analysis, each: Imported) -> bool:
    """Say whether a ``try`` or ``if`` binds the same name to something else than Petastorm.

    Whoever wrote that has already decided what to use where Petastorm is missing.
    """
    names = {alias.local for alias in _by_statement(analysis)[each.statement]}
    others = [other for name in names for other in _by_name(analysis)[name]]
    return _is_guarded_with(
        analysis, each, (other for other in others if not is_petastorm(other.path))
    )


def is_alternative(analysis: Analysis, each: Imported) -> bool:
    """Say whether something is imported for where Petastorm is missing, or the other way round."""
    same = _by_name(analysis)[each.local]
    return _is_guarded_with(analysis, each, (other for other in same if is_petastorm(other.path)))


def _is_guarded_with(analysis: Analysis, each: Imported, others: Iterable[Imported]) -> bool:
    """Say whether an import is in a ``try`` or ``if`` with any of some others."""
    guard = analysis.enclosing(each.statement, cst.Try, cst.If, cst.FunctionDef)
    if guard is None or isinstance(guard, cst.FunctionDef):
        return False
    first, last = analysis.span(guard)
    return any(first <= analysis.start(other.statement) < last for other in others)


@once
def _by_statement(analysis: Analysis) -> dict[cst.CSTNode, list[Imported]]:
    return dict(by_statement(imports(analysis)))


@once
def _by_name(analysis: Analysis) -> dict[str, list[Imported]]:
    return grouped(_all(analysis), lambda each: (each.local,))


def need(analysis: Analysis, module: str, name: str) -> Need:
    """Return the need of a name that has another one in a source where its own is taken."""
    local = (
        ALIASES[name] if name in ALIASES and clashes(analysis, [Need(module, name, name)]) else name
    )
    return Need(module, name, local)


def clashes(analysis: Analysis, needs: Iterable[Need]) -> list[str]:
    """Return the names of those needs that mean something else in a source."""
    bound = {each.local: each.path for each in imports(analysis)}
    beside = relative_names(analysis)
    taken: set[str] = set()
    for each in needs:
        path = bound.get(each.local, _path(each))
        known = path == _path(each) or COUNTERPARTS.get(original(path)) == each.local
        if not known or each.local in beside or any(analysis.bindings(each.local)):
            taken.add(each.local)
    return sorted(taken)


def _path(wanted: Need) -> str:
    return f"{wanted.module}.{wanted.name}"


def by_statement(imported: Iterable[Imported]) -> list[tuple[ImportStatement, list[Imported]]]:
    """Return statements, in order, with the names of each."""
    return list(grouped(imported, lambda each: (each.statement,)).items())


def root_name(node: cst.BaseExpression | cst.CSTNode) -> cst.Name | None:
    """Return the first name of a dotted expression."""
    while isinstance(node, cst.Attribute):
        node = node.value
    return node if isinstance(node, cst.Name) else None


def names_bridge(data: bytes) -> bool:
    """Say whether a file's bytes name a module of the bridge."""
    return re.search(rb"\bpetastorm_bridge\b", data) is not None


def imports_petastorm(data: bytes) -> bool:
    """Say by the look of its lines whether a file imports Petastorm; they may be in an ``.ipynb``."""
    return any(module.partition(".")[0] == OLD for module in imported_modules(data))
