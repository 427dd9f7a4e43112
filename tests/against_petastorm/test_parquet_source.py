"""Parquet directories and file lists: the same batches as from the original, live."""

import datetime as dt
import decimal
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import petastorm_bridge

petastorm = pytest.importorskip("petastorm", reason="compares with Petastorm itself")

MOMENT = dt.datetime(2020, 1, 2, 3, 4, 5, 678901)
DAY = dt.date(1969, 12, 31)
CENT = decimal.Decimal("-1.25")


def write(path, columns, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
    return path


def uri(path):
    """A URL as users write them; Petastorm does not decode `%3D`."""
    return f"file://{path}"


def read(package, url, **options):
    """Rows as plain data, the schema, and the texts of the warnings that both give."""
    options = {"reader_pool_type": "dummy", "shuffle_row_groups": False} | options
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with package.make_batch_reader(url, **options) as reader:
                groups = [{n: shown(v) for n, v in g._asdict().items()} for g in reader]
            fields = [
                (f.name, f.numpy_dtype, f.shape, f.nullable) for f in reader.schema.fields.values()
            ]
        except Exception as error:  # noqa: BLE001 - compared with the other's
            return error
    texts = {str(w.message) for w in caught if "Ignoring" in str(w.message)}
    return groups, fields, texts


def shown(values):
    if isinstance(values, pd.Categorical):
        return "category", values.categories.dtype, values.tolist()
    if values.dtype.kind == "f":
        return values.dtype, values.shape, values.tobytes()
    return values.dtype, values.shape, values.tolist()


def assert_same(url, **options):
    original = read(petastorm, url, **options)
    bridge = read(petastorm_bridge, url, **options)
    if isinstance(original, Exception):
        assert isinstance(bridge, type(original)), repr(bridge)
        assert len(str(bridge)) >= len(str(original))
    else:
        assert bridge == original


SIMPLE = {"id": np.arange(5), "x": np.arange(5, dtype=np.float32), "s": list("abcde")}

LAYOUTS = {
    "files": ["part-1.parquet", "part-0.parquet"],
    "integers": ["k=3/a.parquet", "k=1/b.parquet", "k=20/c.parquet"],
    "two levels": ["k=a b/j=1/a.parquet", "k=a b/j=2/a.parquet", "k=1/j=1/a.parquet"],
    "null": ["k=__HIVE_DEFAULT_PARTITION__/a.parquet", "k=5/a.parquet"],
    "escaped": ["k=a%20b%2Fc/a.parquet"],
    "dates": ["k=2020-01-01/a.parquet", "k=1.5/a.parquet"],
    "leading zeros": ["k=007/a.parquet", "k=7/a.parquet"],
    "private": ["a.parquet", "_delta/b.parquet", ".x/c.parquet", "_d.parquet"],
    "mixed": ["a.parquet", "k=1/a.parquet"],
    "plain directory": ["sub/a.parquet"],
    "plain directory below": ["k=1/sub/a.parquet"],
    "uneven": ["k=1/a.parquet", "k=2/j=3/a.parquet"],
    "other names": ["k=1/a.parquet", "j=2/a.parquet"],
    "empty": [],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(tmp_path, layout):
    for path in LAYOUTS[layout]:
        write(tmp_path / path, SIMPLE, row_group_size=2)
    assert_same(uri(tmp_path))


@pytest.mark.parametrize("layout", ["files", "integers", "two levels"])
def test_file_lists(tmp_path, layout):
    urls = [uri(write(tmp_path / path, SIMPLE)) for path in LAYOUTS[layout]]
    assert_same(urls)
    assert_same(urls[:1])
    assert_same(urls[0])
    assert_same(urls[0].rsplit("/", 1)[0])
    assert_same([uri(tmp_path)])
    assert_same([uri(tmp_path), urls[0]])
    assert_same([*urls, uri(tmp_path / "nope")])


@pytest.mark.parametrize("content", [b"", b"x", b"PAR1 and nothing of the kind PAR0"])
def test_damaged_files(tmp_path, content):
    write(tmp_path / "a.parquet", SIMPLE)
    (tmp_path / "b.parquet").write_bytes(content)
    assert_same(uri(tmp_path))
    assert_same(uri(tmp_path / "b.parquet"))


TYPES = {
    "int8": pa.array([-128, 0, 127], pa.int8()),
    "uint8": pa.array([0, 1, 255], pa.uint8()),
    "int64": pa.array([-(2**63), 0, 2**63 - 1]),
    "uint64": pa.array([0, 1, 2], pa.uint64()),
    "int32 null": pa.array([1, None, 3], pa.int32()),
    "bool": pa.array([True, False, True]),
    "bool null": pa.array([True, None, False]),
    "float32": pa.array([0.5, float("nan"), -0.0], pa.float32()),
    "float64 null": pa.array([0.5, None, float("-inf")]),
    "string": pa.array(["", "äöü", "x" * 30]),
    "string null": pa.array(["a", None, "c"]),
    "binary": pa.array([b"", b"\x00", b"abc"]),
    "binary null": pa.array([b"", None, b"abc"]),
    "fixed binary": pa.array([b"ab", b"bc", b"cd"], pa.binary(2)),
    "date32": pa.array([DAY] * 3),
    "date32 null": pa.array([DAY, None, DAY]),
    "date64": pa.array([DAY] * 3, pa.date64()),
    "decimal": pa.array([CENT] * 3, pa.decimal128(10, 2)),
    "decimal256": pa.array([CENT] * 3, pa.decimal256(50, 2)),
    "timestamp s": pa.array([MOMENT.replace(microsecond=0)] * 3, pa.timestamp("s")),
    "timestamp us": pa.array([MOMENT] * 3, pa.timestamp("us")),
    "timestamp ns": pa.array([MOMENT, None, MOMENT], pa.timestamp("ns")),
    "timestamp zone": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "Asia/Tokyo")),
    "int list": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16())),
    "int list null": pa.array([[1, 2], [3, None], [5, 6]]),
    "empty lists": pa.array([[], [], []], pa.list_(pa.int32())),
    "null lists": pa.array([None] * 3, pa.list_(pa.int32())),
    "some null lists": pa.array([[1, 2], None, [3, 4]]),
    "ragged lists": pa.array([[1], [1, 2], [2]]),
    "bool list": pa.array([[True], [False], [True]]),
    "string list": pa.array([["a", "bc"], ["", "d"], ["e", "f"]]),
    "date list": pa.array([[DAY]] * 3),
    "decimal list": pa.array([[CENT]] * 3),
    "timestamp list": pa.array([[MOMENT]] * 3, pa.list_(pa.timestamp("us"))),
    "integer dictionary": pa.array([7, 8, 7]).dictionary_encode(),
    "string dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "nested list": pa.array([[[1]], [[2]], [[3]]]),
    "struct": pa.array([{"a": 1}] * 3),
    "struct list": pa.array([[{"a": 1}]] * 3),
    "map": pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
    "nothing": pa.nulls(3),
    "time": pa.array([dt.time(1, 2)] * 3),
    "fixed list": pa.array([[1, 2]] * 3, pa.list_(pa.int32(), 2)),
}


