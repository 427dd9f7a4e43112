"""Moving ``from petastorm… import …`` statements: which name goes where. To the bridge, none has a counterpart."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, manual, once, once_all
from petastorm_codemods._meaning.calls import remove
from petastorm_codemods._meaning.imports import (
    Imported,
    by_statement,
    clashes,
    imports,
    is_alternative,
    petastorm_imports,
    root_name,
)
from petastorm_codemods._meaning.other_files import METHODS
from petastorm_codemods._meaning.reexports import is_run_with, is_taken_from_here, uses_of
from petastorm_codemods._meaning.support import counterpart, is_support, opens_directories
from petastorm_codemods._model import Destination, Edit, Finding, ImportSlot, Need, Safety
from petastorm_codemods._petastorm.counterparts import CLASSES, COUNTERPARTS, MAKERS, original
from petastorm_codemods._petastorm.offered import (
    NEW,
    OLD,
    advices,
    canonical,
    is_module,
    renamed,
)

from .comments import comments_outside, is_ignored
from .converted import is_taken_over
from .decisions import keeps_bridge, keeps_petastorm, native_uses, opens_natively
from .modules import (
    bridge_problem,
    come_from,
    missing,
    module_findings,
    moved_as_it_is,
    native_edits,
    rename_root,
    timestamps_edits,
)
from .unused import goes_unused, is_unused, unused_advice, without_statement


@dataclass(frozen=True)
class Move:
    """What becomes of one import statement.

    Attributes:
        statement: The statement.
        native: Its names with a counterpart.
        emptied: Its modules of which only names with a counterpart are used.
        bridged: Its names that only the bridge has.
        missing: Its names that stay with Petastorm.
        unused: Its names that nothing uses, and that go.
    """

    statement: cst.ImportFrom
    native: tuple[Imported, ...]
    emptied: tuple[Imported, ...]
    bridged: tuple[Imported, ...]
    missing: tuple[Imported, ...]
    unused: tuple[Imported, ...]

    @property
    def from_bridge(self) -> bool:
        """Whether the statement imports from the bridge already."""
        root = root_name(self.statement.module) if self.statement.module else None
        return root is not None and root.value == NEW

    def changes(self) -> bool:
        """Say whether anything in the statement moves."""
        gone = self.native or self.emptied or self.unused
        return bool(gone) or (bool(self.bridged) and not self.from_bridge)


@once_all
def moves(analysis: Analysis) -> Iterator[Move]:
    """Yield what becomes of each import of names from Petastorm, or from the bridge."""
    imported = [*petastorm_imports(analysis)]
    imported += [
        each
        for each in imports(analysis)
        if each.path.startswith(f"{NEW}.")
        and not is_support(each.path, analysis)
        and not is_alternative(analysis, each)
    ]
    readers_only = _reads_only(analysis, imported)
    for statement, names in by_statement(imported):
        if not isinstance(statement, cst.ImportFrom):
            continue
        movable = [each for each in names if not _reason(analysis, each)]
        native = [
            each
            for each in movable
            if counterpart(analysis, each.path)
            not in {None, "PandasCollate" if readers_only else None}
            and not keeps_bridge(analysis)
            and not opens_directories(analysis, each)
        ]
        rest = [each for each in movable if each not in native]
        may_go = movable if opens_natively(analysis) else native
        # A name that is imported alone, or among others without use, may be meant for whoever imports this file.
        in_use = any(uses_of(analysis, each.local) for each in native)
        unused = [each for each in may_go if goes_unused(analysis, each, is_beside_used=in_use)]
        if len(unused) == len(names) and without_statement(analysis, statement) is None:
            unused = []
        native = [each for each in native if each not in unused]
        rest = [each for each in rest if each not in unused]
        bridged = [each for each in rest if each.alias and not bridge_problem(analysis, each)]
        emptied = [each for each in bridged if _is_emptied(analysis, each)]
        bridged = [each for each in bridged if each not in emptied]
        missing = [each for each in names if each not in (*native, *unused, *emptied, *bridged)]
        yield Move(statement, *map(tuple, (native, emptied, bridged, missing, unused)))


def _used_of(analysis: Analysis, modules: Sequence[Imported]) -> list[str]:
    """Return the native names that take the place of what is used of modules."""
    uses = (use for each in modules for use in native_uses(analysis, each.local))
    return list(dict.fromkeys(name for name, _ in uses))


def _is_emptied(analysis: Analysis, each: Imported) -> bool:
    """Say whether a module serves names alone that have a counterpart."""
    reads = uses_of(analysis, each.local)
    return bool(reads) and len(list(native_uses(analysis, each.local))) == len(reads)


def _reads_only(analysis: Analysis, imported: Sequence[Imported]) -> bool:
    """Say whether a source uses readers and no converters, so that transforms are for readers."""
    paths = {original(each.path) for each in imported}
    converters = any(COUNTERPARTS.get(path, "PandasCollate") != "PandasCollate" for path in paths)
    readers = any(path.endswith((".make_batch_reader", ".make_reader")) for path in paths)
    loaders = any(node.attr.value in METHODS for node in analysis.nodes(cst.Attribute))
    return readers and not converters and not loaders


def _reason(analysis: Analysis, each: Imported) -> str:
    """Return why a name stays with Petastorm; empty if it moves."""
    if original(each.path) in COUNTERPARTS and keeps_petastorm(analysis):
        return "its converters stay with Petastorm, and so does what they work with"
    return ""


def reasons(analysis: Analysis, imported: Sequence[Imported]) -> str:
    """Return why some names have no native counterpart, and what to do."""
    texts = []
    named = [each for each in imported if each.alias is not None]
    if len(named) < len(imported):
        texts.append("import the names one by one instead of *, so that they can be moved")
    kept = {each: _reason(analysis, each) for each in named}
    texts += [text for text in kept.values() if text]
    together = [each for each in named if original(each.path) in COUNTERPARTS]
    if together and keeps_bridge(analysis):
        texts.append("its loaders stay on the bridge, and so does what they work with")
        named = [each for each in named if each not in together]
    problems = {each: bridge_problem(analysis, each) for each in named if not kept[each]}
    bridged = [original(each.path) for each, problem in problems.items() if not problem]
    if bridged:
        names = ", ".join(path[len(OLD) + 1 :] for path in bridged)
        verbs = ("have", "run") if len(bridged) > 1 else ("has", "runs")
        texts.append(f"{names} {verbs[0]} no counterpart in streaming and {verbs[1]} on {NEW}")
    texts += [text for each, text in problems.items() if text and is_module(original(each.path))]
    texts += advices(
        path
        for each, text in problems.items()
        if text and not is_module(path := original(each.path))
    )
    return "; ".join(dict.fromkeys(texts))


@once_all
def import_findings(analysis: Analysis) -> Iterator[Finding]:
    """Yield the findings of all import statements that move; the rules of both destinations share them."""
    yield from (_moved(analysis, move) for move in moves(analysis) if move.changes())
    yield from module_findings(analysis)


def missing_findings(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each ``from … import`` statement that leaves something to a human."""
    for move in moves(analysis):
        # A comment that keeps a maker where it is says that the rest stays as well.
        is_silenced = analysis.destination is Destination.STREAMING and is_ignored(
            analysis.source.text, analysis.start(move.statement), "PM101"
        )
        # What is on the bridge already has been marked, or was put there on purpose.
        if move.missing and not move.from_bridge and not is_silenced:
            idle = [each for each in move.missing if is_unused(analysis, each)]
            used = [each for each in move.missing if each not in idle]
            texts = reasons(analysis, used), unused_advice(each.path for each in idle)
            yield missing(analysis, move.statement, "; ".join(filter(None, texts)))


