"""Names, signatures and attributes are Petastorm's."""

import inspect

import pyarrow as pa
import pytest

from petastorm_bridge import spark
from petastorm_bridge.spark import spark_dataset_converter as ours

# Name: parameters in order with their defaults, as Petastorm 0.13.1 has them.
SIGNATURES = {
    "make_spark_converter": [
        ("df", "required"),
        ("parquet_row_group_size_bytes", 33554432),
        ("compression_codec", None),
        ("dtype", "float32"),
    ],
    "SparkDatasetConverter": [
        ("cache_dir_url", "required"),
        ("file_urls", "required"),
        ("dataset_size", "required"),
    ],
    "SparkDatasetConverter.delete": [("self", "required")],
    "SparkDatasetConverter.make_tf_dataset": [
        ("self", "required"),
        ("batch_size", None),
        ("prefetch", None),
        ("num_epochs", None),
        ("workers_count", None),
        ("shuffling_queue_capacity", None),
        ("petastorm_reader_kwargs", "keywords"),
    ],
    "SparkDatasetConverter.make_torch_dataloader": [
        ("self", "required"),
        ("batch_size", 32),
        ("num_epochs", None),
        ("workers_count", None),
        ("shuffling_queue_capacity", 0),
        ("data_loader_fn", None),
        ("petastorm_reader_kwargs", "keywords"),
    ],
    "TFDatasetContextManager": [
        ("parquet_file_url_list", "required"),
        ("batch_size", "required"),
        ("prefetch", "required"),
        ("petastorm_reader_kwargs", "required"),
        ("shuffling_queue_capacity", "required"),
    ],
    "TorchDatasetContextManager": [
        ("parquet_file_url_list", "required"),
        ("batch_size", "required"),
        ("petastorm_reader_kwargs", "required"),
        ("shuffling_queue_capacity", "required"),
        ("data_loader_fn", "required"),
    ],
    "register_delete_dir_handler": [("handler", "required")],
    "_check_dataset_file_median_size": [("url_list", "required")],
    "_check_parent_cache_dir_url": [("dir_url", "required")],
    "_check_rank_and_size_consistent_with_horovod": [("petastorm_reader_kwargs", "required")],
    "_check_url": [("dir_url", "required")],
    "_get_horovod_rank_and_size": [],
    "_get_spark_session": [],
    "_is_spark_local_mode": [],
    "_make_sub_dir_url": [("dir_url", "required"), ("name", "required")],
    "_normalize_databricks_dbfs_url": [("url", "required"), ("err_msg", "required")],
    "_wait_file_available": [("url_list", "required")],
}


# Parameters of ours, by keyword only and after Petastorm's.
ADDED = {"make_spark_converter": [("parent_cache_dir_url", None)]}


def signature(module, name):
    found = module
    for part in name.split("."):
        found = getattr(found, part)
    parameters = []
    for parameter in inspect.signature(found).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            parameters.append((parameter.name, "keywords"))
        elif parameter.default is parameter.empty:
            parameters.append((parameter.name, "required"))
        else:
            parameters.append((parameter.name, parameter.default))
    return parameters


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_petastorms(name):
    assert signature(ours, name) == SIGNATURES[name] + ADDED.get(name, [])


@pytest.mark.skipif(
    int(pa.__version__.partition(".")[0]) > 14, reason="petastorm cannot be imported here"
)
def test_the_recorded_signatures_are_right():
    original = pytest.importorskip("petastorm.spark.spark_dataset_converter")
    for name, recorded in SIGNATURES.items():
        assert signature(original, name) == recorded


def test_a_converter_has_petastorms_attributes():
    converter = spark.SparkDatasetConverter("file:///a", ["file:///a/b"], 3)
    assert vars(converter) == {
        "cache_dir_url": "file:///a",
        "file_urls": ["file:///a/b"],
        "dataset_size": 3,
    }
    assert len(converter) == 3
    conf = "petastorm.spark.converter.parentCacheDirUrl"
    assert conf == spark.SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF


def test_context_managers_keep_what_they_were_given():
    converter = spark.SparkDatasetConverter("file:///a", ["file:///a/b"], 3)
    torch_context = converter.make_torch_dataloader(4, 1, cur_shard=0, shard_count=2)
    assert vars(torch_context) == {
        "parquet_file_url_list": ["file:///a/b"],
        "batch_size": 4,
        "petastorm_reader_kwargs": {
            "cur_shard": 0,
            "shard_count": 2,
            "num_epochs": 1,
            "workers_count": 4,
        },
        "shuffling_queue_capacity": 0,
        "data_loader_fn": None,
    }
    tf_context = converter.make_tf_dataset(workers_count=2)
    assert vars(tf_context) == {
        "parquet_file_url_list": ["file:///a/b"],
        "batch_size": None,
        "prefetch": None,
        "petastorm_reader_kwargs": {"num_epochs": None, "workers_count": 2},
        "shuffling_queue_capacity": None,
    }


def test_converters_and_contexts_say_what_they_are():
    converter = spark.SparkDatasetConverter("file:///a", ["file:///a/b", "file:///a/c"], 3)
    assert repr(converter) == "<SparkDatasetConverter of file:///a: 3 rows in 2 files>"
    for context in (converter.make_torch_dataloader(4), converter.make_tf_dataset(4)):
        assert repr(context) == (
            f"<{type(context).__name__} of 2 files in file:///a, batch_size=4; enter it with 'with'>"
        )
        with pytest.raises(TypeError, match=r"object is not iterable.*\bwith\b.* as "):
            iter(context)
    assert "0 files" in repr(spark.SparkDatasetConverter("file:///a", [], 0).make_tf_dataset())


def test_a_converter_shows_what_lies_there(numbered, tmp_path):
    url = numbered(7, [4, 3])
    size = sum(path.stat().st_size for path in (tmp_path / "data").glob("*.mds"))
    shown = f"<SparkDatasetConverter of {url}: 7 rows in 2 files"
    converter = spark.make_spark_converter(url)
    assert repr(converter) == f"{shown}, {size} bytes, columns ['id', 'x']>"
    (tmp_path / "data" / "index.json").write_text("{")
    assert repr(converter) == f"{shown}>"


def test_the_callers_arguments_are_not_changed():
    given = {"cur_shard": 0, "shard_count": 2}
    spark.SparkDatasetConverter("file:///a", [], 3).make_torch_dataloader(**given)
    assert given == {"cur_shard": 0, "shard_count": 2}


@pytest.mark.difference("failed-loader-leaves-no-thread")
def test_a_failing_loader_function_leaves_no_reader_behind(tmp_path, no_leaks):
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "a.parquet")
    converter = spark.make_spark_converter(str(tmp_path))

    def fail(**_):
        raise ValueError("no loader")

    def enter():
        with pytest.raises(ValueError, match="no loader"):
            converter.make_torch_dataloader(data_loader_fn=fail).__enter__()

    enter()  # imports engines and opens their thread pools
    with no_leaks():
        enter()
