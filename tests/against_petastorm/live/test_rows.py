"""``make_reader`` beside the real one: random schemas and rows, options, n-grams, torch and TensorFlow."""

import contextlib
import datetime as dt
import importlib
import io
import random
import warnings
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from stored import random_rows, random_schema, spark, write_stored

import petastorm_bridge
from petastorm_bridge import TransformSpec
from petastorm_bridge.codecs import (
    CompressedImageCodec,
    CompressedNdarrayCodec,
    NdarrayCodec,
    ScalarCodec,
)
from petastorm_bridge.ngram import NGram
from petastorm_bridge.predicates import in_lambda, in_negate, in_set
from petastorm_bridge.unischema import Unischema, UnischemaField

petastorm = pytest.importorskip("petastorm", reason="compares with the real package")
if int(pa.__version__.partition(".")[0]) > 14:
    pytest.skip("petastorm cannot be imported beside this pyarrow", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore")

SCHEMA = Unischema(
    "Rows",
    [
        UnischemaField("part", np.str_, (), None, False),
        UnischemaField("id", np.int64, (), None, False),
        UnischemaField("money", Decimal, (), ScalarCodec(spark("DecimalType", precision=9, scale=2)), False),
        UnischemaField("small", np.uint16, (), ScalarCodec(spark("IntegerType")), False),
        UnischemaField("maybe", np.int32, (), None, True),
        UnischemaField("flag", np.bool_, (), None, False),
        UnischemaField("image", np.uint8, (6, 5, 3), CompressedImageCodec("png"), False),
        UnischemaField("points", np.float32, (None, 3), NdarrayCodec(), False),
        UnischemaField("matrix", np.uint16, (2, 3), NdarrayCodec(), False),
        UnischemaField("packed", np.float64, (4,), CompressedNdarrayCodec(), False),
        UnischemaField("words", np.str_, (None,), NdarrayCodec(), True),
    ],
)  # fmt: skip
NUMBERS = ["id", "small", "flag", "image", "matrix", "packed"]


def row(i):
    rng = np.random.default_rng(i)
    return {
        "part": f"p{i // 16}",
        "id": np.int64(i),
        "money": Decimal(i) / 4,
        "small": np.uint16(i * 3),
        "maybe": None if i % 3 else np.int32(i),
        "flag": np.bool_(i % 2),
        "image": rng.integers(0, 255, (6, 5, 3), np.uint8),
        "points": rng.random((i % 4, 3), np.float32),
        "matrix": rng.integers(0, 2**16 - 1, (2, 3), np.uint16),
        "packed": rng.random(4),
        "words": None if i % 5 == 0 else np.array(["a", "b" * (i % 3)]),
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "dataset"
    rows = [row(i) for i in range(40)]
    return write_stored(path, SCHEMA, rows, files=1, row_group_rows=4, partition="part")


def read(package, url, **options):
    """The rows, or the type of the error."""
    options = {"reader_pool_type": "dummy", "shuffle_row_groups": False, **options}
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            package.make_reader(url, **options) as reader,
        ):
            return list(reader)
    except Exception as error:  # noqa: BLE001 – its type is compared
        return type(error).__name__


def same(found, expected):
    if type(found).__name__ != type(expected).__name__:
        return False
    if isinstance(found, np.ndarray):
        is_number = found.dtype.kind in "fc"
        return (
            (found.dtype, found.shape, found.flags.writeable)
            == (expected.dtype, expected.shape, expected.flags.writeable)
        ) and np.array_equal(found, expected, equal_nan=is_number)
    if isinstance(found, dict):
        return list(found) == list(expected) and all(same(found[k], expected[k]) for k in found)
    if isinstance(found, tuple) and hasattr(found, "_fields"):
        return found._fields == expected._fields and all(map(same, found, expected))
    if isinstance(found, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found is expected or bool(found == expected) or found != found  # noqa: PLR0124 – NaN


def check_random(seed, path):
    rng = random.Random(seed)
    schema = random_schema(rng)
    # Petastorm cannot read a file without rows.
    files = rng.randint(1, 2)
    rows = random_rows(rng, schema, rng.randint(files, 24))
    url = write_stored(path, schema, rows, files=files, row_group_rows=rng.randint(1, 9))
    expected = read(petastorm, url)
    assert len(expected) == len(rows)
    assert same(read(petastorm_bridge, url), expected), seed
    options = random_options(rng, schema)
    expected = read(petastorm, url, **adapted(options))
    assert same(read(petastorm_bridge, url, **options), expected), (seed, options)


def random_options(rng, schema):
    """Arguments of ``make_reader``, each of them there every other time."""
    names = rng.sample(list(schema.fields), rng.randint(0, len(schema.fields) - 1))
    modulus = rng.randint(1, 4)
    options = {
        "schema_fields": [schema.fields[name] for name in {"id": None, **dict.fromkeys(names)}],
        "num_epochs": rng.randint(1, 3),
        "shuffle_row_drop_partitions": rng.randint(1, 3),
        "predicate": in_lambda(["id"], lambda number: number % modulus == 0),
        "transform_spec": TransformSpec(
            lambda row: {**row, "id": row["id"] * 2}, edit_fields=[("id", np.int64, (), False)]
        ),
    }
    return {name: value for name, value in options.items() if rng.random() < 0.5}


def test_random_schemas(tmp_path):
    for seed in range(12):
        check_random(seed, tmp_path / str(seed))


@pytest.mark.slow
def test_many_random_schemas(tmp_path):
    for seed in range(100, 220):
        check_random(seed, tmp_path / str(seed))


def with_more(row):
    return {**row, "small": row["small"] + 1, "sum": np.float64(row["packed"].sum())}


ADDED = {"edit_fields": [("sum", np.float64, (), False)]}
OPTIONS = {
    "defaults": {},
    "fields": {"schema_fields": [SCHEMA.money, SCHEMA.id]},
    "one pattern": {"schema_fields": ["p.*ts"]},
    "no such pattern": {"schema_fields": ["nothing"]},
    "epochs": {"num_epochs": 3},
    "parts": {"shuffle_row_drop_partitions": 3},
    "predicate": {
        "predicate": in_lambda(["id", "flag"], lambda number, flag: number % 3 == 0 and flag)
    },
    "predicate of sets": {"predicate": in_negate(in_set({3, 4, 5, 6, 7, 8, 9}, "id"))},
    "predicate of a partition": {"predicate": in_set({"p1"}, "part")},
    "predicate of a partition and more": {
        "predicate": in_lambda(["part", "id"], lambda part, number: part == "p1" and number > 20)
    },
    "predicate of an array": {"predicate": in_lambda(["matrix"], lambda m: m[0, 0] > 2**15)},
    "predicate of an unknown field": {"predicate": in_lambda(["nothing"], bool)},
    "filters": {"filters": [("part", "=", "p2")]},
    "transform": {"transform_spec": TransformSpec(with_more, **ADDED)},
    "transform with a predicate": {
        "transform_spec": TransformSpec(with_more, **ADDED),
        "predicate": in_lambda(["id"], lambda number: number > 30),
    },
    "transform that removes": {"transform_spec": TransformSpec(removed_fields=["image", "words"])},
    "transform that forgets": {"transform_spec": TransformSpec(lambda row: {"id": row["id"]})},
    "transform that selects": {
        "transform_spec": TransformSpec(
            lambda row: {"id": row["id"], "part": row["part"]}, selected_fields=["id", "part"]
        )
    },
    "seed": {"seed": 5, "shuffle_row_groups": True},
    "wrong epochs": {"num_epochs": -1},
    "wrong pool": {"reader_pool_type": "nothing"},
    "wrong selector": {"rowgroup_selector": 3},
    "one of two for shards": {"cur_shard": 1},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name, url):
    expected = read(petastorm, url, **adapted(OPTIONS[name]))
    assert same(read(petastorm_bridge, url, **OPTIONS[name]), expected)


def adapted(options):
    """Options whose objects are the real package's."""
    import petastorm.predicates

    adapted = dict(options)
    if "transform_spec" in options:
        spec = options["transform_spec"]
        adapted["transform_spec"] = petastorm.TransformSpec(
            spec.func, spec.edit_fields, spec.removed_fields or None, spec.selected_fields
        )
    if "predicate" in options:

        class Same(petastorm.predicates.PredicateBase):
            get_fields = staticmethod(options["predicate"].get_fields)
            do_include = staticmethod(options["predicate"].do_include)

        adapted["predicate"] = Same()
    return adapted


def test_even_shards_are_petastorms(tmp_path):
    schema = SCHEMA.create_schema_view(["id", "packed"])
    rows = [{"id": np.int64(i), "packed": np.arange(4.0)} for i in range(36)]
    url = write_stored(tmp_path / "d", schema, rows, files=3, row_group_rows=4)
    for shard in range(3):
        expected = read(petastorm, url, cur_shard=shard, shard_count=3)
        assert len(expected) == 12
        assert same(read(petastorm_bridge, url, cur_shard=shard, shard_count=3), expected)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """Urls of tables of numbers, whose row groups have other sizes, and whose times are all the same."""
    schema = Unischema("N", [UnischemaField(n, np.int64, (), None, False) for n in ("id", "time")])
    urls = []
    for rows, files, size in ((30, 1, 5), (31, 2, 7), (9, 3, 1)):
        path = tmp_path_factory.mktemp("numbers") / "dataset"
        made = [{"id": np.int64(i), "time": np.int64(0)} for i in range(rows)]
        urls.append(write_stored(path, schema, made, files=files, row_group_rows=size))
    return urls


# A second each; whoever changes what a seed does runs all.
@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 30))]
)
def test_seeded_rows(numbers, seed):
    rng = random.Random(seed)
    modulus = rng.choice([2, 3, 50])
    options = {
        "shuffle_rows": True,
        "seed": rng.choice([1, 3, 42, 2**32 - 1]),
        "shuffle_row_groups": rng.random() < 0.5,
        "shuffle_row_drop_partitions": rng.choice([1, 1, 2, 3, 40]),
    }
    if rng.random() < 0.5:
        options["predicate"] = in_lambda(["id"], lambda number: number % modulus)
    if not options["shuffle_row_groups"]:  # else epochs-shuffled-anew
        options |= {"num_epochs": rng.choice([1, 2, 3]), "seed": rng.choice([0, 7])}
    ngram = None
    if rng.random() < 0.5:
        steps = {i: ["id", "time"] for i in range(rng.choice([1, 2, 4]))}
        ngram = (steps, 1, "time", rng.random() < 0.7)
    url = rng.choice(numbers)
    expected = by_name(read(petastorm, url, **adapted(options), **sequences_of(petastorm, ngram)))
    for pool in ({}, {"reader_pool_type": "thread", "workers_count": 3}):
        found = read(
            petastorm_bridge, url, **options, **sequences_of(petastorm_bridge, ngram), **pool
        )
        assert same(by_name(found), expected), options


