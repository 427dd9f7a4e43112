"""What may be relaxed: order, batches, shards, tolerances, columns, known differences."""

import dataclasses

import numpy as np
import pytest
from parity_tables import ROWS, batches, cells, columns, taken

from petastorm_bridge._tables.differences import DIFFERENCES
from petastorm_bridge.parity import (
    CannotCompareError,
    Promise,
    Rules,
    State,
    Tolerance,
    compare,
    record,
)
from petastorm_bridge.parity._comparing.rules import ALLOWANCES

pytestmark = pytest.mark.modern

TABLE = columns()
ALL = np.arange(ROWS)


def near(amount, name="x"):
    return {**TABLE, name: TABLE[name] * TABLE[name].dtype.type(1 + amount)}


@pytest.mark.parametrize(
    ("rules", "same"),
    [
        ({}, False),
        ({"tolerances": {"float64": Tolerance(1e-6)}}, True),
        ({"tolerances": {"float": Tolerance(1e-6)}}, True),
        ({"tolerances": {"float32": Tolerance(1e-6)}}, False),
        ({"tolerances": {"float64": Tolerance(1e-9)}}, False),
        ({"tolerances": {"float64": Tolerance(0, 1e-6)}}, True),
        ({"tolerances": {"float": Tolerance(1e-6), "float64": Tolerance()}}, False),
        ({"ignore": ["x"]}, True),
    ],
)
@pytest.mark.parametrize("order", ["exact", "shuffled"])
def test_tolerances(rules, same, order):
    rows = np.random.default_rng(2).permutation(ROWS) if order == "shuffled" else ALL
    result = compare(batches(TABLE), batches(taken(near(1e-7), rows)), Rules(order=order, **rules))
    assert result.same is same
    if not same:
        found = result.first_failure
        assert (found.promise, found.column, found.row) == (Promise.VALUES, "x", 1)
        assert result.columns[1].differing == ROWS - len(range(0, ROWS, 9))
        assert result.columns[1].greatest == pytest.approx(1e-7, rel=0.1)


def test_integers_have_no_tolerance():
    with pytest.raises(CannotCompareError, match="no tolerance for 'int64'"):
        Rules(tolerances={"int64": Tolerance(1)})
    table = {**TABLE, "id": TABLE["id"] + (ALL == 5)}
    result = compare(batches(TABLE), batches(table), Rules(tolerances={"float": Tolerance(9, 9)}))
    assert result.first_failure.column == "id"


def test_tolerances_in_any_order_need_something_to_tell_rows_apart():
    loaders = [[{"x": np.array([1.0, 2.0])}], [{"x": np.array([2.0, 1.0])}]]
    rules = Rules(order="shuffled", tolerances={"float": Tolerance(1e-3)})
    assert compare(*loaders, rules).same, "equal bits need no pairing"
    with pytest.raises(CannotCompareError, match="cannot be told apart"):
        compare(loaders[0], [{"x": np.array([2.0, 1.1])}], rules)


def test_a_key_pairs_shuffled_rows():
    rows = np.random.default_rng(5).permutation(ROWS)
    table = {name: column.copy() for name, column in TABLE.items()}
    for name in ("x", "small", "flag", "image"):
        table[name] = table[name][::-1].copy()
    shuffled = batches(taken(table, rows))
    result = compare(batches(TABLE), shuffled, Rules(order="shuffled", key=["id"]))
    assert result.promise(Promise.ROWS).state is State.SAME
    assert result.first_failure.promise is Promise.VALUES
    with pytest.raises(CannotCompareError, match="no column 'number'"):
        compare(batches(TABLE), batches(TABLE), Rules(key=["number"]))


