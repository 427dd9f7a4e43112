"""Imports of Petastorm's modules, whose members are reached by attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, manual
from petastorm_codemods._meaning.calls import remove
from petastorm_codemods._meaning.idle import is_unused, unused_advice
from petastorm_codemods._meaning.imports import (
    Imported,
    by_statement,
    imports,
    petastorm_imports,
    root_name,
)
from petastorm_codemods._meaning.support import Use
from petastorm_codemods._model import Edit, Finding, ImportSlot, Need, Safety
from petastorm_codemods._petastorm.counterparts import original
from petastorm_codemods._petastorm.offered import (
    NEW,
    OLD,
    advice,
    advices,
    is_module,
    is_offered,
    renamed,
)

from .decisions import native_name, native_uses, opens_natively
from .placement import clashes
from .timestamps import timestamps_edits
from .unused import goes_unused, without_statement

# Modules that `import petastorm_bridge` already loads.
_LOADED = frozenset({"petastorm", "petastorm.errors", "petastorm.transform"})


def is_plain(each: Imported) -> bool:
    """Say whether something is imported by an ``import`` statement, so that it is a module."""
    return isinstance(each.statement, cst.Import)


def come_from(paths: Sequence[str], module: str) -> str:
    """Return the sentence on names that another module has; there is at least one."""
    return f"{', '.join(paths)} {'comes' if len(paths) == 1 else 'come'} from {module}"


def rename_root(analysis: Analysis, node: cst.CSTNode) -> Edit:
    """Return the edit that turns ``petastorm`` at the start of a path into the bridge's name."""
    root = root_name(node)
    assert root is not None
    return analysis.replace(root, NEW)


def parted(analysis: Analysis, statement: cst.ImportFrom, texts: Sequence[str]) -> Edit:
    """Return the edit that puts several statements in the place of one."""
    line = analysis.parent(statement)
    alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    indent = analysis.indent(analysis.start(statement))
    between = analysis.source.newline + indent if alone else "; "
    return analysis.replace(statement, between.join(texts))


def module_uses(analysis: Analysis, local: str) -> list[Use]:
    """Return the path and the whole expression of each use of an imported name."""
    uses = (analysis.dotted(name) for name in analysis.reads(local))
    return [use for use in uses if use is not None]


def native_edits(analysis: Analysis, uses: Sequence[Use]) -> Iterator[Edit]:
    """Yield the edits that put native names in the place of such uses."""
    for name, node in uses:
        yield analysis.replace(node, name)
        call = analysis.parent(node)
        if name == "PandasCollate" and isinstance(call, cst.Call) and call.func is node:
            yield from timestamps_edits(analysis, call)


def module_problem(analysis: Analysis, each: Imported) -> str:
    """Return why a module cannot be the bridge's; empty if it can."""
    if not is_module(original(each.path)):
        return advice(original(each.path))
    uses = module_uses(analysis, each.local)
    missing = sorted({path for path, _ in uses if not is_offered(original(path))})
    return "; ".join(advices(missing))


def stuck_reason(analysis: Analysis, kept: Sequence[Imported]) -> str | None:
    """Return why the name ``petastorm`` cannot become another everywhere; None if it can."""
    targets = (each.target for each in analysis.nodes(cst.AssignTarget))
    if any(isinstance(each, cst.Name) and each.value == OLD for each in targets):
        return "the name petastorm also means something else in this file"
    for name in analysis.reads(OLD):
        use = analysis.dotted(name)
        meanings = {meaning.name for meaning in analysis.meanings(name)}
        if use is None:
            if any(OLD in meaning.split(".") for meaning in meanings):
                return "the name petastorm also means something else in this file"
        elif not is_offered(use[0]) and not any(
            use[0].startswith(each.path) for each in kept if each.path != OLD
        ):
            return advice(use[0])
    return None


def import_roots(
    analysis: Analysis, moved: Sequence[Imported], paths: Sequence[str]
) -> Iterator[Edit]:
    """Yield the edit of each ``import petastorm…``, so that the modules in use are loaded."""
    wanted = {_module_of(path) for path in paths} - _LOADED
    known = {parent for each in moved for parent in _parents(each.path)}
    for each in moved:
        assert each.alias is not None
        if each.path == OLD and wanted - known:
            names = ", ".join(renamed(path) for path in sorted(wanted - known))
            yield analysis.replace(each.alias.name, names)
            known |= wanted
        else:
            yield rename_root(analysis, each.alias.name)


def _module_of(path: str) -> str:
    while not is_module(path):
        path = path.rpartition(".")[0]
    return path


def _parents(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]


# --- for streaming -------------------------------------------------------------------------------