def sequences_of(package, ngram):
    if ngram is None:
        return {}
    return {"schema_fields": importlib.import_module(f"{package.__name__}.ngram").NGram(*ngram)}


@pytest.mark.parametrize("make", ["make_reader", "make_batch_reader"])
@pytest.mark.parametrize(
    "shard",
    [(0, True), (True, 2), (-1, 2), (2, 2), (0, 0), (0, None), (None, 2), (0.0, 2), (0, 2.0), ("0", 2)],
)  # fmt: skip
def test_odd_shards(numbers, make, shard):
    found = []
    for package in (petastorm, petastorm_bridge):
        options = {"cur_shard": shard[0], "shard_count": shard[1], "reader_pool_type": "dummy"}
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                getattr(package, make)(numbers[0], **options, shuffle_row_groups=False) as reader,
            ):
                found.append(np.concatenate([[], *(np.ravel(each.id) for each in reader)]).tolist())
        except ValueError as error:
            found.append(str(error).partition(":")[0])
    assert found[0] == found[1]


@pytest.mark.parametrize("pool", ["dummy", "thread", "process"])
def test_diagnostics(numbers, pool):
    found = []
    for package in (petastorm, petastorm_bridge):
        with (
            contextlib.redirect_stdout(io.StringIO()),
            package.make_reader(numbers[0], reader_pool_type=pool, workers_count=1) as reader,
        ):
            list(reader)
            found.append(reader.diagnostics)
    # What tells that a row group is done may still lie in the queue of Petastorm's threads.
    found[0] = {name: 0 if name == "output_queue_size" else n for name, n in found[0].items()}
    assert found[0] == found[1]