@pytest.mark.parametrize("tolerances", [{}, {"float": Tolerance(1e-6)}])
def test_a_key_that_is_not_the_same_on_both_sides_tells_nothing(tolerances):
    changed = {**TABLE, "x": TABLE["x"] + (ALL == 23)}
    narrow = {**changed, "id": changed["id"].astype("int32")}
    lacking = {name: column for name, column in changed.items() if name != "id"}
    rules = Rules(order="shuffled", key=["id"], tolerances=tolerances)
    for table in (narrow, lacking):
        result = compare(batches(TABLE), batches(table), rules)
        assert result.first_failure.column == "id"
        column = next(c for c in result.columns if c.name == "x")
        assert column.differing == 1, "the other columns tell the rows apart"


def test_a_key_cannot_be_ignored():
    with pytest.raises(CannotCompareError, match="'id' cannot be the key and be ignored as well"):
        compare(batches(TABLE), batches(TABLE), Rules(ignore=["id"], key=["id"]))


def test_rules_that_recordings_are_given_as_options_are_refused(tmp_path):
    for name in ("a", "b"):
        record(batches(TABLE), tmp_path / name)
    with pytest.raises(TypeError, match="order"):
        compare(tmp_path / "a", tmp_path / "b", order="shuffled")


def test_unknown_choices_and_names_are_refused():
    for name in ("order", "batches", "shards", "nan", "containers"):
        with pytest.raises(CannotCompareError, match=f"{name} is 'loose'; it can be exact or"):
            Rules(**{name: "loose"})
    with pytest.raises(CannotCompareError, match="did you mean 'partition-order'"):
        Rules(allow=["partition-ordr"])
    with pytest.raises(CannotCompareError, match="not one of batches"):
        Rules(allow=["paths-with-spaces"])
    with pytest.raises(CannotCompareError, match="no column 'y'"):
        compare([], batches(TABLE), Rules(ignore=["y"]))


def test_allowances_are_known_differences():
    known = {difference.name for difference in DIFFERENCES}
    assert {name for name in ALLOWANCES if not name.startswith("streaming-")} <= known


def with_nuls():
    return {**TABLE, "text": cells([t and t + "\0" for t in TABLE["text"]])}


def rounded(exact):
    long = (2**53 + 1 + 2 * ALL) if exact else (2**53 + 1 + 2 * ALL).astype(float).astype("int64")
    return {"id": ALL, "long": long}


# Name → the first side, the second, and the promise that is broken unless it is allowed.
CASES = {
    "no-lost-rows": (taken(TABLE, ALL[:-6]), TABLE, Promise.COUNT),
    "reiteration-starts-clean": (
        taken(TABLE, np.concatenate([ALL[-4:], ALL])),
        TABLE,
        Promise.COUNT,
    ),
    "partition-order": (TABLE, taken(TABLE, np.roll(ALL, 7)), Promise.ORDER),
    "table-order": (TABLE, dict(reversed(TABLE.items())), Promise.SCHEMA),
    "one-dtype-per-column": (TABLE, {**TABLE, "id": TABLE["id"].astype(float)}, Promise.SCHEMA),
    "parquet-more-types": (TABLE, {**TABLE, "new": ALL}, Promise.SCHEMA),
    "trailing-nuls": (TABLE, with_nuls(), Promise.VALUES),
    "tf-long-nulls-exact": (rounded(False), rounded(True), Promise.VALUES),
}


@pytest.mark.parametrize("name", CASES)
def test_a_known_difference_is_allowed_by_name(name):
    first, second, promise = CASES[name]
    sizes = Rules(batches="any")
    broken = compare(batches(first), batches(second), sizes)
    assert broken.first_failure.promise is promise
    allowed = dataclasses.replace(sizes, allow=[name])
    result = compare(batches(first), batches(second), allowed)
    assert result.same, result.first_failure
    if promise in {Promise.COUNT, Promise.SCHEMA}:
        assert result.promise(promise).state is State.ALLOWED
        assert all(finding.allowed == name for finding in result.promise(promise).findings)


