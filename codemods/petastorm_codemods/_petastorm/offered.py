"""What the bridge's modules for Petastorm's offer: the names that they list in ``__all__``, and some of their own."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.resources
from collections.abc import Iterable, Iterator

OLD = "petastorm"
NEW = "petastorm_bridge"

# What Petastorm has no modules of.
_OURS = frozenset({"cli", "convert", "mds", "mds_support", "native", "parity", "streaming"})
# Private, and listed by no module, but imported by public repositories.
_PRIVATE = {
    "spark.spark_dataset_converter": frozenset({"_convert_vector"}),
    "unischema": frozenset({"_numpy_to_spark_mapping"}),
}
# What to do instead, for names that people will ask about.
_INSTEAD = {
    "local_disk_cache": "readers cache nothing; convert the dataset and have streaming keep its shards",
    "workers_pool": "its readers have pools of their own; use reader_pool_type and workers_count",
}


def is_module(path: str) -> bool:
    """Say whether a dotted Petastorm path is a module that the bridge has."""
    return bool(names_of(path))


def names_of(path: str) -> frozenset[str]:
    """Return the names that the bridge's module for a dotted Petastorm path offers; none if it has no such module."""
    return _offered(path[len(OLD) + 1 :])


@functools.cache
def _offered(module: str) -> frozenset[str]:
    """Return the names that a module of the package offers: by its text, as importing it would load engines."""
    parts = module.split(".") if module else []
    is_ours = module.partition(".")[0] in _OURS
    if is_ours or any(part.startswith("_") or not part.isidentifier() for part in parts):
        return frozenset()
    for file in ("/".join([*parts, "__init__.py"]), f"{'/'.join(parts)}.py"):
        with contextlib.suppress(OSError):  # there is none of this name
            text = importlib.resources.files(NEW).joinpath(file).read_bytes()
            return frozenset(_names_in(text)) | _PRIVATE.get(module, frozenset())
    return frozenset()


def _names_in(text: bytes) -> Iterator[str]:
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            yield from ast.literal_eval(statement.value)


def is_offered(path: str) -> bool:
    """Say whether a dotted Petastorm path is a module or name of the bridge, or something in one.

    ``petastorm.spark.SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF`` is in one.
    """
    module, name = path, ""
    while not is_module(module):
        module, _, name = module.rpartition(".")
    return not name or name in names_of(module)


def renamed(path: str) -> str:
    """Return the bridge's path for a dotted Petastorm path."""
    return NEW + path[len(OLD) :]


_HOMES = {
    "petastorm.reader.make_batch_reader": "petastorm.make_batch_reader",
    "petastorm.reader.make_reader": "petastorm.make_reader",
    "petastorm.transform.TransformSpec": "petastorm.TransformSpec",
}


def canonical(path: str) -> str:
    """Return one path for all that a name of Petastorm may be imported by."""
    return _HOMES.get(path, path.replace(".spark.spark_dataset_converter.", ".spark."))


def is_petastorm(path: str) -> bool:
    """Say whether a dotted path is Petastorm or within it."""
    return path == OLD or path.startswith(f"{OLD}.")


def advices(paths: Iterable[str]) -> list[str]:
    """Return what to do about paths that the bridge does not offer; one sentence for like ones."""
    groups: dict[str, dict[str, list[str]]] = {}
    for path in paths:
        parts = reversed(path.split("."))
        what = next((_INSTEAD[part] for part in parts if part in _INSTEAD), "")
        module, _, name = (path[len(OLD) + 1 :] or "counterpart of it").rpartition(".")
        groups.setdefault(what, {}).setdefault(module, []).append(name)
    return [
        f"{NEW} has no {', '.join(map(_listed, modules, modules.values()))}{what and ': '}{what}"
        for what, modules in groups.items()
    ]


def _listed(module: str, names: list[str]) -> str:
    return (module and f"{module}.") + ", ".join(names)


def advice(path: str) -> str:
    """Return what to do about a path that the bridge does not offer."""
    return advices([path])[0]
