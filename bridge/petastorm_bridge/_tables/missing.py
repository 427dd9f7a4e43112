"""Parts of Petastorm that the bridge does not have, and the sentence that says so.

A part that is imported, as ``from petastorm_bridge import make_reader``,
``import petastorm_bridge.tools`` or ``from petastorm_bridge.test_util import shuffling_analysis``,
raises the sentence. To offer a part, remove its row.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

_PACKAGE = "petastorm_bridge"
_INTERNAL = (
    "it is internal to Petastorm's readers, which the bridge replaces. Use make_reader, make_batch_reader "
    "or make_spark_converter, which need none of it"
)
_BENCHMARK = (
    "it measures Petastorm's own readers. Count the rows that your loop over make_reader, "
    "make_batch_reader or a loader gets in a second"
)

MISSING: dict[str, str] = {
    "benchmark": _BENCHMARK,
    "local_disk_cache": (
        "readers keep copies of far files themselves: write cache_type='local-disk' and cache_location, or "
        "convert the dataset with petastorm-bridge convert, whose shards streaming keeps on local disk"
    ),
    "hdfs": "paths on HDFS are opened by their url: make_reader('hdfs://…'), make_batch_reader('hdfs://…')",
    "arrow_reader_worker": _INTERNAL,
    "namedtuple_gt_255_fields": "Python's own collections.namedtuple takes any number of fields",
    "py_dict_reader_worker": _INTERNAL,
    "pyarrow_helpers": _INTERNAL,
    "reader_impl": _INTERNAL,
    "workers_pool": _INTERNAL,
}

MISSING_IN: dict[str, dict[str, str]] = {
    "spark.spark_dataset_converter": {
        "CachedDataFrameMeta": (
            "it is how Petastorm remembers what it has converted. make_spark_converter gives an equal "
            "DataFrame the same converter; converter.cache_dir_url says where its files are"
        ),
    },
    "test_util": {
        "shuffling_analysis": (
            "it measures how well Petastorm's readers shuffle. Compare the ids that two passes over "
            "make_reader give, with numpy.corrcoef"
        ),
    },
}
"""The same for names in modules and classes that the bridge has."""


def _reason(dotted: str) -> str | None:
    place, _, name = dotted.rpartition(".")
    return MISSING_IN.get(place, {}).get(name) if place else MISSING.get(name)


def sentence(dotted: str) -> str:
    """Return why there is no part of that name, such as ``"reader.make_reader"``, and what to do."""
    return f"{_PACKAGE} does not offer {dotted}: {_reason(dotted)}."


def attribute_error(place: str, name: str) -> AttributeError:
    """Return the error for a name that a module or class of the bridge does not have.

    No ImportError: ``hasattr`` and ``getattr`` with a default have to go on working.

    Args:
        place: Dotted, below the package, e.g. ``"unischema"``.
        name: What was asked for.
    """
    dotted = f"{place}.{name}"
    if _reason(dotted) is None:
        return AttributeError(f"module '{_PACKAGE}.{place}' has no attribute {name!r}")
    return AttributeError(sentence(dotted))


# No subclasses of importlib.abc's: that module takes longer to import than all of this package.
class _Loader:
    """Raises the sentence where the import would run a module."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:  # noqa: ARG002
        return None

    def exec_module(self, module: ModuleType) -> None:
        raise ImportError(
            sentence(module.__name__.removeprefix(f"{_PACKAGE}.")), name=module.__name__
        )


class _Finder:
    """Finds what is in the table, for an entry of the package's path that is no directory."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        if fullname.startswith(f"{_PACKAGE}.") and _reason(fullname.removeprefix(f"{_PACKAGE}.")):
            return ModuleSpec(fullname, cast("Loader", _Loader()))
        return None


def extend_path(path: Sequence[str]) -> list[str]:
    """Return a package's path with a last entry at which the missing parts are found.

    A module with such a path has Python look there for names that it does not have.
    """
    # Known to Python's own finder by its cache of entries, so that no other import meets it.
    entry = os.path.join(os.path.dirname(os.path.abspath(__file__)), "missing parts")
    sys.path_importer_cache[entry] = _Finder()
    return [*path, entry]
