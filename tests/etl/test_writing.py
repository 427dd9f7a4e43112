"""What the bridge writes in Petastorm's format is what Petastorm itself writes and reads."""

import datetime as dt
import decimal
import importlib
import json
import os
import pickle
import random
import shutil
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T  # noqa: N812 - as every program calls it
from stored import random_rows, random_schema

import petastorm_bridge
from petastorm_bridge import codecs, unischema
from petastorm_bridge._tables.spark_types import STAND_INS
from petastorm_bridge.errors import BridgeWarning, DatasetError, StoredSchemaError
from petastorm_bridge.etl import (
    dataset_metadata,
    metadata_util,
    rowgroup_indexers,
    rowgroup_indexing,
)
from petastorm_bridge.etl._pickling import pickled_indexes, pickled_schema
from petastorm_bridge.etl.dataset_metadata import (
    PetastormMetadataError,
    PetastormMetadataGenerationError,
    get_schema,
    get_schema_from_dataset_url,
    infer_or_load_unischema,
    load_row_groups,
    materialize_dataset,
)
from petastorm_bridge.reader._rows.indexes import read_indexes
from petastorm_bridge.reader._rows.schema import read_schema
from petastorm_bridge.reader._rows.store import store_at

try:
    import petastorm
    import petastorm.codecs
    import petastorm.etl.dataset_metadata
    import petastorm.etl.legacy
    import petastorm.etl.rowgroup_indexers
    import petastorm.etl.rowgroup_indexing
    import petastorm.unischema
except ImportError:  # today's versions
    petastorm = None

beside_petastorm = pytest.mark.skipif(petastorm is None, reason="needs the real Petastorm")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),
]
ROWS = 30


def fields(codec):
    """Fields with the codecs of a module: ours, or the original's."""
    return [
        ("id", np.int64, (), codec.ScalarCodec(T.LongType()), False),
        ("price", decimal.Decimal, (), codec.ScalarCodec(T.DecimalType(10, 2)), False),
        ("text", np.str_, (), codec.ScalarCodec(T.StringType()), True),
        ("flag", np.bool_, (), codec.ScalarCodec(T.BooleanType()), False),
        ("plain", np.float64, (), None, False),
        ("day", np.datetime64, (), codec.ScalarCodec(T.DateType()), True),
        ("image", np.uint8, (4, 5, 3), codec.CompressedImageCodec("png"), False),
        ("photo", np.uint8, (8, 8), codec.CompressedImageCodec("jpeg", 70), False),
        ("matrix", np.float32, (2, None), codec.NdarrayCodec(), True),
        ("packed", np.uint16, (np.int64(3),), codec.CompressedNdarrayCodec(), False),
    ]


@pytest.fixture(scope="module")
def schema():
    made = [unischema.UnischemaField(*field) for field in fields(codecs)]
    return unischema.Unischema("Everything", made)


def row(i):
    rng = np.random.default_rng(i)
    return {
        "id": np.int64(i),
        "price": decimal.Decimal(i) / 10,
        "text": None if i % 5 == 0 else f"text {i % 3}",
        "flag": np.bool_(i % 2),
        "plain": np.float64(i / 7),
        "day": None if i % 4 == 0 else dt.date(2020, 1, 1 + i % 28),
        "image": rng.integers(0, 255, (4, 5, 3), dtype=np.uint8),
        "photo": np.full((8, 8), i, np.uint8),
        "matrix": None if i % 3 == 0 else rng.normal(size=(2, i % 4)).astype(np.float32),
        "packed": rng.integers(0, 99, 3).astype(np.uint16),
    }


def write(spark, schema, url, materialize=materialize_dataset, to_row=unischema.dict_to_spark_row):
    with materialize(spark, url, schema, 1):
        rows = [to_row(schema, row(i)) for i in range(ROWS)]
        frame = spark.createDataFrame(rows, schema.as_spark_schema())
        frame.repartition(3).write.parquet(url)


@pytest.fixture(scope="module")
def ours(spark, schema, tmp_path_factory):
    path = tmp_path_factory.mktemp("ours") / "dataset"
    write(spark, schema, f"file://{path}")
    return path


@pytest.fixture(scope="module")
def theirs(spark, tmp_path_factory):
    path = tmp_path_factory.mktemp("theirs") / "dataset"
    made = petastorm.unischema
    schema = made.Unischema(
        "Everything", [made.UnischemaField(*f) for f in fields(petastorm.codecs)]
    )
    write(
        spark,
        schema,
        f"file://{path}",
        petastorm.etl.dataset_metadata.materialize_dataset,
        made.dict_to_spark_row,
    )
    return path


