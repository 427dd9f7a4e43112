"""The one table of Petastorm names that the bridge offers; a test compares it with the bridge."""

from __future__ import annotations

from collections.abc import Iterable

# Modules under their names within the package; the empty name is the package itself.
OFFERED: dict[str, frozenset[str]] = {
    "": frozenset({"NoDataAvailableError", "TransformSpec", "__version__", "make_batch_reader"}),
    "errors": frozenset({"NoDataAvailableError"}),
    "fs_utils": frozenset(
        {
            "FilesystemResolver",
            "get_dataset_path",
            "get_filesystem_and_path_or_paths",
            "normalize_dir_url",
        }
    ),
    "predicates": frozenset(
        {
            "PredicateBase",
            "in_intersection",
            "in_lambda",
            "in_negate",
            "in_pseudorandom_split",
            "in_reduce",
            "in_set",
        }
    ),
    "pytorch": frozenset(
        {
            "BatchedDataLoader",
            "DataLoader",
            "InMemBatchedDataLoader",
            "LoaderBase",
            "decimal_friendly_collate",
        }
    ),
    "reader": frozenset({"Reader", "make_batch_reader"}),
    "spark": frozenset({"SparkDatasetConverter", "make_spark_converter"}),
    "spark.spark_dataset_converter": frozenset(
        {
            "DEFAULT_ROW_GROUP_SIZE_BYTES",
            "SparkDatasetConverter",
            "TFDatasetContextManager",
            "TorchDatasetContextManager",
            "make_spark_converter",
            "register_delete_dir_handler",
        }
    ),
    "tf_utils": frozenset({"date_to_nsec_from_epoch", "make_petastorm_dataset"}),
    "transform": frozenset({"TransformSpec", "edit_field", "transform_schema"}),
    "unischema": frozenset({"Unischema", "UnischemaField"}),
}

# Of datasets in Petastorm's own format: the bridge has them, and the codemod leaves files that use
# them with Petastorm, which reads and writes the same.
LEFT: dict[str, frozenset[str]] = {
    "": frozenset({"make_reader"}),
    "reader": frozenset({"make_reader"}),
    "tf_utils": frozenset(
        {"RANDOM_SHUFFLING_QUEUE_SIZE", "make_namedtuple_tf_ngram", "tf_tensors"}
    ),
    "unischema": frozenset(
        {"dict_to_spark_row", "insert_explicit_nulls", "match_unischema_fields"}
    ),
}

OLD = "petastorm"
NEW = "petastorm_bridge"

# What to do instead, for names that people will ask about.
_INSTEAD = {
    "make_reader": "it reads Petastorm's own codecs; convert the dataset to plain columns first",
    "materialize_dataset": "write the DataFrame with make_spark_converter instead",
    "dict_to_spark_row": "write plain columns instead of Petastorm's codecs",
    "codecs": "Petastorm's codecs have no counterpart in MDS; store bytes and decode in a transform",
    "tf_tensors": "use make_petastorm_dataset",
    "ngram": "n-grams have no counterpart",
}


def is_module(path: str) -> bool:
    """Say whether a dotted Petastorm path is a module that the bridge has."""
    return _inner(path) in OFFERED


def is_offered(path: str) -> bool:
    """Say whether a dotted Petastorm path is a module or name of the bridge, or something in one.

    ``petastorm.spark.SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF`` is in one.
    """
    parts = _inner(path).split(".")
    if parts == [""]:
        return True
    for size in range(len(parts), -1, -1):
        module = ".".join(parts[:size])
        if module in OFFERED:
            return size == len(parts) or parts[size] in OFFERED[module]
    return False


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


def _inner(path: str) -> str:
    return path[len(OLD) + 1 :]
