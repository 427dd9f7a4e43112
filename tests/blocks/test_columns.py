"""Types, names, predicates, filters and ignored options of readers and loaders."""

import datetime as dt
import inspect
import itertools
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from pyarrow.fs import LocalFileSystem

from petastorm_bridge import TransformSpec, make_batch_reader, make_reader
from petastorm_bridge._blocks.columns import to_numpy
from petastorm_bridge._tables.options import OPTIONS, Fate
from petastorm_bridge.errors import IgnoredArgumentWarning
from petastorm_bridge.predicates import (
    PredicateBase,
    in_intersection,
    in_lambda,
    in_negate,
    in_pseudorandom_split,
    in_reduce,
    in_set,
)
from petastorm_bridge.pytorch import DataLoader


def batch_of(url, **options):
    with make_batch_reader(url, shuffle_row_groups=False, **options) as reader:
        return next(iter(DataLoader(reader, batch_size=1000)))


@pytest.mark.difference("one-dtype-per-column")
def test_one_null_decides_the_dtype_of_all_batches(write):
    values = pa.array([1, 2, None, 4, 5, 6], pa.int32())
    url = write(pa.table({"v": values, "w": pa.array(range(6), pa.int64())}), [3, 3])
    with make_batch_reader(url, shuffle_row_groups=False) as reader:
        batches = list(DataLoader(reader, batch_size=2))
    assert {batch["v"].dtype for batch in batches} == {torch.float64}
    assert {batch["w"].dtype for batch in batches} == {torch.int64}
    got = torch.cat([batch["v"] for batch in batches]).numpy()
    assert np.array_equal(got, [1, 2, np.nan, 4, 5, 6], equal_nan=True)


def dtypes_of(url, **options):
    with make_batch_reader(url, shuffle_row_groups=False, **options) as reader:
        return [str(batch.c.dtype) for batch in reader]


@pytest.mark.difference("one-dtype-per-column")
@pytest.mark.parametrize("pool", ["dummy", "thread"])
@pytest.mark.parametrize(
    ("element", "lists"),
    [
        (pa.bool_(), [[], []]),
        (pa.bool_(), [[True], [False]]),
        (pa.bool_(), [[True, False], [False, None]]),
        (pa.int32(), [[], []]),
        (pa.int32(), [[1, 2], [3, 4]]),
        (pa.int64(), [[1, None], [3, 4]]),
        (pa.float32(), [[1.0], [2.0]]),
        (pa.timestamp("us"), [[1], [2]]),
        (pa.string(), [["a", "b"], ["c", "d"]]),
    ],
)
def test_a_row_group_of_null_lists_decides_the_dtype_of_all(write, element, lists, pool):
    values = pa.array([*lists, None, None], pa.list_(element))
    url = write(pa.table({"i": range(4), "c": values}), [2, 2])
    assert dtypes_of(url, reader_pool_type=pool) == ["object", "object"]
    with make_batch_reader(url, shuffle_row_groups=False) as reader:
        first, second = reader
    assert first.c.shape == (2, len(lists[0]))
    assert pa.array([*first.c], values.type, from_pandas=True).equals(values[:2])
    assert second.c.tolist() == [[None], [None]]


def test_null_lists_that_a_predicate_drops_leave_the_dtype(write):
    values = pa.array([None, None, [1, 2], [3, 4]], pa.list_(pa.int32()))
    url = write(pa.table({"i": range(4), "c": values}), [2, 2])
    kept = in_lambda(["i"], lambda i: i > 1)
    assert dtypes_of(url, predicate=kept) == ["int32"]
    assert dtypes_of(url, filters=[("i", ">", 1)]) == ["int32"]


def test_a_loader_takes_the_row_groups_before_null_lists(write):
    values = pa.array([[1, 2], [3, 4], None, None], pa.list_(pa.int32()))
    url = write(pa.table({"c": values}), [2, 2])
    assert loaded_first(url)["c"].dtype == torch.int32


def loaded_first(url):
    with make_batch_reader(url, shuffle_row_groups=False, workers_count=1) as reader:
        return next(iter(DataLoader(reader, batch_size=2)))


def test_a_transform_sees_the_same_dtype_in_every_row_group(write):
    seen = []

    def note(frame):
        seen.append({name: str(frame[name].dtype) for name in frame})
        return frame[["w"]]

    table = pa.table(
        {
            "v": pa.array([1, 2, None, 4], pa.int8()),
            "b": pa.array([True, None, True, False]),
            "s": ["a", None, "c", "d"],
            "w": [1.0, 2.0, 3.0, 4.0],
        }
    )
    batch_of(write(table, [2, 2]), transform_spec=TransformSpec(note, selected_fields=["w"]))
    assert seen == [{"v": "float64", "b": "object", "s": "object", "w": "float64"}] * 2