@pytest.mark.parametrize("name", TYPES)
def test_types(tmp_path, name):
    table = {"id": np.arange(3), "v": TYPES[name]}
    path = write(tmp_path / "a.parquet", table)
    assert_same(uri(path))
    if "timestamp" in name:
        write(path, table, use_deprecated_int96_timestamps=True)
        assert_same(uri(path))


def test_required_columns(tmp_path):
    schema = pa.schema([pa.field("a", pa.int64(), False), pa.field("b", pa.string())])
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array(["x", "y"])], schema=schema)
    assert_same(uri(write(tmp_path / "a.parquet", table)))


@pytest.mark.parametrize("second", [["s", "x", "id"], ["id", "x"]])
def test_files_with_other_columns(tmp_path, second):
    write(tmp_path / "a.parquet", SIMPLE)
    write(tmp_path / "b.parquet", {name: SIMPLE[name] for name in second})
    assert_same(uri(tmp_path))


@pytest.mark.difference("parquet-one-dtype")
def test_files_with_other_types(tmp_path):
    write(tmp_path / "a.parquet", {"id": pa.array([1, 2], pa.int64())})
    write(tmp_path / "b.parquet", {"id": pa.array([1, 2], pa.int32())})
    original = read(petastorm, uri(tmp_path))[0]
    bridge = read(petastorm_bridge, uri(tmp_path))[0]
    assert [group["id"][0] for group in original] == [np.int64, np.int32]
    assert [group["id"][0] for group in bridge] == [np.int64, np.int64]


@pytest.mark.difference("parquet-one-dtype")
@pytest.mark.parametrize("second", [["x"], ["x", "ID"]])
def test_a_file_without_the_only_column_that_is_read(tmp_path, second):
    write(tmp_path / "a.parquet", {"id": [1], "x": [2]})
    write(tmp_path / "b.parquet", {name: np.array([3]) for name in second})
    original = read(petastorm, uri(tmp_path), schema_fields=["id"])[0]
    assert [group["id"][2] for group in original] == [[1]]
    with pytest.raises(TypeError, match="has no column 'id'"):
        petastorm_bridge.make_batch_reader(uri(tmp_path), schema_fields=["id"])


def test_frames_of_a_transform(tmp_path):
    for key in ("x", "y"):
        write(
            tmp_path / f"k={key}" / "a.parquet",
            {
                "id": pa.array([1, None]),
                "day": [DAY, DAY],
                "list": [[1, 2], [3, 4]],
                "zone": pa.array([MOMENT, None], pa.timestamp("us", "UTC")),
                "text": ["a", None],
            },
        )
    frames = {}
    for package in (petastorm, petastorm_bridge):
        seen = frames[package] = []

        def remember(frame, seen=seen):
            seen.append(frame)
            return frame[["id"]]

        spec = package.TransformSpec(remember, selected_fields=["id"])
        read(package, uri(tmp_path), transform_spec=spec)
    assert len(frames[petastorm]) == 2
    for original, bridge in zip(frames[petastorm], frames[petastorm_bridge], strict=True):
        pd.testing.assert_frame_equal(original, bridge[list(original.columns)])


ARROW_TYPES = st.sampled_from(
    [pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string()]
)
VALUES = {
    "int8": st.integers(-128, 127),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "bool": st.booleans(),
    "string": st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=4),
}


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 12))
    columns = {}
    for number in range(draw(st.integers(1, 4))):
        type_ = draw(ARROW_TYPES)
        values = draw(st.lists(VALUES[str(type_)], min_size=rows, max_size=rows))
        columns[f"c{number}"] = pa.array(values, type_)
    return pa.table(columns), draw(st.integers(1, 12)), draw(st.integers(1, 3))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tables())
def test_any_table(tmp_path_factory, drawn):
    table, row_group_size, files = drawn
    folder = tmp_path_factory.mktemp("table")
    for number in range(files):
        write(folder / f"{number}.parquet", table, row_group_size=row_group_size)
    assert_same(uri(folder))
    assert_same(uri(folder), seed=7, shuffle_rows=True)
