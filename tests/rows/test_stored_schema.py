"""The pickle in ``_common_metadata``: what belongs to a schema is read, anything else is refused and not run."""

import collections
import os
import pickle
import pickletools
import random
import re
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest
from stored import pickled, random_schema, spark, write_stored

from petastorm_bridge import make_reader
from petastorm_bridge._tables.spark_types import STAND_INS
from petastorm_bridge.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
from petastorm_bridge.errors import PetastormMetadataError, StoredSchemaError
from petastorm_bridge.reader._rows.indexes import read_indexes
from petastorm_bridge.reader._rows.pickles import MAX_BYTES
from petastorm_bridge.reader._rows.schema import read_schema
from petastorm_bridge.unischema import Unischema, UnischemaField

SCHEMA = Unischema(
    "S",
    [
        UnischemaField("id", np.int64, (), None, False),
        UnischemaField("money", Decimal, (), ScalarCodec(spark("DecimalType", precision=9, scale=2)), True),
        UnischemaField("image", np.uint8, (None, None, 3), CompressedImageCodec("jpeg", 70), False),
        UnischemaField("points", np.dtype(">f4"), (None, 3), NdarrayCodec(), False),
        UnischemaField(
            "texts", np.str_, (None,),
            ScalarCodec(spark("ArrayType", elementType=spark("StringType"), containsNull=True)), True,
        ),
    ],
)  # fmt: skip


def same(found, schema):
    assert str(found) == str(schema)
    assert list(found.fields.values()) == list(schema.fields.values())


@pytest.mark.parametrize("protocol", range(6))
def test_a_schema_is_read_whatever_the_protocol(protocol):
    same(read_schema(pickle.dumps(SCHEMA, protocol)), SCHEMA)


def test_random_schemas_are_read():
    for seed in range(40):
        schema = random_schema(random.Random(seed))
        same(read_schema(pickled(schema)), schema)


@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble, np.csingle, np.cdouble])
def test_numbers_of_all_lengths_are_known(dtype):
    schema = Unischema("S", [UnischemaField("a", dtype, (2,), NdarrayCodec(), False)])
    same(read_schema(pickled(schema)), schema)


def test_old_names_of_petastorm_are_known():
    for package in (b"av.experimental.deepdrive.dataset_toolkit.", b"av.ml.dataset_toolkit."):
        same(read_schema(pickled(SCHEMA).replace(b"petastorm.", package)), SCHEMA)


def test_a_schema_of_python_2_is_read():
    """Texts are bytes there, and Spark pickled namedtuples in a way of its own."""
    old = (
        b"ccopy_reg\n_reconstructor\n(cpetastorm.unischema\nUnischema\nc__builtin__\nobject\nNtR"
        b"(dS'_name'\nS'Old'\nsS'_fields'\nccollections\nOrderedDict\n((l(lS'a'\n"
        b"acpyspark.serializers\n_restore\n(S'UnischemaField'\n"
        b"(S'name'\nS'numpy_dtype'\nS'shape'\nS'codec'\nS'nullable'\nt"
        b"(S'a'\ncnumpy\nunicode_\n(L3L\nNtNI01\nttRaatRsb."
    )
    found = read_schema(old)
    assert found.a == UnischemaField("a", np.str_, (3, None), None, True)


def test_the_originals_own_pickles_are_read():
    unischema = pytest.importorskip("petastorm.unischema", reason="compares with the real package")
    codecs = pytest.importorskip("petastorm.codecs")
    types = pytest.importorskip("pyspark.sql.types")
    original = unischema.Unischema(
        "S",
        [
            unischema.UnischemaField("b", np.bool_, (), None, False),
            unischema.UnischemaField(
                "d", Decimal, (), codecs.ScalarCodec(types.DecimalType(9, 2)), False
            ),
            unischema.UnischemaField("a", np.float32, (2, None), codecs.NdarrayCodec(), True),
        ],
    )
    for protocol in range(6):
        found = read_schema(pickle.dumps(original, protocol))
        assert str(found) == str(original)
        assert found.as_spark_schema() == original.as_spark_schema()


def test_fields_may_share_their_codecs():
    codec = ScalarCodec(spark("ArrayType", elementType=spark("DecimalType", precision=9, scale=2)))
    fields = [UnischemaField(f"f{i}", Decimal, (), codec, True) for i in range(1000)]
    schema = Unischema("S", fields)
    same(read_schema(pickle.dumps(schema)), schema)


def test_structs_may_lie_in_one_another():
    nested = spark("LongType")
    for _ in range(12):
        member = STAND_INS["StructField"](name="a", dataType=nested, nullable=True, metadata={})
        nested = spark("StructType", fields=[member])
    schema = Unischema("S", [UnischemaField("a", np.int64, (), ScalarCodec(nested))])
    same(read_schema(pickle.dumps(schema)), schema)


