"""What fails in Petastorm and works here, and errors that programs catch: both packages in one run."""

import dataclasses
import datetime as dt
import importlib
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from stored import spark, write_stored

import petastorm_bridge
from petastorm_bridge.codecs import NdarrayCodec, ScalarCodec
from petastorm_bridge.unischema import Unischema, UnischemaField

petastorm = pytest.importorskip("petastorm", reason="compares with Petastorm itself")
pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = 6


def part(package, name):
    return importlib.import_module(f"{package.__name__}.{name}")


def outcome(function, *arguments, **options):
    """What a function gives, or the error that it raises."""
    try:
        return function(*arguments, **options)
    except Exception as error:  # noqa: BLE001 - compared with the other's
        return error


def rows(package, function, url, **options):
    """All rows, or row groups, as dictionaries."""
    options = {"reader_pool_type": "dummy", "shuffle_row_groups": False} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with getattr(package, function)(url, **options) as reader:
            return [row._asdict() for row in reader]


def opened(package, url, **options):
    return package.make_reader(url, reader_pool_type="dummy", shuffle_row_groups=False, **options)


def plain(path, columns, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path, **options)
    return path.parent.as_uri()


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A dataset of Petastorm's own: `when` has a null in its second row."""
    schema = Unischema(
        "Schema",
        [
            UnischemaField("id", np.int64, (), None, False),
            UnischemaField("when", np.datetime64, (), ScalarCodec(spark("TimestampType")), True),
            UnischemaField("sure", np.datetime64, (), ScalarCodec(spark("TimestampType")), False),
            UnischemaField("large", np.uint64, (), ScalarCodec(spark("LongType")), False),
            UnischemaField("half", np.float16, (1,), NdarrayCodec(), False),
            UnischemaField("turned", np.complex64, (1,), NdarrayCodec(), False),
            UnischemaField("long", np.longdouble, (1,), NdarrayCodec(), False),
        ],
    )
    day = np.datetime64("2020-01-02T03:04:05.000006")
    values = [
        {
            "id": np.int64(i),
            "when": None if i == 1 else day,
            "sure": day,
            "large": np.uint64(i),
            "half": np.full(1, i, np.float16),
            "turned": np.full(1, i, np.complex64),
            "long": np.full(1, i, np.longdouble) / 3,
        }
        for i in range(ROWS)
    ]
    return write_stored(
        tmp_path_factory.mktemp("rows") / "dataset", schema, values, row_group_rows=3
    )


@pytest.mark.difference("null-timestamps")
def test_nulls_among_timestamps(url):
    original, bridge = (
        outcome(rows, package, "make_reader", url, schema_fields=["when"])
        for package in (petastorm, petastorm_bridge)
    )
    assert "DecodeFieldError" in type(original).__name__
    assert [bool(np.isnat(row["when"])) for row in bridge] == [i == 1 for i in range(ROWS)]


@pytest.mark.difference("plain-lists")
@pytest.mark.parametrize(
    "values",
    [
        [[dt.date(2020, 1, 2)] * 2],
        [[dt.datetime(2020, 1, 2, 3)] * 2],
        [[Decimal("1.5"), Decimal("2.5")]],
        [[1, None]],
    ],
    ids=["dates", "timestamps", "decimals", "nulls among integers"],
)
def test_lists_of_plain_files(values, tmp_path):
    place = plain(tmp_path / "a.parquet", {"v": values})
    assert "DecodeFieldError" in type(outcome(rows, petastorm, "make_reader", place)).__name__
    (row,) = rows(petastorm_bridge, "make_reader", place)
    assert isinstance(row["v"], np.ndarray)
    assert row["v"].shape == (2,)


@pytest.mark.difference("partition-values-in-place")
def test_values_of_two_partition_columns(tmp_path):
    default = "__HIVE_DEFAULT_PARTITION__"
    pairs = [(k, s) for k in ("1", "2", default) for s in ("a", "b", default)]
    for number, (k, s) in enumerate(pairs):
        place = plain(tmp_path / "t" / f"k={k}" / f"s={s}" / "a.parquet", {"id": [number]})
    place = (tmp_path / "t").as_uri()
    for _ in range(20):
        found = rows(petastorm_bridge, "make_batch_reader", place)
        assert {(str(g["k"][0]), str(g["s"][0])) for g in found} == set(pairs)
        assert all(pairs[g["id"][0]] == (str(g["k"][0]), str(g["s"][0])) for g in found)


