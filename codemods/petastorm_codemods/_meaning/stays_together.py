"""What stays with Petastorm because it works with something that has no counterpart.

Petastorm's loaders and predicates are of no use to other readers, and the bridge's none to the
readers of ``make_reader``; its ``Unischema`` goes with its own codecs. Moving only some of them would
break programs that run.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from petastorm_codemods._petastorm.counterparts import original
from petastorm_codemods._petastorm.offered import OLD, canonical, is_offered, is_petastorm

from .analysis import Analysis, once
from .imports import imports
from .reexports import is_read

# They make readers, or take them, and only Petastorm has them.
_READERS = frozenset(
    {
        "petastorm.make_reader",
        "petastorm.tf_utils.tf_tensors",
        "petastorm.weighted_sampling_reader.WeightedSamplingReader",
    }
)
# They read and write Petastorm's own format.
_FORMAT = ("petastorm.codecs", "petastorm.etl", "petastorm.ngram", "petastorm.spark_utils")
_READER = "petastorm.reader.Reader"
_MAKERS = ("petastorm.make_batch_reader", "petastorm.make_reader")
_TAKERS = ("petastorm.pytorch", "petastorm.tf_utils", "petastorm.predicates")
_OF_READERS = (*_TAKERS, "petastorm.make_batch_reader", "petastorm.reader")


def reason_to_stay(analysis: Analysis, path: str) -> str:
    """Return why something that could move stays with Petastorm; empty if it moves."""
    path = canonical(path)
    anchors = _anchors(analysis)
    readers, formats = anchors & _READERS, anchors - _READERS
    found: frozenset[str] = frozenset()
    if path == _READER and _is_constructed(analysis):
        return "reader.Reader takes other arguments on the bridge; open it with make_batch_reader"
    if _is_in(path, "petastorm.fs_utils"):
        # Filesystems are handed on to what reads and writes Petastorm's own format.
        found = readers | {each for each in formats if _is_in(each, "petastorm.etl")}
    elif _is_in(path, "petastorm.unischema"):
        found = readers | formats
    elif _is_in(path, *_OF_READERS) or (path == "petastorm.TransformSpec" and _reads(analysis)):
        found = readers
    if found and path not in found:
        what = ", ".join(sorted({name.rpartition(".")[2] for name in found}))
        return f"{_short(path)} stays with {what}, which only Petastorm has"
    if analysis.project.readers and _is_in(path, *_TAKERS) and not _makes(analysis):
        return f"{_short(path)} may be used with make_reader elsewhere, which only Petastorm has"
    return ""


@once
def _is_constructed(analysis: Analysis) -> bool:
    """Say whether a source makes readers by calling their class, or extends it."""
    made = [call.func for call in analysis.nodes(cst.Call)]
    made += [base.value for owner in analysis.nodes(cst.ClassDef) for base in owner.bases]
    return any(original(analysis.imported(each) or "") == _READER for each in made)


def _short(path: str) -> str:
    return path[len(OLD) + 1 :]


def _is_in(path: str, *modules: str) -> bool:
    return any(path == module or path.startswith(f"{module}.") for module in modules)


def _makes(analysis: Analysis) -> bool:
    """Say whether a source imports what makes readers, so that it is known where they come from."""
    found = {canonical(original(each.path)) for each in imports(analysis)}
    return any(path in _MAKERS or path in {OLD, "petastorm.reader"} for path in found)


def _reads(analysis: Analysis) -> bool:
    """Say whether a source has to do with readers alone, and with no converters."""
    return not any(_is_in(each.path, "petastorm.spark") for each in imports(analysis))


@once
def _anchors(analysis: Analysis) -> frozenset[str]:
    """Return what the source uses that only Petastorm has, as far as other names go with it."""
    return frozenset(
        path
        for path in _used(analysis)
        if path in _READERS
        or _is_in(path, *_FORMAT)
        or (_is_in(path, "petastorm.unischema") and not is_offered(path))
    )


def _used(analysis: Analysis) -> Iterator[str]:
    """Yield the paths of everything of Petastorm's that is used, and not only imported."""
    found = [each for each in imports(analysis) if is_petastorm(each.path) and each.alias]
    if analysis.source.path.endswith("__init__.py"):
        yield from (canonical(each.path) for each in found)
    for name in {each.local for each in found}:
        for read in analysis.reads(name):
            use = analysis.dotted(read) if is_read(analysis, read) else None
            if use is not None:
                yield canonical(use[0])