@pytest.mark.parametrize("protocol", range(6))
def test_the_originals_own_indexes_are_read(protocol):
    indexers = pytest.importorskip(
        "petastorm.etl.rowgroup_indexers", reason="compares with the real package"
    )
    values = [
        3, -(2**63), 2**63 - 1, 2.5, True, "a", "ä\u20ac", "", b"", b"\xff\x00", Decimal("1.50"), np.int8(7),
        np.float32(0.25), np.str_("n"), np.bytes_(b"n"), np.datetime64("2024-01-02"), -1, -2,
    ]  # fmt: skip
    by_value = indexers.SingleFieldIndexer("by value", "v")
    not_null = indexers.FieldNotNullIndexer("not null", "v")
    for group, value in enumerate([*values, values[0]]):
        by_value.build_index([{"v": value}], group)
        not_null.build_index([{"v": value}], group)
    found = read_indexes(pickle.dumps({"by value": by_value, "not null": not_null}, protocol))
    assert sorted(found) == ["by value", "not null"]
    assert found["by value"].indexed_values == by_value.indexed_values
    assert found["not null"].indexed_values == not_null.indexed_values
    assert found["not null"].get_row_group_indexes() == not_null.get_row_group_indexes()
    for value in values:
        expected = by_value.get_row_group_indexes(value)
        assert found["by value"].get_row_group_indexes(value) == expected
    assert found["by value"].get_row_group_indexes("unknown") == set()


