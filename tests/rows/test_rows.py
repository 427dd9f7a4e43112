"""``make_reader``: orders, pools, shards, epochs, n-grams, indexes, loaders, without the real package."""

import collections
import copy
import datetime as dt
import json
import pickle
import random
import re
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from stored import random_rows, random_schema, spark, write_stored

from petastorm_bridge import NoDataAvailableError, TransformSpec, make_batch_reader, make_reader
from petastorm_bridge.cache import NullCache
from petastorm_bridge.codecs import (
    CompressedImageCodec,
    CompressedNdarrayCodec,
    NdarrayCodec,
    ScalarCodec,
)
from petastorm_bridge.errors import DecodeFieldError, IgnoredArgumentWarning
from petastorm_bridge.ngram import NGram
from petastorm_bridge.predicates import in_lambda, in_set
from petastorm_bridge.selectors import (
    IntersectIndexSelector,
    SingleIndexSelector,
    UnionIndexSelector,
)
from petastorm_bridge.unischema import Unischema, UnischemaField
from petastorm_bridge.weighted_sampling_reader import WeightedSamplingReader

SCHEMA = Unischema(
    "Rows",
    [
        UnischemaField("id", np.int64, (), None, False),
        UnischemaField("matrix", np.float32, (2, 3), NdarrayCodec(), False),
        UnischemaField("ragged", np.int32, (None,), CompressedNdarrayCodec(), True),
        UnischemaField("text", np.str_, (), None, True),
    ],
)
ROWS = 50