def module_findings(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each ``import petastorm…`` statement, with all uses of its name."""
    old = [each for each in petastorm_imports(analysis) if is_plain(each)]
    plain = [each for each in old if each.alias and not each.alias.asname]
    for each in old:
        if each.alias and each.alias.asname:
            problem = module_problem(analysis, each)
            yield _finding(analysis, [each], each.local, problem)
    if plain:
        kept = [each for each in plain if not is_module(each.path)]
        problem = "; ".join(advice(each.path) for each in kept)
        yield _finding(analysis, plain, OLD, problem or stuck_reason(analysis, kept) or "")
    yield from _findings_of_bridge(analysis)


def _findings_of_bridge(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each name of the bridge's modules by which a source reaches what becomes native."""
    by_name: dict[str, list[Imported]] = {}
    for each in imports(analysis):
        if is_plain(each) and each.path.partition(".")[0] == NEW:
            by_name.setdefault(each.local, []).append(each)
    for local, imported in by_name.items():
        if any(native_uses(analysis, local)):
            yield _finding(analysis, imported, local, "")


def _finding(analysis: Analysis, imported: Sequence[Imported], local: str, problem: str) -> Finding:
    start = analysis.start(imported[0].statement)
    native = list(native_uses(analysis, local))
    path = local if local in {OLD, NEW} else imported[0].path
    quoted, others_quoted = _in_quotes(analysis, local, path)
    names = tuple(dict.fromkeys([*(name for name, _ in native), *(each.text for each in quoted)]))
    module = analysis.target.module
    needs = tuple(Need(module, name, name) for name in names)
    clash = clashes(analysis, needs)
    if clash:
        problem = f"{', '.join(clash)} means something else in this file; rename it first"
    if problem:
        return manual("PM104", start, problem)
    removals = _removals(analysis, imported)
    if removals:
        what = f"the unused import of {imported[0].path} goes"
        return Finding("PM101", start, what, Safety.SAFE, tuple(removals))
    taken = {analysis.start(node) for _, node in native}
    rest = [use for use in module_uses(analysis, local) if analysis.start(use[1]) not in taken]
    edits = [*native_edits(analysis, native)]
    is_petastorm_itself = imported[0].path.partition(".")[0] == OLD
    what = come_from([imported[0].path], NEW if is_petastorm_itself else module)
    edits += quoted
    if names and not rest and not others_quoted:
        import_edits, slots = _without_module(analysis, imported, names)
        edits += import_edits
        needs = () if slots else needs
        return Finding("PM101", start, what, Safety.SAFE, tuple(edits), needs=needs, slots=slots)
    if local == OLD:
        edits += [rename_root(analysis, node) for _, node in rest]
    if is_petastorm_itself:
        edits += import_roots(analysis, imported, [path for path, _ in rest])
    code = "PM101" if native else "PM105"
    idle = all(each.path == OLD and is_unused(analysis, each) for each in imported)
    alone = unused_advice([OLD]) if idle else ""
    return Finding(code, start, what, Safety.SAFE, tuple(edits), needs=needs, alone=alone)


def _in_quotes(analysis: Analysis, local: str, path: str) -> tuple[list[Edit], bool]:
    """Return the edits that put native names into types in quotes, and whether others of a module are there."""
    edits: list[Edit] = []
    has_others = False
    member = re.compile(rf"(?<![\w.]){re.escape(local)}(?P<rest>(?:\.\w+)+)")
    for node in analysis.nodes(cst.SimpleString):
        if not analysis.is_type(node):
            continue
        for match in member.finditer(node.value):
            name = native_name(analysis, f"{path}{match['rest']}")
            if name is None or "\\" in node.value:
                has_others = True
                continue
            start = analysis.start(node)
            edits.append(Edit(start + match.start(), start + match.end(), name))
    return edits, has_others


def _removals(analysis: Analysis, imports: Sequence[Imported]) -> list[Edit]:
    """Return the edits that remove imports which go because nothing uses them; none if not all can."""
    if not opens_natively(analysis) or not all(goes_unused(analysis, each) for each in imports):
        return []
    alone = [each.statement for each in imports if each.statement.names == (each.alias,)]
    edits = [edit for each in alone if (edit := without_statement(analysis, each)) is not None]
    return edits if len(edits) == len(imports) else []


def _without_module(
    analysis: Analysis, imports: Sequence[Imported], names: tuple[str, ...]
) -> tuple[list[Edit], tuple[ImportSlot, ...]]:
    """Return the edits that import names of the support module in the place of modules that nothing uses any more.

    Also where the names are imported, if a whole statement has made room for them.
    """
    edits: list[Edit] = []
    slots: list[ImportSlot] = []
    module = analysis.target.module
    for statement, imported in by_statement(imports):
        assert isinstance(statement, cst.Import)
        aliases = [each.alias for each in imported if each.alias is not None]
        if len(aliases) < len(statement.names):
            edits += remove(analysis, statement.names, aliases)
        else:
            # One more import of the same names joins the first one later on.
            edits.append(analysis.replace(statement, f"from {module} import {', '.join(names)}"))
            start, end = analysis.span(statement)
            slots.append(ImportSlot(start, end, module, names))
    return edits, tuple(slots)