@pytest.mark.difference("torch-column-names")
@pytest.mark.parametrize("name", ["a b", "class", "_x", "self", "a.b", "1a", "é"])
def test_torch_takes_any_column_name(write, name):
    url = write(pa.table({name: [1, 2, 3]}))
    assert batch_of(url)[name].tolist() == [1, 2, 3]


@pytest.mark.difference("table-order")
def test_columns_keep_the_tables_order(write):
    names = ["z", "m", "a", "k"]
    seen = []

    def note(frame):
        seen.append(list(frame.columns))
        return frame

    url = write(pa.table({name: [1.0] for name in names}))
    batch_of(url, transform_spec=TransformSpec(note))
    assert seen == [names]
    assert list(batch_of(url, schema_fields=["k", "a", "z"])) == ["z", "a", "k"]


@pytest.mark.difference("timestamp-range")
def test_a_timestamp_beyond_nanoseconds_is_an_error(write):
    stamps = pa.array([dt.datetime(9999, 1, 1, tzinfo=dt.timezone.utc)], pa.timestamp("us", "UTC"))
    url = write(pa.table({"t": stamps, "v": [1.0]}))
    with pytest.raises(ValueError, match="does not fit into nanoseconds"):
        batch_of(url, transform_spec=TransformSpec(removed_fields=["t"]))


@pytest.mark.difference("uint64-in-torch")
def test_unsigned_64_bit_values_of_a_transform(numbered):
    spec = TransformSpec(
        lambda frame: frame.assign(u=frame.id.astype(np.uint64)),
        edit_fields=[("u", np.uint64, (), False)],
    )
    assert batch_of(numbered(3), transform_spec=spec)["u"].dtype == torch.uint64


@pytest.mark.difference("predicates-work")
@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        (in_set({1, 3, 99}, "id"), [1, 3]),
        (in_negate(in_set([0, 1, 2], "id")), [3, 4, 5]),
        (in_reduce([in_set([1, 2], "id"), in_set([2, 3], "id")], all), [2]),
        (in_reduce([in_set([1, 2], "id"), in_set([2, 3], "id")], any), [1, 2, 3]),
        (
            in_reduce(
                [in_set([1, 2], "id"), in_lambda(["x"], lambda x: x > 2)], np.logical_and.reduce
            ),
            [2],
        ),
        (in_lambda(["id", "x"], lambda i, x: (i > 1) & (x < 8)), [2, 3]),
        (in_lambda(["id"], lambda i, least: i.to_numpy() >= least, 4), [4, 5]),
    ],
)
def test_predicates(numbered, predicate, kept):
    assert batch_of(numbered(6, [3, 3]), predicate=predicate)["id"].tolist() == kept


def test_predicate_on_lists(write):
    url = write(pa.table({"v": [[1, 2], [3, 4], [5, 1]], "n": [0, 1, 2]}))
    assert batch_of(url, predicate=in_intersection([1, 9], "v"))["n"].tolist() == [0, 2]


def test_pseudorandom_splits_are_disjoint_complete_and_petastorms(numbered):
    url = numbered(200)
    parts = [
        batch_of(url, predicate=in_pseudorandom_split([0.5, 0.2, 0.3], i, "id"))["id"].tolist()
        for i in range(3)
    ]
    assert sorted(itertools.chain(*parts)) == list(range(200))
    originals = pytest.importorskip("petastorm.predicates", reason="needs the real Petastorm")
    real = originals.in_pseudorandom_split([0.5, 0.2, 0.3], 1, "id")
    assert parts[1] == [i for i in range(200) if real.do_include({"id": i})]


@pytest.mark.difference("predicate-keeps-dtypes")
def test_partly_matching_row_groups_keep_integers(numbered):
    batch = batch_of(numbered(6, [3, 3]), predicate=in_lambda(["id"], lambda ids: ids > 1))
    assert batch["id"].dtype == torch.int64
    assert batch["id"].tolist() == [2, 3, 4, 5]


@pytest.mark.difference("predicate-with-transform")
def test_predicate_with_transform(numbered):
    url = numbered(6, [3, 3])
    late = in_lambda(["id"], lambda ids: ids > 3)
    batch = batch_of(url, predicate=late, transform_spec=TransformSpec(removed_fields=["x"]))
    assert {name: values.tolist() for name, values in batch.items()} == {"id": [4, 5]}
    spec = TransformSpec(
        lambda frame: frame.assign(m=[np.full((2, 2), i) for i in frame.id]),
        edit_fields=[("m", np.int64, (2, 2), False)],
    )
    assert batch_of(url, predicate=late, transform_spec=spec)["m"].tolist() == [
        [[4, 4], [4, 4]],
        [[5, 5], [5, 5]],
    ]


def test_a_predicate_that_answers_once_is_an_error(numbered):
    with pytest.raises(AttributeError, match="one entry per row"):
        batch_of(numbered(3), predicate=in_lambda(["id"], lambda _: True))


