"""Moving ``from petastorm… import …`` statements for ``--to streaming``: which name goes where."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.calls import remove
from petastorm_codemods._meaning.imports import (
    Imported,
    by_statement,
    imports,
    is_alternative,
    petastorm_imports,
    root_name,
)
from petastorm_codemods._meaning.other_files import METHODS
from petastorm_codemods._meaning.reexports import is_run_with, is_taken_from_here, uses_of
from petastorm_codemods._meaning.support import counterpart, is_support, opens_directories
from petastorm_codemods._model import Edit, ImportSlot
from petastorm_codemods._petastorm.counterparts import COUNTERPARTS, original
from petastorm_codemods._petastorm.offered import NEW, OLD, advices, canonical, is_offered, renamed

from .comments import comments_outside
from .decisions import keeps_bridge, keeps_petastorm, native_uses, opens_natively
from .modules import native_edits, parted
from .timestamps import timestamps_edits
from .unused import goes_unused, without_statement


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

    @property
    def is_parted(self) -> bool:
        """Whether several statements come in its place."""
        return (
            bool(self.emptied)
            or len([*filter(None, (self.missing, self.bridged, self.native))]) > 1
        )

    def changes(self) -> bool:
        """Say whether anything in the statement moves."""
        gone = self.native or self.emptied or self.unused
        return bool(gone) or (bool(self.bridged) and not self.from_bridge)


@once
def moves(analysis: Analysis) -> tuple[Move, ...]:
    """Return what becomes of each import of names from Petastorm, or from the bridge."""
    return tuple(_moves(analysis))


def _moves(analysis: Analysis) -> Iterator[Move]:
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
        bridged = [each for each in rest if each.alias and is_offered(original(each.path))]
        emptied = [each for each in bridged if _is_emptied(analysis, each)]
        bridged = [each for each in bridged if each not in emptied]
        missing = [each for each in names if each not in (*native, *unused, *emptied, *bridged)]
        yield Move(statement, *map(tuple, (native, emptied, bridged, missing, unused)))


def used_of(analysis: Analysis, modules: Sequence[Imported]) -> list[str]:
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
    kept = [_reason(analysis, each) for each in named]
    texts += [text for text in kept if text]
    together = [each for each in named if original(each.path) in COUNTERPARTS]
    if together and keeps_bridge(analysis):
        texts.append("its loaders stay on the bridge, and so does what they work with")
        named = [each for each in named if each not in together]
        kept = [_reason(analysis, each) for each in named]
    paths = [original(each.path) for each, text in zip(named, kept, strict=True) if not text]
    bridged = [path for path in paths if is_offered(path)]
    if bridged:
        names = ", ".join(path[len(OLD) + 1 :] for path in bridged)
        verbs = ("have", "run") if len(bridged) > 1 else ("has", "runs")
        texts.append(f"{names} {verbs[0]} no counterpart in streaming and {verbs[1]} on {NEW}")
    texts += advices(path for path in paths if path not in bridged)
    return "; ".join(dict.fromkeys(texts))


def move_edits(analysis: Analysis, move: Move) -> Iterator[Edit]:
    """Yield the edits of a statement, and of all uses of names that are called otherwise now."""
    for each in move.native:
        yield from _use_edits(analysis, each)
    for each in (*move.emptied, *move.bridged):
        yield from native_edits(analysis, list(native_uses(analysis, each.local)))
    statement = move.statement
    groups = [group for group in (move.missing, move.bridged, move.native) if group]
    assert statement.module is not None
    if not groups and not move.emptied:
        removal = without_statement(analysis, statement)
        assert removal is not None
        yield removal
        return
    if move.is_parted:
        yield parted(analysis, statement, [*_parts(analysis, move)])
        return
    assert not isinstance(statement.names, cst.ImportStar)
    yield from remove(analysis, statement.names, [each.alias for each in move.unused if each.alias])
    if move.missing:
        return
    if move.bridged:
        root = root_name(statement.module)
        assert root is not None
        yield analysis.replace(root, NEW)
        return
    yield analysis.replace(statement.module, analysis.target.module)
    for each in move.native:
        assert each.alias is not None
        yield analysis.replace(each.alias.name, _spelled(analysis, each))


def move_comments(analysis: Analysis, move: Move) -> tuple[str, ...]:
    """Return the comments in a statement that are not in what comes in its place."""
    span = analysis.span(move.statement)
    return tuple(comments_outside(analysis, *span, ())) if move.is_parted else ()


def move_slots(analysis: Analysis, move: Move) -> tuple[ImportSlot, ...]:
    """Return where a statement, once it is rewritten, has room for more names of the support module."""
    last = move.native[-1].alias if move.native else None
    if last is None and not move.emptied:
        return ()
    # Of several statements in the place of one they come last.
    parted = last is None or bool(move.emptied or move.bridged or move.missing)
    end = analysis.span(move.statement if parted or last is None else last)[1]
    names = [_spelled(analysis, each) for each in move.native if not _as_written(each, "")]
    names += used_of(analysis, move.emptied)
    start = analysis.start(move.statement)
    return (ImportSlot(start, end, analysis.target.module, tuple(names)),)


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
    """Say whether all uses of a name are known and may change with the import."""
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
    """Return the pattern of a name that is no attribute."""
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


def _use_edits(analysis: Analysis, each: Imported) -> Iterator[Edit]:
    name = COUNTERPARTS[original(each.path)]
    assert each.alias is not None
    rename = not each.alias.asname and name != each.local and _is_simple(analysis, each)
    for read in _uses(analysis)[each.statement, each.local]:
        if canonical(analysis.imported(read) or "") != canonical(each.path):
            continue
        if rename:
            yield analysis.replace(read, name)
        call = analysis.parent(read)
        if name == "PandasCollate" and isinstance(call, cst.Call) and call.func is read:
            yield from timestamps_edits(analysis, call)
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


def _parts(analysis: Analysis, move: Move) -> Iterator[str]:
    """Yield the statements that come in the place of one; what stays comes first, below its marker."""
    assert move.statement.module is not None
    module = analysis.code(move.statement.module)
    bridge = module if move.from_bridge else renamed(module)
    native = [_as_written(each, _spelled(analysis, each)) for each in move.native]
    native += used_of(analysis, move.emptied)
    parts = [
        (module, [_as_written(each, each.path.rpartition(".")[2]) for each in move.missing]),
        (bridge, [_as_written(each, each.path.rpartition(".")[2]) for each in move.bridged]),
        (analysis.target.module, list(dict.fromkeys(native))),
    ]
    yield from (f"from {place} import {', '.join(names)}" for place, names in parts if names)


def _as_written(each: Imported, name: str) -> str:
    aliased = each.alias is not None and each.alias.asname is not None
    return f"{name} as {each.local}" if aliased else name
