"""Which names of a source are converters' makers and classes, before a rewrite or after it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from petastorm_codemods._petastorm.counterparts import (
    CLASSES,
    COUNTERPARTS,
    MAKERS,
    MODULE,
    original,
)
from petastorm_codemods._petastorm.offered import NEW

from .analysis import Analysis, once
from .imports import Imported
from .reexports import uses_of

# The path or the native name of what is used, and the expression.
Use = tuple[str, cst.CSTNode]


def is_maker(path: str | None, analysis: Analysis) -> bool:
    """Say whether a dotted path is of what returns converters, before a rewrite or after it."""
    name = path or ""
    return original(name) in MAKERS or (is_support(name, analysis) and name.endswith(".write_mds"))


def is_class(path: str | None, analysis: Analysis) -> bool:
    """Say whether a dotted path is of the class of converters, before a rewrite or after it."""
    name = path or ""
    return original(name) in CLASSES or (
        is_support(name, analysis) and name.endswith(".MdsDirectory")
    )


def is_support(path: str, analysis: Analysis) -> bool:
    """Say whether a dotted path is, or is in, a support module."""
    modules = (MODULE, analysis.target.module)
    return any(path == module or path.startswith(f"{module}.") for module in modules)


@once
def constructions(analysis: Analysis) -> tuple[cst.Call, ...]:
    """Return the calls of the class of converters itself, which give it the files to read."""
    calls = analysis.nodes(cst.Call)
    return tuple(each for each in calls if original(analysis.imported(each.func) or "") in CLASSES)


def counterpart(analysis: Analysis, path: str) -> str | None:
    """Return the native name for a dotted path; None if there is none.

    A source that makes converters from files keeps the class: the files are Parquet.
    """
    name = COUNTERPARTS.get(original(path))
    return None if original(path) in CLASSES and constructions(analysis) else name


def opens_directory(analysis: Analysis, node: cst.CSTNode) -> bool:
    """Say whether an expression opens, on the bridge, the directory that a converter has written."""
    if not isinstance(node, cst.Call) or not node.args:
        return False
    given = node.args[0].value
    directory = isinstance(given, cst.Attribute) and given.attr.value == "cache_dir_url"
    return directory and original(analysis.imported(node.func) or "") in MAKERS


def opens_directories(analysis: Analysis, each: Imported) -> bool:
    """Say whether a name serves calls alone that an earlier run left on the bridge."""
    if original(each.path) not in MAKERS or not each.path.startswith(f"{NEW}."):
        return False
    reads = uses_of(analysis, each.local)
    return bool(reads) and all(opens_directory(analysis, analysis.parent(read)) for read in reads)


def uses_with_counterpart(analysis: Analysis, local: str) -> Iterator[Use]:
    """Yield the native name and the expression for uses of a module that have a counterpart."""
    for read in analysis.reads(local):
        named = ((counterpart(analysis, path), node) for path, node in analysis.paths(read))
        name, node = next((each for each in named if each[0]), (None, read))
        if name is not None and node is not read and analysis.is_read(node):
            yield name, node
