"""Imports that rewrites need: what the names are called, and where the import lines go."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.imports import imports, modules_of, relative_names
from petastorm_codemods._model import Edit, ImportSlot, Need
from petastorm_codemods._petastorm.counterparts import ALIASES, COUNTERPARTS, original

from .import_place import Place, beside, import_place
from .layout import import_of

_Place = cst.CSTNode | None


def need(analysis: Analysis, module: str, name: str) -> Need:
    """Return the need of a name that has another one in a source where its own is taken."""
    local = (
        ALIASES[name] if name in ALIASES and clashes(analysis, [Need(module, name, name)]) else name
    )
    return Need(module, name, local)


def clashes(analysis: Analysis, needs: Iterable[Need]) -> list[str]:
    """Return the names of those needs that mean something else in a source."""
    bound, beside = _bound(analysis), relative_names(analysis)
    taken: set[str] = set()
    for each in needs:
        path = bound.get(each.local, _path(each))
        known = path == _path(each) or COUNTERPARTS.get(original(path)) == each.local
        if not known or each.local in beside or any(analysis.bindings(each.local)):
            taken.add(each.local)
    return sorted(taken)


def _path(wanted: Need) -> str:
    return f"{wanted.module}.{wanted.name}"


@once
def _bound(analysis: Analysis) -> dict[str, str]:
    """Return the path of each name that a source imports."""
    return {each.local: each.path for each in imports(analysis)}


def import_edits(
    analysis: Analysis, needed: Collection[tuple[int, Need]], slots: Sequence[ImportSlot]
) -> Iterator[Edit]:
    """Yield the edits that import names, each needed at some offset, which are not imported yet.

    They join an import of their module, or follow a rewritten import of another one: at the top
    if there is one, else in the function that holds both, which keeps imports lazy that were; or they get
    a line of their own at the top.
    """
    places = _Places(analysis, slots)
    wanted: dict[tuple[int, _Place], dict[str, set[str]]] = {}
    joining: dict[int, set[str]] = {}
    known = _known(analysis, slots)
    for offset, each in sorted(needed, key=lambda pair: pair[0]):
        if (_path(each), each.local) in known:
            continue
        place = places.around(offset)
        words = each.name if each.local == each.name else f"{each.name} as {each.local}"
        room = _room(analysis, each.module, offset, slots) if place is None else None
        if room is not None:
            joining.setdefault(room, set()).add(words)
        else:
            key = (0 if place is None else analysis.start(place), place)
            wanted.setdefault(key, {}).setdefault(each.module, set()).add(words)
    for end, names in joining.items():
        yield Edit(end, end, "".join(f", {words}" for words in sorted(names)))
    used = _first_use(analysis, [offset for offset, _ in needed if places.around(offset) is None])
    for (_, place), modules in wanted.items():
        slots_here = places.slots(place)
        if place is None:
            slots_here = [slot for slot in slots_here if slot.start < used]
        yield from _imported(analysis, slots_here, modules, used)


def _first_use(analysis: Analysis, offsets: Iterable[int]) -> int:
    """Return where a run through the source first comes to one of some places; its end if never.

    What stands in a function or class counts from where the top of the source first names that.
    """
    body = analysis.module.body
    starts = [analysis.start(statement) for statement in body]
    used = [len(analysis.source.text)]
    names: set[str] = set()
    for offset in offsets:
        statement = body[max(bisect.bisect_right(starts, offset) - 1, 0)] if body else None
        if isinstance(statement, cst.FunctionDef | cst.ClassDef):
            names.add(statement.name.value)
        else:
            used.append(offset)
    used += [
        analysis.start(read)
        for name in names
        for read in analysis.reads(name)
        if analysis.enclosing(read, cst.FunctionDef, cst.Lambda) is None
    ]
    return min(used)


def _room(analysis: Analysis, module: str, offset: int, slots: Sequence[ImportSlot]) -> int | None:
    """Return where an import of a module's names takes another: at the top, above a place, not rewritten."""
    rewritten = {slot.start for slot in slots}
    for node in analysis.nodes(cst.ImportFrom):
        at_top = analysis.parent(analysis.parent(node)) is analysis.module
        if isinstance(node.names, cst.ImportStar) or node.relative or not at_top:
            continue
        above = analysis.start(node) < offset and analysis.start(node) not in rewritten
        if above and modules_of(node) == [module]:
            return analysis.span(node.names[-1])[1]
    return None


