"""The tables of options and types: no row that nothing reads, and none that says what is not so."""

import ast
import datetime as dt
import functools
import inspect
import pathlib
import re
import warnings
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import torch

from petastorm_bridge import make_batch_reader
from petastorm_bridge._tables.options import OPTIONS, Fate, Option
from petastorm_bridge._tables.types import TYPES, find_type
from petastorm_bridge.errors import NullValueWarning
from petastorm_bridge.pytorch import BatchedIterableDataset, DataLoader
from petastorm_bridge.reader._typing import DatasetArguments, ReaderArguments

ROOT = pathlib.Path(__file__).parents[2]
BRIDGE = ROOT / "bridge" / "petastorm_bridge"


# --- options -----------------------------------------------------------------------------------------


@functools.cache
def parsed(folder):
    return [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))]


def names_read(tree):
    """Names that code looks at: variables, attributes, and keys; not those it only hands on by name."""
    handed_on = {
        id(value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Name) and key.value == value.id
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            if id(node) not in handed_on:
                yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield node.slice.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "given.get":
            yield node.args[0].value


def unread(options):
    """Options that neither their function nor, for readers, what looks at readers' options reads."""
    functions = {
        node.name: node
        for tree in parsed(BRIDGE)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name in {option.api for option in options}
    }
    of_readers = {name for tree in parsed(BRIDGE / "reader") for name in names_read(tree)}
    for option in options:
        read = set(names_read(functions[option.api]))
        if option.api in {"make_batch_reader", "make_reader"}:
            read |= of_readers
        # The arguments without effect are looked at together, to warn of them.
        if option.name not in read and option.fate is not Fate.IGNORED:
            yield f"{option.api}({option.name}=...)"


def test_every_option_is_read_by_code():
    assert list(unread(OPTIONS)) == []


def test_the_arguments_that_checkers_know_are_those_of_the_reader():
    """The converter's methods take two of the reader's arguments themselves, and the url is theirs."""
    known = set(inspect.signature(make_batch_reader).parameters)
    assert set(ReaderArguments.__annotations__) == known - {
        "dataset_url_or_urls",
        "num_epochs",
        "workers_count",
    }
    torch_dataset = set(inspect.signature(BatchedIterableDataset).parameters)
    assert set(DatasetArguments.__annotations__) == known - torch_dataset - {
        "dataset_url_or_urls",
        "num_epochs",
        "cur_shard",
        "shard_count",
    }


def test_the_arguments_that_checkers_know_are_those_of_streaming():
    streaming = pytest.importorskip("streaming")
    from petastorm_bridge.streaming._base import StreamingArguments

    known = set(inspect.signature(streaming.StreamingDataset).parameters)
    assert set(StreamingArguments.__annotations__) == known - {"batch_size"}


@pytest.mark.parametrize("api", ["make_spark_converter", "make_batch_reader", "make_reader"])
def test_an_option_that_nothing_reads_is_found(api):
    made_up = Option(api, "no_such_argument", Fate.HONOURED, "Nothing.")
    assert list(unread([*OPTIONS, made_up])) == [f"{api}(no_such_argument=...)"]


def arguments_in_tests():
    """Keywords of calls, and keys of dictionaries of them, anywhere in the tests but here."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path == pathlib.Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword):
                yield node.arg
            elif isinstance(node, ast.Dict):
                yield from (key.value for key in node.keys if isinstance(key, ast.Constant))


def test_every_option_is_given_in_some_test():
    given = set(arguments_in_tests())
    positional = {
        ("make_spark_converter", "df"),
        ("make_batch_reader", "dataset_url_or_urls"),
        ("make_reader", "dataset_url"),
    }
    named = {option.name for option in OPTIONS if (option.api, option.name) not in positional}
    assert named - given == set()


def test_no_option_has_two_rows():
    rows = [(option.api, option.name) for option in OPTIONS]
    assert len(set(rows)) == len(rows)


# --- types -------------------------------------------------------------------------------------------

# Two values of each row's example type.
VALUES = {
    "boolean": [True, False],
    "int8": [1, -128],
    "int16": [1, -32768],
    "int32": [1, -(2**31)],
    "int64": [1, -(2**63)],
    "uint8": [1, 255],
    "uint16": [1, 65535],
    "uint32": [1, 2**32 - 1],
    "float32": [1.5, -0.25],
    "float64": [0.1, -1e300],
    "decimal": [Decimal("1.25"), Decimal("-0.50")],
    "string": ["a", "é"],
    "binary": [b"a", b"\xff\0"],
    "date": [dt.date(2020, 1, 2), dt.date(1960, 12, 31)],
    "timestamp": [dt.datetime(2020, 1, 2, 3, 4, 5, 6), dt.datetime(1960, 12, 31)],
}
ROWS = {row.name: row for row in TYPES}


def column(row, *, nulls):
    values = [*VALUES[row.name], None] if nulls else VALUES[row.name]
    return pa.table({"v": pa.array(values, row.example)})


def torch_batch(url):
    with make_batch_reader(url, shuffle_row_groups=False, reader_pool_type="dummy") as reader:
        return next(iter(DataLoader(reader, batch_size=10)))["v"]


def check_torch(said, url):
    """Compare what the table says of torch with a batch, or with the error in its place."""
    error = re.match(r"`TypeError`", said)
    if error:
        with pytest.raises(TypeError):
            torch_batch(url)
        return
    batch = torch_batch(url)
    assert batch.dtype is getattr(torch, re.match(r"`(\w+)`", said)[1])
    assert batch.isnan().tolist()[-1:] == [True] if "NaN" in said else not batch.isnan().any()


def test_every_row_of_types_has_values_here():
    assert {row.name for row in TYPES} == set(VALUES)


@pytest.mark.parametrize("name", VALUES)
def test_a_type_is_what_its_row_says(name, write):
    row = ROWS[name]
    table = column(row, nulls=False)
    assert find_type(row.example) is find_type(pa.list_(row.example)) is row
    with make_batch_reader(write(table), reader_pool_type="dummy") as reader:
        assert reader.schema.v.numpy_dtype is row.numpy
        assert next(reader).v.shape == (2,)
    check_torch(row.torch, write(table))


@pytest.mark.parametrize("name", VALUES)
def test_a_type_with_nulls_is_what_its_row_says(name, write):
    row = ROWS[name]
    url = write(column(row, nulls=True))
    with make_batch_reader(url, reader_pool_type="dummy") as reader:
        values = next(reader).v
    if row.nulls_as:
        assert values.dtype == row.nulls_as
    check_torch(row.torch_nulls, url)


def tensorflow_batch(url):
    """The type of the column, its values or the error in their place, and whether there was a warning."""
    from petastorm_bridge.tf_utils import make_petastorm_dataset

    with (
        warnings.catch_warnings(record=True) as caught,
        make_batch_reader(url, shuffle_row_groups=False, reader_pool_type="dummy") as reader,
    ):
        warnings.simplefilter("always")
        dataset = make_petastorm_dataset(reader)
        try:
            values = next(iter(dataset)).v.numpy()
        except Exception as error:  # noqa: BLE001 - TensorFlow wraps what its generator raises
            values = error
    warned = any(issubclass(each.category, NullValueWarning) for each in caught)
    return dataset.element_spec.v.dtype.name, values, warned


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_tensorflow_gets_what_a_row_says(name, write):
    row = ROWS[name]
    dtype, values, warned = tensorflow_batch(write(column(row, nulls=False)))
    assert (dtype, warned) == (row.tf, False)
    if name == "decimal":
        assert row.tf_nulls == "`InternalError`: TensorFlow has no decimals"
        assert type(values).__name__ == "InternalError"
    else:
        assert len(values) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_tensorflow_gets_for_nulls_what_a_row_says(name, write):
    row = ROWS[name]
    dtype, values, warned = tensorflow_batch(write(column(row, nulls=True)))
    assert dtype == row.tf
    assert warned == ("with a warning" in row.tf_nulls)
    literal, smallest = re.match(r"(?:`([^`]*)`|the smallest `(\w+)`)?", row.tf_nulls).groups()
    if row.tf_nulls == "NaN":
        assert np.isnan(values[-1])
    elif smallest:
        assert values[-1] == np.iinfo(smallest).min
    elif warned:
        assert values[-1] == ast.literal_eval(literal)
    else:
        assert isinstance(values, Exception)
        assert literal is None or type(values).__name__ == literal