@pytest.mark.difference("columns-of-nulls")
def test_a_file_of_nulls_before_one_of_numbers(tmp_path):
    plain(tmp_path / "a.parquet", {"v": pa.nulls(2)})
    place = plain(tmp_path / "b.parquet", {"v": [1, 2]})
    original = outcome(rows, petastorm, "make_batch_reader", place)
    assert isinstance(original, RuntimeError)
    assert str(original).startswith("No fields matching")
    found = rows(petastorm_bridge, "make_batch_reader", place)
    values = np.concatenate([group["v"] for group in found])
    assert np.isnan(values[:2]).all()
    assert values[2:].tolist() == [1, 2]


@pytest.mark.difference("uint64-in-torch")
def test_unsigned_numbers_in_torch(url):
    def batches(package):
        reader = opened(package, url, schema_fields=["large"])
        with part(package, "pytorch").DataLoader(reader, batch_size=3) as loader:
            return [batch["large"].tolist() for batch in loader]

    assert isinstance(outcome(batches, petastorm), TypeError)
    assert batches(petastorm_bridge) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.slow
@pytest.mark.difference("tf-dtype-objects")
@pytest.mark.parametrize("field", ["large", "half", "turned"])
def test_numbers_of_all_types_in_tensorflow(url, field):
    def elements(package):
        with opened(package, url, schema_fields=[field]) as reader:
            made = part(package, "tf_utils").make_petastorm_dataset(reader)
            return [element[0].numpy().item() for element in made]

    assert isinstance(outcome(elements, petastorm), ValueError)
    assert elements(petastorm_bridge) == list(range(ROWS))


def test_long_doubles_are_read_alike(url):
    """What torch and TensorFlow have no type for, rows have."""
    options = {"schema_fields": ["long"]}
    theirs, ours = (
        [row["long"] for row in rows(package, "make_reader", url, **options)]
        for package in (petastorm, petastorm_bridge)
    )
    assert [value.dtype for value in ours] == [value.dtype for value in theirs]
    assert [value.tolist() for value in ours] == [value.tolist() for value in theirs]


@pytest.mark.slow
@pytest.mark.difference("tf-tensors-run")
@pytest.mark.parametrize(
    ("field", "capacity", "error"),
    [("id", 10, "OperatorNotAllowedInGraphError"), ("sure", 0, "InternalError")],
    ids=["a queue", "a timestamp"],
)
def test_tensors_of_a_graph(field, capacity, error, url):
    import tensorflow as tf

    def values(package):
        with tf.Graph().as_default(), opened(package, url, schema_fields=[field]) as reader:
            row = part(package, "tf_utils").tf_tensors(reader, capacity)
            with tf.compat.v1.Session() as session:
                coordinator = tf.train.Coordinator()
                threads = tf.compat.v1.train.start_queue_runners(session, coordinator)
                value = session.run(getattr(row, field))
                coordinator.request_stop()
                coordinator.join(threads, stop_grace_period_secs=5, ignore_live_threads=True)
                return value

    assert type(outcome(values, petastorm)).__name__ == error
    assert int(values(petastorm_bridge)) >= 0


@pytest.mark.difference("weighted-sampling-works")
def test_weighted_sampling(url):
    def ids(package):
        readers = [opened(package, url, schema_fields=["id"]) for _ in range(2)]
        sampled = part(package, "weighted_sampling_reader").WeightedSamplingReader
        with sampled(readers, [1, 0]) as reader:
            return [int(row.id) for row in reader]

    assert "float" in str(outcome(ids, petastorm))
    assert ids(petastorm_bridge) == list(range(ROWS))


