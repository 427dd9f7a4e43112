"""Every promise is broken on purpose; the comparer must name the promise, the column and the row."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from parity_tables import BATCH, ROWS, batches, changed, columns, flipped, taken

from petastorm_bridge.parity import CannotCompareError, Promise, Rules, compare, record

pytestmark = [pytest.mark.modern, pytest.mark.slow]

TABLE = columns()
ALL = np.arange(ROWS)


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden") / "golden"
    record(batches(TABLE), folder)
    return folder


def swapped(a, b):
    order = ALL.copy()
    order[[a, b]] = order[[b, a]]
    return taken(TABLE, order)


def failure(golden, loader, **rules):
    result = compare(golden, loader, Rules(**rules))
    found = result.first_failure
    assert found is not None, "the fault was not noticed"
    assert not result.same
    return found


def named(finding):
    return finding.promise, finding.column, finding.row


def test_the_same_table_is_the_same(golden):
    result = compare(golden, batches(columns()))
    assert result.same
    assert [p.state.value for p in result.promises] == ["same"] * 6


@pytest.mark.parametrize("order", ["exact", "shuffled"])
@pytest.mark.parametrize("row", [0, 17, ROWS - 1])
def test_dropped_row(golden, row, order):
    found = failure(golden, batches(taken(TABLE, np.delete(ALL, row))), order=order)
    assert named(found) == (Promise.COUNT, None, row)
    assert f"id={row}" in found.a
    assert found.b is None


@pytest.mark.parametrize("order", ["exact", "shuffled"])
@pytest.mark.parametrize("row", [0, 17, ROWS - 1])
def test_repeated_row(golden, row, order):
    found = failure(golden, batches(taken(TABLE, np.insert(ALL, row, row))), order=order)
    # Which of the two equal rows is the repetition nobody can tell: the later one is taken for it.
    assert named(found) == (Promise.COUNT, None, row + 1)
    assert "repeats" in found.message
    assert f"id={row}" in found.b


@pytest.mark.parametrize("order", ["exact", "shuffled"])
def test_a_row_in_place_of_another(golden, order):
    rows = ALL.copy()
    rows[30] = 12
    result = compare(golden, batches(taken(TABLE, rows)), Rules(order=order))
    assert named(result.first_failure) == (Promise.ROWS, None, 30)
    assert "id=30" in result.first_failure.a
    assert "more often" in result.promise(Promise.ROWS).findings[1].message
    assert result.promise(Promise.COUNT).state.value == "same"


@pytest.mark.parametrize(("a", "b"), [(3, 50), (7, 8), (0, ROWS - 1)])
def test_swapped_rows(golden, a, b):
    found = failure(golden, batches(swapped(a, b)))
    assert named(found) == (Promise.ORDER, None, a)
    assert f"id={a}," in found.a
    assert f"id={b}," in found.b
    assert f"row {b}" in found.message
    assert compare(golden, batches(swapped(a, b)), Rules(order="shuffled")).same


@pytest.mark.parametrize(
    ("name", "dtype"), [("id", "int32"), ("x", "float32"), ("flag", "uint8"), ("small", "float64")]
)
def test_wrong_dtype(golden, name, dtype):
    found = failure(golden, batches({**TABLE, name: TABLE[name].astype(dtype)}))
    assert named(found) == (Promise.SCHEMA, name, 0)
    assert (found.a, found.b) == (str(TABLE[name].dtype), dtype)


def test_wrong_dtype_from_some_batch_on(golden):
    def loader():
        for number, batch in enumerate(batches(TABLE)):
            yield {**batch, "id": batch["id"].astype("int32")} if number == 3 else batch

    assert named(failure(golden, loader())) == (Promise.SCHEMA, "id", 3 * BATCH)


def test_wrong_shape(golden):
    found = failure(golden, batches({**TABLE, "image": TABLE["image"].reshape(ROWS, 2, 3)}))
    assert named(found) == (Promise.SCHEMA, "image", 0)
    assert "[3, 2]" in found.message
    assert "[2, 3]" in found.message


def test_missing_added_and_exchanged_columns(golden):
    without = {name: column for name, column in TABLE.items() if name != "flag"}
    assert named(failure(golden, batches(without)))[:2] == (Promise.SCHEMA, "flag")
    assert named(failure(golden, batches({**TABLE, "new": ALL})))[:2] == (Promise.SCHEMA, "new")
    names = ["x", "id", *list(TABLE)[2:]]
    found = failure(golden, batches({name: TABLE[name] for name in names}))
    assert named(found)[:2] == (Promise.SCHEMA, "id")
    renamed = {("y" if name == "x" else name): column for name, column in TABLE.items()}
    assert named(failure(golden, batches(renamed)))[:2] == (Promise.SCHEMA, "x")


@pytest.mark.parametrize("sizes", [[9] * 7, [8, 7, 9, *[8] * 5], [*[8] * 7, 3, 1], [60]])
def test_other_batches(golden, sizes):
    found = failure(golden, batches(TABLE, sizes))
    place = next(i for i, size in enumerate(sizes) if size != ([8] * 7 + [4])[i])
    assert named(found) == (Promise.BATCHES, None, place * BATCH)
    assert found.b == f"{sizes[place]} rows"
    assert compare(golden, batches(TABLE, sizes), Rules(batches="any")).same


@pytest.mark.parametrize("order", ["exact", "shuffled"])
@pytest.mark.parametrize("name", ["id", "x", "small", "image", "when"])
def test_one_bit(golden, name, order):
    found = failure(golden, batches(flipped(TABLE, name, 23)), order=order)
    assert named(found) == (Promise.VALUES, name, 23)
    assert found.a != found.b


def test_a_bit_in_a_nan_and_the_sign_of_zero(golden, tmp_path):
    assert np.isnan(TABLE["x"][9])
    loader = batches(flipped(TABLE, "x", 9))
    assert named(failure(golden, loader)) == (Promise.VALUES, "x", 9)
    assert compare(golden, batches(flipped(TABLE, "x", 9)), Rules(nan="any")).same
    zero, minus = ([{"x": np.array([1.0, value])}] for value in (0.0, -0.0))
    assert named(compare(zero, minus).first_failure) == (Promise.VALUES, "x", 1)


@pytest.mark.parametrize(
    ("name", "row", "value"),
    [
        ("text", 3, "né 3"),  # a lost null
        ("text", 4, None),
        ("text", 4, "né 4 "),
        ("raw", 5, b"\6"),
        ("raw", 8, None),
        ("x", 9, 0.0),  # a NaN filled up
        ("when", 5, np.datetime64("NaT")),
        ("list", 5, np.array([1.0])),
        ("list", 5, None),
        ("words", 7, ["a7", "b"]),
        ("words", 7, ["a7", ""]),
        ("flag", 2, ~TABLE["flag"][2]),
    ],
)
@pytest.mark.parametrize("order", ["exact", "shuffled"])
def test_other_values(golden, name, row, value, order):
    found = failure(golden, batches(changed(TABLE, name, row, value)), order=order)
    assert named(found) == (Promise.VALUES, name, row)


def test_a_changed_row_at_another_place(golden):
    table = {name: column.copy() for name, column in swapped(3, 50).items()}
    table["small"][3] += 1  # what was row 50
    result = compare(golden, batches(table))
    assert result.promise(Promise.ROWS).state.value == "same"
    assert named(result.promise(Promise.VALUES).findings[0]) == (Promise.VALUES, "small", 50)


def test_the_first_of_several_changed_rows_is_named(golden):
    table = {name: column.copy() for name, column in swapped(3, 50).items()}
    table["small"][[20, 50]] += 1  # rows 20 and 3
    values = compare(golden, batches(table)).promise(Promise.VALUES)
    assert [named(finding) for finding in values.findings] == [(Promise.VALUES, "small", 3)]
    assert "differs in 2 rows" in values.findings[0].message
    assert "which is row 50" in values.findings[0].message


@pytest.mark.parametrize("order", ["exact", "shuffled"])
def test_exchanged_elements_and_exchanged_columns(order):
    rules = Rules(order=order)
    ids = np.arange(20)
    table = {"id": ids, "pair": np.stack([ids, ids + 1], axis=1), "a": ids * 3, "b": ids * 5}
    other = {name: column.copy() for name, column in table.items()}
    other["pair"][7] = other["pair"][7, ::-1]
    found = compare(batches(table), batches(other), rules).first_failure
    assert named(found) == (Promise.VALUES, "pair", 7)
    other = {**table, "a": table["a"].copy(), "b": table["b"].copy()}
    other["a"][4], other["b"][4] = table["b"][4], table["a"][4]
    values = compare(batches(table), batches(other), rules).promise(Promise.VALUES)
    assert [named(f) for f in values.findings] == [
        (Promise.VALUES, "a", 4),
        (Promise.VALUES, "b", 4),
    ]


def test_a_column_that_some_batches_lack(golden):
    def loader():
        for number, batch in enumerate(batches(TABLE)):
            yield {n: c for n, c in batch.items() if n != "flag" or number != 2}

    found = failure(golden, loader())
    assert named(found)[:2] == (Promise.SCHEMA, "flag")
    assert "is missing in some batches" in found.message
    with pytest.raises(CannotCompareError, match="of both sides"):
        compare(loader(), loader())
    assert compare(loader(), loader(), Rules(ignore=["flag"])).same


def test_an_empty_batch_at_the_end(golden):
    found = failure(golden, batches(TABLE, [*[8] * 7, 4, 0]))
    assert named(found) == (Promise.BATCHES, None, ROWS)
    assert (found.a, found.b) == ("no batch", "0 rows")


def ranks(out, table, parts, **options):
    for rank, rows in enumerate(parts):
        loader = batches(taken(table, rows))
        record(loader, out, rank=rank, world_size=len(parts), **options)
    return out


def test_wrong_shard(tmp_path):
    golden = ranks(tmp_path / "a", TABLE, [ALL[::2], ALL[1::2]])
    assert compare(golden, ranks(tmp_path / "same", TABLE, [ALL[::2], ALL[1::2]])).same
    parts = [ALL[::2].copy(), ALL[1::2].copy()]
    parts[0][5], parts[1][7] = parts[1][7], parts[0][5]
    for order in ("exact", "shuffled"):
        other = ranks(tmp_path / order, TABLE, parts)
        found = compare(golden, other, Rules(order=order)).first_failure
        assert named(found) == (Promise.ROWS, None, 5)
        assert "wrong rank" in found.message
        assert found.a.startswith("rank 0: id=10,")
        assert found.b == "rank 1"
        assert compare(golden, other, Rules(shards="union")).same


def test_a_row_too_many_on_one_rank(tmp_path):
    golden = ranks(tmp_path / "a", TABLE, [ALL[:30], ALL[30:]])
    found = compare(golden, ranks(tmp_path / "b", TABLE, [ALL[:31], ALL[31:]])).first_failure
    assert named(found) == (Promise.COUNT, None, 0)
    assert (found.a, found.b) == ("30 rows in 4 steps", "31 rows in 4 steps")


def test_lost_and_added_padding(tmp_path):
    from parity_streaming import padded

    golden = padded(tmp_path / "a", TABLE, [np.append(ALL[::7][:8], 0), np.append(ALL[:8], 1)])
    without = padded(tmp_path / "b", TABLE, [ALL[::7][:8], ALL[:8]])
    for a, b, side in ((golden, without, "a"), (without, golden, "b")):
        result = compare(a, b)
        found = result.first_failure
        assert found.promise is Promise.COUNT
        assert "padding" in found.message
        assert "id=" in getattr(found, side)
        assert any("streaming-padding" in note for note in result.notes)
        allowed = compare(a, b, Rules(allow=["streaming-padding"]))
        assert allowed.promise(Promise.COUNT).state.value == "allowed"
        assert any("repeats 2 rows" in note for note in allowed.notes), "padding is never silent"


# ------------------------------------------------------------------------------ random mutations

_NUMBERS = ("id", "x", "small", "image", "when")


@st.composite
def mutations(draw, kinds=("drop", "repeat", "replace", "move", "bit", "cut", "cell", "dtype")):
    """A fault: its kind, and what the mutant's batches are."""
    kind = draw(st.sampled_from(kinds))
    row, other = (draw(st.integers(0, ROWS - 1)) for _ in range(2))
    if kind == "drop":
        return kind, taken(TABLE, np.delete(ALL, row)), BATCH
    if kind == "repeat":
        return kind, taken(TABLE, np.insert(ALL, other, row)), BATCH
    if kind in {"replace", "move"}:
        assume(row != other)
        rows = ALL.copy()
        rows[row] = other
        if kind == "move":
            rows = np.insert(np.delete(ALL, row), other, row)
        return kind, taken(TABLE, rows), BATCH
    if kind == "bit":
        name = draw(st.sampled_from(_NUMBERS))
        width = TABLE[name][0].nbytes * 8
        return kind, flipped(TABLE, name, row, draw(st.integers(0, width - 1))), BATCH
    if kind == "cut":
        cuts = sorted(draw(st.sets(st.integers(1, ROWS - 1), max_size=12)))
        sizes = np.diff([0, *cuts, ROWS]).tolist()
        assume(sizes != [BATCH] * 7 + [4])
        return kind, TABLE, sizes
    if kind == "cell":
        name = draw(st.sampled_from(["text", "raw"]))
        values = st.text(max_size=3) if name == "text" else st.binary(max_size=3)
        value = draw(st.none() | values)
        assume(value != TABLE[name][row])
        return kind, changed(TABLE, name, row, value), BATCH
    name = draw(st.sampled_from(["id", "x", "small", "flag"]))
    dtype = draw(st.sampled_from(["int16", "int64", "float16", "float32", "float64", "uint8"]))
    assume(np.dtype(dtype) != TABLE[name].dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        return kind, {**TABLE, name: TABLE[name].astype(dtype)}, BATCH


PROMISES = {
    "drop": Promise.COUNT,
    "repeat": Promise.COUNT,
    "replace": Promise.ROWS,
    "move": Promise.ORDER,
    "bit": Promise.VALUES,
    "cell": Promise.VALUES,
    "cut": Promise.BATCHES,
    "dtype": Promise.SCHEMA,
}


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(mutation=mutations())
def test_no_mutation_survives(golden, mutation):
    kind, table, sizes = mutation
    assert failure(golden, batches(table, sizes)).promise is PROMISES[kind]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(mutation=mutations(), seed=st.integers(0, 1000))
def test_no_mutation_survives_a_shuffle(golden, mutation, seed):
    kind, table, sizes = mutation
    order = np.random.default_rng(seed).permutation(len(table["id"]))
    loader = batches(taken(table, order), sizes)
    if kind == "move":
        assert compare(golden, loader, Rules(order="shuffled")).same
    else:
        assert failure(golden, loader, order="shuffled").promise is PROMISES[kind]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(several=st.lists(mutations(kinds=("bit", "cell")), min_size=2, max_size=4))
def test_no_mutations_cancel(golden, several):
    merged = dict(TABLE)
    for _, table, _ in several:
        merged |= {name: column for name, column in table.items() if column is not TABLE[name]}
    assert failure(golden, batches(merged)).promise is Promise.VALUES
