"""Imports of Petastorm's modules, whose members are reached by attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, manual
from petastorm_codemods._meaning.calls import first_given, key_of, remove
from petastorm_codemods._meaning.functions import functions_of
from petastorm_codemods._meaning.imports import (
    Imported,
    by_statement,
    clashes,
    imports,
    petastorm_imports,
    root_name,
)
from petastorm_codemods._meaning.support import Use
from petastorm_codemods._model import Destination, Edit, Finding, ImportSlot, Need, Safety
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
from .unused import goes_unused, is_unused, unused_advice, without_statement

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


def module_uses(analysis: Analysis, local: str) -> list[Use]:
    """Return the path and the whole expression of each use of an imported name."""
    uses = (analysis.dotted(name) for name in analysis.reads(local))
    return [use for use in uses if use is not None]


def native_edits(analysis: Analysis, uses: Sequence[Use]) -> Iterator[Edit]:
    """Yield the edits that put native names in the place of such uses."""
    for name, node in uses:
        yield analysis.replace(node, name)
        yield from timestamps_edits(analysis, name, node)


def timestamps_edits(analysis: Analysis, name: str, used: cst.CSTNode) -> Iterator[Edit]:
    """Yield the edit that names the columns of timestamps which a transform looks into, if that is what is made.

    They are stored as integers, and PandasCollate has them as times.

    Args:
        analysis: Of the source.
        name: The native name of what is used.
        used: The expression.
    """
    call = analysis.parent(used)
    if name != "PandasCollate" or not isinstance(call, cst.Call) or call.func is not used:
        return
    columns = dict.fromkeys(_columns_of_times(analysis, call))
    if not columns or any(each.star for each in call.args):
        return
    first, last = analysis.span(call.args[-1])
    line = analysis.line_start(first)
    alone = not analysis.source.text[line:first].strip()
    between = f",{analysis.source.newline}{analysis.source.text[line:first]}" if alone else ", "
    listed = ", ".join(f'"{column}"' for column in columns)
    yield Edit(last, last, f"{between}timestamps=[{listed}]")


def _columns_of_times(analysis: Analysis, call: cst.Call) -> Iterator[str]:
    """Yield the columns of which the function of a transform has ``rows["at"].dt`` or ``rows.at.dt``, but its own."""
    for function in _functions(analysis, call):
        made: dict[str, int] = {}
        for target in analysis.within(function, cst.AssignTarget):
            end = analysis.span(analysis.parent(target))[1]
            made.setdefault(_column(target.target), end)
        for look in analysis.within(function, cst.Attribute):
            column, start = _column(look.value), analysis.start(look)
            if look.attr.value == "dt" and column and made.get(column, start) >= start:
                yield column


def _functions(analysis: Analysis, call: cst.Call) -> Iterator[cst.CSTNode]:
    """Yield the functions that a transform may call, those with some arguments bound as well."""
    node = first_given(call, "func")
    bound = isinstance(node, cst.Call) and analysis.imported(node.func) == "functools.partial"
    if isinstance(node, cst.Call) and bound and node.args:
        node = node.args[0].value
    if isinstance(node, cst.Lambda):
        yield node
    elif node is not None:
        yield from functions_of(analysis).named(node)


def _column(node: cst.CSTNode) -> str:
    """Return the column that an expression takes from a DataFrame; empty if it is none by its looks."""
    if isinstance(node, cst.Attribute):
        return node.attr.value if isinstance(node.value, cst.Name) else ""
    key = key_of(node) if isinstance(node, cst.Subscript) else ""
    return key if key.isprintable() and not set(key) & set('"\\') else ""


def bridge_problem(analysis: Analysis, each: Imported) -> str:
    """Return why a name, or a module with what is used of it, cannot be the bridge's; empty if it can."""
    path = original(each.path)
    if not is_module(path):
        return "" if is_offered(path) else advice(path)
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


# --- findings ------------------------------------------------------------------------------------


def missing(analysis: Analysis, statement: cst.CSTNode, message: str) -> Finding:
    """Return the finding of an import of what neither streaming nor the bridge has."""
    code = "PM003" if analysis.destination is Destination.BRIDGE else "PM104"
    return manual(code, analysis.start(statement), message)


def moved_as_it_is(analysis: Analysis) -> str:
    """Return the code of the rule by which an import moves to the bridge."""
    return "PM001" if analysis.destination is Destination.BRIDGE else "PM105"


def module_findings(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each ``import petastorm…`` statement, the first with all uses of its name."""
    old = [each for each in petastorm_imports(analysis) if is_plain(each)]
    plain = [each for each in old if each.alias and not each.alias.asname]
    for each in old:
        if each.alias and each.alias.asname:
            problem = bridge_problem(analysis, each)
            yield from _findings(analysis, [each], each.local, problem)
    kept = [each for each in plain if not is_module(each.path)]
    for each in kept:
        yield missing(analysis, each.statement, advice(each.path))
    moved = [each for each in plain if each not in kept]
    if moved:
        yield from _findings(analysis, moved, OLD, stuck_reason(analysis, kept) or "")
    yield from _findings_of_bridge(analysis)


def _findings_of_bridge(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each name of the bridge's modules by which a source reaches what becomes native."""
    by_name: dict[str, list[Imported]] = {}
    for each in imports(analysis):
        if is_plain(each) and each.path.partition(".")[0] == NEW:
            by_name.setdefault(each.local, []).append(each)
    for local, imported in by_name.items():
        if any(native_uses(analysis, local)):
            yield from _findings(analysis, imported, local, "")


def _findings(
    analysis: Analysis, imported: Sequence[Imported], local: str, problem: str
) -> Iterator[Finding]:
    """Yield the findings of imports that bind one name: one if nothing else of it is used than what becomes native."""
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
        yield from (missing(analysis, each.statement, problem) for each in imported)
        return
    removals = _removals(analysis, imported)
    if removals:
        what = f"the unused import of {imported[0].path} goes"
        yield Finding("PM101", start, what, Safety.SAFE, tuple(removals))
        return
    taken = {analysis.start(node) for _, node in native}
    rest = [
        use
        for use in module_uses(analysis, local)
        if analysis.start(use[1]) not in taken and is_offered(original(use[0]))
    ]
    is_petastorm_itself = imported[0].path.partition(".")[0] == OLD
    what = come_from([imported[0].path], NEW if is_petastorm_itself else module)
    edits = [*native_edits(analysis, native), *quoted]
    if names and not rest and not others_quoted:
        import_edits, slots = _without_module(analysis, imported, names)
        edits += import_edits
        yield Finding("PM101", start, what, Safety.SAFE, tuple(edits), needs=needs, slots=slots)
        return
    if local == OLD:
        edits += [rename_root(analysis, node) for _, node in rest]
    roots: list[Edit | None] = [None]
    if is_petastorm_itself:
        roots = [*import_roots(analysis, imported, [path for path, _ in rest])]
    for number, (each, root) in enumerate(zip(imported, roots, strict=False)):
        code = "PM101" if native and number == 0 else moved_as_it_is(analysis)
        idle = each.path == OLD and is_unused(analysis, each)
        yield Finding(
            code,
            analysis.start(each.statement),
            come_from([each.path], NEW if is_petastorm_itself else module),
            Safety.SAFE,
            (*edits, root) if root is not None else tuple(edits),
            needs=needs,
            alone=unused_advice([OLD]) if idle else "",
        )
        edits, needs = [], ()


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
            slots.append(ImportSlot(analysis.start(statement), ((module, names),)))
    return edits, tuple(slots)