@pytest.mark.parametrize("rows", [0, 40])
def test_another_order_of_columns_says_what_allows_it(rows):
    """Of a column that differs in nothing else, also where no batch has a row."""
    table = taken(TABLE, ALL[:rows])
    sides = [[table], [dict(reversed(table.items()))]]
    result = compare(*sides)
    found = next(each for each in result.columns if each.name == result.first_failure.column)
    assert found.accepted == "--allow table-order"
    assert compare(*sides, Rules(allow=["table-order"])).same


@pytest.mark.parametrize("name", [n for n in CASES if n != "table-order"])
def test_an_allowed_difference_hides_no_other(name):
    first, second, _ = CASES[name]
    table = {**second, "id": second["id"] + (np.arange(len(second["id"])) == 11)}
    result = compare(batches(first), batches(table), Rules(batches="any", allow=[name]))
    assert not result.same


def test_lost_rows_are_allowed_on_the_first_side_only():
    result = compare(batches(TABLE), batches(taken(TABLE, ALL[:-6])), Rules(allow=["no-lost-rows"]))
    assert result.first_failure.promise is Promise.COUNT
    assert "allowed but was not met" in result.notes[-1]


def test_equal_shards(tmp_path):
    for name, cut in (("a", 32), ("b", 30)):
        for rank, rows in enumerate((ALL[:cut], ALL[cut:])):
            record(batches(taken(TABLE, rows)), tmp_path / name, rank=rank, world_size=2)
    a, b = tmp_path / "a", tmp_path / "b"
    assert compare(a, b).first_failure.promise is Promise.COUNT
    assert compare(a, b, Rules(allow=["equal-shards"], batches="any")).same
    assert compare(a, b, Rules(shards="union", batches="any")).same


def test_other_numbers_of_ranks_are_compared_as_a_whole(tmp_path):
    for rank in range(3):
        record(batches(taken(TABLE, ALL[rank::3])), tmp_path / "a", rank=rank, world_size=3)
    result = compare(tmp_path / "a", batches(TABLE))
    assert result.same
    assert result.promise(Promise.ORDER).state is State.UNCHECKED
    result = compare(tmp_path / "a", batches(taken(TABLE, ALL[1:])))
    assert result.first_failure.promise is Promise.COUNT
    assert "row 0 of rank 0" in result.first_failure.message


def test_a_flipping_dtype_is_widened():
    def flipping():
        for i, batch in enumerate(batches(TABLE)):
            yield {**batch, "id": batch["id"].astype("float64")} if i % 2 else batch

    steady = {**TABLE, "id": TABLE["id"].astype("float64")}
    for order in ("exact", "shuffled"):
        rules = Rules(order=order)
        assert compare(flipping(), batches(steady), rules).first_failure.column == "id"
        allowed = dataclasses.replace(rules, allow=["one-dtype-per-column"])
        assert compare(flipping(), batches(steady), allowed).same


@pytest.mark.parametrize("values", [(2**53 + 1, 2**53), (-1, 2**64 - 1), (5, 5)])
def test_a_dtype_that_rounds_both_sides_is_not_allowed(values):
    sides = [[{"v": np.array([v, 1], kind)}] for v, kind in zip(values, ("i8", "u8"), strict=True)]
    result = compare(*sides, Rules(allow=["one-dtype-per-column"]))
    assert result.first_failure.message == "column 'v' is int64 on one side and uint64 on the other"
    assert result.columns[0].accepted == "--ignore v"


def test_the_name_of_a_column_is_not_taken_for_a_side():
    sides = [[{"id": ALL, "of the second side": ALL + n}] for n in range(2)]
    message = compare(*sides, labels=("old", "new")).first_failure.message
    assert message.startswith("column 'of the second side' differs in 60 rows")
    lacking = [{"id": ALL}]
    message = compare(sides[0], lacking, labels=("old", "new")).first_failure.message
    assert message == "column 'of the second side' is missing on new"


def test_what_cannot_be_seen_in_the_end_is_noted():
    result = compare(batches(TABLE), [tuple(TABLE.values())])
    assert not result.same
    assert "dict on one side and tuple on the other" in result.notes[0]
