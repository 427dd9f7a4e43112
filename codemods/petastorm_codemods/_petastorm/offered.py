"""The one table of Petastorm names that the bridge offers; a test compares it with the bridge."""

from __future__ import annotations

from collections.abc import Iterable

# Modules under their names within the package; the empty name is the package itself.
OFFERED: dict[str, frozenset[str]] = {
    "": frozenset(
        {
            "NoDataAvailableError",
            "TransformSpec",
            "__version__",
            "make_batch_reader",
            "make_reader",
        }
    ),
    "cache": frozenset({"CacheBase", "NullCache"}),
    "codecs": frozenset(
        {
            "CompressedImageCodec",
            "CompressedNdarrayCodec",
            "DataframeColumnCodec",
            "NdarrayCodec",
            "ScalarCodec",
        }
    ),
    "errors": frozenset({"NoDataAvailableError"}),
    "etl": frozenset({"RowGroupIndexerBase"}),
    "etl.dataset_metadata": frozenset(
        {
            "PetastormMetadataError",
            "PetastormMetadataGenerationError",
            "ROW_GROUPS_PER_FILE_KEY",
            "UNISCHEMA_KEY",
            "get_schema",
            "get_schema_from_dataset_url",
            "infer_or_load_unischema",
            "load_row_groups",
            "materialize_dataset",
        }
    ),
    "etl.legacy": frozenset({"depickle_legacy_package_name_compatible", "restricted_loads"}),
    "etl.petastorm_generate_metadata": frozenset({"generate_petastorm_metadata", "main"}),
    "etl.rowgroup_indexers": frozenset({"FieldNotNullIndexer", "SingleFieldIndexer"}),
    "etl.rowgroup_indexing": frozenset(
        {"ROWGROUPS_INDEX_KEY", "build_rowgroup_index", "get_row_group_indexes"}
    ),
    "fs_utils": frozenset(
        {
            "FilesystemResolver",
            "get_dataset_path",
            "get_filesystem_and_path_or_paths",
            "normalize_dir_url",
        }
    ),
    "generator": frozenset({"LIST_SIZE", "generate_datapoint"}),
    "ngram": frozenset({"NGram"}),
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
    "reader": frozenset(
        {
            "LOCAL_DISK_CACHE",
            "NULL_CACHE",
            "Reader",
            "make_batch_reader",
            "make_reader",
            "normalize_dataset_url_or_urls",
        }
    ),
    "selectors": frozenset(
        {
            "IntersectIndexSelector",
            "RowGroupSelectorBase",
            "SingleIndexSelector",
            "UnionIndexSelector",
        }
    ),
    "spark": frozenset({"SparkDatasetConverter", "make_spark_converter"}),
    "spark.spark_dataset_converter": frozenset(
        {
            "DEFAULT_ROW_GROUP_SIZE_BYTES",
            "SparkDatasetConverter",
            "TFDatasetContextManager",
            "TorchDatasetContextManager",
            "_convert_vector",  # private, but imported by public repositories
            "make_spark_converter",
            "register_delete_dir_handler",
        }
    ),
    "spark_utils": frozenset({"dataset_as_rdd"}),
    "test_util.reader_mock": frozenset({"ReaderMock", "schema_data_generator_example"}),
    "tf_utils": frozenset(
        {
            "RANDOM_SHUFFLING_QUEUE_SIZE",
            "date_to_nsec_from_epoch",
            "make_namedtuple_tf_ngram",
            "make_petastorm_dataset",
            "tf_tensors",
        }
    ),
    "tools.copy_dataset": frozenset({"args_parser", "copy_dataset", "main"}),
    "tools.spark_session_cli": frozenset({"add_configure_spark_arguments", "configure_spark"}),
    "transform": frozenset({"TransformSpec", "edit_field", "transform_schema"}),
    "unischema": frozenset(
        {
            "Unischema",
            "UnischemaField",
            "_numpy_to_spark_mapping",  # as _convert_vector
            "dict_to_spark_row",
            "insert_explicit_nulls",
            "match_unischema_fields",
        }
    ),
    "utils": frozenset(
        {"DecodeFieldError", "add_to_dataset_metadata", "decode_row", "run_in_subprocess"}
    ),
    "weighted_sampling_reader": frozenset({"WeightedSamplingReader"}),
}

OLD = "petastorm"
NEW = "petastorm_bridge"

# What to do instead, for names that people will ask about.
_INSTEAD = {
    "local_disk_cache": "readers cache nothing; convert the dataset and have streaming keep its shards",
    "workers_pool": "its readers have pools of their own; use reader_pool_type and workers_count",
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
