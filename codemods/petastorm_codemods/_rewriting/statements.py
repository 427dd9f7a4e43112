"""Import statements after a rewrite: what moves, what rewritten code needs, and what nothing uses any more.

A statement whose names change in place keeps its layout. One that names come to, or that parts, is written anew.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.calls import remove
from petastorm_codemods._meaning.imports import Imported, ImportStatement, modules_of
from petastorm_codemods._meaning.places import grouped
from petastorm_codemods._model import Edit, ImportSlot, Need
from petastorm_codemods._petastorm.offered import NEW, OLD
from petastorm_codemods._text.edits import overlaps
from petastorm_codemods._text.tokens import next_line

from .layout import import_of
from .unused import is_alone, unused_imports, without_line

# Between the cells of a Databricks notebook, which people run one by one.
_COMMAND = re.compile(r"^# COMMAND -+", re.MULTILINE)
_RESTART = re.compile(r"library\.restartPython\(\)")


@dataclass(eq=False)
class _Statement:
    """An import of names, or of modules.

    Attributes:
        node: The statement.
        aliases: Its names.
        modules: The names that it is to import, by module, as they are written; modules are those of no module.
        holder: The module, the function, or the ``try`` or ``with`` at the top whose body it is in; None for others.
        edits: What makes it so, where nothing else comes or goes.
        in_order: Whether its names were sorted.
        is_open: Whether it may be written anew: it has a line of its own, and no comment.
        is_rewritten: Whether any of it changes.
        anew: Whether it is written anew.
        added: Names that it gets where it is not open.
    """

    node: ImportStatement
    aliases: Sequence[cst.ImportAlias]
    modules: dict[str, list[str]]
    holder: cst.CSTNode | None
    in_order: bool
    is_open: bool
    edits: list[Edit] = field(default_factory=list)
    is_rewritten: bool = False
    anew: bool = False
    added: list[str] = field(default_factory=list)

    def join(self, module: str, names: Iterable[str]) -> None:
        """Import more names of a module."""
        known = self.modules.setdefault(module, [])
        more = [name for name in names if name not in known]
        known += more
        self.is_rewritten = True
        if self.is_open:
            self.anew = True
        else:
            self.added += more


def with_imports(
    analysis: Analysis,
    edits: Sequence[Edit],
    needed: Collection[tuple[int, Need]],
    slots: Iterable[ImportSlot],
) -> list[Edit]:
    """Return edits with those of import statements: what is needed has come, and what nothing uses any more is gone.

    No rewritten import of a block and cell then names the module of another one: names join the first.

    Args:
        analysis: Of the source.
        edits: All others, and those by which statements move.
        needed: Names that have to be imported, each with an offset where.
        slots: What the statements that move import then.
    """
    statements = _statements(analysis)
    for slot in slots:
        _rewrite(analysis, statements[slot.start], slot.parts)
    starts, rest = [*statements], list[Edit]()
    for edit in edits:
        place = bisect.bisect_left(starts, edit.end) - 1
        around = statements[starts[place]] if place >= 0 else None
        if around is not None and edit.start < analysis.span(around.node)[1]:
            around.edits.append(edit)
            around.is_rewritten = True
        else:
            rest.append(edit)
    lines = [*_needed(analysis, [*statements.values()], needed)]
    gone = grouped(unused_imports(analysis, edits), lambda each: (each.statement,))
    for each in statements.values():
        _forget(analysis, each, gone.get(each.node, ()))
    _join(analysis, statements.values())
    others = [*lines, *rest]
    written = [edit for each in statements.values() for edit in _written(analysis, each, others)]
    return [*lines, *written, *rest]


def _statements(analysis: Analysis) -> dict[int, _Statement]:
    """Return the imports by where they start, in order, but for those of ``*`` and of modules beside the file."""
    nodes: list[ImportStatement] = [*analysis.nodes(cst.Import), *analysis.nodes(cst.ImportFrom)]
    statements: dict[int, _Statement] = {}
    for node in sorted(nodes, key=analysis.start):
        if isinstance(node, cst.ImportFrom) and node.relative:
            continue
        if not isinstance(node.names, cst.ImportStar):
            module = modules_of(node)[0] if isinstance(node, cst.ImportFrom) else ""
            names = [*map(_as_written, node.names)]
            start, end = analysis.span(node)
            behind = analysis.source.text[end : next_line(analysis.source.text, end)].strip()
            is_plain = not behind and "#" not in analysis.code(node)
            statements[start] = _Statement(
                node,
                node.names,
                {module: names},
                _holder(analysis, node),
                in_order=names == sorted(names),
                is_open=is_plain and is_alone(analysis, node),
            )
    return statements


def _as_written(alias: cst.ImportAlias) -> str:
    name = alias.evaluated_name
    return f"{name} as {alias.evaluated_alias}" if alias.asname else name


def _rewrite(
    analysis: Analysis, each: _Statement, parts: Sequence[tuple[str, Sequence[str]]]
) -> None:
    """Note what a statement that moves imports then: it is written anew if it parts, loses names or grows too long."""
    before = sum(map(len, each.modules.values()))
    each.modules = {module: [*names] for module, names in parts}
    each.is_rewritten = True
    one_line = "\n" not in analysis.code(each.node)
    fewer = sum(map(len, each.modules.values())) < before
    too_long = one_line and any("(" in line for line in _lines(analysis, each))
    is_parted = len(parts) > 1
    if is_parted:  # its comments are kept elsewhere
        each.is_open = is_alone(analysis, each.node)
    each.anew = each.is_open and (is_parted or fewer or too_long)


def _lines(analysis: Analysis, each: _Statement) -> list[str]:
    """Return the imports that a statement becomes if it is written anew."""
    width = analysis.source.width - len(analysis.indent(analysis.start(each.node)))
    return [
        import_of(module, sorted(names) if each.in_order else names, width)
        for module, names in each.modules.items()
        if names
    ]


def _forget(analysis: Analysis, each: _Statement, unused: Sequence[Imported]) -> None:
    """Let a statement import some names no more."""
    aliases = [imported.alias for imported in unused if imported.alias is not None]
    words = {_as_written(alias) for alias in aliases}
    each.modules = {
        module: [name for name in names if name not in words]
        for module, names in each.modules.items()
    }
    if aliases and any(each.modules.values()):
        more = [*remove(analysis, each.aliases, aliases)]
        each.edits += more if not overlaps([*each.edits, *more]) else []


def _join(analysis: Analysis, statements: Iterable[_Statement]) -> None:
    """Let names join the first statement of their module in the same block and cell, where either is rewritten."""
    commands = [match.end() for match in _COMMAND.finditer(analysis.source.text)]
    first: dict[tuple[cst.CSTNode, int, int, str], _Statement] = {}
    for each in (each for each in statements if each.is_open):
        start = analysis.start(each.node)
        cell = (analysis.source.cell_end(start), bisect.bisect(commands, start))
        for module, names in [item for item in each.modules.items() if item[0]]:
            block = analysis.parent(analysis.parent(each.node))
            target = first.setdefault((block, *cell, module), each)
            if target is not each and (each.is_rewritten or target.is_rewritten):
                target.join(module, names)
                each.modules[module] = []
                each.anew = True


def _written(analysis: Analysis, each: _Statement, others: Sequence[Edit]) -> Iterator[Edit]:
    """Yield the edits of a statement."""
    if not any(each.modules.values()):
        removal = without_line(analysis, each.node, others)
        yield from [removal] if removal is not None else each.edits
    elif each.anew:
        start, end = analysis.span(each.node)
        between = analysis.source.newline + analysis.indent(start)
        yield Edit(start, end, between.join(_lines(analysis, each)))
    else:
        yield from each.edits
        if each.added:
            whole = analysis.span(each.node)[1]
            last = analysis.span(each.aliases[-1])[1]
            end = whole if any(edit.end == whole for edit in each.edits) else last
            yield Edit(end, end, "".join(f", {name}" for name in each.added))


# --- names that are needed ------------------------------------------------------------------------


def _needed(
    analysis: Analysis, statements: Sequence[_Statement], needed: Collection[tuple[int, Need]]
) -> Iterator[Edit]:
    """Yield the lines that import needed names which are not imported yet, and which join no import of their module.

    They follow the first import that moves to streaming: at the top if there is one, else in the function that holds
    both, which keeps imports lazy that were; or they get a place of their own at the top. The body of a ``try`` or
    ``with`` at the top is the top as well, where nothing better is found: whoever guards the import of Petastorm
    guards that of its successor.
    """
    home, module = analysis.target.module, analysis.module
    homes = [each for each in statements if each.is_rewritten and home in each.modules]
    at_top = [each for each in statements if each.holder is module]
    guarded = [each for each in homes if isinstance(each.holder, cst.Try | cst.With)]
    top = [each for each in homes if each.holder is module] or guarded
    functions = {each.holder for each in homes if isinstance(each.holder, cst.FunctionDef)}

    def around(offset: int) -> cst.CSTNode:
        """Return the innermost function with such an import that a place is in; the module for none."""
        inside = (each for each in functions if offset < analysis.span(each)[1])
        inner = [each for each in inside if analysis.start(each) <= offset] if not top else []
        return max(inner, key=analysis.start, default=module)

    known = {(of, name) for each in at_top for of, names in each.modules.items() for name in names}
    wanted: dict[cst.CSTNode, dict[str, set[str]]] = {}
    used_at: list[int] = []
    for offset, need in sorted(needed, key=lambda pair: pair[0]):
        place = around(offset)
        used_at += [offset] if place is module else []
        words = need.name if need.local == need.name else f"{need.name} as {need.local}"
        if (need.module, words) not in known:
            wanted.setdefault(place, {}).setdefault(need.module, set()).add(words)
    used = _first_use(analysis, used_at)
    for place, modules in wanted.items():
        here = [each for each in homes if each.holder is place]
        joined = here
        if place is module:
            here = [each for each in top if analysis.start(each.node) < used]
            joined = [*here, *(each for each in at_top if analysis.start(each.node) < used)]
        lines: list[str] = []
        for of, names in sorted(modules.items()):
            target = next((each for each in joined if of in each.modules), None)
            if target is not None:
                target.join(of, sorted(names))
            else:
                lines.append(import_of(of, sorted(names), analysis.source.width))
        if lines and here:
            yield _beside(analysis, analysis.parent(here[0].node), lines)
        elif lines:
            yield _placed(analysis, statements, used, lines)


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


def _holder(analysis: Analysis, statement: cst.CSTNode) -> cst.CSTNode | None:
    """Return the module, the function, or the ``try`` or ``with`` at the top whose body an import is in; None for others."""
    block = analysis.parent(analysis.parent(statement))
    owner = analysis.parent(block)
    if block is analysis.module or isinstance(owner, cst.FunctionDef):
        return analysis.module if block is analysis.module else owner
    if isinstance(owner, cst.Try | cst.With) and owner.body is block:
        return owner if analysis.parent(owner) is analysis.module else None
    return None


# --- places for new lines ---------------------------------------------------------------------------


def _placed(
    analysis: Analysis, statements: Sequence[_Statement], used: int, lines: Sequence[str]
) -> Edit:
    """Return the edit that puts imports where no other moves.

    They follow the last import of Petastorm or the bridge at the top of the source, also within a
    ``with`` block there; without one, the first imports at the top, above the package's own; else they come before the
    first statement.
    So they do if those imports stand below the first use, as in notebooks whose cells import what they need.

    Args:
        analysis: Of the source.
        statements: All imports.
        used: Where the new ones have to be done.
        lines: They.
    """
    body = analysis.module.body
    restart = _last_restart(analysis, used)
    rest = _below_preamble(analysis, restart)
    neighbours = [
        each.node
        for each in statements
        if (each.holder is analysis.module or isinstance(each.holder, cst.With))
        and restart <= analysis.start(each.node) <= used
        and any(name.split(".")[0] in {OLD, NEW} for name in modules_of(each.node))
    ]
    neighbour = analysis.parent(neighbours[-1]) if neighbours else None
    from_import = itertools.dropwhile(lambda each: not _is_import(each), rest)
    first = [*itertools.takewhile(_is_import, from_import)]
    if neighbour is None and first and analysis.start(first[0]) < used:
        others = [each for each in first if not _is_relative(each)]
        neighbour = (others or first)[-1]
    if neighbour is not None:
        return _beside(analysis, neighbour, lines)
    if rest:
        decorators = getattr(rest[0], "decorators", ())
        start = analysis.start(decorators[0] if decorators else rest[0])
        blank = 2 if isinstance(rest[0], cst.FunctionDef | cst.ClassDef) else 1
        return _at(analysis, analysis.line_start(start), lines, below=blank)
    return _at(analysis, _after_line(analysis, analysis.span(body[-1])[1]) if body else 0, lines)


def _beside(analysis: Analysis, line: cst.CSTNode, lines: Sequence[str]) -> Edit:
    """Return the edit that puts imports below a line that is one; above it if it has other statements on it."""
    start, end = analysis.span(line)
    alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    place = _after_line(analysis, end) if alone else analysis.line_start(start)
    return _at(analysis, place, lines, indent=analysis.indent(start))


def _at(
    analysis: Analysis, start: int, lines: Sequence[str], *, indent: str = "", below: int = 0
) -> Edit:
    """Return the edit that puts lines at a place, with as many empty ones below."""
    newline = analysis.source.newline
    text = newline.join(f"{indent}{line}" for line in lines)
    if start > 0 and analysis.source.text[start - 1] not in "\r\n":
        return Edit(start, start, f"{newline}{text}", lines=True)
    return Edit(start, start, text + newline * (1 + below), lines=True)


def _below_preamble(analysis: Analysis, restart: int) -> Sequence[cst.BaseStatement]:
    """Return the statements at the top behind a place, without what has to stay above everything else."""
    body = analysis.module.body
    rest: list[cst.BaseStatement] = [
        node
        for node in body
        if not _is_preamble(node, first=node is body[0]) and not _is_magic(analysis, node)
    ]
    return [node for node in rest if analysis.start(node) >= restart] or rest


def _is_import(node: cst.CSTNode) -> bool:
    small = node.body[0] if isinstance(node, cst.SimpleStatementLine) else node
    return isinstance(small, cst.Import | cst.ImportFrom)


def _is_relative(line: cst.CSTNode) -> bool:
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else line
    return isinstance(small, cst.ImportFrom) and bool(small.relative)


def _last_restart(analysis: Analysis, used: int) -> int:
    """Return where the last cell above a use ends that installs packages, after which names may be gone."""
    text = analysis.source.text
    ends = [end for start, end in analysis.source.shell if "install" in text[start:end]]
    ends += [match.end() for match in _RESTART.finditer(text)]
    return max((end for end in ends if end <= used), default=0)


def _is_preamble(node: cst.CSTNode, *, first: bool) -> bool:
    if not isinstance(node, cst.SimpleStatementLine):
        return False
    small = node.body[0]
    if isinstance(small, cst.ImportFrom):
        return isinstance(small.module, cst.Name) and small.module.value == "__future__"
    if isinstance(small, cst.Expr):
        documentation = isinstance(small.value, cst.SimpleString | cst.ConcatenatedString)
        return first and documentation
    return False


def _is_magic(analysis: Analysis, node: cst.CSTNode) -> bool:
    """Say whether a statement stands for a line of IPython's, such as ``%%time``."""
    return analysis.source.text.startswith(("%", "!", "?"), analysis.start(node))


def _after_line(analysis: Analysis, offset: int) -> int:
    """Return the start of the next line; the end of this one if it is the last one of its cell."""
    text = analysis.source.text
    end, cell_end = next_line(text, offset), analysis.source.cell_end(offset)
    if end < cell_end or end == len(text):
        return end
    return offset + len(text[offset:cell_end].rstrip("\r\n"))
