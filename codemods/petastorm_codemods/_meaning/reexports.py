"""Names of Petastorm's that a file has from another file of the project, not from Petastorm.

By ``%run`` or ``import *`` they come unseen; then the file imports their counterparts itself. Where a
file imports them from another one by name, that one keeps the old names as aliases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from libcst.helpers import get_full_name_for_node

from .analysis import Analysis
from .other_files import REEXPORTABLE, module_at, stem_of

NATIVE = {"make_spark_converter": "write_mds", "SparkDatasetConverter": "MdsDirectory"}
_RUN = re.compile(r"^(?:# MAGIC[ \t]+)?%run\b[ \t]*(\S*)", re.MULTILINE)


def unseen_reads(analysis: Analysis) -> Iterator[cst.Name]:
    """Yield the reads of names that can only come from a file which is run or imported as a whole."""
    run = _RUN.search(analysis.source.text) is not None
    stars = set(_stars(analysis))
    for name in REEXPORTABLE:
        project = analysis.project
        whole = run and name in project.imported_names
        if not whole and not any((stem, name) in project.importers for stem in stars):
            continue
        for read in analysis.reads(name):
            if not analysis.assignments(read) and is_read(analysis, read):
                yield read


def reexported_reads(analysis: Analysis) -> Iterator[cst.Name]:
    """Yield the reads of names that are imported from a file of the project that has them."""
    for name in REEXPORTABLE:
        for read in analysis.reads(name):
            if is_read(analysis, read) and is_reexported(analysis, analysis.imported(read)):
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
    runs = {module_at(each.strip("\"'")) for each in _RUN.findall(analysis.source.text) if each}
    return any((module, name) in analysis.project.mentioners for module in runs)


def is_read(analysis: Analysis, node: cst.Name) -> bool:
    """Say whether a name stands for its object, and not as part of an import or as a keyword."""
    above = analysis.parent(node)
    if isinstance(above, cst.ImportAlias | cst.ImportFrom | cst.AsName | cst.Param | cst.NameItem):
        return False
    if isinstance(above, cst.FunctionDef | cst.ClassDef) and above.name is node:
        return False
    return not (
        (isinstance(above, cst.Attribute) and above.attr is node)
        or (isinstance(above, cst.Arg) and above.keyword is node)
    )


def _stars(analysis: Analysis) -> Iterator[str]:
    """Yield the last names of the modules that are imported as a whole."""
    for node in analysis.nodes(cst.ImportFrom):
        if isinstance(node.names, cst.ImportStar) and node.module is not None:
            yield stem_of(get_full_name_for_node(node.module) or "")