NGRAMS = {
    "two": ({-1: ["id", "image"], 0: ["id", "maybe"]}, 1, "id", True),
    "with a gap": ({0: ["id"], 2: ["packed"]}, 1, "id", True),
    "patterns": ({0: ["^id.*", "p.*"], 1: ["matrix"]}, 1, "^i.$", True),
    "one": ({3: ["id", "words"]}, 1, "id", True),
    "apart": ({0: ["id"], 1: ["id"], 2: ["id"]}, 1, "id", False),
    "too far apart": ({0: ["id"], 1: ["id"]}, 0.5, "id", True),
    "unsorted": ({0: ["packed", "small"], 1: ["small"]}, 1, "hash", True),
    "decimals": ({0: ["money"], 1: ["id", "money"]}, Decimal("0.25"), "money", True),
    "one without its timestamp": ({0: ["packed"]}, 1, "id", True),
    "one alone without its timestamp": ({0: ["packed"]}, 1, "id", False),
    "two without their timestamp": ({0: ["packed"], 1: ["packed"]}, 1, "id", True),
    "too long without its timestamp": ({0: ["packed"], 4: ["packed"]}, 1, "id", True),
    "longer than a row group": ({i: ["id"] for i in range(5)}, 1, "id", True),
}


@pytest.mark.parametrize(
    "options", [{}, {"shuffle_row_drop_partitions": 2}], ids=["whole", "parts"]
)
@pytest.mark.parametrize("name", NGRAMS)
def test_ngrams(name, options, url):
    import petastorm.ngram

    fields, delta, timestamp, overlap = NGRAMS[name]
    if timestamp == "hash":
        timestamp = "small"
        options = {
            **options,
            "predicate": in_lambda(["id"], lambda number: number != 99),
            "shuffle_rows": True,
            "seed": 3,
        }
    theirs = petastorm.ngram.NGram(dict(fields), delta, timestamp, overlap)
    expected = read(petastorm, url, schema_fields=theirs, **adapted(options))
    ours = NGram(dict(fields), delta, timestamp, overlap)
    found = read(petastorm_bridge, url, schema_fields=ours, **options)
    assert same(by_name(found), by_name(expected))


