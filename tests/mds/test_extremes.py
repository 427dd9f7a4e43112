"""The ends of every type's range, bit by bit, through the engine and the stock reader."""

import math
import runpy
import sys
from decimal import Decimal

import naive
import numpy as np
import pyarrow as pa
import pytest
from datasets import read_table
from random_tables import plain, scaled

from petastorm_bridge import mds
from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.decode import column_view
from petastorm_bridge.mds.shard import open_shard
from petastorm_bridge.mds.writer import ShardWriter

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = {"float16": np.uint16, "float32": np.uint32, "float64": np.uint64}


def write(directory, table, **options):
    writer = ShardWriter(table.schema, str(directory), **options)
    for batch in table.to_batches():
        writer.write(batch)
    commit_dataset(str(directory), table.schema, writer.finish())
    return open_dataset(str(directory))


@pytest.fixture(params=[False, True], ids=["fixed-width", "beside-strings"])
def beside(request):
    """Columns to add: none keeps shards of plain records, a string makes rows of varying size."""
    return lambda rows: {"s": ["x" * (row % 3) for row in range(rows)]} if request.param else {}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("null", [False, True])
def test_integers(tmp_path, beside, name, null):
    limits = np.iinfo(name)
    values = [limits.min, limits.max, 0, 1, limits.max // 2, *([None] if null else [])]
    values = [value if value is None else int(value) for value in values]
    type_ = pa.from_numpy_dtype(np.dtype(name))
    lists = [[value, limits.max] for value in values]
    table = pa.table(
        {
            "x": pa.array(values, type_),
            "list": pa.array(lists, pa.list_(type_)),
            **beside(len(values)),
        }
    )
    dataset = write(tmp_path, table)
    assert read_table(dataset).equals(table)
    assert [row["x"] for row in naive.logical_rows(str(tmp_path))] == values
    shard = open_shard(dataset.directory, dataset.shards[0])
    view = column_view(shard, dataset.schema.fields[0], slice(None))
    assert (view is None) == null
    assert null or (view.dtype.name, view.tolist()) == (name, values)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("null", [False, True])
def test_floats_keep_every_bit(tmp_path, beside, name, null):
    word = FLOATS[name]
    limits = np.finfo(name)
    sign = 1 << (8 * np.dtype(word).itemsize - 1)
    nan = int(np.array(np.nan, name).view(word))
    infinity = int(np.array(np.inf, name).view(word))
    quiet, silent = nan | 5, infinity | 3  # payloads; the second is a signalling NaN
    patterns = [0, sign, 1, sign | 1, infinity, sign | infinity, quiet, sign | quiet, silent]
    special = np.array(patterns, word).view(name)
    values = np.concatenate([special, np.array([limits.max, limits.min, limits.tiny], name)])
    mask = np.zeros(len(values), bool)
    mask[3] = null
    plain_values = pa.array(values, mask=mask)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype="i4")), plain_values)
    table = pa.table({"x": plain_values, "list": lists, **beside(len(values))})
    dataset = write(tmp_path, table)
    back = read_table(dataset)
    expected = np.array(values.view(word))
    for found in (back["x"].chunk(0), back["list"].chunk(0).flatten()):
        assert found.null_count == 0
        bits = np.frombuffer(found.buffers()[1], word)[found.offset :][: len(found)]
        assert (bits[~mask] == expected[~mask]).all()
        if null:
            assert math.isnan(float(np.array(bits[3]).view(name)))
    shard = open_shard(dataset.directory, dataset.shards[0])
    view = column_view(shard, dataset.schema.fields[0], slice(None))
    assert view.dtype == name
    assert (np.ascontiguousarray(view).view(word)[~mask] == expected[~mask]).all()
    assert dataset.schema.fields[0].nulls == int(null)


def test_dates_and_times(tmp_path, beside):
    days = [-(2**31), 2**31 - 1, 0, -1, None]
    ticks = [1 - 2**63, 2**63 - 1, 0, -1, None]
    columns = {"date": pa.array(days, pa.int32()).cast(pa.date32())}
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "America/New_York"):
            type_ = pa.timestamp(unit, zone)
            columns[f"{unit} {zone}"] = pa.array(ticks, pa.int64()).cast(type_)
    columns["span"] = pa.array(ticks, pa.int64()).cast(pa.duration("us"))
    table = pa.table({**columns, **beside(len(days))})
    back = read_table(write(tmp_path, table))
    assert back.schema.equals(table.schema)
    for name in columns:
        assert plain(back[name]) == plain(table[name]) == (days if name == "date" else ticks)


def test_the_smallest_timestamp_is_the_null_one(tmp_path):
    """Documented: NumPy's NaT has that value, and so Arrow's null is stored as it."""
    table = pa.table({"t": pa.array([-(2**63), 5], pa.int64()).cast(pa.timestamp("us"))})
    assert plain(read_table(write(tmp_path, table))["t"]) == [None, 5]


DECIMALS = [pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal128(10, 2), pa.decimal256(76, 9)]
if hasattr(pa, "decimal32"):  # pyarrow 19
    DECIMALS += [pa.decimal32(9, 2), pa.decimal64(18, 4)]