def row(i):
    return {
        "id": np.int64(i),
        "matrix": np.full((2, 3), i, np.float32),
        "ragged": None if i % 7 == 0 else np.arange(i % 4, dtype=np.int32),
        "text": None if i % 5 == 0 else f"row {i}",
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "dataset"
    return write_stored(path, SCHEMA, [row(i) for i in range(ROWS)], files=3, row_group_rows=6)


def read(url, **options):
    with make_reader(url, **options) as reader:
        return list(reader)


def ids(url, **options):
    return [found.id for found in read(url, **options)]


def equal(found, expected):
    assert found._fields == tuple(expected)
    for name, value in expected.items():
        one = getattr(found, name)
        if isinstance(value, np.ndarray):
            assert np.array_equal(one, value), name
        elif value is None and isinstance(one, np.floating):
            assert np.isnan(one)  # what Petastorm, by way of pandas, makes of it
        else:
            assert one == value, name


@pytest.mark.parametrize("pool", ["thread", "dummy", "process"])
def test_rows_are_those_that_were_written(url, pool):
    rows = read(url, reader_pool_type=pool, workers_count=2, shuffle_row_groups=False)
    assert len(rows) == ROWS
    for i, found in enumerate(rows):
        equal(found, row(i))
    assert type(rows[0].id) is np.int64
    assert type(rows[1].text) is np.str_


def test_random_schemas_are_read_as_they_were_written(tmp_path):
    for seed in range(15):
        rng = random.Random(1000 + seed)
        schema = random_schema(rng)
        rows = random_rows(rng, schema, rng.randint(1, 20))
        url = write_stored(tmp_path / str(seed), schema, rows, row_group_rows=rng.randint(1, 8))
        found = read(url, shuffle_row_groups=False)
        assert len(found) == len(rows)
        for one, written in zip(found, rows, strict=True):
            equal(one, written)


def test_rows_belong_to_nobody_else(url):
    """Whoever keeps or changes a row touches no other, and keeps no row group."""
    rows = read(url, shuffle_row_groups=False)
    rows[0].matrix[:] = -1
    assert rows[1].matrix[0, 0] == 1
    assert all(found.matrix.base is None and found.matrix.flags.writeable for found in rows)


@pytest.mark.difference("seed-governs-all")
@pytest.mark.parametrize(
    "options", [{}, {"shuffle_rows": True}, {"shuffle_row_drop_partitions": 3}]
)
def test_a_seed_gives_one_order_whatever_the_workers(url, options):
    orders = {
        tuple(ids(url, seed=3, num_epochs=2, workers_count=workers, **options))
        for workers in (1, 2, 5)
    }
    assert len(orders) == 1
    order = orders.pop()
    assert sorted(order) == sorted([*range(ROWS)] * 2)
    assert order[:ROWS] != order[ROWS:]
    assert order != tuple(ids(url, seed=4, num_epochs=2, **options))


PERMUTED = [3, 4, 1, 0, 2]  # DataFrame(range(5)).sample(frac=1, random_state=3)


@pytest.mark.difference("row-permutations-differ")
@pytest.mark.difference("row-drop-keeps-rows")
@pytest.mark.difference("predicate-keeps-rows-whole")
@pytest.mark.parametrize(
    "pool", ["dummy", "thread", pytest.param("process", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("parts", [1, 2])
def test_a_seed_permutes_all_row_groups_as_petastorm_does(tmp_path, pool, parts):
    schema = SCHEMA.create_schema_view(["id"])
    rows = [{"id": np.int64(i)} for i in range(20)]
    url = write_stored(tmp_path / "d", schema, rows, files=1, row_group_rows=5)
    options = {"reader_pool_type": pool, "shuffle_row_drop_partitions": parts, "workers_count": 2}
    options |= {"shuffle_rows": True, "shuffle_row_groups": False}
    wanted = [5 * group + i for group in range(4) for i in PERMUTED]
    assert ids(url, seed=3, num_epochs=2, **options) == wanted * 2
    odd = in_lambda(["id"], lambda number: number % 2 == 1)
    assert ids(url, seed=3, predicate=odd, **options) == [i for i in wanted if i % 2]
    with make_reader(url, seed=3, **options) as reader:
        passes = []
        for _ in range(2):
            passes.append([found.id for found in reader])
            reader.reset()
    assert passes == [wanted] * 2
    if pool == "dummy":
        assert ids(url, seed=4, **options) != wanted
        assert ids(url, **options) != wanted
        with pytest.raises(ValueError, match="Seed must be between"):  # as pandas has it
            ids(url, seed=2**32, **options)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_seeded_rows_of_shards_and_parts_come_once(url, shards):
    """Shards are cut before rows are shuffled, each with a seed of its own; parts afterwards."""
    options = {"shuffle_rows": True, "shuffle_row_drop_partitions": 3, "shard_count": shards}
    found = [n for i in range(shards) for n in ids(url, cur_shard=i, seed=i, **options)]
    assert sorted(found) == list(range(ROWS))
    assert found != sorted(found)


@pytest.mark.difference("no-lost-rows")
def test_every_epoch_is_complete(url):
    for _ in range(10):
        assert sorted(ids(url, num_epochs=2, workers_count=1)) == sorted([*range(ROWS)] * 2)


@pytest.mark.difference("equal-shards")
@pytest.mark.parametrize("count", [1, 2, 7, ROWS])
def test_shards_share_the_rows_evenly(url, count):
    shards = [ids(url, cur_shard=i, shard_count=count, seed=1) for i in range(count)]
    assert sorted(n for shard in shards for n in shard) == list(range(ROWS))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.difference("files-without-rows")
def test_files_without_rows_are_read(tmp_path):
    schema = SCHEMA.create_schema_view(["id"])
    url = write_stored(tmp_path / "d", schema, [{"id": np.int64(5)}], files=3)
    assert ids(url) == [5]


@pytest.mark.difference("row-group-metadata-not-needed")
def test_files_that_the_metadata_does_not_know_are_read(tmp_path):
    schema = SCHEMA.create_schema_view(["id"])
    url = write_stored(tmp_path / "d", schema, [{"id": np.int64(5)}], files=1)
    shutil.copy(tmp_path / "d" / "part-00000.parquet", tmp_path / "d" / "part-00001.parquet")
    assert ids(url) == [5, 5]


@pytest.mark.difference("more-shards-than-row-groups")
def test_more_shards_than_rows_are_refused(url):
    # The latter are words of Petastorm's, which its users' tests look for.
    for text in ("51 shards of a dataset of 50 rows", "Number of row-groups in the dataset"):
        with pytest.raises(NoDataAvailableError, match=text):
            make_reader(url, cur_shard=0, shard_count=51)


@pytest.mark.difference("negative-shards")
@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
@pytest.mark.parametrize("count", [-1, np.int64(-2)])
def test_a_negative_number_of_shards_is_refused(url, make, count):
    with pytest.raises(ValueError, match=f"shard_count is {count}; it must be at least 1"):
        make(url, cur_shard=0, shard_count=count)


@pytest.mark.parametrize("shard", [-1, 2, 5])
def test_a_shard_that_is_none_is_empty_and_says_so(url, shard):
    with pytest.warns(UserWarning, match="No matching data"):
        assert ids(url, cur_shard=shard, shard_count=2) == []


def test_reset_and_iterating_twice(url):
    with make_reader(url, shuffle_row_groups=False, schema_fields=["id"]) as reader:
        assert next(reader).id == 0
        with pytest.raises(NotImplementedError):
            reader.reset()
        assert [found.id for found in reader] == list(range(1, ROWS))
        assert reader.last_row_consumed
        assert list(reader) == []
        reader.reset()
        assert [found.id for found in reader] == list(range(ROWS))
    with pytest.raises(RuntimeError, match="has stopped"):
        next(reader)


def test_endless_epochs(url):
    with make_reader(url, num_epochs=None, schema_fields=["id"]) as reader:
        seen = collections.Counter(next(reader).id for _ in range(4 * ROWS))
    assert set(seen.values()) == {4}


def test_what_is_taken_row_by_row_is_not_read_again_by_a_loader(url):
    with make_reader(url, shuffle_row_groups=False, schema_fields=["id"]) as reader:
        assert [next(reader).id for _ in range(4)] == [0, 1, 2, 3]
        left = [n for block in reader.blocks() for n in block.columns["id"].tolist()]
    assert left == list(range(4, ROWS))


def test_threads_share_a_reader(url):
    found = []
    with make_reader(url, schema_fields=["id"], num_epochs=20) as reader:
        threads = [
            threading.Thread(target=lambda: found.extend(each.id for each in reader))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert collections.Counter(collections.Counter(found).values()) == {20: ROWS}


def test_a_reader_describes_itself(url):
    with make_reader(url) as reader:
        assert repr(reader).endswith(
            "50 rows, 9 row groups, near, fields id, matrix, ragged, text>"
        )
        assert repr(reader.schema) == "<Unischema Rows: id, matrix, ragged, text>"
        assert not reader.batched_output
        assert not reader.is_batched_reader


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_diagnostics_of_each_pool(url, make):
    with make(url, reader_pool_type="dummy") as reader:
        next(reader)
        assert reader.diagnostics == {}
    with make(url, workers_count=2) as reader:
        assert reader.diagnostics == {"output_queue_size": 0}
        next(reader)
        assert reader.diagnostics.keys() == {"output_queue_size"}
        assert 0 <= reader.diagnostics["output_queue_size"] <= 4
    with make(url, reader_pool_type="process", workers_count=1, schema_fields=["id"]) as reader:
        counts = {"items_consumed": 0, "items_produced": 0, "items_inprocess": 0}
        assert reader.diagnostics == counts | {"zmq_copy_buffers": True}
        next(reader)
        found = reader.diagnostics
        assert found["items_produced"] == 1
        assert 0 < found["items_consumed"] < 5
        assert found["items_inprocess"] == found["items_consumed"] - 1
        list(reader)
        groups = 9
        counts = {"items_consumed": groups, "items_produced": groups, "items_inprocess": 0}
        assert reader.diagnostics == counts | {"zmq_copy_buffers": True}


def test_diagnostics_count_what_waits(url):
    with make_reader(url, workers_count=3, schema_fields=["id"]) as reader:
        next(reader)
        limit = time.monotonic() + 60
        while reader.diagnostics["output_queue_size"] < 2 and time.monotonic() < limit:
            time.sleep(0.01)
        assert reader.diagnostics["output_queue_size"] >= 2
        list(reader)
        assert reader.diagnostics["output_queue_size"] == 0


@pytest.mark.difference("local-disk-cache-keeps-files")
@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_a_reader_has_a_cache_that_keeps_nothing_and_no_dataset(url, make, tmp_path, capsys):
    (tmp_path / "precious").touch()
    cache = {"cache_location": str(tmp_path), "cache_size_limit": 10**9}
    cache |= {"cache_type": "local-disk", "cache_row_size_estimate": 10}
    with make(url, **cache) as reader:
        assert isinstance(reader.cache, NullCache)
        assert reader.cache.get("key", lambda: 5) == 5
        reader.cleanup_cache()
        with pytest.raises(AttributeError, match=r"rows_per_epoch.*ParquetDataset"):
            reader.dataset  # noqa: B018
        assert not hasattr(reader, "dataset")
        assert reader.rows_per_epoch == ROWS
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("make_copy", [pickle.dumps, copy.deepcopy])
@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_a_reader_says_that_it_cannot_be_pickled(url, make, make_copy):
    with make(url) as reader:
        name = type(reader).__name__
        with pytest.raises(TypeError, match=rf"A {name} cannot be pickled.*Pickle the converter"):
            make_copy(reader)
        assert next(copy.copy(reader)) is not None


def test_arguments_without_effect_warn(url):
    ignored = {"pyarrow_serialize": True, "zmq_copy_buffers": False, "hdfs_driver": "libhdfs"}
    for name, value in ignored.items():
        with pytest.warns(IgnoredArgumentWarning, match=f"{name}=.* is ignored"):
            make_reader(url, **{name: value}).stop()


@pytest.mark.difference("plain-lists")
def test_a_plain_store_is_read_with_a_warning(url, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"n": [1, 2], "list": [[1.5], [2.5]]}), tmp_path / "a.parquet")
    with pytest.warns(UserWarning, match="supports reading only Petastorm datasets"):
        rows = read(f"file://{tmp_path}")
    assert [found.n for found in rows] == [1, 2]
    assert rows[1].list.tolist() == [2.5]


# --- values that do not fit --------------------------------------------------------------------------


def broken(tmp_path, field, data):
    import pyarrow as pa
    from pyarrow import parquet

    schema = Unischema("B", [field])
    url = write_stored(tmp_path / "d", schema, [], files=1)
    parquet.write_table(
        pa.table({field.name: pa.array(data)}), tmp_path / "d" / "part-00000.parquet"
    )
    return url


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (NdarrayCodec(), b"no array"),
        (NdarrayCodec(), pickle.dumps(np.zeros(3))),
        (CompressedNdarrayCodec(), b"PK\x03\x04 no archive"),
        (CompressedImageCodec("png"), b"no image"),
        (CompressedImageCodec("png"), b""),
    ],
)
def test_damaged_values_name_their_field(tmp_path, codec, data):
    field = UnischemaField("value", np.float64, (None,), codec, False)
    url = broken(tmp_path, field, [data])
    with pytest.raises(DecodeFieldError, match='Decoding field "value" failed'):
        read(url)


def test_arrays_of_objects_are_no_arrays(tmp_path):
    import io

    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    field = UnischemaField("value", np.object_, (None,), NdarrayCodec(), False)
    with pytest.raises(DecodeFieldError, match="pickle"):
        read(broken(tmp_path, field, [file.getvalue()]))


def test_damaged_arrays_are_what_numpy_says(tmp_path):
    """Cut short, with bytes too many, another header: never other values than NumPy's."""
    import io

    rng = random.Random(5)
    for codec, save in ((NdarrayCodec(), np.save), (CompressedNdarrayCodec(), np.savez_compressed)):
        file = io.BytesIO()
        save(file, arr=np.arange(12).reshape(3, 4))
        whole = file.getvalue()
        field = UnischemaField("value", np.int64, (None, None), codec, False)
        for _ in range(150):
            data = bytearray(whole)
            place = rng.randrange(len(data))
            if rng.random() < 0.3:
                data = data[:place]
            else:
                data[place] = rng.randrange(256)
            check_as_numpy(codec, field, bytes(data), whole)


def check_as_numpy(codec, field, data, whole):
    import io

    import pyarrow as pa

    from petastorm_bridge.reader._rows.decoding import decode_column

    try:
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        expected = loaded if type(codec) is NdarrayCodec else loaded["arr"]
    except Exception:  # noqa: BLE001 – whatever NumPy and zipfile find
        expected = None
    try:
        found = decode_column(field, pa.array([whole, data], pa.binary()))[1]
    except DecodeFieldError:
        assert expected is None
        return
    if expected is None:  # damage that does not concern the values: in an archive's list of files
        expected = codec.decode(field, whole)
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


def test_images_without_opencv_name_the_extra(tmp_path):
    schema = Unischema(
        "I",
        [
            UnischemaField("id", np.int64, (), None, False),
            UnischemaField("image", np.uint8, (2, 2), CompressedImageCodec("png"), False),
        ],
    )
    rows = [{"id": np.int64(1), "image": np.zeros((2, 2), np.uint8)}]
    url = write_stored(tmp_path / "d", schema, rows, files=1)
    code = (
        "import sys; sys.modules['cv2'] = None; from petastorm_bridge import make_reader\n"
        f"with make_reader({url!r}, schema_fields=['id']) as reader: print(next(reader).id)\n"
        f"with make_reader({url!r}) as reader: next(reader)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "1\n"
    assert "pip install 'petastorm-bridge[images]'" in done.stderr


# --- predicates, transforms, indexes -----------------------------------------------------------------


def test_transforms_run_in_workers_on_rows_of_their_own(url):
    def double(found):
        found["matrix"] *= 2
        return {"id": found["id"], "matrix": found["matrix"], "length": np.int64(len(found))}

    spec = TransformSpec(double, [("length", np.int64, (), False)], ["ragged", "text"])
    for pool in ("thread", "process"):
        rows = read(url, transform_spec=spec, reader_pool_type=pool, workers_count=2)
        assert {(found.matrix[0, 0] / 2, found.length) for found in rows} == {
            (i, 4) for i in range(ROWS)
        }


def test_errors_of_a_transform_reach_the_consumer(url):
    def fails(found):
        raise ZeroDivisionError(found["id"])

    with (
        pytest.raises(ZeroDivisionError),
        make_reader(url, transform_spec=TransformSpec(fails)) as r,
    ):
        next(r)


def test_predicates_and_shards_do_not_overlap(url):
    chosen = in_lambda(["id"], lambda number: number % 3 == 1)
    shards = [ids(url, predicate=chosen, cur_shard=i, shard_count=4) for i in range(4)]
    assert sorted(n for shard in shards for n in shard) == list(range(1, ROWS, 3))


class SingleFieldIndexer:
    """As it is pickled."""

    def __init__(self, name, data):
        self._index_name = self._column_name = name
        self._index_data = data


class FieldNotNullIndexer(SingleFieldIndexer):
    pass


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """Row groups of ten rows, with indexes as ``build_rowgroup_index`` stores them."""
    numbers = collections.defaultdict(set)
    texts = collections.defaultdict(set)
    for i in range(ROWS):
        numbers[np.int64(i)].add(i // 10)
        texts[np.str_(f"t{i % 3}")].add(i // 10)
    indexes = {
        "by id": SingleFieldIndexer("by id", numbers),
        "by text": SingleFieldIndexer("by text", texts),
        "not null": FieldNotNullIndexer("not null", {1, 3}),
    }
    data = pickle.dumps(indexes, 0).replace(
        f"c{__name__}\n".encode(), b"cpetastorm.etl.rowgroup_indexers\n"
    )
    schema = SCHEMA.create_schema_view(["id"])
    return write_stored(
        tmp_path_factory.mktemp("indexed") / "d",
        schema,
        [{"id": np.int64(i)} for i in range(ROWS)],
        files=1,
        row_group_rows=10,
        extra={b"dataset-toolkit.rowgroups_index.v1": data},
    )


SELECTORS = [
    (SingleIndexSelector("by id", [3, 41]), {0, 4}),
    (SingleIndexSelector("by id", [999]), set()),
    (SingleIndexSelector("not null", [None]), {1, 3}),
    (UnionIndexSelector([SingleIndexSelector("by id", [3]), SingleIndexSelector("not null", [0])]), {0, 1, 3}),
    (IntersectIndexSelector([SingleIndexSelector("by id", [3, 31]), SingleIndexSelector("not null", [0])]), {3}),
    (SingleIndexSelector("by text", ["t1"]), {0, 1, 2, 3, 4}),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:No matching data")
@pytest.mark.parametrize(("selector", "groups"), SELECTORS)
def test_selectors_choose_row_groups(indexed, selector, groups):
    found = ids(indexed, rowgroup_selector=selector)
    assert {number // 10 for number in found} == groups
    assert len(found) == 10 * len(groups)


def test_unknown_and_missing_indexes_are_refused(indexed, url):
    with pytest.raises(ValueError, match=r"Some of required indexes \['x'\] are not available"):
        make_reader(indexed, rowgroup_selector=SingleIndexSelector("x", [1]))
    with pytest.raises(ValueError, match="Row groups index is not available"):
        make_reader(url, rowgroup_selector=SingleIndexSelector("by id", [1]))


# --- n-grams -----------------------------------------------------------------------------------------


def sequences(url, length, overlap=True, **options):
    ngram = NGram({i: ["id"] for i in range(length)}, 1, "id", overlap)
    rows = read(url, schema_fields=ngram, shuffle_row_groups=False, **options)
    return [tuple(int(found[i].id) for i in range(length)) for found in rows]


@pytest.mark.difference("sequences-shared-out")
@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_sequences_are_shared_out_once(tmp_path, length):
    schema = SCHEMA.create_schema_view(["id"])
    rows = [{"id": np.int64(i)} for i in range(ROWS)]
    url = write_stored(tmp_path / "d", schema, rows, files=1, row_group_rows=11)
    whole = sequences(url, length)
    assert len(whole) == sum(max(0, n - length + 1) for n in (11, 11, 11, 11, 6))
    for options in ({"shard_count": 3}, {"shard_count": 8, "shuffle_row_drop_partitions": 2}):
        shards = [
            sequences(url, length, cur_shard=i, **options) for i in range(options["shard_count"])
        ]
        assert sorted(s for shard in shards for s in shard) == whole
    apart = sequences(url, length, overlap=False)
    assert len({n for s in apart for n in s}) == len(apart) * length
    shards = [sequences(url, length, overlap=False, cur_shard=i, shard_count=2) for i in range(2)]
    assert sorted(s for shard in shards for s in shard) == apart


def test_sequences_need_their_timestamp_only_where_it_decides(url):
    def found(fields, *, overlap=True, **options):
        options["schema_fields"] = NGram(fields, 1, "id", overlap)
        return len(read(url, shuffle_row_groups=False, **options))

    assert found({0: ["matrix"]}) == ROWS
    assert found({-3: ["matrix", "text"]}, shuffle_rows=True, seed=3) == ROWS
    assert found({0: ["matrix"], 6: ["matrix"]}) == 0  # of row groups of 6 rows
    few = in_lambda(["text"], lambda text: text in ("row 1", "row 9"))
    assert found({0: ["text"], 1: ["matrix"]}, predicate=few) == 0
    for fields, overlap in (({0: ["matrix"], 1: ["matrix"]}, True), ({0: ["matrix"]}, False)):
        with pytest.raises(
            KeyError, match="timestamp_field of the NGram, 'id', is among the fields"
        ):
            found(fields, overlap=overlap)
    with_id = TransformSpec(lambda row: {**row, "id": int(row["matrix"][0, 0])})
    assert found({0: ["matrix"], 1: ["matrix"]}, transform_spec=with_id) == ROWS - 9
    without = TransformSpec(removed_fields=["id"])
    assert found({0: ["matrix", "id"]}, transform_spec=without) == ROWS
    with pytest.raises(KeyError, match="or the transform removes it"):
        found({0: ["matrix", "id"], 1: ["matrix"]}, transform_spec=without)


def test_sequences_of_dictionaries_need_their_timestamp_only_where_it_decides():
    ngram = NGram({0: ["text"]}, 1, "id")
    ngram.resolve_regex_field_names(SCHEMA)
    assert ngram.form_ngram([{"text": "a"}, {"text": "b"}], SCHEMA) == [
        {0: {"text": "a"}},
        {0: {"text": "b"}},
    ]
    ngram = NGram({0: ["text"], 1: ["text"]}, 1, "id")
    ngram.resolve_regex_field_names(SCHEMA)
    assert ngram.form_ngram([{"text": "a"}], SCHEMA) == []
    with pytest.raises(KeyError, match="timestamp_field"):
        ngram.form_ngram([{"text": "a"}, {"text": "b"}], SCHEMA)


def test_sequences_that_must_not_overlap_cannot_be_cut(url):
    with pytest.raises(NotImplementedError, match="timestamp_overlap=False"):
        sequences(url, 2, overlap=False, shuffle_row_drop_partitions=2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((None, 1, "id"), "Fields must be set"),
        (({0: "id"}, 1, "id"), "must be a list"),
        (({0: [3]}, 1, "id"), "UnischemaField/regular expression"),
        (({0: ["id"]}, None, "id"), "must be a number"),
        (({0: ["id"]}, 1, None), "timestamp_field must be set"),
        (({0: ["id"]}, 1, "id", 1), "must be of type bool"),
    ],
)
def test_wrong_ngrams_are_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        NGram(*arguments)


@pytest.mark.difference("field-order")
def test_a_sequence_is_of_its_fields(url):
    ngram = NGram({-1: ["matrix", "id"], 1: ["te.t"]}, 1, "id")
    with make_reader(url, schema_fields=ngram, shuffle_row_groups=False) as reader:
        first = next(reader)
    assert list(first) == [-1, 0, 1]
    assert first[-1]._fields == ("id", "matrix")
    assert first[0] == ()
    assert first[1].text == "row 2"


# --- several readers, and loaders --------------------------------------------------------------------


def test_weighted_sampling(url):
    np.random.seed(0)  # noqa: NPY002 – which governs the reader
    few, many = in_set({1, 2}, "id"), in_lambda(["id"], lambda number: number > 2)
    readers = [make_reader(url, num_epochs=None, predicate=p) for p in (few, many)]
    with WeightedSamplingReader(readers, [3, 1]) as reader:
        found = [next(reader).id for _ in range(400)]
        assert 240 < sum(number <= 2 for number in found) < 360
        assert not reader.last_row_consumed
    assert all(each.stopped for each in readers)


def test_unlike_readers_are_not_mixed(url):
    with make_reader(url) as one, make_reader(url, schema_fields=["id"]) as other:
        for readers, shares, text in (
            ([one], [1], "Two or more readers"),
            ([one, one], [1], "same length"),
            ([one, other], [1, 1], "same schema"),
            ([one, one], [1, -1], "none may be negative"),
            ([one, one], [float("inf"), 1], "none may be negative or infinite"),
        ):
            with pytest.raises(ValueError, match=text):
                WeightedSamplingReader(readers, shares)


NUMBERS = {"schema_fields": ["id", "matrix"], "shuffle_row_groups": False}


def test_torch_batches(url):
    torch = pytest.importorskip("torch")
    from petastorm_bridge.pytorch import BatchedDataLoader, DataLoader, InMemBatchedDataLoader

    for loader in (DataLoader, BatchedDataLoader, InMemBatchedDataLoader):
        with loader(make_reader(url, **NUMBERS), batch_size=16) as batches:
            found = list(batches)
        assert [len(batch["id"]) for batch in found] == [16, 16, 16, 2]
        assert torch.cat([batch["id"] for batch in found]).tolist() == list(range(ROWS))
        assert found[1]["matrix"].shape == (16, 2, 3)
        assert found[1]["matrix"][:, 1, 1].tolist() == list(range(16, 32))


def test_torch_shuffles_objects_too(url):
    pytest.importorskip("torch")
    from petastorm_bridge.pytorch import DataLoader

    options = {"schema_fields": ["id", "text"], "predicate": in_lambda(["id"], lambda n: n % 5)}
    reader = make_reader(url, seed=1, **options)
    with DataLoader(reader, batch_size=8, shuffling_queue_capacity=30) as loader:
        found = [(n, t) for b in loader for n, t in zip(b["id"].tolist(), b["text"], strict=True)]
    assert sorted(found) == [(i, f"row {i}") for i in range(ROWS) if i % 5]
    assert found != sorted(found)


def test_torch_resumes_in_the_middle_of_a_pass(url):
    pytest.importorskip("torch")
    from petastorm_bridge.pytorch import DataLoader

    def loader():
        return DataLoader(make_reader(url, seed=2, schema_fields=["id", "matrix"]), batch_size=7)

    with loader() as first:
        batches = iter(first)
        seen = [next(batches)["id"].tolist() for _ in range(3)]
        state = json.loads(json.dumps(first.state_dict()))
        expected = [batch["id"].tolist() for batch in batches]
    with loader() as second:
        second.load_state_dict(state)
        assert [batch["id"].tolist() for batch in second] == expected
    assert sorted(n for batch in [*seen, *expected] for n in batch) == list(range(ROWS))


def test_torch_functions_of_the_users_get_rows(url):
    torch = pytest.importorskip("torch")
    from petastorm_bridge.pytorch import BatchedDataLoader, DataLoader

    with DataLoader(make_reader(url, **NUMBERS), batch_size=20, collate_fn=list) as loader:
        first = next(iter(loader))
    assert [list(each) for each in first] == [["id", "matrix"]] * 20
    values = []

    def convert(found):
        values.append(found)
        return torch.as_tensor(np.asarray(found)) * 2

    with BatchedDataLoader(make_reader(url, **NUMBERS), 10, convert) as loader:
        assert next(iter(loader))["id"].tolist() == list(range(0, 20, 2))
    assert all(isinstance(found, list) and len(found) == 1 for found in values)


@pytest.mark.difference("torch-takes-ngrams")
def test_torch_sequences(url):
    pytest.importorskip("torch")
    from petastorm_bridge.pytorch import BatchedDataLoader, DataLoader

    def reader():
        ngram = NGram({0: ["id", "matrix"], 1: ["id"]}, 1, "id")
        return make_reader(url, schema_fields=ngram, shuffle_row_groups=False)

    with DataLoader(reader(), batch_size=4) as loader:
        batch = next(iter(loader))
    assert batch[0]["matrix"].shape == (4, 2, 3)
    assert (batch[1]["id"] - batch[0]["id"]).tolist() == [1, 1, 1, 1]
    with (
        pytest.raises(TypeError, match="DataLoader"),
        BatchedDataLoader(reader(), batch_size=4) as loader,
    ):
        next(iter(loader))


@pytest.mark.slow
def test_tensorflow_rows_and_sequences(url):
    tf = pytest.importorskip("tensorflow")
    from petastorm_bridge.tf_utils import make_petastorm_dataset, tf_tensors

    with make_reader(url, **NUMBERS) as reader:
        dataset = make_petastorm_dataset(reader)
        assert dataset.element_spec.matrix.shape == (2, 3)
        assert [int(each.id) for each in dataset] == list(range(ROWS))
        with pytest.warns(UserWarning, match=re.escape("Running multiple iterations")):
            assert len(list(dataset)) == ROWS
    ngram = NGram({0: ["id", "matrix"], 1: ["id"]}, 1, "id")
    with make_reader(url, schema_fields=ngram, shuffle_row_groups=False) as reader:
        first = next(iter(make_petastorm_dataset(reader)))
        assert (int(first[0].id), int(first[1].id), first[0].matrix.shape) == (0, 1, (2, 3))
    with tf.Graph().as_default(), make_reader(url, **NUMBERS) as reader:
        tensors = tf_tensors(reader)
        with tf.compat.v1.Session() as session:
            assert [int(session.run(tensors).id) for _ in range(3)] == [0, 1, 2]


MOMENTS = Unischema(
    "Moments",
    [
        UnischemaField("id", np.int64, (), None, False),
        UnischemaField("day", np.datetime64, (), ScalarCodec(spark("DateType")), False),
        UnischemaField("time", np.datetime64, (), ScalarCodec(spark("TimestampType")), False),
    ],
)


@pytest.mark.slow
def test_moments_reach_tensorflow_in_the_units_of_their_rows(tmp_path):
    """The numbers are those that Petastorm gives: days, microseconds, and nanoseconds of arrays."""
    tf = pytest.importorskip("tensorflow")
    from petastorm_bridge.tf_utils import make_petastorm_dataset, tf_tensors

    moment = dt.datetime(2001, 2, 3, 4, 5, 6, 7)
    rows = [{"id": np.int64(i), "day": dt.date(2000, 1, 1 + i), "time": moment} for i in range(3)]
    url = write_stored(tmp_path / "d", MOMENTS, rows)

    def first(**options):
        with make_reader(url, shuffle_row_groups=False, **options) as reader:
            return next(iter(make_petastorm_dataset(reader)))

    microseconds = 981173106000007
    row = first()
    assert (int(row.day), int(row.time)) == (10957, microseconds)
    pair = first(schema_fields=NGram({0: ["id", "time"], 1: ["day"]}, 1, "id"))
    assert (int(pair[0].time), int(pair[1].day)) == (microseconds, 10958)

    def as_arrays(row):
        return {
            "id": row["id"],
            "day": np.array([row["day"]] * 2),
            "time": row["time"].astype("M8[h]"),
        }

    fields = [("day", np.datetime64, (2,), False), ("time", np.datetime64, (), False)]
    row = first(transform_spec=TransformSpec(as_arrays, edit_fields=fields))
    assert row.day.numpy().tolist() == [10957 * 86_400 * 10**9] * 2
    assert int(row.time) == 272548
    with tf.Graph().as_default(), make_reader(url, shuffle_row_groups=False) as reader:
        tensors = tf_tensors(reader)
        with tf.compat.v1.Session() as session:
            row = session.run(tensors)
    assert (int(row.day), int(row.time)) == (10957, microseconds)


@pytest.mark.parametrize(("drop_last", "uneven"), [(False, 1), (True, 2)])
def test_even_shards_of_seeded_rows_have_other_odd_rows_each_epoch(
    url, drop_last, uneven, monkeypatch
):
    """50 rows for 3 shards, shuffled by the seed: some row is read twice, or left out."""
    odd = []
    for shard in range(3):
        monkeypatch.setenv("RANK", str(shard))
        monkeypatch.setenv("WORLD_SIZE", "3")
        options = {"shard_by_rank": True, "drop_last": drop_last, "num_epochs": 3}
        seen = ids(url, shuffle_rows=True, seed=5, **options)
        size = len(seen) // 3
        epochs = [collections.Counter(seen[i * size : (i + 1) * size]) for i in range(3)]
        odd.append([{row for row in set(seen) if epoch[row] != 1} for epoch in epochs])
    changed = [rows for rows in odd if any(rows)]
    assert len(changed) == uneven
    for rows in changed:
        assert [len(row) for row in rows] == [1, 1, 1]
        assert len(set(map(frozenset, rows))) == 3
