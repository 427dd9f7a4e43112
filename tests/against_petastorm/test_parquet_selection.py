"""Predicates and filters on partition columns, and columns nobody reads: as in the original, live."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import petastorm_bridge
import petastorm_bridge.predicates

petastorm = pytest.importorskip("petastorm", reason="compares with Petastorm itself")
petastorm_predicates = pytest.importorskip("petastorm.predicates")

PACKAGES = {
    "petastorm": (petastorm, petastorm_predicates),
    "bridge": (petastorm_bridge, petastorm_bridge.predicates),
}


def write(path, columns, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)


def read(package, url, **options):
    """The rows of each row group, or the error; and whether it said that nothing matches."""
    options = {"reader_pool_type": "dummy", "shuffle_row_groups": False} | options
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with package.make_batch_reader(f"file://{url}", **options) as reader:
                groups = [
                    {n: (str(v.dtype), v.tolist()) for n, v in g._asdict().items()} for g in reader
                ]
        except Exception as error:  # noqa: BLE001 - compared with the other's
            return error
    return groups, any("No matching data is available" in str(w.message) for w in caught)


def assert_same(url, options_of):
    original, bridge = (
        read(package, url, **options_of(predicates)) for package, predicates in PACKAGES.values()
    )
    if isinstance(original, Exception):
        assert isinstance(bridge, type(original)), repr(bridge)
    else:
        assert bridge == original


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    root = tmp_path_factory.mktemp("tables")
    for k in (1, 2, 3, 4):
        write(root / f"integers/k={k}/a.parquet", {"id": np.arange(3) + 10 * k})
    for date in ("2024-01-01", "2024-01-02", "2024-02-01"):
        write(root / f"dates/date={date}/a.parquet", {"id": np.arange(2)})
    for k in (1, 2):
        for j in "ab":
            write(root / f"two/k={k}/j={j}/a.parquet", {"id": np.arange(2) + 10 * k})
    return root


def fails(_value):
    raise ZeroDivisionError("from the user")


PARTITION_FUNCTIONS = {
    "less": ("integers", "k", lambda k: k < 3),
    "chain": ("integers", "k", lambda k: 1 < k <= 3),
    "in a set": ("integers", "k", lambda k: k in {1, 2}),
    "modulo": ("integers", "k", lambda k: k % 2 == 0),
    "int": ("integers", "k", lambda k: int(k) > 2),
    "str": ("integers", "k", lambda k: str(k) == "2"),
    "equal": ("integers", "k", lambda k: k == 2),
    "nothing": ("integers", "k", lambda k: k > 9),
    "returns None": ("integers", "k", lambda _: None),
    "returns an array": ("integers", "k", lambda k: np.array([k < 3])),
    "as of a Series": ("integers", "k", lambda k: k.isin([1, 2])),
    "raises": ("integers", "k", fails),
    "greater text": ("dates", "date", lambda d: d >= "2024-01-02"),
    "begin of text": ("dates", "date", lambda d: d[:7] == "2024-01"),
    "startswith": ("dates", "date", lambda d: d.startswith("2024-01")),
    "in a tuple": ("dates", "date", lambda d: d in ("2024-01-01", "x")),
}


@pytest.mark.parametrize("name", PARTITION_FUNCTIONS)
def test_functions_of_a_partition_column_get_its_value(tables, name):
    table, field, function = PARTITION_FUNCTIONS[name]
    assert_same(tables / table, lambda p: {"predicate": p.in_lambda([field], function)})


PARTITION_PREDICATES = {
    "in_set": lambda p: p.in_set({1, 2}, "k"),
    "in_set of others": lambda p: p.in_set({"1"}, "k"),
    "in_negate": lambda p: p.in_negate(p.in_set({1}, "k")),
    "all": lambda p: p.in_reduce([p.in_set({1, 2}, "k"), p.in_lambda(["k"], lambda k: k > 1)], all),
    "any": lambda p: p.in_reduce([p.in_set({1}, "k"), p.in_set({3}, "k")], any),
    "and": lambda p: p.in_reduce([p.in_set({1, 2}, "k")] * 2, np.logical_and.reduce),
    "split": lambda p: p.in_pseudorandom_split([0.5, 0.5], 0, "k"),
    "intersection": lambda p: p.in_intersection([1, 2], "k"),
    "state": lambda p: p.in_lambda(["k"], lambda k, some: k in some, {2}),
    "no such field": lambda p: p.in_lambda(["nope"], lambda k: k),
}


@pytest.mark.parametrize("name", PARTITION_PREDICATES)
def test_predicates_on_a_partition_column(tables, name):
    assert_same(tables / "integers", lambda p: {"predicate": PARTITION_PREDICATES[name](p)})


@pytest.mark.parametrize("name", ["in_set", "in_intersection"])
def test_predicates_on_a_text_partition(tables, name):
    assert_same(tables / "dates", lambda p: {"predicate": getattr(p, name)(["2024-01-01"], "date")})


@pytest.mark.parametrize("fields", [{"k"}, ["k"]])
def test_own_predicates_get_one_dict_of_scalars_per_partition(tables, fields):
    seen = []

    def of(predicates):
        class Own(predicates.PredicateBase):
            def get_fields(self):
                return fields

            def do_include(self, values):
                seen.append((type(values), type(values["k"]), values["k"]))
                return values["k"] % 2 == 0

        return {"predicate": Own()}

    assert_same(tables / "integers", of)
    assert seen[:4] == seen[4:] == [(dict, np.int64, k) for k in (1, 2, 3, 4)]


def test_a_partition_is_asked_once_whatever_its_row_groups(tmp_path):
    write(tmp_path / "k=1/a.parquet", {"id": np.arange(9)}, row_group_size=2)
    asked = []
    predicate = petastorm_bridge.predicates.in_lambda(["k"], lambda k: asked.append(k) or True)
    groups, _ = read(petastorm_bridge, tmp_path, predicate=predicate)
    assert (len(groups), asked) == (5, [1])


@pytest.mark.parametrize("function", [lambda k: k == 2, lambda k: k < 2, lambda k: k.isin([2])])
def test_one_of_two_partition_columns_comes_as_a_series(tables, function):
    assert_same(tables / "two", lambda p: {"predicate": p.in_lambda(["k"], function)})


def test_partition_and_stored_column_come_as_series(tables):
    seen = []

    def function(k, i):
        seen.append((str(k.dtype), k.cat.categories.tolist(), str(i.dtype)))
        return (k == 2) & (i >= 20)

    assert_same(tables / "integers", lambda p: {"predicate": p.in_lambda(["k", "id"], function)})
    assert seen == [("category", [1, 2, 3, 4], "int64")] * 8


@pytest.mark.difference("predicates-work")
def test_all_of_two_partition_columns(tables):
    def options(predicates):
        return {"predicate": predicates.in_lambda(["k", "j"], lambda k, j: k < 2 and j == "a")}

    original = read(petastorm, tables / "two", **options(petastorm_predicates))
    assert isinstance(original, AssertionError)
    groups, _ = read(petastorm_bridge, tables / "two", **options(petastorm_bridge.predicates))
    assert [group["id"][1] for group in groups] == [[10, 11]]


@pytest.mark.difference("predicate-with-transform")
def test_partition_predicate_with_a_transform_that_removes_the_column(tables):
    def options(package, predicates):
        return {
            "predicate": predicates.in_lambda(["k"], lambda k: k == 2),
            "transform_spec": package.TransformSpec(removed_fields=["k"]),
        }

    original = read(petastorm, tables / "integers", **options(*PACKAGES["petastorm"]))
    assert isinstance(original, KeyError)
    groups, _ = read(petastorm_bridge, tables / "integers", **options(*PACKAGES["bridge"]))
    assert groups == [{"id": ("int64", [20, 21, 22])}]


def test_partition_predicate_on_a_column_that_is_not_selected(tables):
    def options(predicates):
        return {"predicate": predicates.in_lambda(["k"], lambda k: k), "schema_fields": ["id"]}

    assert_same(tables / "integers", options)
    error = read(petastorm_bridge, tables / "integers", **options(petastorm_bridge.predicates))
    assert str(error).startswith("The predicate needs k, but schema_fields leaves only id")


def test_partition_predicate_with_row_drop_partitions(tables):
    assert_same(
        tables / "integers",
        lambda p: {
            "predicate": p.in_lambda(["k"], lambda k: k < 3),
            "shuffle_row_drop_partitions": 2,
        },
    )


@pytest.mark.parametrize("shard", [0, 1])
def test_no_partition_matches_in_any_shard(tables, shard):
    assert_same(
        tables / "integers",
        lambda p: {
            "predicate": p.in_lambda(["k"], lambda k: k > 9),
            "cur_shard": shard,
            "shard_count": 2,
        },
    )


@pytest.mark.difference("equal-shards")
def test_partitions_that_match_are_shared_evenly(tables):
    def ids(package, predicates, shard):
        predicate = predicates.in_lambda(["k"], lambda k: k % 2 == 1)
        options = {"predicate": predicate, "cur_shard": shard, "shard_count": 2}
        groups, _ = read(package, tables / "integers", **options)
        return [group["id"][1] for group in groups]

    assert [ids(*PACKAGES["petastorm"], i) for i in (0, 1)] == [[[10, 11, 12], [30, 31, 32]], []]
    assert [ids(*PACKAGES["bridge"], i) for i in (0, 1)] == [[[10, 11, 12]], [[30, 31, 32]]]


def test_local_disk_cache_goes_with_a_partition_predicate(tables, tmp_path):
    def options(predicate):
        return {
            "predicate": predicate,
            "cache_type": "local-disk",
            "cache_location": str(tmp_path),
            "cache_size_limit": 10**9,
            "cache_row_size_estimate": 10,
        }

    assert_same(tables / "integers", lambda p: options(p.in_lambda(["k"], lambda k: k < 3)))
    assert_same(tables / "integers", lambda p: options(p.in_lambda(["id"], lambda i: i < 3)))


PARTITION_FILTERS = {
    "equal": ("integers", [("k", "=", 2)]),
    "text for an integer": ("integers", [("k", "=", "2")]),
    "text order": ("integers", [("k", "<", "3")]),
    "in texts": ("integers", [("k", "in", ["1", "3"])]),
    "in": ("integers", [("k", "in", {1, 3})]),
    "not in": ("integers", [("k", "not in", {1, 3})]),
    "not equal": ("integers", [("k", "!=", 2)]),
    "alternatives": ("integers", [[("k", "=", 1)], [("k", ">=", 4)]]),
    "lists": ("integers", [["k", ">", 1], ["k", "<", 3]]),
    "tuple in a list": ("integers", [(("k", "=", 1), ("k", "<", 3))]),
    "tuples": ("integers", ((("k", "=", 1),), (("k", ">=", 4),))),
    "set in a list": ("integers", [{("k", "=", 1)}]),
    "expression": ("integers", pc.field("k") > 1),
    "float": ("integers", [("k", "<", 2.5)]),
    "truth": ("integers", [("k", "==", True)]),
    "none": ("integers", [("k", "=", None)]),
    "operator": ("integers", [("k", "~", 1)]),
    "no list": ("integers", ("k", "=", 1)),
    "text": ("integers", "k=1"),
    "too short": ("integers", [("k", "=")]),
    "dates": ("dates", [("date", ">=", "2024-01-02")]),
    "no number": ("dates", [("date", "<", 5)]),
    "two levels": ("two", [[("k", "=", 1), ("j", "=", "a")], [("k", "=", "2"), ("j", "=", "b")]]),
}


@pytest.mark.parametrize("name", PARTITION_FILTERS)
def test_filters_on_partition_columns(tables, name):
    table, filters = PARTITION_FILTERS[name]
    assert_same(tables / table, lambda _: {"filters": filters})


@pytest.mark.parametrize("shard", [0, 1])
def test_filters_on_partition_columns_come_before_sharding(tables, shard):
    options = {"filters": [("k", "in", {1, 3})], "cur_shard": shard, "shard_count": 2}
    assert_same(tables / "integers", lambda _: options)


@pytest.mark.difference("filters-work")
@pytest.mark.parametrize(
    ("filters", "original_rows", "rows"),
    [
        ([("id", ">", 40)], 12, 2),
        ([("k", "=", 1), ("id", ">", 11)], 3, 1),
        ([[("k", "=", "1")], [("id", ">", 40)]], 12, 5),
    ],
)
def test_filters_on_stored_columns(tables, filters, original_rows, rows):
    found = [
        sum(len(group["id"][1]) for group in read(package, tables / "integers", filters=filters)[0])
        for package in (petastorm, petastorm_bridge)
    ]
    assert found == [original_rows, rows]


@pytest.mark.difference("filters-work")
def test_filters_that_match_no_partition(tables):
    filters = [("k", "=", 99)]
    assert isinstance(read(petastorm, tables / "integers", filters=filters), IndexError)
    assert read(petastorm_bridge, tables / "integers", filters=filters) == ([], True)


@pytest.mark.difference("filters-work")
def test_filters_on_a_column_that_does_not_exist(tables):
    groups, _ = read(petastorm, tables / "integers", filters=[("nope", "=", 1)])
    assert len(groups) == 4
    error = read(petastorm_bridge, tables / "integers", filters=[("nope", "=", 1)])
    assert isinstance(error, ValueError)
    assert "filters name nope, the table has k, id" in str(error)


def test_filters_that_cannot_be_compared_are_refused_at_once(tables):
    with pytest.raises(ValueError, match=r"cannot be compared with the columns id \(int64\)"):
        petastorm_bridge.make_batch_reader(f"file://{tables}/integers", filters=[("id", ">", "20")])


EVOLVED = {
    "renamed": ({"id": [1, 2], "old": [1, 2]}, {"id": [3, 4], "new": [1, 2]}),
    "other type": ({"id": [1], "x": [1]}, {"id": [3], "x": ["a"]}),
    "struct is gone": ({"id": [1], "s": pa.array([{"a": 1}])}, {"id": [3]}),
    "no dictionary": (
        {"id": [1], "s": pa.array(["a"]).dictionary_encode()},
        {"id": [3], "s": ["b"]},
    ),
}


@pytest.mark.parametrize("name", EVOLVED)
def test_only_columns_that_are_read_have_to_agree(tmp_path, name):
    for number, columns in enumerate(EVOLVED[name]):
        write(tmp_path / f"{number}.parquet", columns)
    assert_same(tmp_path, lambda _: {"schema_fields": ["id"]})
    if name != "other type":  # which Petastorm gives file by file: parquet-one-dtype
        assert_same(tmp_path, lambda _: {})


@pytest.mark.difference("predicate-keeps-dtypes")
def test_predicate_on_one_column_of_an_evolved_table(tmp_path):
    for number, columns in enumerate(EVOLVED["renamed"]):
        write(tmp_path / f"{number}.parquet", columns)
    found = []
    for package, predicates in PACKAGES.values():
        predicate = predicates.in_lambda(["id"], lambda i: i > 1)
        found.append(read(package, tmp_path, schema_fields=["id"], predicate=predicate)[0])
    assert found[0] == [{"id": ("float64", [2.0])}, {"id": ("int64", [3, 4])}]
    assert found[1] == [{"id": ("int64", [2])}, {"id": ("int64", [3, 4])}]


def frames_of(package, path, function=lambda frame: frame):
    frames = []

    def remember(frame):
        frames.append(frame.copy())
        return function(frame)

    result = read(package, path, transform_spec=package.TransformSpec(remember))
    return frames, result


NOTED = {
    "id": pd.array([2**53 + 1, None], "Int64"),
    "small": pd.array([1, 2], "Int16"),
    "flag": pd.array([True, None], "boolean"),
    "text": pd.array(["a", None], "string"),
    "part": pd.array([0.5, None], "Float32"),
    "zone": pd.to_datetime(["2020-01-01", "2020-01-02"]).tz_localize("Asia/Tokyo"),
    "plain": [1, 2],
    "object": ["a", None],
}


@pytest.mark.parametrize("options", [{}, {"row_group_size": 1}, {"partition_cols": ["plain"]}])
def test_frames_have_the_dtypes_that_pandas_noted(tmp_path, options):
    path = tmp_path / "table"
    path.mkdir()
    frame = pd.DataFrame(NOTED)
    frame.to_parquet(path if "partition_cols" in options else path / "a.parquet", **options)
    original, original_result = frames_of(petastorm, path)
    bridge, result = frames_of(petastorm_bridge, path)
    assert len(original) == len(bridge)
    for one, other in zip(original, bridge, strict=True):
        # Petastorm's order depends on the hash seed, except that partition columns come last.
        pd.testing.assert_frame_equal(one, other[list(one.columns)])
        if "partition_cols" in options:
            assert one.columns[-1] == other.columns[-1] == "plain"
    assert str(result) == str(original_result)  # NaN equals itself there


def test_noted_numbers_stay_exact_in_a_transform(tmp_path):
    pd.DataFrame({"id": NOTED["id"]}).to_parquet(tmp_path / "a.parquet")

    def fill(frame):
        return frame.assign(id=frame["id"].fillna(0).astype("int64"))

    expected = [{"id": ("int64", [2**53 + 1, 0])}], False
    assert frames_of(petastorm, tmp_path, fill)[1] == expected
    assert frames_of(petastorm_bridge, tmp_path, fill)[1] == expected


def test_arrow_dtypes_that_pandas_noted(tmp_path):
    frame = pd.DataFrame({name: NOTED[name] for name in ("id", "flag", "text", "part")})
    frame.convert_dtypes(dtype_backend="pyarrow").to_parquet(tmp_path / "a.parquet")
    (original,), original_result = frames_of(petastorm, tmp_path)
    (bridge,), result = frames_of(petastorm_bridge, tmp_path)
    pd.testing.assert_frame_equal(original, bridge[list(original.columns)])
    assert str(result) == str(original_result)


@pytest.mark.difference("stored-index")
def test_a_stored_index_is_a_column(tmp_path):
    frame = pd.DataFrame({"id": [1, 2]}, index=pd.Index([5, 6], name="key"))
    frame.to_parquet(tmp_path / "a.parquet")
    assert isinstance(frames_of(petastorm, tmp_path)[1], ValueError)
    (seen,), (groups, _) = frames_of(petastorm_bridge, tmp_path)
    assert seen.to_dict("list") == {"id": [1, 2], "key": [5, 6]}
    assert groups == [{"id": ("int64", [1, 2]), "key": ("int64", [5, 6])}]


@pytest.mark.difference("common-metadata-ignored")
def test_a_summary_file_beside_the_data(tmp_path):
    write(tmp_path / "a.parquet", {"id": [1]})
    pq.write_metadata(pa.schema([("id", pa.int64())]), tmp_path / "_common_metadata")
    assert "Could not find row group metadata" in str(read(petastorm, tmp_path))
    assert read(petastorm_bridge, tmp_path)[0] == [{"id": ("int64", [1])}]


@pytest.mark.difference("large-partition-numbers")
def test_partition_numbers_beyond_64_bits(tmp_path):
    write(tmp_path / f"k={2**63}/a.parquet", {"id": [1]})
    assert isinstance(read(petastorm, tmp_path), OverflowError)
    assert read(petastorm_bridge, tmp_path)[0][0]["k"] == ("category", [str(2**63)])


@pytest.mark.parametrize("value", [3_000_000_000, -5, "1_000", "__HIVE_DEFAULT_PARTITION__", ""])
def test_partition_values(tmp_path, value):
    write(tmp_path / f"k={value}/a.parquet", {"id": [1]})
    assert_same(tmp_path, lambda _: {})
    assert_same(tmp_path, lambda p: {"predicate": p.in_lambda(["k"], lambda k: str(k) > "")})


def test_columns_that_occur_twice(tmp_path):
    table = pa.Table.from_arrays([pa.array([1])] * 3, names=["a", "a", "b"])
    write(tmp_path / "a.parquet", table)
    assert_same(tmp_path, lambda _: {})
