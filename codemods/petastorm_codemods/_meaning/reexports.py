"""Names of Petastorm's that a file has from another file of the project, not from Petastorm.

By ``%run`` or ``import *`` they come unseen; then the file imports their counterparts itself. Where a
file imports them from another one by name, that one keeps the old names as aliases.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from petastorm_codemods._petastorm.counterparts import COUNTERPARTS
from petastorm_codemods._text.import_lines import files_run

from .analysis import Analysis, once
from .imports import modules_of
from .other_files import REEXPORTABLE, module_at, stem_of

# Counterparts of their names.
NATIVE = {stem_of(old): new for old, new in COUNTERPARTS.items()}


def unseen_reads(analysis: Analysis) -> Iterator[cst.Name]:
    """Yield the reads of names that can only come from a file which is run or imported as a whole."""
    run, stars = bool(_runs(analysis)), set(_stars(analysis))
    for name in REEXPORTABLE:
        project = analysis.project
        whole = run and name in project.imported_names
        if not whole and not any((stem, name) in project.importers for stem in stars):
            continue
        yield from (read for read in uses_of(analysis, name) if not analysis.assignments(read))


def reexported_reads(analysis: Analysis) -> Iterator[cst.Name | cst.Attribute]:
    """Yield the reads of names that come from a file of the project that has them, alone or behind its module."""
    imported = (each for each in analysis.nodes(cst.ImportAlias) if each.asname is not None)
    aliases = (each.evaluated_alias for each in imported if each.evaluated_name in REEXPORTABLE)
    local = dict.fromkeys((*REEXPORTABLE, *filter(None, aliases)))
    names = (read for name in local for read in uses_of(analysis, name))
    members = (each for each in analysis.nodes(cst.Attribute) if each.attr.value in REEXPORTABLE)
    reads: tuple[cst.Name | cst.Attribute, ...] = (*names, *members)
    for read in reads:
        if is_reexported(analysis, analysis.imported(read)):
            yield read


def is_reexported(analysis: Analysis, path: str | None) -> bool:
    """Say whether a dotted path is that of a name which another file has from Petastorm."""
    module, _, name = (path or "").rpartition(".")
    return (stem_of(module), name) in analysis.project.reexported


def is_taken_from_here(analysis: Analysis, name: str) -> bool:
    """Say whether other files import a name from this one."""
    return (module_at(analysis.source.path), name) in analysis.project.reexported


def is_run_with(analysis: Analysis, name: str) -> bool:
    """Say whether a source runs a notebook that uses a name without importing it."""
    return any((module, name) in analysis.project.mentioners for module in _runs(analysis))


@once
def uses_of(analysis: Analysis, name: str) -> tuple[cst.Name, ...]:
    """Return the places where a name stands for its object; see `is_read`."""
    return tuple(read for read in analysis.reads(name) if is_read(analysis, read))


def is_read(analysis: Analysis, node: cst.Name) -> bool:
    """Say whether a name stands for its object, and not as part of an import or as a keyword."""
    above = analysis.parent(node)
    if isinstance(above, cst.ImportAlias | cst.ImportFrom | cst.AsName | cst.NameItem):
        return False
    if isinstance(above, cst.FunctionDef | cst.ClassDef | cst.Param) and above.name is node:
        return False
    return not (
        (isinstance(above, cst.Attribute) and above.attr is node)
        or (isinstance(above, cst.Arg) and above.keyword is node)
    )


@once
def _runs(analysis: Analysis) -> frozenset[str]:
    return frozenset(map(module_at, files_run(analysis.source.text.encode(errors="replace"))))


def _stars(analysis: Analysis) -> Iterator[str]:
    for node in analysis.nodes(cst.ImportFrom):
        if isinstance(node.names, cst.ImportStar):
            yield from map(stem_of, modules_of(node))