def _moved(analysis: Analysis, move: Move) -> Finding:
    """Return the finding of a ``from … import`` statement; its code says what is in it."""
    module = analysis.target.module
    needs = tuple(
        Need(module, name, name) for name in _used_of(analysis, (*move.emptied, *move.bridged))
    )
    names = [COUNTERPARTS[original(each.path)] for each in move.native]
    start = analysis.start(move.statement)
    clash = clashes(analysis, [*(Need(module, name, name) for name in names), *needs])
    if clash:
        message = f"{', '.join(clash)} means something else in this file; rename it first"
        return manual("PM101", start, message)
    bridged = [each for each in move.bridged if not is_taken_over(analysis, each)]
    converters = (
        names
        or needs
        or move.unused
        or any(original(each.path) in {*MAKERS, *CLASSES} for each in bridged)
    )
    is_streaming = analysis.destination is Destination.STREAMING
    code = "PM101" if converters and is_streaming else moved_as_it_is(analysis)
    parts = tuple(_parts(analysis, move))
    edits, comments = [*_use_edits(analysis, move)], list[str]()
    if move.emptied or len(parts) > 1:
        texts = (f"from {place} import {', '.join(imported)}" for place, imported in parts)
        # As they are where others share its line; else they are written anew.
        edits.append(analysis.replace(move.statement, "; ".join(texts)))
        comments += comments_outside(analysis, *analysis.span(move.statement), ())
    else:
        edits += _edits_in_place(analysis, move)
    return Finding(
        code,
        start,
        "; ".join(_notes(analysis, move, bridged)),
        Safety.SAFE,
        tuple(edits),
        needs=needs,
        slots=(ImportSlot(start, parts),),
        comments=tuple(comments),
    )


