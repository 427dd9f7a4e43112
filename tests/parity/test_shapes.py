"""What looks alike and is not: shapes, dtypes, kinds, keys, and where batches are cut."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from parity_tables import cells

from petastorm_bridge.parity import RecordingError, Rules, Tolerance, compare, record
from petastorm_bridge.parity._recordings import hashing

pytestmark = pytest.mark.modern

ORDERS = pytest.mark.parametrize("order", ["exact", "shuffled"])
QUICK = settings(
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # making examples smaller takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def column(*arrays):
    """Batches of one column, one for each array."""
    return [{"id": np.full(len(a), n), "v": a} for n, a in enumerate(arrays)]


def verdict(a, b, **rules):
    result = compare(a, b, Rules(**rules))
    return None if result.same else result.first_failure.column


FOUR = [np.ones((2, *shape)) for shape in [(1, 6), (6, 1), (2, 3), (4,)]]

PAIRS = {
    "one of four shapes is turned around": (FOUR, [*FOUR[:2], FOUR[2].reshape(2, 3, 2), FOUR[3]]),
    "turned around": ([np.ones((2, 2, 3))], [np.ones((2, 3, 2))]),
    "no elements": ([np.ones((2, 0, 3))], [np.ones((2, 3, 0))]),
    "no elements, and no dimension": ([np.ones((2, 0))], [np.ones((2, 0, 0))]),
    "scalars and arrays of one": ([np.ones(2)], [np.ones((2, 1))]),
    "ragged, turned around": (
        [cells([np.ones((2, 3)), np.ones((1, 1))])],
        [cells([np.ones((3, 2)), np.ones((1, 1))])],
    ),
    "ragged without elements": (
        [cells([np.ones((0, 3)), np.ones((1, 1))])],
        [cells([np.ones((3, 0)), np.ones((1, 1))])],
    ),
    "shapes exchanged between batches": (
        [np.ones((1, 2, 3)), np.ones((1, 3, 2))],
        [np.ones((1, 3, 2)), np.ones((1, 2, 3))],
    ),
    "dtypes exchanged between batches": (
        [np.ones(1, "i4"), np.ones(1, "i8")],
        [np.ones(1, "i8"), np.ones(1, "i4")],
    ),
    "truth values and bytes": ([np.ones(2, "?")], [np.ones(2, "u1")]),
    "str and bytes exchanged": (
        [cells(["a"]), cells([b"a"])],
        [cells([b"a"]), cells(["a"])],
    ),
    "str and bytes": ([cells(["a", "b"])], [cells([b"a", b"b"])]),
    "shapes of strings": (
        [np.array([["a", "b"]] * 2, object)],
        [np.array([[["a"], ["b"]]] * 2, object)],
    ),
    "null and the empty string": ([cells(["a", None])], [cells(["a", ""])]),
    "minus zero": ([np.array([0.0, 1])], [np.array([-0.0, 1])]),
    "units of time": ([np.zeros(2, "M8[s]")], [np.zeros(2, "M8[ms]")]),
    "tuples and lists": ([cells([(1, 2)])], [cells([[1, 2]])]),
    "numbers of Python and NumPy": ([cells([1, "a"])], [cells([np.int64(1), "a"])]),
    "keys of a dict": ([cells([{1: 2}])], [cells([{"1": 2}])]),
    "object arrays of another shape": (
        [cells([[1, 2], "a"])],
        [cells([[[1], [2]], "a"])],
    ),
    "dtypes of nothing": ([np.zeros(0, "f4")], [np.zeros(0, "f8")]),
    "dtypes of an empty batch": (
        [np.zeros(2), np.zeros(0, "f4")],
        [np.zeros(2), np.zeros(0, "i4")],
    ),
}


@ORDERS
@pytest.mark.parametrize("name", PAIRS)
def test_what_is_not_the_same(name, order):
    first, second = (column(*side) for side in PAIRS[name])
    assert verdict(first, second, order=order) == "v"
    assert verdict(first, first, order=order) is None
    assert verdict(second, second, order=order) is None


def test_rows_and_batches_of_turned_arrays():
    rows = [{"n": n, "v": np.ones(shape)} for n, shape in enumerate([(2, 3), (3, 2)])]
    batches = [{"n": np.array([row["n"]]), "v": row["v"][None]} for row in rows]
    other = [{"n": np.arange(2), "v": np.ones((2, 2, 3))}]
    for order in ("exact", "shuffled"):
        assert verdict(lambda: iter(rows), batches, order=order) is None
        assert verdict(lambda: iter(rows), other, order=order) == "v"


def test_the_hash_of_a_row_depends_on_its_shape_and_not_on_its_company():
    alone = np.arange(6.0).reshape(1, 2, 3)
    known = hashing.hash_fixed(alone, "float64")
    assert hashing.hash_fixed(alone.reshape(1, 3, 2), "float64") != known
    assert hashing.hash_fixed(alone.view("i8"), "int64") != known
    ragged = hashing.hash_ragged([np.ones((1, 1)), alone[0], None], "float64")
    assert ragged[1] == known[0]
    assert ragged[2] == hashing.hash_flat(pa.array([None], "str"), "text", 1, ())[0]


@ORDERS
def test_keys_in_another_order_in_some_batches(order):
    def loader(turned):
        for n in range(4):
            batch = {"a": np.full(2, n), "b": np.full(2, n)}
            yield dict(reversed(batch.items())) if n in turned else batch

    assert verdict(loader([2]), loader([2]), order=order) is None
    assert verdict(loader([2]), loader([]), order=order) is not None
    assert (verdict(loader([2]), loader([3]), order=order) is None) == (order == "shuffled")
    rows = [{"a": 1, "b": 2}, {"b": 2, "a": 1}]
    assert verdict(lambda: iter(rows), lambda: iter(rows[:1] * 2), order=order) is not None


def test_cuts_that_change_how_a_batch_looks_but_no_row():
    whole = [cells([np.ones(2), np.ones(2), np.ones(3), None])]
    parts = [np.ones((2, 2)), np.ones((1, 3)), cells([None])]
    sides = [[{"v": part} for part in side] for side in (whole, parts)]
    for order in ("exact", "shuffled"):
        assert verdict(*sides, order=order, batches="any") is None
    assert not compare(*sides).same


def test_infinity_is_within_no_tolerance():
    sides = (
        [{"id": np.arange(2), "v": np.array([1.0, 2])}],
        [{"id": np.arange(2), "v": np.array([1.0, np.inf])}],
    )
    for a, b in (sides, sides[::-1]):
        assert verdict(a, b, tolerances={"float": Tolerance(1e-3, 1e-3)}) == "v"
    half = [[{"v": np.array([1, 1.001], "f2")[i:]} for _ in range(2)] for i in (0, 1)]
    assert verdict(half[0], half[0], tolerances={"float16": Tolerance(1e-9)}) is None


def test_any_nan_also_within_ragged_and_complex_columns():
    nan = [
        np.array([bits], "u8").view("f8")[0] for bits in (0x7FF8000000000000, 0xFFF8000000000001)
    ]
    for make in (
        lambda v: cells([np.array([1, v]), np.array([2.0])]),
        lambda v: np.array([complex(v, 1), complex(2, v)]),
    ):
        sides = [[{"v": make(value)}] for value in nan]
        assert verdict(*sides) == "v"
        assert verdict(*sides, nan="any") is None
        assert verdict(*sides, nan="any", order="shuffled") is None


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"a.b": np.ones(2), "a": {"b": np.ones(2)}}, "two columns are called 'a.b'"),
        ({1: np.ones(2), "1": np.ones(2)}, "two columns are called '1'"),
        ({"a\0shape": np.ones(2)}, "NUL character in its name"),
        ({"a": np.ma.masked_array(np.ones(2), [True, False])}, "masked array cannot be recorded"),
    ],
)
def test_what_would_be_lost_is_refused(tmp_path, item, message):
    with pytest.raises(RecordingError, match=message):
        record([item], tmp_path / "out")


# ------------------------------------------------------------- any recording, any single change

_DTYPES = ["i1", "u2", "i4", "i8", "f2", "f4", "f8", "?", "M8[s]", "c8"]


@st.composite
def arrays(draw, rows):
    """A column of so many rows: numbers of any shape, ragged numbers, strings, bytes."""
    random = np.random.default_rng(draw(st.integers(0, 9999)))
    kind = draw(st.sampled_from(["number", "number", "ragged", "text", "bytes"]))
    dtype = draw(st.sampled_from(_DTYPES))
    shapes = st.lists(st.integers(0, 3), max_size=2).map(tuple)
    if kind == "number":
        shape = (rows, *draw(shapes))
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        raw = random.integers(0, 2 if dtype == "?" else 256, size).astype("u1")
        return raw.view(dtype).reshape(shape)
    if kind == "ragged":
        return cells(
            [random.integers(0, 2, random.integers(0, 4, 2)).astype(dtype) for _ in range(rows)]
        )
    words = [None if random.random() < 0.2 else "ab"[: random.integers(0, 3)] for _ in range(rows)]
    return cells(words if kind == "text" else [None if w is None else w.encode() for w in words])


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 7))
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    return {"id": np.arange(rows), **{name: draw(arrays(rows)) for name in names}}


def cut(table, sizes):
    ends = np.cumsum(sizes)
    return [{n: c[e - s : e] for n, c in table.items()} for s, e in zip(sizes, ends, strict=True)]


def other_value(value, choice):
    """Another value in place of one: a bit of it, its shape, or something else."""
    if isinstance(value, np.ndarray) and value.ndim and choice % 2:
        return value.reshape(-1) if value.ndim > 1 else value[:, None]
    if isinstance(value, np.ndarray) and value.size:
        words = np.ascontiguousarray(value).copy()
        raw = words.reshape(-1).view("u1")
        raw[choice % len(raw)] ^= 1 if value.dtype == bool else 1 << choice % 8
        return words
    if isinstance(value, np.ndarray):
        return np.zeros((*value.shape, 1), value.dtype)
    return f"{value}x" if isinstance(value, str) else (value or b"") + b"x"


@st.composite
def changes(draw):
    """A table, a table with one change, and the column to blame."""
    table = draw(tables())
    name = draw(st.sampled_from([n for n in table if n != "id"]))
    old, choice = table[name], draw(st.integers(0, 63))
    kind = draw(st.sampled_from(["cell", "cell", "dtype", "shape", "rename", "drop"]))
    if kind == "rename":
        return table, {n + "!" * (n == name): c for n, c in table.items()}, name
    if kind == "drop":
        return table, {n: c for n, c in table.items() if n != name}, name
    if kind == "shape":
        assume(old.dtype != object)
        return table, {**table, name: old[..., None]}, name
    if kind == "dtype":
        assume(old.dtype != object)
        raw = old.view(f"V{old.dtype.itemsize}") if old.ndim else old
        others = [
            d
            for d in ("i1", "u1", "i2", "u2", "i4", "f4", "i8", "f8", "m8[s]")
            if np.dtype(d) != old.dtype and np.dtype(d).itemsize == raw.dtype.itemsize
        ]
        return table, {**table, name: old.view(others[choice % len(others)])}, name
    row, new = choice % len(old), old.copy()
    if old.dtype == object:
        new[row] = other_value(old[row], choice)
    else:
        assume(old[row].size)
        words = new.reshape(len(new), -1).view("u1")
        words[row, choice % words.shape[1]] ^= 1 if old.dtype == bool else 1 << choice % 8
    return table, {**table, name: new}, name


@pytest.mark.slow
@seed(20240607)
@settings(QUICK, max_examples=100)
@given(changes(), st.integers(1, 7), st.sampled_from(["exact", "shuffled"]))
def test_any_single_change_is_noticed_and_its_column_named(change, size, order):
    table, other, name = change
    rows = len(table["id"])
    sizes = [size] * (rows // size) + [rows % size] * bool(rows % size)
    rules = Rules(order=order, key=["id"])
    assert compare(cut(table, sizes), cut(table, sizes), rules).same
    result = compare(cut(table, sizes), cut(other, sizes), rules)
    blamed = {f.column for p in result.promises for f in p.findings}
    assert not result.same
    assert name in blamed


@pytest.mark.slow
@seed(20240607)
@settings(QUICK, max_examples=20)
@given(tables(), st.data())
def test_no_other_cut_and_no_other_order_is_taken_for_a_difference(table, data):
    rows = len(table["id"])
    cuts = [sorted(data.draw(st.sets(st.integers(1, rows)))) for _ in range(2)]
    sizes = [np.diff([0, *(c for c in of_side if c < rows), rows]).tolist() for of_side in cuts]
    first, second = (cut(table, of_side) for of_side in sizes)
    assert verdict(first, second, batches="any") is None
    assert compare(first, second).same == (sizes[0] == sizes[1])
    order = np.random.default_rng(rows).permutation(rows)
    turned = {name: values[order] for name, values in table.items()}
    assert verdict(first, cut(turned, sizes[1]), batches="any", order="shuffled") is None