def by_name(sequences):
    """Sequences as dictionaries: Petastorm's order of their fields depends on the hash seed."""
    if isinstance(sequences, str) or not sequences or not isinstance(sequences[0], dict):
        return sequences
    return [{s: dict(sorted(r._asdict().items())) for s, r in one.items()} for one in sequences]


def batches(loader):
    with contextlib.redirect_stdout(io.StringIO()), loader:
        return list(loader)


def equal_batches(found, expected):
    import torch

    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert list(one) == list(other)
        for name in other:
            assert type(one[name]) is type(other[name]), name
            if isinstance(other[name], torch.Tensor):
                assert one[name].dtype == other[name].dtype, name
                assert torch.equal(one[name], other[name]), name
            else:
                assert one[name] == other[name]


@pytest.mark.parametrize("loader", ["DataLoader", "BatchedDataLoader", "InMemBatchedDataLoader"])
def test_torch_loaders(loader, url):
    theirs = pytest.importorskip("petastorm.pytorch")
    import petastorm_bridge.pytorch as ours

    names = [*NUMBERS, *(["money", "part"] if loader == "DataLoader" else [])]
    options = {
        "reader_pool_type": "dummy",
        "shuffle_row_groups": False,
        "schema_fields": [SCHEMA.fields[name] for name in names],
    }
    expected = batches(getattr(theirs, loader)(petastorm.make_reader(url, **options), batch_size=7))
    assert len(expected) == 6
    for package in (petastorm_bridge, petastorm):
        made = getattr(ours, loader)(package.make_reader(url, **options), batch_size=7)
        equal_batches(batches(made), expected)