def read(package, path):
    with package.make_reader(f"file://{path}", reader_pool_type="dummy") as reader:
        return {int(found.id): found._asdict() for found in reader}


@pytest.mark.smoke
@beside_petastorm
def test_each_reads_what_the_other_writes(ours, theirs):
    wanted = read(petastorm, theirs)
    assert wanted.keys() == set(range(ROWS))
    for found in (
        read(petastorm, ours),
        read(petastorm_bridge, ours),
        read(petastorm_bridge, theirs),
    ):
        assert found.keys() == wanted.keys()
        for i, values in wanted.items():
            assert list(found[i]) == list(values)
            for name, value in values.items():
                assert type(found[i][name]) is type(value), name
                np.testing.assert_array_equal(found[i][name], value, err_msg=name)


def original_of(schema):
    """The same schema, made of the real package's classes."""
    made = petastorm.codecs

    def codec_of(codec):
        if codec is None:
            return None
        name = type(codec).__name__
        if name == "ScalarCodec":
            return made.ScalarCodec(codec.spark_dtype())
        if name == "CompressedImageCodec":
            return made.CompressedImageCodec(codec.image_codec, codec.quality)
        return getattr(made, name)()

    fields = [
        petastorm.unischema.UnischemaField(*field[:3], codec_of(field.codec), field.nullable)
        for field in schema.fields.values()
    ]
    return petastorm.unischema.Unischema("Random", fields)


def check_random(spark, folder, seed):
    """What each package writes of a random schema and rows is what both packages read."""
    rng = random.Random(seed)
    schema = random_schema(rng)
    rows = random_rows(rng, schema, rng.randint(1, 12))
    theirs = original_of(schema)
    writers = {
        "ours": (schema, materialize_dataset, unischema.dict_to_spark_row),
        "theirs": (
            theirs,
            petastorm.etl.dataset_metadata.materialize_dataset,
            petastorm.unischema.dict_to_spark_row,
        ),
    }
    found = {}
    for who, (written, materialize, to_row) in writers.items():
        url = f"file://{folder}/{seed}-{who}"
        with materialize(spark, url, written, 1):
            made = [to_row(written, dict(row)) for row in rows]
            frame = spark.createDataFrame(made, written.as_spark_schema())
            frame.coalesce(1).write.parquet(url)
        for package in (petastorm, petastorm_bridge):
            found[who, package.__name__] = read(package, url.removeprefix("file://"))
    wanted = found.pop(("theirs", "petastorm"))
    assert wanted.keys() == set(range(len(rows)))
    for how, each in found.items():
        assert each.keys() == wanted.keys(), (seed, how)
        for i, values in wanted.items():
            assert list(each[i]) == list(values), (seed, how)
            for name, value in values.items():
                assert type(each[i][name]) is type(value), (seed, how, name)
                assert getattr(each[i][name], "dtype", None) == getattr(value, "dtype", None)
                np.testing.assert_array_equal(each[i][name], value, err_msg=f"{seed} {how} {name}")


@beside_petastorm
@pytest.mark.slow
def test_random_schemas_are_written_and_read_by_each(spark, tmp_path):
    many = os.environ.get("PETASTORM_BRIDGE_PARITY") == "live"
    for seed in range(60 if many else 4):
        check_random(spark, tmp_path, seed)


@pytest.mark.smoke
def test_what_is_written_is_read(ours):
    for i, found in read(petastorm_bridge, ours).items():
        for name in row(i).keys() - {"photo", "day"}:  # JPEG loses, days come as Spark has them
            np.testing.assert_array_equal(found[name], row(i)[name], err_msg=name)


@beside_petastorm
def test_the_pickled_schema_is_the_originals(ours, theirs):
    """State for state: what the original finds in ours is what it finds in its own."""
    mine, its = (
        petastorm.etl.dataset_metadata.get_schema_from_dataset_url(f"file://{p}")
        for p in (ours, theirs)
    )
    assert type(mine) is type(its)
    assert vars(mine).keys() == vars(its).keys()
    assert list(mine.fields) == list(its.fields)
    for name, field in its.fields.items():
        found = mine.fields[name]
        assert type(found) is type(field)
        assert tuple(found)[:3] == tuple(field)[:3]
        assert found.nullable == field.nullable
        assert type(found.codec) is type(field.codec)
        assert found.codec is None or vars(found.codec) == vars(field.codec)
    assert mine.as_spark_schema() == its.as_spark_schema()


