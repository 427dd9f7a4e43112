"""Pickles made to use up time or memory: what they cost grows as they do."""

import contextlib
import struct
import time
import tracemalloc

import pytest

from petastorm_bridge.errors import StoredSchemaError
from petastorm_bridge.reader._rows.indexes import read_indexes
from petastorm_bridge.reader._rows.schema import read_schema

MERSENNE = 2**61 - 1  # the hash of its multiples is 0


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value


def made(module, name, state):
    return b"c" + module + b"\n" + name + b"\n)\x81}(" + state + b"ub"


def schema(field):
    fields = b"}(" + text(b"a") + field + b"u"
    state = text(b"_name") + text(b"S") + text(b"_fields") + fields
    return b"\x80\x02" + made(b"petastorm.unischema", b"Unischema", state) + b"."


def of_type(spark_type, before=b""):
    codec = made(b"petastorm.codecs", b"ScalarCodec", text(b"_spark_type") + spark_type)
    start = b"cpetastorm.unischema\nUnischemaField\n("
    field = start + text(b"a") + b"cnumpy\nint64\n)" + codec + b"\x89t\x81"
    return schema(before + field)


def long(number):
    return b"\x8a\x0a" + number.to_bytes(10, "little", signed=True)


def copies_of_bytes(n):
    encode = b"c_codecs\nencode\nq\x000" + text(b"a" * n) + text(b"latin1") + b"\x86q\x010"
    return b"\x80\x02" + encode + b"h\x00h\x01R" * n + b"."


def copies_of_dicts(n):
    items = b"}(" + b"".join(text(b"%d" % i) + b"N" for i in range(n)) + b"u\x85q\x010"
    return b"\x80\x02ccollections\nOrderedDict\nq\x000" + items + b"h\x00h\x01R" * n + b"."


def copies_of_sets(n):
    items = b"](" + b"".join(b"J" + struct.pack("<i", i) for i in range(n)) + b"e\x85q\x010"
    return b"\x80\x02c__builtin__\nset\nq\x000" + items + b"h\x00h\x01R" * n + b"."


def copies_of_states(n):
    state = b"}(" + b"".join(text(b"%d" % i) + b"N" for i in range(n)) + b"uq\x010"
    new = b"cpetastorm.unischema\nUnischema\n)\x81h\x01b"
    return b"\x80\x02" + state + new * n + b"."


def shared_lists(n):
    lists = b"K\x01q\x500]q\x51(" + b"h\x50" * n + b"e0]q\x52(" + b"h\x51" * n + b"e0"
    fields = b"]q\x53(" + b"h\x52" * n + b"e"
    struct_type = made(b"pyspark.sql.types", b"StructType", text(b"fields") + fields)
    return of_type(struct_type, lists)


def shared_texts(n):
    name = b"]q\x51(" + text(b"a" * n) + b"q\x50" + b"h\x50" * n + b"e0"
    return of_type(b"h\x51", name)


def empty_texts(n):
    return of_type(
        b"h\x52", b"X\0\0\0\0q\x50]q\x51(" + b"h\x50" * n + b"e]q\x52(" + b"h\x51" * n + b"e00"
    )


def shared_types(n):
    integer = made(b"pyspark.sql.types", b"IntegerType", b"") + b"q\x50"
    fields = b"](" + b"h\x50" * n + b"e"
    return of_type(
        made(b"pyspark.sql.types", b"StructType", text(b"fields") + fields), integer + b"0"
    )


def long_numbers(n):
    return of_type(
        b"h\x51",
        b"\x8b" + struct.pack("<i", n) + b"\x7f" * n + b"q\x500](" + b"h\x50" * n + b"eq\x510",
    )


def colliding_keys(n):
    keys = b"".join(long(MERSENNE * (i + 1)) + b"N" for i in range(n))
    return b"\x80\x02}(" + keys + b"u."


def colliding_keys_of_old_protocols(n):
    keys = b"".join(b"L%dL\nN" % (MERSENNE * (i + 1)) for i in range(n))
    return b"(" + keys + b"d."


def colliding_members(n):
    return b"\x80\x04\x8f(" + b"".join(long(MERSENNE * (i + 1)) for i in range(n)) + b"\x90."


def colliding_memo(n):
    return b"".join(b"Np%d\n0" % (MERSENNE * (i + 1)) for i in range(n)) + b"N."


def memo_with_a_gap(n):
    return b"Nr" + struct.pack("<I", 100 * n) + b"."


def deep_tuples(n):
    return b")" + b"\x85" * n + b"."


def deep_lists(n):
    return b"]" * n + b"a" * (n - 1) + b"."


def lists_in_themselves(n):
    return of_type(b"h\x50", b"]q\x50(" + b"h\x50" * n + b"e0")


def index(values):
    indexer = made(
        b"petastorm.etl.rowgroup_indexers", b"SingleFieldIndexer",
        text(b"_index_name") + text(b"i") + text(b"_column_name") + text(b"c")
        + text(b"_index_data") + b"}(" + values + b"u",
    )  # fmt: skip
    return b"\x80\x02}(" + text(b"i") + indexer + b"u."


GROUPS = b"c__builtin__\nset\n](K\x01e\x85R"


def colliding_values(n):
    return index(b"".join(long(MERSENNE * (i + 1)) + GROUPS for i in range(n)))


def colliding_decimals(n):
    values = (b"cdecimal\nDecimal\n" + text(b"%d" % (MERSENNE * i)) + b"\x85R" for i in range(n))
    return index(b"".join(value + GROUPS for value in values))


def colliding_row_groups(n):
    groups = b"".join(long(MERSENNE * (i + 1)) for i in range(n))
    return index(b"Nc__builtin__\nset\n](" + groups + b"e\x85R")


def shared_row_groups(n):
    groups = (
        b"c__builtin__\nset\n]("
        + b"".join(b"M" + struct.pack("<H", i) for i in range(n))
        + b"e\x85Rq\x50"
    )
    return index(b"N" + groups + b"".join(b"J" + struct.pack("<i", i) + b"h\x50" for i in range(n)))


BOMBS = [
    copies_of_bytes, copies_of_dicts, copies_of_sets, copies_of_states, shared_lists, shared_texts, empty_texts,
    shared_types, long_numbers, colliding_keys, colliding_keys_of_old_protocols, colliding_members,
    colliding_memo, memo_with_a_gap, deep_tuples, deep_lists, lists_in_themselves, colliding_values,
    colliding_decimals, colliding_row_groups, shared_row_groups,
]  # fmt: skip


def cost(data):
    """Return CPU seconds, the least of five, and the most bytes in use."""
    times = []
    for _ in range(5):
        start = time.thread_time()
        read(data)
        times.append(time.thread_time() - start)
    tracemalloc.start()
    try:
        read(data)
        return min(times), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def read(data):
    for reads in (read_schema, read_indexes):
        with contextlib.suppress(StoredSchemaError):
            reads(data)


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def test_cost_grows_with_the_pickle(bomb):
    small, large = bomb(3000), bomb(12000)
    before, memory_before = cost(small)
    after, memory = cost(large)
    growth = len(large) / len(small)
    assert memory < 2 * growth * memory_before + 1_000_000
    assert memory < 300 * len(large) + 1_000_000
    assert after < 2.5 * growth * before + 0.05
