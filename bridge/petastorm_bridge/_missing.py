"""Parts of Petastorm that the bridge does not have, and the sentence that says so.

A part that is imported, as ``from petastorm_bridge import make_reader`` or
``import petastorm_bridge.codecs``, raises the sentence. To offer a part, remove its row.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, PathEntryFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["MISSING", "extend_path", "sentence"]

_PACKAGE = __name__.rpartition(".")[0]
_OWN_FORMAT = (
    "it belongs to datasets in Petastorm's own format (materialize_dataset). Read plain Parquet or a "
    "converter's files with make_batch_reader, or write the data anew with make_spark_converter"
)
_INTERNAL = (
    "it is internal to Petastorm's readers, which the bridge replaces. Use make_batch_reader or "
    "make_spark_converter, which need none of it"
)

MISSING: dict[str, str] = {
    "make_reader": _OWN_FORMAT,
    "codecs": _OWN_FORMAT,
    "etl": _OWN_FORMAT,
    "generator": _OWN_FORMAT,
    "ngram": _OWN_FORMAT,
    "selectors": _OWN_FORMAT,
    "spark_utils": _OWN_FORMAT,
    "tools": _OWN_FORMAT,
    "weighted_sampling_reader": (
        "WeightedSamplingReader does not run with current NumPy in Petastorm either. Mix the loaders "
        "of several readers yourself"
    ),
    "cache": _INTERNAL,
    "local_disk_cache": _INTERNAL,
    "hdfs": "paths on HDFS are opened by their url: make_batch_reader('hdfs://…')",
    "arrow_reader_worker": _INTERNAL,
    "namedtuple_gt_255_fields": "Python's own namedtuple takes any number of fields",
    "py_dict_reader_worker": _INTERNAL,
    "pyarrow_helpers": _INTERNAL,
    "reader_impl": _INTERNAL,
    "test_util": _INTERNAL,
    "utils": _INTERNAL,
    "workers_pool": _INTERNAL,
}


def sentence(name: str) -> str:
    """Return why there is no part of that name, and what to do."""
    return f"{_PACKAGE} does not offer {name}: {MISSING[name]}."


class _Loader(Loader):
    """Raises the sentence where the import would run a module."""

    def exec_module(self, module: ModuleType) -> None:
        raise ImportError(sentence(module.__name__.rpartition(".")[2]), name=module.__name__)


class _Finder(PathEntryFinder):
    """Finds what is in the table, for an entry of the package's path that is no directory."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        package, _, name = fullname.rpartition(".")
        if package == _PACKAGE and name in MISSING:
            return ModuleSpec(fullname, _Loader())
        return None


def extend_path(path: Sequence[str]) -> list[str]:
    """Return a package's path with a last entry at which the missing parts are found."""
    # Known to Python's own finder by its cache of entries, so that no other import meets it.
    entry = os.path.join(os.path.dirname(os.path.abspath(__file__)), "missing parts")
    sys.path_importer_cache[entry] = _Finder()
    return [*path, entry]