@beside_petastorm
def test_the_same_lies_beside_the_files(ours, theirs):
    kept = [store_at(f"file://{path}").notes() for path in (ours, theirs)]
    assert kept[0].keys() == kept[1].keys()
    counts = [json.loads(notes[dataset_metadata.ROW_GROUPS_PER_FILE_KEY]) for notes in kept]
    assert sorted(counts[0].values()) == sorted(counts[1].values())
    assert counts[0].keys() == {path.name for path in ours.glob("*.parquet")}
    hidden = [{p.name for p in path.iterdir() if p.suffix != ".parquet"} for path in (ours, theirs)]
    plain = [{name for name in names if not name.startswith(".part-")} for names in hidden]
    assert plain[0] == plain[1] >= {"_common_metadata"}
    schemas = [
        pq.read_schema(path / "_common_metadata").remove_metadata() for path in (ours, theirs)
    ]
    assert schemas[0].equals(schemas[1])


def test_the_schema_comes_back(ours, schema):
    found = get_schema_from_dataset_url(f"file://{ours}")
    assert found.fields == schema.fields
    assert [str(field.codec) for field in found.fields.values()] == [
        str(field.codec) for field in schema.fields.values()
    ]
    dataset = pq.ParquetDataset(str(ours))
    assert get_schema(dataset).fields == infer_or_load_unischema(dataset).fields == schema.fields
    pieces = load_row_groups(dataset)
    assert sum(piece.read(["id"]).num_rows for piece in pieces) == ROWS
    assert [piece.path for piece in pieces] == sorted(piece.path for piece in pieces)


def test_the_pickle_names_nothing_of_ours(schema):
    """Nor NumPy 2's names, which older releases do not have."""
    pickled = pickled_schema(schema)
    assert b"petastorm_bridge" not in pickled
    assert b"numpy\nbool\n" not in pickled
    assert b"_core" not in pickled
    with pytest.raises(TypeError, match="A Unischema is needed, not a dict"):
        pickled_schema({})


@pytest.mark.parametrize("name", sorted(STAND_INS.keys() - {"StructType"}))
def test_types_of_a_schema_that_was_read_are_pickled_as_sparks(name):
    """Such a schema holds the bridge's own classes in place of Spark's, which Petastorm does not know."""
    spark_type = STAND_INS[name](**dict.fromkeys(STAND_INS[name].arguments, 1))
    field = unischema.UnischemaField("x", np.int64, (), codecs.ScalarCodec(spark_type), False)
    stored = pickled_schema(unischema.Unischema("Read", [field]))
    assert b"petastorm_bridge" not in stored
    if petastorm is not None:
        found = pickle.loads(stored).fields["x"].codec._spark_type
        assert type(found) is getattr(T, name)
        assert vars(found).items() >= vars(spark_type).items()


class OwnCodec(codecs.NdarrayCodec):
    pass


def test_a_codec_of_ones_own_is_warned_of():
    field = unischema.UnischemaField("x", np.int8, (1,), OwnCodec(), False)
    with pytest.warns(BridgeWarning, match="neither Petastorm nor the bridge will open"):
        pickled_schema(unischema.Unischema("Own", [field]))


def test_a_field_with_the_name_of_a_method_is_no_attribute():
    field = unischema.UnischemaField("make_namedtuple", np.int8, (), None, False)
    with pytest.warns(UserWarning, match="conflicts with an existing property"):
        schema = unischema.Unischema("Clash", [field])
    stored = pickled_schema(schema)
    if petastorm is not None:
        with pytest.warns(UserWarning, match="conflicts with an existing property"):
            theirs = petastorm.unischema.Unischema("Clash", [field])
        assert vars(pickle.loads(stored)).keys() == vars(theirs).keys()
    with pytest.warns(UserWarning, match="conflicts with an existing property"):
        assert list(read_schema(stored).fields) == ["make_namedtuple"]


def settings(spark):
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    names = [
        "parquet.block.size",
        "parquet.summary.metadata.level",
        "parquet.block.size.row.check.min",
    ]
    return {name: hadoop.get(name) for name in names}


