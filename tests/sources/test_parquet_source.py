"""Parquet files as a source: layout of directories, types, nulls, changed and damaged files."""

import datetime as dt
import gc
import os
import pickle
import re
import shutil
import socket
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from growth import assert_grows_linearly, count_calls

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge._blocks.columns import NullFacts
from petastorm_bridge._sources.files_source import FilesSource
from petastorm_bridge._sources.mds import named_shards
from petastorm_bridge._sources.parquet import ParquetSource
from petastorm_bridge._sources.parquet_files import Partition
from petastorm_bridge.errors import DatasetError, DatasetNotFoundError


def write(path, columns, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    return path


def source_of(path, **options):
    source = ParquetSource([str(path)], listed=False, **options)
    return source.narrowed(source.schema.fields)


def column(source, name, position=0, rows=None):
    rows = slice(0, source.row_counts[position]) if rows is None else rows
    return source.open(position).load([name], rows)[name]


def read(url, **options):
    options = {"reader_pool_type": "dummy", "shuffle_row_groups": False} | options
    with make_batch_reader(url, **options) as reader:
        return list(reader)


def test_row_groups_are_in_the_order_of_files_and_within_them(tmp_path):
    for number in (2, 10, 1):
        ids = np.arange(5) + 10 * number
        write(tmp_path / f"part-{number:02}.parquet", {"id": ids}, row_group_size=2)
    source = source_of(tmp_path)
    assert list(source.row_counts) == [2, 2, 1] * 3
    ids = np.concatenate([column(source, "id", i) for i in range(9)])
    assert ids.tolist() == [*range(10, 15), *range(20, 25), *range(100, 105)]


def test_listed_files_keep_their_order(tmp_path):
    one = write(tmp_path / "a.parquet", {"id": [1]})
    two = write(tmp_path / "b.parquet", {"id": [2]})
    source = ParquetSource([str(two), str(one)], listed=True)
    assert [column(source, "id", i).tolist() for i in range(2)] == [[2], [1]]
    assert source.description == str([str(two), str(one)])


def test_hidden_files_and_directories_are_skipped(tmp_path):
    write(tmp_path / "a.parquet", {"id": [1]})
    write(tmp_path / "_temporary" / "b.parquet", {"id": [2]})
    write(tmp_path / ".staging" / "c.parquet", {"id": [3]})
    for name in ("_SUCCESS", "_metadata", ".a.parquet.crc", "a.crc", "_x", "d_$folder$"):
        (tmp_path / name).write_text("no Parquet")
    assert list(source_of(tmp_path).row_counts) == [1]


def test_paths_are_taken_literally_and_links_followed(tmp_path):
    real = tmp_path / "a b%20=ü"
    write(real / "x y.parquet", {"id": [1]})
    (tmp_path / "link").symlink_to(real)
    (real / "z.parquet").symlink_to(write(tmp_path / "elsewhere.parquet", {"id": [2]}))
    for path in (real, tmp_path / "link", f"{real}/"):
        source = source_of(path)
        assert [column(source, "id", i).tolist() for i in range(2)] == [[1], [2]]


class TestPartitions:
    def test_come_first_as_integers_or_strings(self, tmp_path):
        for color in ("red", "blue"):
            for year in (2020, 9):
                write(tmp_path / f"color={color}/year={year}/a.parquet", {"id": [year]})
        source = source_of(tmp_path)
        assert list(source.schema.fields) == ["color", "year", "id"]
        assert source.types["color"] == pa.string()
        assert source.types["year"] == pa.int64()
        assert source.schema.fields["year"].numpy_dtype is np.int64
        assert source.schema.fields["color"].nullable is False
        found = [
            (*column(source, "color", i).tolist(), *column(source, "year", i).tolist())
            for i in range(4)
        ]
        # In the order of the paths, which sorts numbers as text.
        assert found == [("blue", 2020), ("blue", 9), ("red", 2020), ("red", 9)]

    def test_are_categories_of_all_values_in_a_transform(self, tmp_path):
        for key in ("x", "y"):
            write(tmp_path / f"k={key}/a.parquet", {"id": [1, 2]})
        seen = []

        def remember(frame):
            seen.append(frame["k"].dtype)
            return pd.get_dummies(frame, columns=["k"])

        spec = TransformSpec(
            remember,
            edit_fields=[("k_x", np.bool_, (), False), ("k_y", np.bool_, (), False)],
            removed_fields=["k"],
        )
        first, second = read(tmp_path.as_uri(), transform_spec=spec)
        assert all(list(dtype.categories) == ["x", "y"] for dtype in seen)
        assert first.k_x.tolist() == second.k_y.tolist() == [True, True]

    def test_pass_through_a_transform_as_categories(self, tmp_path):
        write(tmp_path / "k=1/a.parquet", {"id": [1, 2]})
        (row,) = read(tmp_path.as_uri(), transform_spec=TransformSpec(lambda frame: frame))
        assert isinstance(row.k, pd.Categorical)
        assert row.k.tolist() == [1, 1]

    def test_can_be_filtered_and_selected(self, tmp_path):
        for key in ("x", "y"):
            write(tmp_path / f"k={key}/a.parquet", {"id": [1, 2]})
        url = tmp_path.as_uri()
        (row,) = (r for r in read(url, filters=[("k", "=", "y")]) if len(r.id))
        assert row.k.tolist() == ["y", "y"]
        assert [r._fields for r in read(url, schema_fields=["k"])] == [("k",), ("k",)]
        kept = read(url, filters=[("k", "in", ["x"]), ("id", ">", 1)])
        assert [r.id.tolist() for r in kept if len(r.id)] == [[2]]

    def test_hide_a_stored_column_of_the_same_name(self, tmp_path):
        write(tmp_path / "id=7/a.parquet", {"x": [0.5], "id": [1]})
        source = source_of(tmp_path)
        assert list(source.schema.fields) == ["id", "x"]
        assert column(source, "id").tolist() == [7]

    @pytest.mark.parametrize("value", ["99999999999999999999", "1.5", "a%20b", "a=b"])
    def test_other_values_stay_text(self, tmp_path, value):
        write(tmp_path / f"k={value}/a.parquet", {"id": [1]})
        assert column(source_of(tmp_path), "k").tolist() == [value]

    def test_of_listed_files_are_not_read(self, tmp_path):
        urls = [write(tmp_path / f"k={k}/a.parquet", {"id": [k]}).as_uri() for k in (1, 2)]
        assert [r._fields for r in read(urls)] == [("id",), ("id",)]

    def test_a_directory_named_like_one_is_none_below_its_root(self, tmp_path):
        root = tmp_path / "run=3"
        write(root / "a.parquet", {"id": [1]})
        assert read(root.as_uri())[0]._fields == ("id",)

    @pytest.mark.parametrize("others", [["j=2"], ["k=2/j=3"]])
    def test_must_be_the_same_everywhere(self, tmp_path, others):
        for folder in ["k=1", *others]:
            write(tmp_path / folder / "a.parquet", {"id": [1]})
        with pytest.raises(TypeError, match="same partition columns"):
            source_of(tmp_path)


class TestLayoutErrors:
    def test_nothing_there(self, tmp_path):
        with pytest.raises(OSError, match=r"Passed non-file path: .*nope.*There is nothing"):
            read((tmp_path / "nope").as_uri())

    def test_several_directories(self, tmp_path):
        urls = [write(tmp_path / f"{n}/a.parquet", {"id": [1]}).parent.as_uri() for n in "ab"]
        with pytest.raises(OSError, match=r"Passed non-file path: .*There is a directory"):
            read(urls)

    def test_empty_directory(self, tmp_path):
        with pytest.raises(DatasetNotFoundError, match="No Parquet file in") as caught:
            read(tmp_path.as_uri())
        assert isinstance(caught.value, IndexError)  # Petastorm's

    def test_files_beside_directories(self, tmp_path):
        write(tmp_path / "a.parquet", {"id": [1]})
        write(tmp_path / "k=1/a.parquet", {"id": [1]})
        with pytest.raises(ValueError, match="Found files in an intermediate directory"):
            read(tmp_path.as_uri())

    @pytest.mark.parametrize("folder", ["sub", "k=1/sub"])
    def test_directory_that_is_no_partition(self, tmp_path, folder):
        write(tmp_path / folder / "a.parquet", {"id": [1]})
        with pytest.raises(ValueError, match="did not appear to be a partition: sub"):
            read(tmp_path.as_uri())

    @pytest.mark.parametrize("content", [b"", b"hi", b"PAR1 and then nothing of the kind"])
    def test_no_parquet_file(self, tmp_path, content):
        write(tmp_path / "a.parquet", {"id": [1]})
        (tmp_path / "notes.txt").write_bytes(content)
        with pytest.raises(
            pa.ArrowInvalid, match=r"notes\.txt cannot be read as Parquet"
        ) as caught:
            read(tmp_path.as_uri())
        assert isinstance(caught.value, DatasetError)


class TestOddFiles:
    def test_a_name_that_only_holds_mds_is_no_shard(self, tmp_path):
        path = write(tmp_path / "from.mds.parquet", {"id": [1]})
        (groups,) = read([path.as_uri()])
        assert groups.id.tolist() == [1]
        for name in ("shard.00000.mds", "shard.00000.mds.zstd"):
            assert named_shards([f"/t/{name}"]) == ("/t", [name])

    @pytest.mark.parametrize("kind", ["pipe", "socket"])
    def test_what_is_no_file_is_refused_without_waiting(self, tmp_path, kind):
        write(tmp_path / "a.parquet", {"id": [1]})
        if kind == "pipe":
            os.mkfifo(tmp_path / "x")
        else:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(tmp_path / "x"))
        with pytest.raises(ValueError, match=r"x is a pipe, a socket or a device"):
            source_of(tmp_path)
        with pytest.raises(OSError, match="There is a pipe, a socket or a device"):
            source_of(tmp_path / "x")

    @pytest.mark.parametrize("target", ["nothing", "x"])
    def test_links_to_nothing_are_lost_rows(self, tmp_path, target):
        write(tmp_path / "k=1" / "a.parquet", {"id": [1]})
        (tmp_path / "k=1" / "x").symlink_to(target)
        with pytest.raises(FileNotFoundError, match="k=1/x is a link to a file that does not"):
            source_of(tmp_path)
        (tmp_path / "k=1" / "x").rename(tmp_path / "k=1" / "_x")  # hidden: no data file
        assert list(source_of(tmp_path).row_counts) == [1]

    @pytest.mark.parametrize("names", [["k=0"], ["k=0", "k=1"], ["a=0", "b=0"]])
    def test_links_in_circles_are_refused(self, tmp_path, names):
        """Arrow follows them: two of them are more paths than anybody can wait for."""
        for name in names:
            (tmp_path / name).symlink_to(".")
        with pytest.raises(ValueError, match="A partition column occurs twice"):
            source_of(tmp_path)

    def test_nul_characters(self):
        with pytest.raises(OSError, match="Passed non-file path"):
            source_of("/tmp/a\0b")