def test_reading_needs_no_spark(tmp_path):
    url = write_stored(tmp_path / "d", SCHEMA.create_schema_view(["id", "money"]), [{"id": 1}])
    code = (
        "import sys; sys.modules['pyspark'] = None; from petastorm_bridge import make_reader\n"
        f"with make_reader({url!r}) as reader: print(reader.schema, tuple(map(str, next(reader))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ScalarCodec(DecimalType())" in done.stdout
    assert "('1', 'None')" in done.stdout


# --- what is refused ---------------------------------------------------------------------------------


class Calls:
    """Pickles as a call."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


MARK = "/tmp/petastorm_bridge_ran_a_pickle"
TOUCH = f"open({MARK!r}, 'w')"
HOSTILE = {
    "os.system": Calls(os.system, (f"touch {MARK}",)),
    "builtins.eval": Calls(eval, (TOUCH,)),
    "builtins.exec": Calls(exec, (TOUCH,)),
    "builtins.getattr": Calls(getattr, ("os", "system")),
    "builtins.__import__": Calls(__import__, ("os",)),
    "functools.partial": Calls(__import__("functools").partial, (os.system, f"touch {MARK}")),
    "subprocess.Popen": Calls(subprocess.Popen, (["touch", MARK],)),
    "operator.attrgetter": Calls(__import__("operator").attrgetter, ("system",)),
    "numpy.load": Calls(np.load, (MARK,)),
    "numpy.fromfile": Calls(np.fromfile, (MARK,)),
}
NESTED = {
    "in a field's name": lambda bad: Unischema("S", [UnischemaField(bad, np.int32, ())]),
    "in a field's type": lambda bad: Unischema("S", [UnischemaField("a", bad, ())]),
    "in a shape": lambda bad: Unischema("S", [UnischemaField("a", np.int32, (bad,))]),
    "in a codec": lambda bad: Unischema("S", [UnischemaField("a", np.int32, (), ScalarCodec(bad))]),
    "in a list": lambda bad: [[[bad]]],
}


@pytest.fixture(autouse=True)
def nothing_runs():
    assert not os.path.exists(MARK)
    yield
    assert not os.path.exists(MARK), "a pickle was run"


@pytest.mark.difference("stored-schema-runs-nothing")
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_call_is_refused_by_name(name, protocol):
    _, _, function = name.rpartition(".")
    data = pickle.dumps(HOSTILE[name], protocol)
    with pytest.raises(StoredSchemaError, match=rf"names [\w.]+\.{function}, .* Nothing was run"):
        read_schema(data)
    with pytest.raises(StoredSchemaError, match="Nothing was run"):
        read_indexes(data)


@pytest.mark.parametrize("place", NESTED)
def test_a_call_is_refused_wherever_it_stands(place):
    bad = HOSTILE["builtins.eval"]
    holder = NESTED[place](bad if place != "in a field's name" else "x")
    data = pickle.dumps(holder, 4)
    if place == "in a field's name":
        data = data.replace(b"\x8c\x01x", pickle.dumps(bad, 4)[2:-1], 1)
    with pytest.raises(StoredSchemaError):
        read_schema(data)


def test_classes_of_admitted_packages_are_no_free_pass():
    """Petastorm itself admits whatever lies in numpy, builtins, pyspark …"""
    for data in (
        b"cnumpy.core.shape_base\neval\n(S'1'\ntR.",
        b"cpetastorm.codecs\nnp.load\n.",
        b"\x80\x04\x8c\x10petastorm.codecs\x8c\x06cv2.os\x93.",
        b"cpyspark.serializers\nCloudPickleSerializer\n)R.",
        b"cbuiltins\ngetattr\n.",
        b"ccollections\nnamedtuple\n(S'a b'\nS'c'\ntR.",
    ):
        with pytest.raises(StoredSchemaError, match=r"names .*Nothing was run"):
            read_schema(data)


def test_admitted_names_cannot_be_called_for_other_ends():
    for data in (
        b"cnumpy\nbytes_\n(I999999999\ntR.",  # would allocate a gigabyte
        b"cnumpy\nvoid\n(I999999999\ntR.",
        b"cbuiltins\ntuple\n(I1\ntR.",
        b"cdecimal\nDecimal\n(S'1e999999999'\ntR.",
        pickle.dumps({"_fields": {}}),
        b"cpetastorm.unischema\nUnischema\n.",
    ):
        with pytest.raises(StoredSchemaError):
            read_schema(data)


def test_memory_cannot_be_asked_for():
    """Sizes that a pickle announces are those of bytes it has; its memo is no array."""
    nested = b"]" + b"q\x00" + b"0" + b"h\x00" * 50
    doubled = b"".join(b"(" + b"h%c" % i * 9 + b"tq%c" % (i + 1) + b"0" for i in range(200))
    for data in (
        b"\x80\x04r\xff\xff\xff\x7f.",
        b"\x80\x04Nr\xff\xff\xff\x7fN.",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.",
        nested + b".",
        b"]q\x000" + doubled + b"h\xc8.",
        b"x" * (MAX_BYTES + 1),
    ):
        with pytest.raises(StoredSchemaError):
            read_schema(data)


def test_types_nested_without_end_are_refused():
    endless = spark("ArrayType", elementType=spark("StringType"))
    for _ in range(30):
        endless = spark("MapType", keyType=endless, valueType=endless)
    schema = Unischema("S", [UnischemaField("a", np.str_, (), ScalarCodec(endless))])
    with pytest.raises(StoredSchemaError):
        read_schema(pickle.dumps(schema))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_every_beginning_of_a_schema_is_refused(protocol):
    data = pickle.dumps(SCHEMA, protocol)
    for stop in range(len(data) - 1):
        with pytest.raises(StoredSchemaError):
            read_schema(data[:stop])


def mutated(data, rng):
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data))
        choice = rng.randrange(3)
        if choice == 0:
            data[place] = rng.randrange(256)
        elif choice == 1:
            del data[place : place + rng.randint(1, 9)]
        else:
            start = rng.randrange(len(data))
            data[place:place] = data[start : start + rng.randint(1, 40)]
        if not data:
            break
    return bytes(data)


MUTATIONS = int(os.environ.get("PETASTORM_BRIDGE_MUTATIONS", "3000"))


@pytest.mark.filterwarnings("ignore:Can not create dynamic property")  # of a field called _name
def test_damaged_schemas_are_read_or_refused():
    rng = random.Random(7)
    whole = [pickle.dumps(SCHEMA, protocol) for protocol in range(6)]
    found = collections.Counter()
    for _ in range(MUTATIONS):
        try:
            schema = read_schema(mutated(rng.choice(whole), rng))
        except StoredSchemaError:
            found["refused"] += 1
        else:
            assert isinstance(schema, Unischema)
            found["read"] += 1
    assert found["refused"] > MUTATIONS / 3
    assert found["read"] > MUTATIONS / 300


def test_no_instruction_is_forgotten():
    """An opcode that the reader does not know is named."""
    known = re.compile("names|damaged|no schema needs|no Unischema|has no|many")
    for opcode in pickletools.opcodes:
        data = opcode.code.encode("latin-1") + b"\x01\x00\x00\x00\x00\x00\x00\x00\x00\n\n."
        with pytest.raises(StoredSchemaError, match=known):
            read_schema(data)


def test_a_reader_refuses_a_hostile_dataset(tmp_path):
    rows = [{"id": np.int64(i)} for i in range(3)]
    schema = SCHEMA.create_schema_view([SCHEMA.id])
    url = write_stored(tmp_path / "d", schema, rows, pickle=pickle.dumps(HOSTILE["os.system"]))
    with pytest.raises(PetastormMetadataError, match=r"names \w+\.system"):
        make_reader(url)