def test_sparks_settings_hold_in_the_block_only(spark, schema, tmp_path):
    before = settings(spark)
    with (  # noqa: PT012 - what the block sees is the point
        pytest.raises(KeyError),
        materialize_dataset(spark, f"file://{tmp_path}/x", schema, 3),
    ):
        assert settings(spark)["parquet.block.size"] == str(3 << 20)
        assert settings(spark)["parquet.summary.metadata.level"] == "NONE"
        raise KeyError("of the block's own")
    assert settings(spark) == before
    with (
        pytest.raises((DatasetError, OSError)),
        materialize_dataset(spark, f"file://{tmp_path}/x", schema),
    ):
        pass  # writes nothing
    assert settings(spark) == before


class _Settings(dict):
    """A session of Spark Connect that refuses one setting; it has no Spark context."""

    @property
    def conf(self):
        return self

    def set(self, key, value):
        if key == "parquet.block.size":
            raise ValueError(key)
        self[key] = value

    def unset(self, key):
        self.pop(key, None)


def test_a_refused_setting_puts_back_those_before_it(schema):
    session = _Settings({"parquet.summary.metadata.level": "ALL"})
    with (
        pytest.raises(ValueError, match=r"parquet\.block\.size"),
        materialize_dataset(session, "file:///nowhere", schema, 3),
    ):
        pass
    assert session == {"parquet.summary.metadata.level": "ALL"}


def test_what_is_missing_is_said(spark, schema, tmp_path):
    frame = spark.range(3)
    frame.write.parquet(f"file://{tmp_path}/plain")
    dataset = pq.ParquetDataset(str(tmp_path / "plain"))
    with pytest.raises(PetastormMetadataError, match="_common_metadata"):
        get_schema(dataset)
    assert list(infer_or_load_unischema(dataset).fields) == ["id"]
    assert len(load_row_groups(dataset)) == len(dataset.files)
    store_at(f"file://{tmp_path}/plain").note(b"other", b"1")
    with pytest.raises(PetastormMetadataError, match="unischema"):
        get_schema(dataset)
    with pytest.raises(PetastormMetadataError, match="row group"):
        load_row_groups(dataset)
    with pytest.raises(ValueError, match="index is not available"):
        rowgroup_indexing.get_row_group_indexes(dataset)
    with (
        pytest.raises(PetastormMetadataGenerationError, match="petastorm_generate_metadata"),
        materialize_dataset(spark, f"file://{tmp_path}/plain2", schema, use_summary_metadata=True),
    ):
        frame.write.option("parquet.summary.metadata.level", "NONE").parquet(
            f"file://{tmp_path}/plain2"
        )
    with pytest.raises(ValueError, match="scheme"):
        get_schema_from_dataset_url("/no/url")
    with pytest.raises(OSError, match="no-such"):
        get_schema_from_dataset_url("file:///no-such")


def indexers(module):
    return [
        module.SingleFieldIndexer("by id", "id"),
        module.SingleFieldIndexer("by text", "text"),
        module.FieldNotNullIndexer("with matrix", "matrix"),
    ]


@pytest.mark.parametrize("here", [True, False], ids=["here", "in executors"])
def test_indexes_say_which_row_groups_hold_what(spark, ours, tmp_path, here):
    context = None if here else spark.sparkContext
    ours = shutil.copytree(ours, tmp_path / "copy")
    url = f"file://{ours}"
    rowgroup_indexing.build_rowgroup_index(url, context, indexers(rowgroup_indexers))
    found = rowgroup_indexing.get_row_group_indexes(pq.ParquetDataset(str(ours)))
    assert sorted(found) == ["by id", "by text", "with matrix"]
    wanted = {}
    for number, piece in enumerate(load_row_groups(store_at(url))):
        for name in ("id", "text"):
            for value in piece.read([name])[name].to_pylist():
                wanted.setdefault((name, value), set()).add(number)
    for name in ("id", "text"):
        index = found[f"by {name}"]
        assert set(index.indexed_values) == {v for n, v in wanted if n == name and v is not None}
        for value in index.indexed_values:
            assert index.get_row_group_indexes(value) == wanted[name, value]
    expected = {v for (n, v), groups in wanted.items() if n == "id" and groups & wanted["id", 7]}
    for package in filter(None, (petastorm, petastorm_bridge)):
        selectors = importlib.import_module(f"{package.__name__}.selectors")
        found = set()
        while found != expected:  # the original loses row groups now and then
            selector = selectors.SingleIndexSelector("by id", [7])
            with package.make_reader(
                url, rowgroup_selector=selector, schema_fields=["id"], reader_pool_type="dummy"
            ) as reader:
                found = {int(each.id) for each in reader}
            assert found <= expected
        selector = selectors.SingleIndexSelector("by id", [3000])
        with pytest.warns(UserWarning, match="No matching data"):
            reader = package.make_reader(url, rowgroup_selector=selector, reader_pool_type="dummy")
        with reader:
            assert list(reader) == []


