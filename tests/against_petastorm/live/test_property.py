"""Random tables and options: both packages give the same batches.

Tables stay within what the two agree on. Where a column has nulls, every row group has one: else
the original's dtype flips with the row group (`one-dtype-per-column`). Nullable integers are small
enough for a double (`tf-long-nulls-exact`). Strings do not end in NUL (`trailing-nuls`).
"""

import datetime
import decimal
import os
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parity_harness.judge import judge
from parity_harness.session import LOADERS
from parity_harness.stored import VARIABLE

pytestmark = pytest.mark.slow

_MAX_ROWS = 12
EXAMPLES = 25 if os.environ.get(VARIABLE) == "live" else 8


def _integers(bits):
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _text():
    letters = st.characters(codec="utf-8", exclude_characters="\0")
    return st.text(letters, max_size=5)


_DATES = st.dates(datetime.date(1900, 1, 2), datetime.date(2200, 1, 1))
_TIMES = st.datetimes(datetime.datetime(1900, 1, 2), datetime.datetime(2200, 1, 1))

# Type → values, and the loaders that take it (with nulls, if they differ).
NUMBERS = {
    "tinyint": _integers(8),
    "smallint": _integers(16),
    "int": _integers(32),
    "bigint": _integers(64),
    "float": st.floats(width=32),
    "double": st.floats(),
    "boolean": st.booleans(),
}
TEXTS = {
    "string": _text(),
    "binary": st.binary(max_size=5),
    "date": _DATES,
    "timestamp": _TIMES,
    "timestamp_ntz": _TIMES,
    "decimal(10,2)": st.decimals(-(10**7), 10**7, places=2).map(decimal.Decimal),
}


@dataclass
class Table:
    """Rows by partition, the DDL of the columns, and the options of two loads."""

    columns: list = field(default_factory=list)
    partitions: list = field(default_factory=list)
    convert: dict = field(default_factory=dict)
    loads: list = field(default_factory=list)


@st.composite
def values(draw, kind, count, *, nulls):
    """One partition of a column, with a null somewhere if there are to be any."""
    base = kind.removeprefix("array<").removesuffix(">")
    one = {**NUMBERS, **TEXTS}[base]
    if base == "bigint" and nulls:
        one = _integers(50)
    length = None
    if kind.startswith("array<"):
        length = nulls if isinstance(nulls, int) and nulls > 1 else 2
        one = st.lists(one, min_size=length, max_size=length)
    drawn = draw(st.lists(one, min_size=count, max_size=count))
    if nulls is True and count:
        empty = draw(st.sets(st.integers(0, count - 1), min_size=1))
        drawn = [None if i in empty else value for i, value in enumerate(drawn)]
    return drawn


@st.composite
def tables(draw):
    """A table and how to load it."""
    sizes = draw(st.lists(st.integers(0, _MAX_ROWS), min_size=1, max_size=3))
    kinds = draw(st.lists(st.sampled_from(sorted(NUMBERS)), min_size=1, max_size=4))
    kinds += draw(st.lists(st.sampled_from(sorted(TEXTS)), max_size=1))
    if draw(st.booleans()):
        kinds.append(f"array<{draw(st.sampled_from(sorted(NUMBERS)))}>")
    table = Table(convert={"dtype": draw(st.sampled_from(["float32", "float64", None]))})
    parts = [[] for _ in sizes]
    for index, kind in enumerate(kinds):
        # A null in a list, a truth value or an object is an error of its own, seen elsewhere.
        nullable = kind in NUMBERS and kind != "boolean"
        nulls = nullable and draw(st.booleans())
        table.columns.append(f"c{index} {kind}")
        for part, size in zip(parts, sizes, strict=True):
            part.append(draw(values(kind, size, nulls=nulls)))
    table.partitions = [list(zip(*part, strict=True)) for part in parts]
    table.loads = draw(st.lists(loads(sizes), min_size=2, max_size=3))
    return table


@st.composite
def loads(draw, sizes):
    """A loader and its options."""
    rows = sum(sizes)
    # Without rows InMemBatchedDataLoader of the original fails (`inmem-empty`).
    loader = draw(st.sampled_from([name for name in LOADERS if rows or name != "inmem"]))
    options = {
        "batch_size": draw(st.integers(1, rows + 2)),
        "num_epochs": draw(st.integers(1, 3)),
        "workers_count": draw(st.sampled_from([1, 2, 4])),
    }
    if draw(st.booleans()):
        # One epoch: the original repeats its first order (`epochs-shuffled-anew`); one worker: its
        # order varies with more.
        options |= {"shuffle_row_groups": True, "num_epochs": 1, "workers_count": 1}
        options |= {"seed": draw(st.integers(1, 2**31)), "shuffle_rows": draw(st.booleans())}
    # Together with shuffle_rows the original repeats and loses rows (`row-drop-keeps-rows`).
    if not options.get("shuffle_rows") and draw(st.booleans()):
        most = min([3, *filter(None, sizes)])
        options["shuffle_row_drop_partitions"] = draw(st.integers(1, most))
    return loader, options


def _frame(spark, table):
    schema = ", ".join(table.columns)
    parts = [
        spark.createDataFrame(spark.sparkContext.parallelize(rows, 1), schema)
        for rows in table.partitions
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    return whole


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(table=tables())
def test_random_tables(sessions, spark, table):
    frame = _frame(spark, table)
    converters = []
    for session in sessions:
        made = []
        session.run(lambda s, made=made: made.append(s.convert(frame, **table.convert)), 60)
        converters += made
    assert len(converters) == 2, "a conversion failed"
    try:
        for loader, options in table.loads:
            original, bridge = (
                session.run(lambda s, c=converter: s.load(c, loader, **options))  # noqa: B023
                for session, converter in zip(sessions, converters, strict=True)
            )
            judge(f"random table, {loader}, {options}", original, bridge)
    finally:
        for converter in converters:
            converter.delete()