@pytest.mark.parametrize("type_", DECIMALS)
def test_decimals(tmp_path, type_):
    largest = 10**type_.precision - 1
    values = [scaled(n, type_.scale) for n in (largest, -largest, 0, 1, -1)] + [None]
    lists = [values, [], None, values[:1], [None], []]
    table = pa.table({"d": pa.array(values, type_), "l": pa.array(lists, pa.list_(type_))})
    assert read_table(write(tmp_path, table)).equals(table)
    assert [row["d"] for row in naive.logical_rows(str(tmp_path))] == values


TEXTS = [
    "",
    "\0",
    "\0\0",
    "a\0b",
    " ",
    "\n",
    "\r\n",
    '"',
    "\\",
    "\\u0000",
    "\\\\n",
    "null",
    "NaN",
    "]",
    "},{",
    "".join(map(chr, range(0x80))),
    "\u0080\u07ff\u0800\ud7ff\ue000\uffff",
    "\U00010000\U0010ffff",
    "\u2028\u2029\ufeff",
    "é" * 70_000,
]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_strings(tmp_path, type_):
    values = [*TEXTS, None]
    lists = [[text, None, text] for text in TEXTS] + [None]
    table = pa.table({"s": pa.array(values, type_), "l": pa.array(lists, pa.list_(type_))})
    assert read_table(write(tmp_path, table)).equals(table)
    assert naive.logical_rows(str(tmp_path)) == table.to_pylist()


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary(), pa.binary(4)])
def test_bytes(tmp_path, type_):
    values = [bytes([byte]) * 4 for byte in range(256)] + [None]
    if type_ != pa.binary(4):
        values += [b"", bytes(range(256)), b"\xff" * 70_000, b"NaN"]
    lists = [[value, None, value] for value in values]
    table = pa.table({"b": pa.array(values, type_), "l": pa.array(lists, pa.list_(type_))})
    assert read_table(write(tmp_path, table)).equals(table)
    assert naive.logical_rows(str(tmp_path)) == table.to_pylist()


@pytest.mark.parametrize("longest", [255, 256, 65_535, 65_536])
def test_lists_around_the_widths_of_the_size_word(tmp_path, longest):
    lists = [list(range(3)), [0] * longest, [], None, [7]]
    table = pa.table({"l": pa.array(lists, pa.list_(pa.int32()))})
    assert read_table(write(tmp_path, table)).equals(table)
    assert [row["l"] for row in naive.logical_rows(str(tmp_path))] == lists


def test_slices_of_larger_arrays(tmp_path):
    """Batches often are slices whose buffers hold other rows before and after."""
    whole = pa.table(
        {
            "i": pa.array([1, None, 3, 4, 5, None, 7, 8], pa.int16()),
            "b": pa.array([True, None, False, True, True, None, False, True]),
            "h": pa.array(np.arange(8, dtype=np.float16)),
            "s": pa.array(["a", None, "c", "dd", "", None, "g", "h"]),
            "w": pa.array([b"aa", None, b"cc", b"dd", b"ee", None, b"gg", b"hh"], pa.binary(2)),
            "n": pa.array([b"aa", b"bb", b"cc", b"dd", b"ee", b"ff", b"gg", b"hh"], pa.binary(2)),
            "l": pa.array([[1], None, [3, None], [], [5], None, [7], [8]], pa.list_(pa.int8())),
            "j": pa.array([["x"], None, ["y", None], [], [""], None, ["z"], ["w"]]),
            "d": pa.array([Decimal(n) if n % 3 else None for n in range(8)], pa.decimal128(4, 1)),
        }
    )  # fmt: skip
    for start, length in ((0, 8), (1, 6), (2, 3), (3, 5), (7, 1)):
        table = whole.slice(start, length)
        directory = tmp_path / f"{start}-{length}"
        directory.mkdir()
        back = read_table(write(directory, table))
        for name in table.schema.names:
            assert plain(back[name]) == plain(table[name]), (name, start, length)


def test_names(tmp_path):
    """Names that NumPy's records, Python or JSON treat specially."""
    names = ["", "0", "f0", "f1", "self", "a b", "a.b", "%s", 'q"', "\\", "é", "x__is_null", "x"]
    fixed = pa.table({name: pa.array([i, i + 1], pa.int32()) for i, name in enumerate(names)})
    mixed = pa.table(
        {name: pa.array([str(i), None if name == "x" else ""]) for i, name in enumerate(names)}
    )
    for number, table in enumerate((fixed, mixed)):
        directory = tmp_path / str(number)
        directory.mkdir()
        dataset = write(directory, table)
        assert [field.name for field in dataset.schema.fields] == names
        assert read_table(dataset).equals(table)
        assert naive.logical_rows(str(directory)) == table.to_pylist()
    assert dataset.schema.fields[-1].null_column == "x__is_null_"


def test_a_machine_with_the_other_order_of_bytes_is_refused(monkeypatch):
    """Shards are little-endian, and written as the machine has its numbers."""
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(ImportError, match="on little-endian machines only"):
        runpy.run_path(mds.__file__)