@beside_petastorm
def test_the_original_finds_no_row_group_for_a_value_that_an_index_lacks():
    made = indexers(rowgroup_indexers)
    for index in made:
        for group in (4, 7):
            index.build_index([{"id": group, "text": f"{group}", "matrix": group}], group)
    pickled = pickled_indexes({index.index_name: index for index in made})
    theirs = petastorm.etl.legacy.depickle_legacy_package_name_compatible(pickled)
    for package, indexes in ((petastorm, theirs), (petastorm_bridge, read_indexes(pickled))):
        selectors = importlib.import_module(f"{package.__name__}.selectors")
        one = selectors.SingleIndexSelector

        def found(selector, indexes=indexes):
            return selector.select_row_groups(indexes)

        assert found(one("by id", [3000])) == set()
        assert found(one("by id", [3000, 7])) == {7}
        assert found(one("by text", ["7", "other"])) == {7}
        assert found(one("with matrix", ["Field is Not Null"])) == {4, 7}
        both = [one("by id", [4, 3000]), one("by text", ["7", "other"])]
        assert found(selectors.UnionIndexSelector(both)) == {4, 7}
        assert found(selectors.IntersectIndexSelector(both)) == set()


@beside_petastorm
def test_indexes_of_the_original_are_read(spark, theirs, tmp_path):
    theirs = shutil.copytree(theirs, tmp_path / "copy")
    url = f"file://{theirs}"
    its = petastorm.etl.rowgroup_indexing
    its.build_rowgroup_index(url, spark.sparkContext, indexers(petastorm.etl.rowgroup_indexers))
    found = rowgroup_indexing.get_row_group_indexes(pq.ParquetDataset(str(theirs)))
    wanted = rowgroup_indexers.SingleFieldIndexer("by id", "id")
    for number, piece in enumerate(load_row_groups(store_at(url))):
        wanted.build_index(piece.read(["id"]).to_pylist(), number)
    assert {v: found["by id"].get_row_group_indexes(v) for v in range(ROWS)} == wanted._index_data


def test_indexers_refuse_what_is_not_theirs():
    one, other, third = indexers(rowgroup_indexers)
    with pytest.raises(ValueError, match="index the same fields"):
        one + other
    with pytest.raises(TypeError, match="same types"):
        one + third
    with pytest.raises(ValueError, match="empty rows"):
        one.build_index([], 0)
    one.build_index([{"id": np.array(["a", "b"])}, {"id": None}], 4)
    assert set(one.indexed_values) == {"a", "b"}


def test_the_schema_is_printed(ours, tmp_path):
    ours = shutil.copytree(ours, tmp_path / "copy")
    rowgroup_indexing.build_rowgroup_index(f"file://{ours}", None, indexers(rowgroup_indexers))
    run = [
        sys.executable,
        "-m",
        "petastorm_bridge.etl.metadata_util",
        "--dataset-url",
        f"file://{ours}",
    ]
    printed = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert "UnischemaField('matrix', float32, (2, None), NdarrayCodec(), True)" in printed
    assert "Index: by text" in printed
    assert "  -- text 2(" in printed


def test_the_schema_is_printed_where_there_are_no_indexes(ours, capsys):
    with pytest.raises(ValueError, match="index is not available"):
        metadata_util.main(["--dataset-url", f"file://{ours}"])
    printed = capsys.readouterr().out
    assert "UnischemaField('id', int64" in printed
    assert "indexes" not in printed


def test_hostile_metadata_is_refused(ours, tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("run",))

    copied = tmp_path / "copied"
    shutil.copytree(ours, copied)
    store = store_at(f"file://{copied}")
    store.note(dataset_metadata.UNISCHEMA_KEY, pickle.dumps(Evil()))
    store.note(rowgroup_indexing.ROWGROUPS_INDEX_KEY, pickle.dumps(Evil()))
    with pytest.raises(StoredSchemaError, match="no part of Petastorm's schemas"):
        get_schema(store)
    with pytest.raises(StoredSchemaError, match="Nothing was run"):
        rowgroup_indexing.get_row_group_indexes(store)