def _notes(analysis: Analysis, move: Move, bridged: Sequence[Imported]) -> Iterator[str]:
    """Yield what is said of a statement that moves."""
    if analysis.destination is Destination.BRIDGE:
        yield come_from([each.path for each in move.bridged], NEW)
        return
    paths = [each.path for each in (*move.native, *move.emptied)]
    if paths:
        yield come_from(paths, analysis.target.module)
    if bridged:
        yield reasons(analysis, bridged)
    if move.unused:
        yield f"the unused import of {', '.join(each.path for each in move.unused)} goes"
    if not (paths or bridged or move.unused):
        yield "streaming has taken over what was imported"


def _edits_in_place(analysis: Analysis, move: Move) -> Iterator[Edit]:
    """Yield the edits of a statement that imports from one module, or goes."""
    statement = move.statement
    assert statement.module is not None
    assert not isinstance(statement.names, cst.ImportStar)
    if not (move.native or move.bridged or move.missing):
        removal = without_statement(analysis, statement)
        assert removal is not None
        yield removal
        return
    yield from remove(analysis, statement.names, [each.alias for each in move.unused if each.alias])
    if move.bridged:
        yield rename_root(analysis, statement.module)
    elif move.native:
        yield analysis.replace(statement.module, analysis.target.module)
    for each in move.native:
        assert each.alias is not None
        yield analysis.replace(each.alias.name, _spelled(analysis, each))


def keeps_its_name(analysis: Analysis, local: str) -> bool:
    """Say whether a name goes on to be used for what takes the place of what it means."""
    return any(
        each.local == local and " as " in _as_written(each, _spelled(analysis, each))
        for move in moves(analysis)
        for each in move.native
    )


def _spelled(analysis: Analysis, each: Imported) -> str:
    """Return the new name in the import, with the old one as alias where uses cannot change."""
    assert each.alias is not None
    name = COUNTERPARTS[original(each.path)]
    if each.alias.asname or name == each.local or _is_simple(analysis, each):
        return name
    return f"{name} as {each.local}"


def _is_simple(analysis: Analysis, each: Imported) -> bool:
    return _may_change(analysis, each.local, canonical(each.path))


