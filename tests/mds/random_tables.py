"""Random Arrow tables over every type that can be stored, and comparison of their values."""

import itertools
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [pa.decimal128(10, 2), pa.decimal128(38, 18), pa.decimal128(38, 0), pa.decimal256(50, 7)]
TEXTS = [pa.string(), pa.large_string()]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary(3)]
TIMES = [
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.timestamp("s"),
    pa.timestamp("ms"),
    pa.duration("us"),
]
SCALARS = [pa.bool_(), *INTEGERS, *UNSIGNED, *FLOATS, *DECIMALS, *TEXTS, *BINARIES, *TIMES]

# Characters that JSON, UTF-8 and C strings treat specially.
AWKWARD_TEXT = [
    "",
    "\0",
    "a\0b",
    '"',
    "\\",
    '\\"',
    "\n\r\t\b\f\x1f\x7f",
    "\u2028",
    "ß€𝄞",
    "null",
    "[]",
]
AWKWARD_BYTES = [b"", b"\0", b"\xff\xfe", b"NaN", b"null", bytes(range(256))]


def values_of(type_):
    """Python values for :func:`make_array`: integers for everything that lies on disk as one."""
    if pa.types.is_boolean(type_):
        return st.booleans()
    if pa.types.is_integer(type_):
        limits = np.iinfo(type_.to_pandas_dtype())
        edges = st.sampled_from([int(limits.min), int(limits.max), 0])
        return edges | st.integers(int(limits.min), int(limits.max))
    if pa.types.is_date32(type_):
        return st.sampled_from([-(2**31), 2**31 - 1, 0, -1]) | st.integers(-(2**31), 2**31 - 1)
    if pa.types.is_temporal(type_):
        # The smallest int64 is NaT, which is how a null timestamp is stored.
        return st.sampled_from([1 - 2**63, 2**63 - 1, 0]) | st.integers(1 - 2**63, 2**63 - 1)
    if pa.types.is_floating(type_):
        return st.floats(width=type_.bit_width) | st.just(-0.0)
    if pa.types.is_decimal(type_):
        largest = 10**type_.precision - 1
        return st.integers(-largest, largest).map(lambda n: scaled(n, type_.scale))
    if pa.types.is_fixed_size_binary(type_):
        return st.binary(min_size=type_.byte_width, max_size=type_.byte_width)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return st.sampled_from(AWKWARD_BYTES) | st.binary(max_size=20)
    assert pa.types.is_string(type_) or pa.types.is_large_string(type_)
    # Lone surrogates are no characters: neither UTF-8 nor Arrow has them.
    text = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
    return st.sampled_from(AWKWARD_TEXT) | text


def scaled(unscaled, scale):
    """The decimal ``unscaled * 10**-scale``, exactly."""
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


def make_array(type_, values):
    """An Arrow array from Python values as :func:`values_of` gives them, None for null."""
    if is_list(type_):
        # From buffers, because Arrow cannot build lists of every type from Python values.
        lengths = [0 if value is None else len(value) for value in values]
        flat = make_array(type_.value_type, [item for value in values if value for item in value])
        large = pa.types.is_large_list(type_)
        offsets = np.cumsum([0, *lengths]).astype(np.int64 if large else np.int32)
        valid = np.array([value is not None for value in values], bool)
        bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(
            type_, len(values), [bits, pa.py_buffer(offsets)], children=[flat]
        )
    if pa.types.is_float16(type_):
        filled = np.array([0.0 if value is None else value for value in values], np.float16)
        return pa.array(filled, mask=np.array([value is None for value in values], bool))
    if pa.types.is_temporal(type_):
        base = pa.int32() if pa.types.is_date32(type_) else pa.int64()
        return pa.array(values, base).cast(type_)
    return pa.array(values, type_)


def is_list(type_):
    """Whether the type is a list of either offset width."""
    return pa.types.is_list(type_) or pa.types.is_large_list(type_)