def _imported(
    analysis: Analysis, slots: Sequence[ImportSlot], modules: Mapping[str, set[str]], used: int
) -> Iterator[Edit]:
    """Yield the edits that import names of modules: in rewritten imports of them, or on lines below the first."""
    ends = {slot.module: slot.end for slot in reversed(slots)}
    lines: list[str] = []
    for module, names in sorted(modules.items()):
        if module in ends:
            end = ends[module]
            yield Edit(end, end, f", {', '.join(sorted(names))}")
        else:
            lines.append(import_of(module, sorted(names), analysis.source.width))
    if not lines:
        return
    if not slots:
        yield _at(analysis, import_place(analysis, used), lines)
        return
    start = beside(analysis, analysis.parent(_statements(analysis)[slots[0].start]))
    yield _at(analysis, Place(start, analysis.indent(slots[0].start)), lines)


def _at(analysis: Analysis, place: Place, lines: Sequence[str]) -> Edit:
    newline, start = analysis.source.newline, place.start
    text = newline.join(f"{place.indent}{line}" for line in lines)
    if start > 0 and analysis.source.text[start - 1] not in "\r\n":
        return Edit(start, start, f"{newline}{text}", lines=True)
    return Edit(start, start, text + newline * (1 + place.below), lines=True)


def _known(analysis: Analysis, slots: Sequence[ImportSlot]) -> set[tuple[str, str]]:
    """Return the path and the local name of all that is imported at the top, also by rewrites."""
    # A rewritten statement binds the counterparts of these names in their place.
    moved = {(slot.start, name) for slot in slots for name in slot.names}
    known = {
        (each.path, each.local)
        for each in imports(analysis)
        if analysis.parent(analysis.parent(each.statement)) is analysis.module
        and (analysis.start(each.statement), COUNTERPARTS.get(original(each.path))) not in moved
    }
    for slot in slots:
        if _holder(analysis, slot) is analysis.module:
            known |= {(f"{slot.module}.{name}", name) for name in slot.names}
    return known


class _Places:
    """Where rewritten imports stand: at the top, or in functions.

    The body of a ``try`` or ``with`` at the top is the top as well, where nothing better is found: whoever
    guards the import of Petastorm guards that of its successor.
    """

    def __init__(self, analysis: Analysis, slots: Sequence[ImportSlot]) -> None:
        self._analysis = analysis
        self._top: list[ImportSlot] = []
        self._guarded: list[ImportSlot] = []
        self._functions: dict[cst.CSTNode, list[ImportSlot]] = {}
        for slot in sorted(slots, key=lambda each: each.start):
            holder = _holder(analysis, slot)
            if holder is analysis.module:
                self._top.append(slot)
            elif isinstance(holder, cst.FunctionDef):
                self._functions.setdefault(holder, []).append(slot)
            elif isinstance(holder, cst.Try | cst.With):
                self._guarded.append(slot)

    def around(self, offset: int) -> _Place:
        """Return the innermost function with a rewritten import that a place is in; None for the top."""
        if self._top or self._guarded:
            return None
        functions = [
            function
            for function in self._functions
            if self._analysis.span(function)[0] <= offset < self._analysis.span(function)[1]
        ]
        return max(functions, key=self._analysis.start, default=None)

    def slots(self, place: _Place) -> list[ImportSlot]:
        """Return the rewritten imports at a place, in order."""
        return (self._top or self._guarded) if place is None else self._functions[place]


def _holder(analysis: Analysis, slot: ImportSlot) -> _Place:
    """Return the module, the function, or the ``try`` or ``with`` at the top whose body an import is in."""
    statement = _statements(analysis).get(slot.start)
    if statement is None:
        return None
    block = analysis.parent(analysis.parent(statement))
    owner = analysis.parent(block)
    if block is analysis.module or isinstance(owner, cst.FunctionDef):
        return analysis.module if block is analysis.module else owner
    if isinstance(owner, cst.Try | cst.With) and owner.body is block:
        return owner if analysis.parent(owner) is analysis.module else None
    return None


@once
def _statements(analysis: Analysis) -> dict[int, cst.CSTNode]:
    """Return import statements by where they start."""
    statements: list[cst.CSTNode] = [*analysis.nodes(cst.ImportFrom), *analysis.nodes(cst.Import)]
    return {analysis.start(each): each for each in statements}