@once
def _may_change(analysis: Analysis, local: str, path: str) -> bool:
    if analysis.source.path.endswith("__init__.py"):
        return False  # others import it from here
    if is_taken_from_here(analysis, local) or is_run_with(analysis, local):
        return False
    if any(
        isinstance(node.target, cst.Name) and node.target.value == local
        for node in analysis.nodes(cst.AssignTarget)
    ):
        return False  # something else under the same name, for instance where an import fails
    if any(_is_open(analysis, read, path) for read in uses_of(analysis, local)):
        return False
    strings = [node for node in analysis.nodes(cst.SimpleString) if _word(local).search(node.value)]
    return not any(
        _is_listed(analysis, each) or (analysis.is_type(each) and "\\" in each.value)
        for each in strings
    )


def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.]){re.escape(name)}\b")


def _is_listed(analysis: Analysis, string: cst.SimpleString) -> bool:
    """Say whether a string names what a module offers to whoever imports all of it."""
    statement = analysis.enclosing(string, cst.Assign)
    targets = statement.targets if statement is not None else ()
    return any(isinstance(e.target, cst.Name) and e.target.value == "__all__" for e in targets)


def _is_open(analysis: Analysis, read: cst.Name, path: str) -> bool:
    """Say whether a name may, but need not, be what is imported: other imports, or a later cell's."""
    paths = {canonical(meaning.name) for meaning in analysis.meanings(read)}
    return not paths or (path in paths and len(paths) > 1)


def _use_edits(analysis: Analysis, move: Move) -> Iterator[Edit]:
    """Yield the edits of all uses of names that are called otherwise now."""
    for each in move.native:
        yield from _edits_of_uses(analysis, each)
    for each in (*move.emptied, *move.bridged):
        yield from native_edits(analysis, list(native_uses(analysis, each.local)))


def _edits_of_uses(analysis: Analysis, each: Imported) -> Iterator[Edit]:
    name = COUNTERPARTS[original(each.path)]
    assert each.alias is not None
    rename = not each.alias.asname and name != each.local and _is_simple(analysis, each)
    for read in _uses(analysis)[each.statement, each.local]:
        if canonical(analysis.imported(read) or "") != canonical(each.path):
            continue
        if rename:
            yield analysis.replace(read, name)
        yield from timestamps_edits(analysis, name, read)
    for string in analysis.nodes(cst.SimpleString) if rename else ():
        if analysis.is_type(string):
            start = analysis.start(string)
            for match in _word(each.local).finditer(string.value):
                yield Edit(start + match.start(), start + match.end(), name)


@once
def _uses(analysis: Analysis) -> Mapping[tuple[cst.CSTNode, str], list[cst.Name]]:
    """Return the reads of what each import statement binds, by the name."""
    reads: defaultdict[tuple[cst.CSTNode, str], list[cst.Name]] = defaultdict(list)
    for name in {each.local for each in imports(analysis)}:
        for read in analysis.reads(name):
            for statement in analysis.imports_of(read):
                reads[statement, name].append(read)
    return reads


def _parts(analysis: Analysis, move: Move) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the modules, with names, of what comes in the place of a statement; what stays is first, below its marker."""
    assert move.statement.module is not None
    module = analysis.code(move.statement.module)
    bridge = module if move.from_bridge else renamed(module)
    native = [_as_written(each, _spelled(analysis, each)) for each in move.native]
    native += _used_of(analysis, move.emptied)
    parts = [
        (module, [_as_written(each, each.path.rpartition(".")[2]) for each in move.missing]),
        (bridge, [_as_written(each, each.path.rpartition(".")[2]) for each in move.bridged]),
        (analysis.target.module, native),
    ]
    yield from ((place, tuple(dict.fromkeys(names))) for place, names in parts if names)


def _as_written(each: Imported, name: str) -> str:
    aliased = each.alias is not None and each.alias.asname is not None
    return f"{name} as {each.local}" if aliased else name