@pytest.mark.difference("remote-stores-are-read")
def test_stores_that_fsspec_opens(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    plain(tmp_path / "a.parquet", {"v": [1, 2]})
    store = fsspec.filesystem("memory")
    store.pipe("/works-here/a.parquet", (tmp_path / "a.parquet").read_bytes())
    place = "memory://works-here"
    try:
        original = outcome(rows, petastorm, "make_batch_reader", place)
        assert "validate_schema" in str(original)
        (group,) = rows(petastorm_bridge, "make_batch_reader", place)
    finally:
        store.rm("/works-here", recursive=True)
    assert group["v"].tolist() == [1, 2]


@pytest.mark.difference("directory-in-a-list")
@pytest.mark.parametrize("function", ["make_reader", "make_batch_reader"])
def test_a_list_of_one_directory(function, url):
    fields = {"schema_fields": ["id"]}
    assert isinstance(outcome(rows, petastorm, function, [url], **fields), TypeError)
    found = rows(petastorm_bridge, function, [url], **fields)
    assert np.hstack([row["id"] for row in found]).tolist() == list(range(ROWS))


@pytest.mark.difference("objects-compare")
def test_objects_beside_others():
    def made(package):
        field = part(package, "unischema").UnischemaField("a", np.int32, ())
        return field, part(package, "ngram").NGram({0: [field]}, 1, field)

    for theirs in made(petastorm):
        for other in ("a", None, 3):
            assert isinstance(outcome(theirs.__eq__, other), AttributeError)
    assert isinstance(outcome(hash, made(petastorm)[1]), TypeError)
    for ours in made(petastorm_bridge):
        assert all(ours != other for other in ("a", None, 3, dataclasses))
        assert len({ours}) == 1
    schema = part(petastorm_bridge, "unischema").Unischema("S", made(petastorm_bridge)[:1])
    assert repr(schema) == "<Unischema S: a>"


@pytest.mark.slow
@pytest.mark.difference("dataset-of-no-reader")
def test_a_dataset_of_no_reader():
    """The real one looks for the reader in an endless loop: it is not run here."""
    from petastorm_bridge.tf_utils import make_petastorm_dataset

    with pytest.raises(AttributeError):
        make_petastorm_dataset(None)


@pytest.mark.difference("categories-keep-precision")
def test_categories_of_numbers(tmp_path):
    place = plain(tmp_path / "a.parquet", {"v": pa.array([0.5, 1.5, 0.5], pa.float32())})

    def dtype(package):
        spec = package.TransformSpec(
            lambda frame: frame.assign(v=pd.Categorical(frame["v"])),
            edit_fields=[("v", np.float32, (), False)],
        )
        reader = package.make_batch_reader(place, transform_spec=spec, reader_pool_type="dummy")
        with part(package, "pytorch").DataLoader(reader, batch_size=3) as loader:
            (batch,) = loader
        assert batch["v"].tolist() == [0.5, 1.5, 0.5]
        return str(batch["v"].dtype)

    assert dtype(petastorm) == "torch.float64"
    assert dtype(petastorm_bridge) == "torch.float32"


@pytest.mark.difference("predicate-keeps-dtypes")
def test_nulls_alone_that_match(tmp_path):
    place = plain(
        tmp_path / "a.parquet",
        {"i": [1, 2], "s": ["x", None], "l": pa.array([[1], None], pa.list_(pa.int64()))},
    )

    def read(package):
        wanted = part(package, "predicates").in_lambda(["i"], lambda i: i > 1)
        (group,) = rows(
            package, "make_batch_reader", place, predicate=wanted, schema_fields=["i", "s"]
        )
        return group["s"]

    assert (read(petastorm).dtype, read(petastorm).tolist()) == (np.dtype(object), [None])
    found = read(petastorm_bridge)
    assert (found.dtype, found.tolist()) == (np.dtype("<U4"), ["None"])


# Errors, and values, that are the same in both.


@pytest.mark.parametrize("returned", [None, 3, "ab", [1]], ids=str)
@pytest.mark.parametrize("removed", [None, ["large"]], ids=["whole", "removed"])
def test_a_function_of_rows_that_returns_no_row(returned, removed, url):
    for package in (petastorm, petastorm_bridge):
        spec = package.TransformSpec(lambda _row: returned, removed_fields=removed)
        error = outcome(
            rows, package, "make_reader", url, transform_spec=spec, schema_fields=["id", "large"]
        )
        assert isinstance(error, TypeError), package
    assert type(returned).__name__ in str(error)


@pytest.mark.parametrize("function", ["make_reader", "make_batch_reader"])
@pytest.mark.parametrize("wrong", ["", " ", [""], [" "], [], [None], None, "x"], ids=repr)
def test_no_url(function, wrong):
    original, bridge = (
        outcome(rows, package, function, wrong) for package in (petastorm, petastorm_bridge)
    )
    assert isinstance(original, (ValueError, IndexError))
    assert isinstance(bridge, type(original))
    assert isinstance(bridge, ValueError)


@pytest.mark.difference("filters-work")
@pytest.mark.parametrize("filters", [[], (), "", {}, [[]], 0], ids=repr)
@pytest.mark.parametrize("function", ["make_reader", "make_batch_reader"])
def test_filters_without_a_condition(function, filters, url):
    original, bridge = (
        outcome(rows, package, function, url, filters=filters, schema_fields=["id"])
        for package in (petastorm, petastorm_bridge)
    )
    assert isinstance(original, (ValueError, TypeError))
    assert type(bridge) is type(original)
    assert str(bridge) == str(original)


def test_hdfs_without_hadoop(monkeypatch):
    for variable in ("HADOOP_HOME", "HADOOP_PREFIX", "HADOOP_INSTALL"):
        monkeypatch.delenv(variable, raising=False)
    for package in (petastorm, petastorm_bridge):
        assert isinstance(outcome(rows, package, "make_reader", "hdfs:///x"), RuntimeError)


@pytest.mark.parametrize("probabilities", [[0, 0], [-1, 2], [float("nan"), 1]], ids=str)
def test_weights_that_say_nothing(probabilities, url):
    readers = [opened(petastorm_bridge, url, schema_fields=["id"]) for _ in range(2)]
    sampled = part(petastorm_bridge, "weighted_sampling_reader").WeightedSamplingReader
    try:
        with pytest.raises(
            ValueError, match=r"none may be negative or infinite, and one at least must be above 0"
        ):
            sampled(readers, probabilities)
    finally:
        for reader in readers:
            reader.stop()
            reader.join()


@pytest.mark.parametrize(
    ("wrong", "error"), [(-1, ValueError), (0, ValueError), (2.5, TypeError)], ids=str
)
def test_a_capacity_that_is_none(wrong, error, url):
    from petastorm_bridge.pytorch import InMemBatchedDataLoader

    reader = opened(petastorm_bridge, url, schema_fields=["id"])
    with pytest.raises(error, match=f"rows_capacity is {wrong}"):
        InMemBatchedDataLoader(reader, rows_capacity=wrong)


def test_a_schema_completes_its_fields():
    for package in (petastorm, petastorm_bridge):
        module = part(package, "unischema")
        schema = module.Unischema("S", [module.UnischemaField("speed", np.int32, ())])
        assert {"speed", "fields", "make_namedtuple"} <= set(dir(schema))


def test_no_selector_to_intersect():
    for package in (petastorm, petastorm_bridge):
        with pytest.raises(IndexError):
            part(package, "selectors").IntersectIndexSelector([]).select_row_groups({})


def test_names_of_caches_and_urls():
    original, bridge = part(petastorm, "reader"), part(petastorm_bridge, "reader")
    assert original.NULL_CACHE == bridge.NULL_CACHE
    assert original.LOCAL_DISK_CACHE == bridge.LOCAL_DISK_CACHE
    for given in ("file:///a/", ["file:///a/", "file:///b"]):
        expected = original.normalize_dataset_url_or_urls(given)
        assert bridge.normalize_dataset_url_or_urls(given) == expected


def test_spark_types_by_numpy_types():
    original, bridge = (
        part(package, "unischema")._numpy_to_spark_mapping
        for package in (petastorm, petastorm_bridge)
    )
    assert bridge() == original()
    assert bridge() is bridge()


def attributes(module, root, path=""):
    """Dotted names of modules below a package that are attributes of it, and of these."""
    found = set()
    for name, value in vars(module).items():
        home = getattr(value, "__name__", "")
        if hasattr(value, "__file__") and home == f"{module.__name__}.{name}":
            found |= {f"{path}{name}", *attributes(value, root, f"{path}{name}.")}
    return found


def test_modules_that_a_plain_import_has_loaded():
    from petastorm_bridge._tables.missing import MISSING

    # Imported by the original's `__init__` as of now; other tests may have imported more.
    loaded = {
        "cache", "errors", "etl", "etl.dataset_metadata", "etl.legacy", "etl.rowgroup_indexing",
        "fs_utils", "ngram", "predicates", "reader", "selectors", "transform", "unischema", "utils",
    }  # fmt: skip
    assert loaded <= attributes(petastorm, petastorm)
    for dotted in attributes(petastorm, petastorm):
        top = dotted.partition(".")[0]
        if dotted in loaded:
            module = petastorm_bridge
            for name in dotted.split("."):
                module = getattr(module, name)
            assert module.__name__ == f"petastorm_bridge.{dotted}"
        elif top in MISSING:
            with pytest.raises(AttributeError, match="does not offer"):
                getattr(petastorm_bridge, top)
