"""Imports of names that the bridge offers come from the bridge.

Only the first part of the module's name changes: aliases, parentheses, comments and the order of
names stay. After ``import petastorm.spark``, the attribute paths that begin with the module's name
change with it. An import that stands in a ``try`` or ``if`` beside another source of the same name is
left alone, because its author has already decided what to use without Petastorm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.idle import is_unused, unused_advice
from petastorm_codemods._meaning.imports import (
    Imported,
    by_statement,
    petastorm_imports,
)
from petastorm_codemods._model import Destination, Edit, Finding, Safety
from petastorm_codemods._petastorm.offered import (
    NEW,
    OLD,
    advice,
    advices,
    is_module,
    is_offered,
    names_of,
    renamed,
)
from petastorm_codemods._registry import Rule
from petastorm_codemods._rewriting.comments import comments_outside
from petastorm_codemods._rewriting.modules import (
    come_from,
    import_roots,
    is_plain,
    module_problem,
    module_uses,
    parted,
    rename_root,
    stuck_reason,
)

_MISSING = "PM003"


@Rule(
    "PM001",
    "import",
    "imports come from petastorm_bridge",
    safety=Safety.SAFE,
    destinations=[Destination.BRIDGE],
    before="from petastorm.spark import SparkDatasetConverter, make_spark_converter",
    after="from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter",
)
@Rule(
    _MISSING,
    "not-offered",
    "the bridge does not offer this name",
    safety=Safety.MANUAL,
    destinations=[Destination.BRIDGE],
    text="""The import of a name that the bridge does not have is left as it is and marked.

    These are parts of Petastorm's own readers, such as its pools of workers, which the bridge replaces;
    the mark says what to use instead.""",
    before="from petastorm.workers_pool.thread_pool import ThreadPool",
)
@once
def check(analysis: Analysis) -> Sequence[Finding]:
    """Return the findings of all import statements."""
    return tuple(_found(analysis))


def _found(analysis: Analysis) -> Iterator[Finding]:
    imported = petastorm_imports(analysis)
    plain = [each for each in imported if each.alias and not each.alias.asname and is_plain(each)]
    if plain:
        yield from _plain_imports(analysis, plain)
    for each in imported:
        if is_plain(each) and each.alias and each.alias.asname:
            yield _module_alias(analysis, each)
    for statement, names in by_statement(imported):
        if isinstance(statement, cst.ImportFrom):
            yield from _from_import(analysis, statement, names)


def _safe(
    analysis: Analysis, node: cst.CSTNode, paths: Sequence[str], edits: Sequence[Edit]
) -> Finding:
    message = come_from(paths, NEW)
    return Finding("PM001", analysis.start(node), message, Safety.SAFE, tuple(edits))


def _moved(analysis: Analysis, each: Imported, edits: Sequence[Edit]) -> Finding:
    """Return the finding of a module that moves; the package itself, if unused, not by itself."""
    finding = _safe(analysis, each.statement, [each.path], edits)
    idle = each.path == OLD and is_unused(analysis, each)
    return replace(finding, alone=unused_advice([OLD])) if idle else finding


def _missing(analysis: Analysis, node: cst.CSTNode, message: str) -> Finding:
    return Finding(_MISSING, analysis.start(node), message, Safety.MANUAL)


# --- import petastorm.spark as name --------------------------------------------------------------


def _module_alias(analysis: Analysis, each: Imported) -> Finding:
    assert each.alias is not None
    problem = module_problem(analysis, each)
    if problem:
        return _missing(analysis, each.statement, problem)
    return _moved(analysis, each, [rename_root(analysis, each.alias.name)])


# --- import petastorm.spark ----------------------------------------------------------------------


def _plain_imports(analysis: Analysis, plain: Sequence[Imported]) -> Iterator[Finding]:
    """All of them bind the name ``petastorm``, so they and its uses move together."""
    moved = [each for each in plain if is_module(each.path)]
    kept = [each for each in plain if not is_module(each.path)]
    for each in kept:
        yield _missing(analysis, each.statement, advice(each.path))
    if not moved:
        return
    stuck = stuck_reason(analysis, kept)
    if stuck is not None:
        for each in moved:
            yield _missing(analysis, each.statement, stuck)
        return
    uses = [use for use in module_uses(analysis, OLD) if is_offered(use[0])]
    edits = [rename_root(analysis, node) for _, node in uses]
    imports = import_roots(analysis, moved, [path for path, _ in uses])
    for number, (each, edit) in enumerate(zip(moved, imports, strict=True)):
        yield _moved(analysis, each, [edit, *(edits if number == 0 else [])])


# --- from petastorm.spark import … ---------------------------------------------------------------


def _from_import(
    analysis: Analysis, statement: cst.ImportFrom, names: Sequence[Imported]
) -> Iterator[Finding]:
    assert statement.module is not None
    problems = {each: _name_problem(analysis, each) for each in names}
    moved = [each for each in names if not problems[each]]
    kept = [each for each in names if problems[each]]
    if kept:
        yield _missing(analysis, statement, _message(analysis, kept, problems))
    if not moved:
        return
    edits = [rename_root(analysis, statement.module)]
    if kept:
        module = analysis.code(statement.module)
        texts = [f"from {module} import {_listed(analysis, kept)}"]
        texts.append(f"from {renamed(module)} import {_listed(analysis, moved)}")
        edits = [parted(analysis, statement, texts)]
    finding = _safe(analysis, statement, [each.path for each in moved], edits)
    comments = comments_outside(analysis, *analysis.span(statement), ()) if kept else ()
    yield replace(finding, comments=tuple(comments))


def _message(analysis: Analysis, kept: Sequence[Imported], problems: dict[Imported, str]) -> str:
    """Return what keeps some names of a statement; like ones in one sentence."""
    idle = [each for each in kept if is_unused(analysis, each)]
    kept = [each for each in kept if each not in idle]
    plain = [each.path for each in kept if problems[each] == advice(each.path)]
    texts = [problems[each] for each in kept if each.path not in plain]
    unneeded = filter(None, [unused_advice(each.path for each in idle)])
    return "; ".join(dict.fromkeys([*texts, *advices(plain), *unneeded]))


def _name_problem(analysis: Analysis, each: Imported) -> str:
    if each.alias is None:
        return "import the names one by one instead of *, so that they can be moved"
    if is_module(each.path):
        return module_problem(analysis, each)
    module, _, name = each.path.rpartition(".")
    return "" if name in names_of(module) else advice(each.path)


def _listed(analysis: Analysis, names: Sequence[Imported]) -> str:
    return ", ".join(analysis.code(each.alias) for each in names if each.alias is not None)