@st.composite
def storable_types(draw):
    """A scalar type, or a list of one with either width of offsets."""
    element = draw(st.sampled_from(SCALARS))
    layout = draw(st.sampled_from(["scalar", "scalar", "list", "list", "large"]))
    if layout == "scalar":
        return element
    if layout == "list":
        return pa.list_(element)
    return pa.large_list(element)


@st.composite
def columns(draw, type_, rows, random):
    """An array of ``rows`` values of one type.

    A few values are drawn and then scattered over the rows, so that hundreds of rows stay cheap and
    still shrink well.
    """
    element = type_.value_type if is_list(type_) else type_
    pool = draw(st.lists(values_of(element), min_size=1, max_size=6))
    null_share = draw(st.sampled_from([0, 0, 0.1, 0.5, 1]))
    if not is_list(type_):
        return make_array(type_, _scatter(random, pool, rows, null_share))
    element_nulls = draw(st.sampled_from([0, 0, 0.3, 1]))
    lengths = draw(st.sampled_from(["equal", "empty", "ragged"]))
    width = draw(st.integers(1, 5))
    lengths = {
        "equal": [width] * rows,
        "empty": [0] * rows,
        "ragged": [random.randrange(width + 1) for _ in range(rows)],
    }[lengths]
    lists = [_scatter(random, pool, length, element_nulls) for length in lengths]
    values = [None if random.random() < null_share else value for value in lists]
    return make_array(type_, values)


def _scatter(random, pool, count, null_share):
    return [None if random.random() < null_share else random.choice(pool) for _ in range(count)]


@st.composite
def tables(draw, max_rows=150, max_columns=4):
    """A random table of storable columns; names in no particular order."""
    names = draw(
        st.lists(
            st.sampled_from(
                ["b", "a", "Z", "ab", "a__is_null", "ünï", "with space", "0", "%s", "self"]
            ),
            min_size=1,
            max_size=max_columns,
            unique=True,
        )
    )
    rows = draw(st.integers(0, 5) | st.integers(0, max_rows))
    random = draw(st.randoms(use_true_random=True, note_method_calls=False))
    random.seed(draw(st.integers(0, 2**32)))
    types = [draw(storable_types()) for _ in names]
    arrays = [draw(columns(type_, rows, random)) for type_ in types]
    return pa.Table.from_arrays(arrays, names=names)


@st.composite
def batches_of(draw, table):
    """The table as record batches cut at random rows."""
    cuts = draw(st.lists(st.integers(0, table.num_rows), max_size=4).map(sorted))
    bounds = [0, *cuts, table.num_rows]
    result = []
    for start, stop in itertools.pairwise(bounds):
        result += table.slice(start, stop - start).combine_chunks().to_batches()
    return result


def plain(array):
    """The values of an Arrow array as Python objects that ``==`` compares exactly.

    Dates, timestamps and durations become integers; floating-point numbers become ``Bits``, so
    that NaN equals NaN and -0.0 does not equal 0.0; their nulls become NaN, as the engine stores
    them.
    """
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in plain(chunk)]
    if is_list(array.type):
        return [None if not row.is_valid else plain(row.values) for row in array]
    if pa.types.is_temporal(array.type):
        base = pa.int32() if pa.types.is_date32(array.type) else pa.int64()
        return array.cast(base).to_pylist()
    if pa.types.is_floating(array.type):
        return [Bits(math.nan if value is None else float(value)) for value in array.to_pylist()]
    return array.to_pylist()


class Bits(float):
    """A floating-point number that equals another if it is the same number, sign and NaN included."""

    def __eq__(self, other):
        if not isinstance(other, float):
            return NotImplemented
        if math.isnan(self) or math.isnan(other):
            return math.isnan(self) and math.isnan(other)
        return float(self) == float(other) and math.copysign(1, self) == math.copysign(1, other)

    __hash__ = None
