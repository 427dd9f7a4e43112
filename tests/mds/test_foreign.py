"""Datasets that stock writers wrote, compared with what the stock reader makes of them."""

import io
import json
import os
import pickle
import random
import tracemalloc
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from datasets import read_table

from petastorm_bridge._blocks.columns import to_frame, to_numpy
from petastorm_bridge._sources.mds import MdsSource
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.ndarray import parse_headers

streaming = pytest.importorskip("streaming")

ROWS = 23
SCALARS = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
]


def write(directory, columns, samples, **options):
    """Write samples with the stock writer and return the directory."""
    options.setdefault("size_limit", 700)  # a few shards
    with streaming.MDSWriter(columns=columns, out=str(directory), **options) as writer:
        for sample in samples:
            writer.write(sample)
    return str(directory)


def stock_samples(directory):
    """Every sample as the stock reader decodes it, without StreamingDataset's refusal of pickles."""
    from streaming.base.format.mds.reader import MDSReader

    with open(os.path.join(directory, "index.json"), encoding="utf-8") as file:
        shards = json.load(file)["shards"]
    readers = [MDSReader.from_json(directory, None, entry) for entry in shards]
    return [reader[row] for reader in readers for row in range(len(reader))]


def numbers(dtype, random, count):
    """Random numbers of a type, its extremes among them, as the array's element type."""
    if np.dtype(dtype).kind == "f":
        limits = np.finfo(dtype)
        pool = [limits.max, limits.min, limits.tiny, np.nan, np.inf, -np.inf, -0.0, 0.1]
    else:
        limits = np.iinfo(dtype)
        pool = [limits.max, limits.min, 0, 1, limits.max // 3]
    return np.array([random.choice(pool) for _ in range(count)], dtype)


def bits(array):
    """Bytes of an array, for comparing NaN and -0.0 too."""
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("alone", [True, False], ids=["fixed-width", "beside-strings"])
def test_scalars(tmp_path, alone):
    """Every scalar encoding, in shards of plain records and in shards with offsets."""
    rng = random.Random(1)
    columns = {"plain": "int", **{name: name for name in SCALARS}}
    values = {name: numbers(name, rng, ROWS) for name in SCALARS}
    values["plain"] = numbers(np.int64, rng, ROWS)
    if not alone:
        columns["m"] = "str"
    samples = [
        {name: int(array[row]) if name == "plain" else array[row] for name, array in values.items()}
        | ({} if alone else {"m": "x" * row})
        for row in range(ROWS)
    ]
    directory = write(tmp_path, columns, samples)
    dataset = open_dataset(directory)
    assert len(dataset.shards) > 1
    table = read_table(dataset)
    stock = stock_samples(directory)
    for name, array in values.items():
        assert table.schema.field(name).type == pa.from_numpy_dtype(array.dtype)
        assert bits(table[name].to_numpy()) == bits(array)
        assert bits(np.array([sample[name] for sample in stock], array.dtype)) == bits(array)


TEXTS = {
    "str": ["", "a", "ß€𝄞", "a\0b"],
    "bytes": [b"", b"\0", b"\xff\xfe", bytes(range(256))],
    "str_int": [0, -1, 2**63 - 1, -(2**63)],
    "str_float": [0.1, -0.0, 1e300, 5e-324, float("nan"), float("inf"), float("-inf"), 1e16],
    "str_decimal": [Decimal("0.10"), Decimal("-1E+30"), Decimal("1E-12"), Decimal("NaN")],
    "json": [{"a": [1, None]}, [], "x", None, 1.5],
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_values_of_variable_width(tmp_path, encoding):
    values = [TEXTS[encoding][row % len(TEXTS[encoding])] for row in range(ROWS)]
    samples = [{"id": row, "x": value} for row, value in enumerate(values)]
    directory = write(tmp_path, {"id": "int", "x": encoding}, samples)
    table = read_table(open_dataset(directory))
    stock = [sample["x"] for sample in stock_samples(directory)]
    found = table["x"].to_pylist()
    if encoding == "json":
        found = [json.loads(value) for value in found]
    elif encoding == "str_decimal":
        found, stock = [str(Decimal(value)) for value in found], [str(value) for value in stock]
    elif encoding == "str_float":
        found, stock = bits(np.array(found)), bits(np.array(stock))
    assert found == stock
    expected = {"str_int": pa.int64(), "str_float": pa.float64(), "str": pa.string()}
    if encoding in expected:
        assert table.schema.field("x").type == expected[encoding]


def test_integers_as_text_that_no_column_can_hold_are_refused(tmp_path):
    directory = write(tmp_path, {"x": "str_int"}, [{"x": 1}, {"x": 2**63}])
    with pytest.raises(DatasetError, match=r"(?s)'x' of .*shard\.00000\.mds.*int64.*as str"):
        read_table(open_dataset(directory))


@pytest.mark.parametrize("dtype", SCALARS)
@pytest.mark.parametrize(
    ("encoding", "shapes"),
    [
        ("ndarray:{}:3", [(3,)]),
        ("ndarray:{}:2,3", [(2, 3)]),
        ("ndarray:{}:1,2,3", [(1, 2, 3)]),
        ("ndarray:{}", [(4,)]),
        ("ndarray:{}", [(1,), (2,), (300,)]),
        ("ndarray:{}", [(2, 3)]),
        ("ndarray", [(4,)]),
        ("ndarray", [(1,), (2,), (300,)]),
        ("ndarray", [(2, 300)]),
    ],
)
def test_arrays(tmp_path, dtype, encoding, shapes):
    """Shapes small and large enough for two widths of size word, alone and beside a string."""
    rng = random.Random(2)
    chosen = [shapes[row % len(shapes)] for row in range(ROWS)]
    values = [numbers(dtype, rng, int(np.prod(s))).reshape(s) for s in chosen]
    samples = [{"s": "y" * (row % 3), "x": value} for row, value in enumerate(values)]
    columns = {"s": "str", "x": encoding.format(dtype)}
    directory = write(tmp_path, columns, samples, size_limit=20000)
    check_arrays(directory, values, len(shapes) == 1)
    only_arrays = write(tmp_path / "alone", {"x": columns["x"]}, [{"x": value} for value in values])
    check_arrays(only_arrays, values, len(shapes) == 1)


def check_arrays(directory, values, uniform):
    dataset = open_dataset(directory)
    dtype, shape = values[0].dtype, values[0].shape
    table = read_table(dataset)
    assert table.schema.field("x").type == pa.list_(pa.from_numpy_dtype(dtype))
    for cell, value in zip(table["x"], values, strict=True):
        assert bits(cell.values.to_numpy()) == bits(value)  # flattened, row by row
    stock = [sample["x"] for sample in stock_samples(directory)]
    if dtype in (np.uint64, np.float16):  # Petastorm has no such columns, and readers no field
        with pytest.warns(UserWarning, match="Ignoring unsupported structure .* for field 'x'"):
            assert "x" not in MdsSource(dataset).schema.fields
        return
    source = MdsSource(dataset)
    assert len(source.schema.fields["x"].shape) == len(shape)
    first = 0
    for position, count in enumerate(source.row_counts):
        for rows in (slice(0, count), np.arange(count)[::-1].copy()):
            loaded = source.open(position).load(["x"], rows)["x"]
            expected = [stock[first + row] for row in np.arange(count)[rows]]
            if uniform and count:  # the stock writer also writes empty shards
                array = to_numpy("x", loaded)
                assert (array.dtype, array.shape) == (dtype, (count, *shape))
            for cell, value in zip(loaded, expected, strict=True):
                found = cell if isinstance(cell, np.ndarray) else cell.values.to_numpy()
                assert bits(found) == bits(value)
        first += count


def test_the_type_of_dynamic_arrays_comes_from_the_first_one(tmp_path):
    samples = [
        {"x": np.array([row], np.int16), "y": np.zeros((2, row + 1), "u1")} for row in (1, 2)
    ]
    directory = write(tmp_path, {"x": "ndarray", "y": "ndarray"}, samples)
    x, y = open_dataset(directory).schema.fields
    assert (x.type, x.shape) == (pa.list_(pa.int16()), (None,))
    assert (y.type, y.shape) == (pa.list_(pa.uint8()), (None, None))


def test_arrays_of_several_types_are_refused(tmp_path):
    samples = [{"x": np.zeros(2, np.float32)}, {"x": np.zeros(2, np.float64)}]
    directory = write(tmp_path, {"x": "ndarray"}, samples)
    with pytest.raises(DatasetError, match=r"'x' of .*00000\.mds holds arrays of float32, float64"):
        read_table(open_dataset(directory))


def test_arrays_of_another_type_in_a_later_shard_are_refused(tmp_path):
    samples = [{"x": np.zeros(100, dtype)} for dtype in (np.float32, np.float64)]
    directory = write(tmp_path, {"x": "ndarray"}, samples, size_limit=900)
    assert len(open_dataset(directory).shards) == 2
    with pytest.raises(DatasetError, match=r"00001\.mds holds arrays of float64.*are float32"):
        read_table(open_dataset(directory))


@pytest.mark.parametrize("shapes", [[(2, 3), (3, 2)], [(2, 3), (6,)]])
def test_arrays_of_differing_shape_are_refused(tmp_path, shapes):
    samples = [{"x": np.zeros(shape, np.float32)} for shape in shapes]
    directory = write(tmp_path, {"x": "ndarray:float32"}, samples)
    source = MdsSource(open_dataset(directory))
    with pytest.raises(DatasetError, match=r"'x' of .* differing shapes, such as \("):
        source.open(0).load(["x"], slice(0, 2))["x"]
    # Batches of one shape are fine.
    assert source.open(0).load(["x"], slice(1, 2))["x"].shape == (1, *shapes[1])


def merge(directory, names):
    """Make one dataset of several in its subdirectories."""
    shards = []
    for name in names:
        index = json.loads((directory / name / "index.json").read_text("utf-8"))
        for shard in index["shards"]:
            shard["raw_data"]["basename"] = f"{name}/{shard['raw_data']['basename']}"
            shards.append(shard)
    (directory / "index.json").write_text(json.dumps({"version": 2, "shards": shards}), "utf-8")


def test_shards_whose_static_shapes_differ(tmp_path):
    """Directories merged by hand: one type, shapes by shard."""
    for name, shape in (("a", (2, 3)), ("b", (2, 4))):
        encoding = f"ndarray:int32:{shape[0]},{shape[1]}"
        write(tmp_path / name, {"x": encoding}, [{"x": np.ones(shape, np.int32)}] * 3)
    merge(tmp_path, ["a", "b"])
    dataset = open_dataset(str(tmp_path))
    assert dataset.num_rows == 6
    assert dataset.schema.fields[0].shape == (2, None)
    source = MdsSource(dataset)
    assert [source.open(i).load(["x"], slice(0, 3))["x"].shape for i in (0, 1)] == [
        (3, 2, 3),
        (3, 2, 4),
    ]


@pytest.mark.parametrize("order", [["a", "b"], ["b", "a"]])
def test_shards_with_static_and_dynamic_shapes(tmp_path, order):
    values = {"a": np.ones((2, 3), np.int32), "b": np.ones((4, 1), np.int32)}
    for name, encoding in (("a", "ndarray:int32:2,3"), ("b", "ndarray:int32")):
        write(tmp_path / name, {"x": encoding}, [{"x": values[name]}] * 3)
    merge(tmp_path, order)
    dataset = open_dataset(str(tmp_path))
    assert dataset.schema.fields[0].shape == (None, None)
    source = MdsSource(dataset)
    for position, name in enumerate(order):
        loaded = source.open(position).load(["x"], slice(0, 3))["x"]
        assert np.array_equal(loaded, np.stack([values[name]] * 3))


@pytest.mark.parametrize(
    "encoding", ["ndarray:int32:6", "ndarray:int64:2,3", "int32", "ndarray:int64"]
)
def test_shards_whose_arrays_differ_in_kind_are_refused(tmp_path, encoding):
    sample = {"ndarray:int32:6": np.ones(6, "i4"), "int32": np.int32(1)}
    write(tmp_path / "a", {"x": "ndarray:int32:2,3"}, [{"x": np.ones((2, 3), np.int32)}])
    write(tmp_path / "b", {"x": encoding}, [{"x": sample.get(encoding, np.ones((2, 3), "i8"))}])
    merge(tmp_path, ["a", "b"])
    with pytest.raises(DatasetError, match="differ in their columns"):
        open_dataset(str(tmp_path))


def test_one_array_of_many_axes_takes_no_memory_for_all_others():
    """A header of 65 bytes may announce 63 axes."""
    plain, odd = bytes([1 << 2, 0]), bytes([63 << 2]) + bytes([1] * 63) + b"x"
    raw = np.frombuffer(odd + plain * 20_000, np.uint8)
    lengths = np.array([len(odd)] + [len(plain)] * 20_000)
    starts = np.cumsum(lengths) - lengths
    tracemalloc.start()
    headers, which = parse_headers(raw, starts, lengths, "ndarray:uint8")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 150 * len(lengths)
    assert [header.shape for header in headers] == [(1,) * 63, (0,)]
    assert which.tolist() == [0] + [1] * 20_000


def test_a_fetched_shard_tells_the_type_of_dynamic_arrays(tmp_path):
    """Where shards come from elsewhere, only the one that is needed is asked for."""
    directory = write(tmp_path, {"x": "ndarray"}, [{"x": np.ones((2, 2), "i2")}] * 90)
    first = tmp_path / "shard.00000.mds"
    data = first.read_bytes()
    first.unlink()
    asked = []

    def fetch(entry):
        asked.append(entry.basenames[0])
        first.write_bytes(data)

    dataset = open_dataset(directory, fetch)
    assert len(dataset.shards) > 1
    assert dataset.schema.fields[0].type == pa.list_(pa.int16())
    assert asked == ["shard.00000.mds"]


def test_dynamic_arrays_of_a_remote_dataset(tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    from petastorm_bridge._sources._far.limits import CACHE_VARIABLE
    from petastorm_bridge._sources.open import open_source

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "copies"))
    samples = [{"x": np.full((2, 2), row, "i2")} for row in range(90)]
    directory = write(tmp_path / "here", {"x": "ndarray"}, samples, hashes=["sha1"])
    store = fsspec.filesystem("memory")
    store.put(directory, "/dynamic-arrays", recursive=True)
    try:
        source = open_source("memory://dynamic-arrays")
        assert source.schema.fields["x"].shape == (None, None)
        last = source.open(len(source.row_counts) - 1).load(["x"], slice(0, 1))["x"]
        assert last.dtype == np.int16
        assert last.shape == (1, 2, 2)
    finally:
        store.rm("/dynamic-arrays", recursive=True)


def test_shards_whose_columns_differ_are_refused(tmp_path):
    write(tmp_path / "a", {"x": "int32"}, [{"x": np.int32(1)}])
    write(tmp_path / "b", {"x": "str"}, [{"x": "1"}])
    merge(tmp_path, ["a", "b"])
    with pytest.raises(DatasetError, match=r"differ in their columns.*int32.*str"):
        open_dataset(str(tmp_path))


def test_a_transform_sees_arrays_of_several_axes(tmp_path):
    values = [np.arange(6, dtype=np.int32).reshape(2, 3) + row for row in range(4)]
    directory = write(tmp_path, {"x": "ndarray:int32:2,3"}, [{"x": value} for value in values])
    source = MdsSource(open_dataset(directory))
    assert source.schema.fields["x"].shape == (2, 3)
    loaded = {"x": source.open(0).load(["x"], slice(0, 4))["x"]}
    frame = to_frame(loaded, source.types, source.nulls)
    assert [cell.tolist() for cell in frame["x"]] == [value.tolist() for value in values]


class Explosive:
    """Leaves a trace when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_images_and_pickles_are_their_bytes(tmp_path):
    from PIL import Image

    image = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    trace = str(tmp_path / "unpickled")
    columns = {"jpeg": "jpeg", "png": "png", "pil": "pil", "list": "list[png]", "pkl": "pkl"}
    sample = {"jpeg": image, "png": image, "pil": image, "list": [image], "pkl": Explosive(trace)}
    directory = write(tmp_path / "out", columns, [sample] * 3)
    table = read_table(open_dataset(directory))
    assert set(table.schema.types) == {pa.binary()}
    row = table.to_pylist()[1]
    for name in ("jpeg", "png"):
        assert Image.open(io.BytesIO(row[name])).size == (4, 4)
    assert np.array_equal(np.array(Image.open(io.BytesIO(row["png"]))), np.array(image))
    assert row["pil"].endswith(image.tobytes())
    assert row["pkl"] == pickle.dumps(sample["pkl"])
    assert not os.path.exists(trace)


@pytest.mark.parametrize("compression", ["zstd", "zstd:7", "gz", "snappy", "br:4", "bz2:1"])
@pytest.mark.parametrize("keep_raw", [False, True])
def test_compressed_shards(tmp_path, compression, keep_raw):
    samples = [{"x": "ab" * row, "y": row} for row in range(50)]
    directory = write(
        tmp_path,
        {"x": "str", "y": "int"},
        samples,
        compression=compression,
        hashes=["sha1", "xxh64"],
    )
    if not keep_raw:
        for name in os.listdir(directory):
            if name.endswith(".mds"):
                os.remove(os.path.join(directory, name))
    dataset = open_dataset(directory)
    assert len(dataset.shards) > 1
    assert read_table(dataset).to_pylist() == samples


def test_an_empty_stock_dataset(tmp_path):
    directory = write(tmp_path, {"x": "int"}, [])
    dataset = open_dataset(directory)
    assert (dataset.num_rows, dataset.shards, dataset.schema.fields) == (0, (), ())


@pytest.mark.smoke
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file .*index.json:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <_io.FileIO name='.*index.json")
def test_what_dataframe_to_mds_wrote(spark, tmp_path):
    from streaming.base.converters import dataframe_to_mds

    frame = spark.createDataFrame(
        [(i, i * 0.5, f"s{i}", bytearray([i]), [float(i), 1.0], 2**40 + i) for i in range(20)],
        "a int, b double, c string, d binary, e array<double>, f long",
    ).coalesce(2)
    out = str(tmp_path / "out")
    mds_kwargs = {
        "out": out,
        "columns": {
            "a": "int32", "b": "float64", "c": "str", "d": "bytes", "e": "ndarray:float64",
            "f": "int64",
        },
        "keep_local": True,
    }  # fmt: skip
    dataframe_to_mds(frame, merge_index=True, mds_kwargs=mds_kwargs)
    dataset = open_dataset(out)
    assert dataset.num_rows == 20
    found = {row["a"]: row for row in read_table(dataset).to_pylist()}
    expected = {row["a"]: row.asDict() | {"d": bytes(row["d"])} for row in frame.collect()}
    assert found == expected