def test_unknown_predicate_fields_are_named(numbered):
    with pytest.raises(ValueError, match="requested by the predicate \\(nope\\)"):
        batch_of(numbered(3), predicate=in_lambda(["nope"], lambda v: v > 0))


def test_predicates_without_fields_are_refused(numbered):
    class Silent(PredicateBase):
        def get_fields(self):
            return set()

        def do_include(self, values):
            return values

    with pytest.raises(ValueError, match="At least one field name"):
        batch_of(numbered(3), predicate=Silent())


@pytest.mark.difference("filters-work")
@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([("id", "<", 3)], [0, 1, 2]),
        ([("id", ">", 1), ("x", "<=", 8.0)], [2, 3, 4]),
        ([[("id", "=", 0)], [("id", "in", {4, 5})]], [0, 4, 5]),
        ([["id", ">", 1], ["x", "<=", 8.0]], [2, 3, 4]),
        ([(("id", ">", 1), ("x", "<=", 8.0))], [2, 3, 4]),
    ],
)
def test_filters(numbered, filters, kept):
    assert batch_of(numbered(6, [3, 3]), filters=filters)["id"].tolist() == kept


def test_filters_on_unknown_fields_are_refused(numbered):
    with pytest.raises(ValueError, match="filters name nope"):
        make_batch_reader(numbered(3), filters=[("nope", "=", 1)])


def test_expressions_of_arrow_are_refused_as_filters(numbered):
    with pytest.raises(TypeError, match=r"filters is the Arrow expression \(id > 1\); give"):
        make_batch_reader(numbered(3), filters=pc.field("id") > 1)


IGNORED = {
    "cache_extra_settings": {"shards": 2},
    "hdfs_driver": "libhdfs",
    "zmq_copy_buffers": False,
    "filesystem": LocalFileSystem(),
    "convert_early_to_numpy": True,
}


@pytest.mark.difference("ignored-arguments-warn")
@pytest.mark.difference("filesystem-ignored")
def test_every_ignored_argument_warns(numbered):
    names = {o.name for o in OPTIONS if o.api == "make_batch_reader" and o.fate is Fate.IGNORED}
    assert names == set(IGNORED)
    url = numbered(3)
    for name, value in IGNORED.items():
        with pytest.warns(IgnoredArgumentWarning) as caught:
            make_batch_reader(url, **{name: value}).stop()
        assert any(str(w.message).startswith(f"{name}=") for w in caught)
        assert all(w.filename == __file__ for w in caught)


@pytest.mark.difference("local-disk-cache-keeps-files")
def test_the_transform_runs_in_every_epoch_despite_a_disk_cache(numbered, tmp_path):
    calls = []
    spec = TransformSpec(lambda frame: calls.append(1) or frame)
    options = {
        "cache_type": "local-disk",
        "cache_location": str(tmp_path / "cache"),
        "cache_size_limit": 10**9,
        "cache_row_size_estimate": 10,
    }
    url = numbered(6, [3, 3])
    with make_batch_reader(url, num_epochs=3, transform_spec=spec, **options) as reader:
        assert sum(len(rows.id) for rows in reader) == 18
    assert len(calls) == 6
    assert not (tmp_path / "cache").exists()


def test_every_row_of_the_options_table_is_a_parameter():
    from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter

    functions = {
        "make_spark_converter": make_spark_converter,
        "make_torch_dataloader": SparkDatasetConverter.make_torch_dataloader,
        "make_tf_dataset": SparkDatasetConverter.make_tf_dataset,
        "make_batch_reader": make_batch_reader,
        "make_reader": make_reader,
    }
    for api, function in functions.items():
        parameters = inspect.signature(function).parameters
        expected = [n for n, p in parameters.items() if n != "self" and p.kind != p.VAR_KEYWORD]
        assert [option.name for option in OPTIONS if option.api == api] == expected


def test_texts_do_not_all_become_pythons_at_once():
    values = [f"{i:010}" for i in range(30_000)]
    values[7], values[2_000] = None, "é\0"
    column = pa.array(["left out", *values])[1:]
    tracemalloc.start()
    found = to_numpy("text", column)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.dtype == np.dtype("<U10")
    assert np.array_equal(found, np.array([str(value) for value in values]))
    assert peak < 1.3 * found.nbytes


TEXTS = [
    [], [""], [None], ["", None], ["\0"], ["é", "abc"], ["a", None, "b\0cde", ""], ["a", None, "b\0cdé"],
    [None, *(f"{number:x}" for number in range(3000))],
]  # fmt: skip


@pytest.mark.parametrize("values", TEXTS)
def test_texts_are_as_wide_as_numpy_makes_them(values):
    found = to_numpy("text", pa.array(["é left out", *values], pa.string())[1:])
    wanted = np.array(values, object).astype(str)
    assert found.dtype == wanted.dtype
    assert np.array_equal(found, wanted)