class CountedText(str):
    """Text whose comparisons are calls that a profiler sees."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        return str.__eq__(self, other)


class TestGrowth:
    def test_partitions_are_numbered_in_linear_time(self):
        def prepare(size):
            values = [CountedText(f"v{i}") for i in range(size)]
            return lambda: Partition(values)

        assert_grows_linearly(prepare, 200)

    def test_footers_are_searched_for_the_columns_asked_for_only(self, tmp_path):
        def prepare(columns):
            table = {f"c{i}": np.arange(300) for i in range(columns)}
            path = write(tmp_path / f"{columns}.parquet", table, row_group_size=1)
            source = ParquetSource([str(path)], listed=False)
            return lambda: source.narrowed(["c1"])

        assert_grows_linearly(prepare, 4, limit=1.5)

    def test_categories_are_made_once_for_all_partitions(self, tmp_path):
        for key in range(3):
            write(tmp_path / f"k={key}/a.parquet", {"id": [1]})
        source = source_of(tmp_path)
        first, second = (column(source, "k", i) for i in (0, 1))
        assert first.dtype.categories is second.dtype.categories


class TestChangedFiles:
    @pytest.fixture
    def table(self, tmp_path):
        path = write(tmp_path / "a.parquet", {"id": np.arange(1000), "s": ["x"] * 1000})
        return path, source_of(path)

    def test_deleted(self, table):
        path, source = table
        path.unlink()
        with pytest.raises(FileNotFoundError, match="deleted after the reader was opened"):
            source.open(0)

    def test_written_again(self, table):
        path, source = table
        write(path, {"id": np.arange(1000) + 1, "s": ["x"] * 1000})
        with pytest.raises(DatasetError, match="written again"):
            source.open(0)

    @pytest.mark.parametrize("is_sent", [False, True], ids=["here", "elsewhere"])
    def test_replaced_by_one_of_the_same_size_and_time(self, table, is_sent):
        path, source = table
        other = path.with_name("other")
        write(other, {"id": np.arange(1000), "s": ["y"] * 1000})
        assert other.stat().st_size == path.stat().st_size
        shutil.copystat(path, other)
        other.replace(path)
        source = pickle.loads(pickle.dumps(source)) if is_sent else source
        with pytest.raises(DatasetError, match="written again"):
            source.open(0)

    def test_damaged_pages(self, table):
        path, source = table
        status = path.stat()
        content = bytearray(path.read_bytes())
        content[4:400] = b"\xff" * 396
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(DatasetError, match=r"a\.parquet cannot be read as Parquet"):
            source.open(0).load(["id"], slice(0, 1000))["id"]


class TestHostileFooters:
    @pytest.mark.parametrize("is_one", [True, False], ids=["a file", "files"])
    @pytest.mark.parametrize("changed", [b"\xc8\x00", b"\xc7\x01", b"\xc7\x00"])
    def test_counts_of_rows_that_contradict_each_other(self, tmp_path, changed, is_one):
        """Rows of a group would be left out in silence: 100 of them are stored as C8 01."""
        path = write(tmp_path / "a.parquet", {"id": np.arange(300)}, row_group_size=100)
        if not is_one:
            write(tmp_path / "b.parquet", {"id": np.arange(0)})
        content, wrong = path.read_bytes(), 0
        footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        for place in range(footer, len(content) - 8):
            if content[place : place + 2] != b"\xc8\x01":
                continue
            path.write_bytes(content[:place] + changed + content[place + 2 :])
            try:
                rows = [row for group in read(tmp_path.as_uri()) for row in group.id.tolist()]
            except DatasetError as error:
                wrong += re.search("not those of the row groups|holds 36", str(error)) is not None
            else:
                assert sorted(rows) == list(range(300))
        assert wrong >= 3

    def test_a_name_that_is_no_text(self, tmp_path):
        path = write(tmp_path / "a.parquet", {"id": [1], "twin": [2]})
        path.write_bytes(path.read_bytes().replace(b"twin", b"tw\x80n"))
        with pytest.raises(DatasetError, match=r"a\.parquet"):
            read(tmp_path.as_uri())

    def test_notes_of_pandas_that_are_nested_too_deeply(self, tmp_path):
        table = pa.table({"id": [1]}).replace_schema_metadata({"pandas": "[" * 100_000})
        pq.write_table(table, tmp_path / "a.parquet")
        (group,) = read(tmp_path.as_uri())
        assert group.id.tolist() == [1]


class TestDifferentSchemas:
    def both(self, tmp_path, first, second):
        write(tmp_path / "a.parquet", first)
        write(tmp_path / "b.parquet", second)
        return source_of(tmp_path)

    def test_order_and_further_columns_do_not_matter(self, tmp_path):
        source = self.both(tmp_path, {"id": [1], "x": [0.5]}, {"z": [True], "x": [1.5], "id": [2]})
        assert list(source.schema.fields) == ["id", "x"]
        assert column(source, "id", 1).tolist() == [2]

    def test_missing_column(self, tmp_path):
        with pytest.raises(TypeError, match=r"b\.parquet has no column 'x'.*a\.parquet"):
            self.both(tmp_path, {"id": [1], "x": [0.5]}, {"id": [2]})

    def test_numbers_take_the_wider_type(self, tmp_path):
        source = self.both(
            tmp_path, {"id": pa.array([1], pa.int32())}, {"id": pa.array([2**40], pa.int64())}
        )
        assert source.types["id"] == pa.int64()
        assert [column(source, "id", i).dtype for i in range(2)] == [np.int64] * 2
        assert column(source, "id", 1).tolist() == [2**40]

    def test_column_without_a_value_in_one_file(self, tmp_path):
        source = self.both(tmp_path, {"s": pa.nulls(2), "n": pa.nulls(2)}, {"s": ["x"], "n": [1]})
        assert source.types == {"s": pa.string(), "n": pa.int64()}
        assert column(source, "s", 0).to_pylist() == [None, None]
        rows = read(tmp_path.as_uri())
        assert [row.n.dtype for row in rows] == [np.float64] * 2

    def test_number_that_the_common_type_cannot_hold(self, tmp_path):
        source = self.both(tmp_path, {"x": [0.5]}, {"x": [2**53 + 1]})
        with pytest.raises(TypeError, match=r"'x' of .*b\.parquet is int64.*double"):
            column(source, "x", 1)

    def test_no_common_type(self, tmp_path):
        with pytest.raises(TypeError, match=r"'x' is string in .*b\.parquet and double"):
            self.both(tmp_path, {"x": [0.5]}, {"x": ["a"]})


class TestColumns:
    def test_numbers_are_arrays_without_a_copy(self, tmp_path):
        table = {
            "i": np.arange(6, dtype=np.int16),
            "f": np.arange(6, dtype=np.float32),
            "b": np.arange(6) % 2 == 0,
        }
        source = source_of(write(tmp_path / "a.parquet", table))
        group = source.open(0)
        for name, expected in table.items():
            for rows in (slice(1, 5), np.array([5, 0, 0])):
                values = group.load([name], rows)[name]
                assert isinstance(values, np.ndarray)
                assert values.dtype == expected.dtype
                np.testing.assert_array_equal(values, expected[rows])

    def test_a_row_group_is_decoded_once_while_it_is_open(self, tmp_path):
        source = source_of(write(tmp_path / "a.parquet", {"id": np.arange(6)}))
        group = source.open(0)
        first, again = group.load(["id"], slice(0, 3))["id"], group.load(["id"], slice(0, 3))["id"]
        assert np.shares_memory(first, again)
        assert not np.shares_memory(first, source.open(0).load(["id"], slice(0, 3))["id"])

    def test_rows_of_other_columns(self, tmp_path):
        table = {"s": ["a", None, "c"], "l": [[1, 2], [3, 4], [5, 6]]}
        group = source_of(write(tmp_path / "a.parquet", table)).open(0)
        assert group.load(["s"], slice(1, 3))["s"].to_pylist() == [None, "c"]
        assert group.load(["l"], np.array([2, 0]))["l"].to_pylist() == [[5, 6], [1, 2]]

    def test_timestamps_keep_unit_and_zone(self, tmp_path):
        moment = dt.datetime(2020, 1, 2, 3, 4, 5, 678901)
        table = {
            "spark": pa.array([moment], pa.timestamp("us")),
            "zone": pa.array([moment.replace(microsecond=0)], pa.timestamp("ms", "Europe/Rome")),
        }
        path = write(tmp_path / "a.parquet", table)
        (row,) = read(path.as_uri())
        assert row.spark.dtype == np.dtype("datetime64[us]")
        assert row.zone.dtype == np.dtype("datetime64[ms]")
        write(path, table, use_deprecated_int96_timestamps=True)
        (row,) = read(path.as_uri())
        assert row.spark.dtype == np.dtype("datetime64[ns]")
        assert row.spark[0] == np.datetime64(moment)

    @pytest.mark.difference("parquet-more-types")
    def test_types_that_petastorm_leaves_out(self, tmp_path):
        table = {
            "u": pa.array([1, 2], pa.uint16()),
            "s": pa.array(["a", "b"], pa.large_string()),
            "b": pa.array([b"a", b"b"], pa.large_binary()),
            "l": pa.array([[1], [2]], pa.large_list(pa.int32())),
        }
        (row,) = read(write(tmp_path / "a.parquet", table).as_uri())
        assert row.u.dtype == np.uint16
        assert row.s.tolist() == ["a", "b"]
        assert row.b.tolist() == [b"a", b"b"]
        assert row.l.tolist() == [[1], [2]]

    def test_unsupported_types_are_left_out_with_a_warning(self, tmp_path):
        table = {"id": [1], "m": pa.array([{"a": 1}]), "t": pa.array([1], pa.time32("s"))}
        path = write(tmp_path / "a.parquet", table)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            source = source_of(path)
        assert list(source.schema.fields) == ["id"]
        texts = [str(warning.message) for warning in caught]
        assert any("'m' has an unsupported field StructType" in text for text in texts)
        assert any("'t' has an unsupported field" in text for text in texts)

    def test_names_with_dots(self, tmp_path):
        table = {"a": pa.array([{"b": 1}]), "a.b": [2], "a.l": [[3, None]]}
        with pytest.warns(UserWarning, match="'a' has an unsupported field"):
            source = source_of(write(tmp_path / "a.parquet", table))
        assert column(source, "a.b").tolist() == [2]
        assert source.nulls["a.l"] == NullFacts(elements=True)
        assert source.nulls["a.b"] == NullFacts()


class TestNulls:
    def test_facts_cover_all_files(self, tmp_path):
        write(tmp_path / "a.parquet", {"n": [1, 2], "s": ["a", "b"], "m": [{"x": 1}, {"x": 2}]})
        write(tmp_path / "b.parquet", {"m": [{"x": 1}], "n": [None], "s": ["c"]})
        with pytest.warns(UserWarning, match="'m' has an unsupported field"):
            source = source_of(tmp_path)
        assert source.nulls == {"n": NullFacts(rows=True), "s": NullFacts()}

    def test_decide_the_dtype_everywhere(self, tmp_path):
        write(tmp_path / "a.parquet", {"n": [1, 2], "b": [True, False], "l": [[1], [2]]})
        write(tmp_path / "b.parquet", {"n": [3, None], "b": [True, None], "l": [[1], [None]]})
        for row in read(tmp_path.as_uri()):
            assert row.n.dtype == np.float64
            assert row.b.dtype == object
            assert row.l.dtype == np.float64

    @pytest.mark.parametrize("lists", [[[], []], [None, None]])
    def test_lists_without_elements_change_no_dtype(self, tmp_path, lists):
        table = pa.table({"l": pa.array(lists, pa.list_(pa.int64()))})
        source = source_of(write(tmp_path / "a.parquet", table))
        assert source.nulls["l"] == NullFacts()

    def test_only_columns_that_are_read_are_looked_at(self, tmp_path):
        """In each row group: 50 columns of 10,000 groups took eight seconds, whatever was asked for."""
        columns = {f"c{i}": np.arange(200) for i in range(30)}
        source = ParquetSource(
            [str(write(tmp_path / "a.parquet", columns, row_group_size=2))], listed=False
        )
        one = count_calls(lambda: source.narrowed(["c7"]))
        assert count_calls(lambda: source.narrowed(list(columns))) > 5 * one

    def test_unknown_without_statistics(self, tmp_path):
        path = write(tmp_path / "a.parquet", {"n": [1, None]}, write_statistics=False)
        assert source_of(path).nulls["n"] == NullFacts()
        assert read(path.as_uri())[0].n.dtype == np.float64


class TestUse:
    def test_pickles_small_and_works(self, tmp_path):
        for number in range(3):
            columns = {f"c{i}": np.arange(20) for i in range(50)}
            write(tmp_path / f"k={number}/a.parquet", columns, row_group_size=2)
        source = source_of(tmp_path)
        data = pickle.dumps(source)
        assert len(data) < 20_000
        again = pickle.loads(data)
        assert column(again, "c7", 29).tolist() == [18, 19]
        assert column(again, "k", 29).tolist() == [2, 2]
        assert not again.is_cheap(0)

    def test_threads_read_at_once(self, tmp_path):
        table = {"id": np.arange(4000), "s": [str(i) for i in range(4000)]}
        source = source_of(write(tmp_path / "a.parquet", table, row_group_size=100))
        start = threading.Barrier(4)

        def read_all(_):
            start.wait()
            groups = [source.open(i) for i in range(40)]
            ids = [group.load(["id"], slice(0, 100))["id"] for group in groups]
            texts = [group.load(["s"], slice(0, 100))["s"].to_pylist() for group in groups]
            return np.concatenate(ids).tolist() == [int(t) for ts in texts for t in ts]

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(read_all, range(4))) == [True] * 4

    def test_leaves_no_file_open(self, tmp_path, no_leaks):
        for number in range(3):
            write(tmp_path / f"{number}.parquet", {"id": np.arange(20)}, row_group_size=2)
        read(tmp_path.as_uri(), reader_pool_type="thread")
        with no_leaks():
            for _ in range(5):
                with make_batch_reader(tmp_path.as_uri(), workers_count=3) as reader:
                    next(reader)
            del reader
            gc.collect()


def test_what_is_kept_of_many_files_is_small(tmp_path):
    for number in range(40):
        values = {"a": [1, None if number == 23 else 2], "b": [[1.0], [None]], "c": [1, 2]}
        write(tmp_path / f"{number:02}.parquet", values)
    gc.collect()
    before = sum(type(each) is pq.FileMetaData for each in gc.get_objects())
    source = ParquetSource([str(tmp_path)], listed=False)
    gc.collect()
    assert sum(type(each) is pq.FileMetaData for each in gc.get_objects()) == before
    assert len({id(footer.schema) for footer in source.unchecked}) == 1
    narrowed = source.narrowed(source.schema.fields)
    assert narrowed.nulls == {
        "a": NullFacts(rows=True),
        "b": NullFacts(elements=True),
        "c": NullFacts(),
    }
    assert narrowed.row_counts == [2] * 40


def test_footers_are_read_by_several_threads_where_the_disk_is_slow(tmp_path, monkeypatch):
    for number in range(40):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{number:02}.parquet")
    threads = set()
    opened = FilesSource._open

    def slow(*arguments):
        threads.add(threading.get_ident())
        time.sleep(0.005)
        return opened(*arguments)

    monkeypatch.setattr(FilesSource, "_open", slow)
    with make_batch_reader(f"file://{tmp_path}", shuffle_row_groups=False, num_epochs=1) as reader:
        assert [int(id_) for group in reader for id_ in group.id] == list(range(40))
    assert len(threads) > 2
