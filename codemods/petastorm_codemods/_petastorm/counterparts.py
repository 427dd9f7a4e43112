"""Names of ``petastorm_bridge.native``, the support module of rewritten code, and their imports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.imports import imports
from petastorm_codemods._model import Edit
from petastorm_codemods._rewriting.import_place import import_place

from .offered import NEW, OLD

MODULE = f"{NEW}.native"
FAST_MODULE = f"{NEW}.native_fast"

# Petastorm's names that have a counterpart, wherever they are imported from.
COUNTERPARTS = {
    "petastorm.TransformSpec": "TransformSpec",
    "petastorm.transform.TransformSpec": "TransformSpec",
    "petastorm.spark.SparkDatasetConverter": "MdsDirectory",
    "petastorm.spark.make_spark_converter": "dataframe_to_mds",
    "petastorm.spark.spark_dataset_converter.SparkDatasetConverter": "MdsDirectory",
    "petastorm.spark.spark_dataset_converter.make_spark_converter": "dataframe_to_mds",
}
MAKERS = frozenset(old for old, new in COUNTERPARTS.items() if new == "dataframe_to_mds")
_CLASSES = frozenset(old for old, new in COUNTERPARTS.items() if new == "MdsDirectory")


# What loaders need is called so where the name is taken, say by ``with … as tf_dataset``.
ALIASES = {
    "ColumnarStreamingDataset": "NativeColumnarDataset",
    "StreamingDataLoader": "NativeStreamingDataLoader",
    "StreamingDataset": "NativeStreamingDataset",
    "tf_dataset": "open_tf_dataset",
}
_NAMED = {alias: name for name, alias in ALIASES.items()}


def is_maker(path: str | None, analysis: Analysis) -> bool:
    """Say whether a dotted path is of what returns converters, before a rewrite or after it."""
    found = path or ""
    return original(found) in MAKERS or (
        is_support(found, analysis) and found.endswith(".dataframe_to_mds")
    )


def is_class(path: str | None, analysis: Analysis) -> bool:
    """Say whether a dotted path is of the class of converters, before a rewrite or after it."""
    found = path or ""
    return original(found) in _CLASSES or (
        is_support(found, analysis) and found.endswith(".MdsDirectory")
    )


@once
def constructions(analysis: Analysis) -> tuple[cst.Call, ...]:
    """Return the calls of the class of converters itself, which give it the files to read."""
    calls = analysis.nodes(cst.Call)
    return tuple(each for each in calls if original(analysis.imported(each.func) or "") in _CLASSES)


def counterpart(analysis: Analysis, path: str) -> str | None:
    """Return the native name for a dotted path; None if there is none.

    A source that makes converters from files keeps the class: the files are Parquet.
    """
    name = COUNTERPARTS.get(original(path))
    return None if original(path) in _CLASSES and constructions(analysis) else name


def is_support(path: str, analysis: Analysis) -> bool:
    """Say whether a dotted path is, or is in, a support module."""
    modules = (MODULE, FAST_MODULE, analysis.target.module)
    return any(path == module or path.startswith(f"{module}.") for module in modules)


def original(path: str) -> str:
    """Return Petastorm's path for one of Petastorm or of the bridge."""
    return OLD + path[len(NEW) :] if path == NEW or path.startswith(f"{NEW}.") else path


def clashes(analysis: Analysis, names: tuple[str, ...]) -> list[str]:
    """Return those of some names that mean something else in a source than the support module's."""
    bound = _bound(analysis)
    found = {
        local
        for local, path in ((each, bound[each]) for each in names if each in bound)
        if path != f"{analysis.target.module}.{_NAMED.get(local, local)}"
        and COUNTERPARTS.get(original(path)) != local
    }
    found |= {name for name in names if any(analysis.bindings(name))}
    return sorted(found)


@once
def _bound(analysis: Analysis) -> dict[str, str]:
    """Return the path of each name that a source imports."""
    return {each.local: each.path for each in imports(analysis)}


def spelling(analysis: Analysis, name: str) -> str:
    """Return what a name of the support module is called in a source that uses the name itself."""
    return ALIASES[name] if name in ALIASES and clashes(analysis, (name,)) else name


def spelled_import(name: str, local: str) -> str:
    """Return how a name is imported under another one, or under its own."""
    return name if name == local else f"{name} as {local}"


def import_edits(analysis: Analysis, needed: Iterable[tuple[int, str]]) -> Iterator[Edit]:
    """Yield the edits that import names, each needed at some offset, which are not imported yet.

    They join an import that is rewritten: at the top if there is one, else in the function that
    holds both, which keeps imports lazy that were; or they get a line of their own at the top.
    """
    module = analysis.target.module
    known = {
        each.local
        for each in imports(analysis)
        if each.path == f"{module}.{each.local}" and _is_top(analysis, each.statement)
    }
    known |= {
        spelled_import(_NAMED[each.local], each.local)
        for each in imports(analysis)
        if each.local in _NAMED and each.path == f"{module}.{_NAMED[each.local]}"
    }
    known |= analysis.provided
    wanted: dict[cst.CSTNode | None, set[str]] = {}
    for where, name in _in_slots(analysis, needed):
        if name not in known:
            wanted.setdefault(where, set()).add(name)
    for where, names in wanted.items():
        text = ", ".join(sorted(names))
        if where in analysis.slots:
            yield Edit(analysis.slots[where], analysis.slots[where], f", {text}")
            continue
        newline = analysis.source.newline
        place, indent = import_place(analysis, module)
        line = f"{indent}from {module} import {text}"
        if place > 0 and analysis.source.text[place - 1] not in "\r\n":
            yield Edit(place, place, f"{newline}{line}")
        else:
            yield Edit(place, place, f"{line}{newline}")


def _in_slots(
    analysis: Analysis, needed: Iterable[tuple[int, str]]
) -> Iterator[tuple[cst.CSTNode | None, str]]:
    """Yield the slot of each needed name: that of the innermost function around the place."""
    functions = [node for node in analysis.slots if node is not None]
    if None in analysis.slots:
        functions = []
    later = sorted(functions, key=analysis.start, reverse=True)
    around: list[cst.CSTNode] = []
    for offset, name in sorted(needed):
        while later and analysis.start(later[-1]) <= offset:
            around.append(later.pop())
        while around and analysis.span(around[-1])[1] <= offset:
            around.pop()
        yield around[-1] if around else None, name


def leave_slot(
    analysis: Analysis, statement: cst.CSTNode, offset: int, names: Iterable[str]
) -> None:
    """Remember where a rewritten import has room for more names; the first one at the top counts.

    The body of a ``try`` at the top is the top as well, where nothing better is found: whoever
    guards the import of Petastorm guards that of its successor.
    """
    line = analysis.parent(statement)
    block = analysis.parent(line)
    owner = analysis.parent(block)
    if block is analysis.module:
        analysis.provided.update(names)
        if not analysis.top_slot:
            analysis.slots[None] = offset
        analysis.top_slot = True
    elif isinstance(owner, cst.FunctionDef):
        analysis.slots.setdefault(owner, offset)
    elif (
        isinstance(owner, cst.Try)
        and owner.body is block
        and analysis.parent(owner) is analysis.module
    ):
        analysis.slots.setdefault(None, offset)


def _is_top(analysis: Analysis, statement: cst.CSTNode) -> bool:
    return analysis.parent(analysis.parent(statement)) is analysis.module