@pytest.mark.parametrize("field", ["maybe", "words", "points"])
def test_what_torch_cannot_take(field, url):
    theirs = pytest.importorskip("petastorm.pytorch")
    import petastorm_bridge.pytorch as ours

    options = {"reader_pool_type": "dummy", "shuffle_row_groups": False, "schema_fields": [field]}
    errors = []
    for package, module in ((petastorm, theirs), (petastorm_bridge, ours), (petastorm, ours)):
        with pytest.raises((TypeError, RuntimeError)) as error:
            batches(module.DataLoader(package.make_reader(url, **options), batch_size=7))
        errors.append((type(error.value), str(error.value).partition(" but got")[0]))
    assert len(set(errors)) == 1, errors


@pytest.mark.slow
def test_tensorflow(url):
    theirs = pytest.importorskip("petastorm.tf_utils")
    import petastorm_bridge.tf_utils as ours

    options = {"reader_pool_type": "dummy", "shuffle_row_groups": False}
    fields = ["id", "money", "part", "small", "image", "points", "matrix", "flag"]

    def elements(package, module, schema_fields):
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with package.make_reader(url, schema_fields=schema_fields, **options) as reader:
                dataset = module.make_petastorm_dataset(reader)
                return dataset.element_spec, [numpy_of(element) for element in dataset]

    fields = [SCHEMA.fields[name] for name in fields]
    spec, expected = elements(petastorm, theirs, fields)
    for package in (petastorm_bridge, petastorm):
        found_spec, found = elements(package, ours, fields)
        assert same(found, expected)
        assert str(found_spec) == str(spec)


MOMENTS = Unischema(
    "Moments",
    [
        UnischemaField("id", np.int64, (), None, False),
        UnischemaField("day", np.datetime64, (), ScalarCodec(spark("DateType")), False),
        UnischemaField("time", np.datetime64, (), ScalarCodec(spark("TimestampType")), False),
    ],
)


def moments_in(unit, *, arrays):
    """Options of a transform that makes moments of that unit."""

    def change(row):
        moment = row["time"].astype(f"datetime64[{unit}]")
        return {"id": row["id"], "x": np.array([moment] * 2) if arrays else moment}

    added = ("x", np.datetime64, (2,) if arrays else (), False)
    spec = TransformSpec(change, edit_fields=[added], removed_fields=["day", "time"])
    return {"transform_spec": spec}


@pytest.mark.slow
def test_moments_in_tensorflow(tmp_path):
    theirs = pytest.importorskip("petastorm.tf_utils")
    import petastorm_bridge.tf_utils as ours

    moment = dt.datetime(2001, 2, 3, 4, 5, 6, 7)
    rows = [{"id": np.int64(i), "day": dt.date(2000, 1, 1 + i), "time": moment} for i in range(4)]
    url = write_stored(tmp_path / "d", MOMENTS, rows)
    plain = tmp_path / "plain"
    plain.mkdir()
    units = {
        unit: pa.array([moment.replace(microsecond=0)] * 2, pa.timestamp(unit))
        for unit in ("s", "ms", "us", "ns")
    }
    parquet.write_table(pa.table({**units, "day": [moment.date()] * 2}), plain / "a.parquet")

    def elements(package, module, place, **options):
        with (
            contextlib.redirect_stdout(io.StringIO()),
            package.make_reader(
                place, reader_pool_type="dummy", shuffle_row_groups=False, **options
            ) as reader,
        ):
            return [numpy_of(element) for element in module.make_petastorm_dataset(reader)]

    pair = ({0: ["day"], 1: ["id", "time"]}, 1, "id", True)
    cases = [
        (url, {}, None), (url, {"schema_fields": ["day"]}, None), (url, {}, pair), (f"file://{plain}", {}, None),
        *((url, moments_in(unit, arrays=arrays), None) for unit in ("Y", "M", "D", "h", "s", "ms", "us", "ns", "ps") for arrays in (False, True)),
    ]  # fmt: skip
    for place, options, ngram in cases:
        expected = elements(
            petastorm, theirs, place, **adapted(options), **sequences_of(petastorm, ngram)
        )
        found = elements(
            petastorm_bridge, ours, place, **options, **sequences_of(petastorm_bridge, ngram)
        )
        assert len(expected) > 1
        assert same(by_name(found), by_name(expected)), (options, ngram)


def numpy_of(element):
    if isinstance(element, dict):
        return {step: numpy_of(part) for step, part in element.items()}
    return type(element)(*(np.array(value) for value in element))
