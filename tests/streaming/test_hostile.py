"""Datasets that are not what they should be, read by the faces that streaming's own classes have."""

import json
import os
import resource
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from streaming import MDSWriter, Stream, StreamingDataLoader
from streaming_oracle import FIXED, RAGGED, ids, write_shards

from petastorm_bridge._workers.file_lock import locked
from petastorm_bridge.mds.errors import DatasetError, ShardCorruptedError
from petastorm_bridge.streaming import ColumnarStreamingDataset, MappedStreamingDataset
from petastorm_bridge.streaming._stock import with_names

# Stock streaming opens files to check them and leaves them to the collector.
pytestmark = [
    pytest.mark.modern,
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        r"ignore:unclosed file <_io.BufferedReader name='.*shard:ResourceWarning"
    ),
    pytest.mark.filterwarnings(
        r"ignore:Exception ignored in. <_io.FileIO name='.*shard:pytest.PytestUnraisableExceptionWarning"
    ),
]

SIZES = [20, 20, 20]
ENDS = [".part", ".part.tmp"]


def columnar(**arguments):
    return list(ColumnarStreamingDataset(batch_size=10, **arguments))


def iterated(**arguments):
    return list(MappedStreamingDataset(batch_size=10, **arguments))


def by_number(**arguments):
    dataset = MappedStreamingDataset(batch_size=10, **arguments)
    return [dataset[number] for number in range(dataset.num_samples)]


def of_stock_streams(**arguments):
    return list(ColumnarStreamingDataset(batch_size=10, streams=[Stream(**arguments)]))


FACES = [columnar, iterated, by_number]


@pytest.fixture(params=FACES, ids=lambda face: face.__name__)
def read(request):
    return request.param


def edit_index(directory, edit):
    path = Path(directory, "index.json")
    index = json.loads(path.read_text())
    edit(index)
    path.write_text(json.dumps(index))


def write_in_folder(directory, sizes):
    """Write shards as dataframe_to_mds merges them."""
    write_shards(directory / "0", sizes)
    os.rename(directory / "0" / "index.json", directory / "index.json")

    def merge(index):
        for shard in index["shards"]:
            shard["raw_data"]["basename"] = "0/" + shard["raw_data"]["basename"]

    edit_index(directory, merge)


def flip_last_byte(path):
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize("face", [*FACES, of_stock_streams])
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("is_absolute", [True, False])
def test_an_index_cannot_touch_files_elsewhere(tmp_path, face, compression, is_absolute):
    """A file of the user's that is where the index says a shard is, and has another size."""
    victim = tmp_path / "home" / "precious.txt"
    victim.parent.mkdir()
    victim.write_text("mine")
    remote = tmp_path / "remote"
    write_shards(remote, SIZES, compression=compression)
    name = str(victim) if is_absolute else "../home/precious.txt"
    for part in ("raw_data", "zip_data") if compression else ("raw_data",):
        edit_index(remote, lambda i, part=part: i["shards"][1][part].update(basename=name))
        with pytest.raises(DatasetError, match="names a file outside of its directory"):
            face(remote=str(remote), local=str(tmp_path / f"cache-{part}"))
        assert victim.read_text() == "mine"
        assert not list((tmp_path / f"cache-{part}").glob("*.mds*"))


def test_a_link_out_of_the_cache_is_refused(tmp_path, read):
    victim = tmp_path / "home" / "shard.00001.mds"
    victim.parent.mkdir()
    victim.write_text("mine")
    remote, local = tmp_path / "remote", tmp_path / "local"
    write_in_folder(remote, SIZES)
    assert len(read(remote=str(remote), local=str(tmp_path / "good")))
    local.mkdir()
    (local / "0").symlink_to(victim.parent)
    with pytest.raises(DatasetError, match=r"is a link to .*home, outside of the directory"):
        read(remote=str(remote), local=str(local))
    assert victim.read_text() == "mine"


def test_an_expanded_shard_is_kept_where_it_is_the_only_copy(tmp_path, read):
    """Stock streaming deletes it, because the compressed file is gone."""
    write_shards(tmp_path, SIZES, compression="zstd")
    assert read(local=str(tmp_path))
    for path in tmp_path.glob("*.zstd"):
        path.unlink()
    raw = sorted(tmp_path.glob("*.mds"))
    assert len(raw) == len(SIZES)
    assert read(local=str(tmp_path))
    assert sorted(tmp_path.glob("*.mds")) == raw


@pytest.mark.parametrize("columns", [FIXED, RAGGED], ids=["fixed", "ragged"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_damaged_download_is_found_by_the_hash_of_the_index(tmp_path, read, columns, compression):
    remote = tmp_path / "remote"
    write_shards(remote, SIZES, columns, hashes=["sha1", "xxh64"], compression=compression)
    flip_last_byte(sorted(remote.glob("*.mds*"))[1])
    with pytest.raises(ShardCorruptedError, match=r"shard\.00001\.mds"):
        read(remote=str(remote), local=str(tmp_path / "local"))
    if compression is None:  # what is compressed has a check of its own
        place = {"remote": str(remote), "local": str(tmp_path / "other")}
        assert read(**place, validate_hash="")


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_what_is_not_approved_is_fetched_again(tmp_path, read, compression):
    """Stock streaming reads it the next time as if it were right."""
    remote = tmp_path / "remote"
    write_shards(remote, SIZES, hashes=["xxh64"], compression=compression)
    path = sorted(remote.glob("*.mds*"))[1]
    right = path.read_bytes()
    flip_last_byte(path)
    place = {"remote": str(remote), "local": str(tmp_path / "local")}
    for _ in range(2):
        with pytest.raises(ShardCorruptedError, match=r"shard\.00001\.mds"):
            read(**place)
    assert not list((tmp_path / "local").glob("shard.00001.*"))
    path.write_bytes(right)
    assert read(**place)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("is_damaged", [True, False], ids=["damaged", "missing"])
def test_a_pass_that_cannot_be_whole_raises(tmp_path, is_damaged, workers):
    """Streaming's own threads would end the pass early, with a traceback in the log and nothing else."""
    remote = tmp_path / "remote"
    write_shards(remote, SIZES, hashes=["xxh64"])
    path = remote / "shard.00001.mds"
    right = path.read_bytes()
    path.unlink()
    if is_damaged:
        path.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    dataset = MappedStreamingDataset(
        remote=str(remote), local=str(tmp_path / "local"), batch_size=10, download_retry=1
    )
    with pytest.raises(DatasetError, match=r"shard\.00001\.mds"):
        list(StreamingDataLoader(dataset, batch_size=10, num_workers=workers, collate_fn=list))
    for _ in range(2):  # the second one does not wait for the first
        with pytest.raises(DatasetError, match=r"shard\.00001\.mds"):
            dataset[25]

    def held():
        return sum(each.stat().st_size for each in (tmp_path / "local").iterdir())

    # A worker's thread may be fetching another shard still, and counts it when it is there.
    deadline = time.monotonic() + 10
    while dataset.cache_usage != held() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert dataset.cache_usage == held()


@pytest.mark.parametrize("folder", ["", "0/"])
def test_what_a_killed_process_left_of_fetching_goes(tmp_path, read, folder):
    """Also in folders, as dataframe_to_mds has them; and it is not taken for what is to be fetched."""
    remote, local = tmp_path / "remote", tmp_path / "local"
    (write_in_folder if folder else write_shards)(remote, SIZES)
    (local / folder).mkdir(parents=True)
    names = [
        f"{name}{end}" for name in ("index.json.tmp", f"{folder}shard.00001.mds") for end in ENDS
    ]
    for name in names:
        (local / name).write_bytes(b"x")
    assert read(remote=str(remote), local=str(local))
    here = sorted(path.suffix for path in local.rglob("*") if path.is_file())
    assert here == [".json"] + [".mds"] * len(SIZES)


@pytest.mark.parametrize("comes", [True, False])
def test_what_another_process_fetches_is_waited_for(tmp_path, comes):
    """Its part is left alone, and the shard not fetched again; unless it ends before."""
    remote, local = tmp_path / "remote", tmp_path / "local"
    write_shards(remote, SIZES)
    local.mkdir()
    shard, part = local / "shard.00001.mds", local / "shard.00001.mds.part"
    with locked(f"{shard}.lock", 1) as has_lock:
        assert has_lock
        part.write_bytes(b"half of it")
        dataset = MappedStreamingDataset(remote=str(remote), local=str(local), batch_size=10)
        thread = threading.Thread(target=dataset.prepare_shard, args=(1,))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        assert part.read_bytes() == b"half of it"
        if comes:
            os.rename(remote / shard.name, part)
            os.rename(part, shard)
    thread.join(30)
    assert len(list(dataset)) == sum(SIZES)
    assert not list(local.glob("*.part*"))


@pytest.fixture
def short_files():
    """No file can be longer than a megabyte, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_that_is_full_is_an_error_of_the_pass(tmp_path, short_files):
    """Streaming waits for ever for its thread that has failed."""
    with MDSWriter(out=str(tmp_path / "remote"), columns={"x": "bytes"}, size_limit=1 << 22) as out:
        for _ in range(4):
            out.write({"x": bytes(3 << 20)})
    place = {"remote": str(tmp_path / "remote"), "local": str(tmp_path / "local")}
    dataset = MappedStreamingDataset(batch_size=1, download_retry=1, **place)
    short_files()
    for _ in range(2):
        with pytest.raises(OSError, match="File too large"):
            list(dataset)
    until = time.monotonic() + 20  # a thread may be about to give up its part
    while len(list((tmp_path / "local").iterdir())) > 1 and time.monotonic() < until:
        time.sleep(0.05)
    assert [path.name for path in (tmp_path / "local").iterdir()] == ["index.json"]


def test_a_local_shard_is_compared_with_the_hash_that_the_user_names(tmp_path, read):
    write_shards(tmp_path, SIZES, RAGGED, hashes=["sha1", "xxh64"])
    flip_last_byte(sorted(tmp_path.glob("*.mds"))[1])
    assert read(local=str(tmp_path))
    with pytest.raises(ShardCorruptedError, match=r"shard\.00001\.mds .*expected sha1"):
        read(local=str(tmp_path), validate_hash="sha1")
    with pytest.raises(
        ValueError, match=r"'md5', but .*shard\.00000\.mds has the hashes"
    ) as caught:
        read(local=str(tmp_path), validate_hash="md5")
    # One that an index names for some shards only is damage.
    assert isinstance(caught.value, DatasetError)
    assert str(tmp_path) in str(caught.value)


DAMAGES = {
    "json": (b'{"k": 1}', b'{"k": 1?'),
    "str": (b"text", b"te\xff\xfe"),
    "str_int": (b"12345", b"1234x"),
}


@pytest.mark.parametrize("encoding", DAMAGES)
def test_a_value_that_cannot_be_decoded_names_its_file(tmp_path, read, encoding):
    values = {"json": {"k": 1}, "str": "text", "str_int": 12345}
    columns = {"n": "int64", "v": encoding}
    with MDSWriter(columns=columns, out=str(tmp_path), size_limit=400) as writer:
        for number in range(40):
            writer.write({"n": np.int64(number), "v": values[encoding]})
    path = sorted(tmp_path.glob("*.mds"))[2]
    good, bad = DAMAGES[encoding]
    path.write_bytes(path.read_bytes().replace(good, bad))
    with pytest.raises(
        ShardCorruptedError, match=rf"shard\.00002\.mds .*'v'.*{encoding}|{encoding}.*'v'"
    ):
        read(local=str(tmp_path))


def test_damaged_offsets_name_the_file(tmp_path, read):
    write_shards(tmp_path, SIZES, RAGGED)
    path = sorted(tmp_path.glob("*.mds"))[1]
    whole = path.read_bytes()
    for place in range(8, 4 * 20, 12):
        data = bytearray(whole)
        data[place : place + 4] = b"\xff\xff\xff\x7f"
        path.write_bytes(data)
        with pytest.raises(DatasetError, match=r"shard\.00001\.mds"):
            read(local=str(tmp_path))


OF_2_GIB = {
    "column_names": ["a", "b"],
    "column_encodings": ["ndarray:float64:134217728", "ndarray:float64:134217728"],
    "column_sizes": [1 << 30, 1 << 30],
}
OF_OPAQUE_2_GIB = {"column_names": ["a"], "column_encodings": ["str"], "column_sizes": [1 << 31]}


@pytest.mark.parametrize(
    "edit",
    [
        lambda index: index.update(version=3),
        lambda index: index.update(shards=[]),
        lambda index: index.update(shards={}),
        lambda index: index["shards"][0].update(samples=float("inf")),
        lambda index: index["shards"][0].update(samples=10**30),
        lambda index: index["shards"][0].update(samples=21),
        lambda index: index["shards"][0]["raw_data"].update(bytes=-1),
        lambda index: index["shards"][0].update(column_names=["a"]),
        lambda index: index["shards"][0].update(OF_2_GIB),
        lambda index: index["shards"][0].update(OF_OPAQUE_2_GIB),
        lambda index: index["shards"][0].update(compression="zstd", zip_data={}),
        lambda index: index["shards"][0].update(format="csv"),
        lambda index: index["shards"][0].update(format="table"),
        lambda index: index["shards"][0]["column_names"].__setitem__(0, "other"),
    ],
)
def test_an_index_that_cannot_be_used(tmp_path, read, edit):
    write_shards(tmp_path, SIZES)
    edit_index(tmp_path, edit)
    with pytest.raises(DatasetError) as caught:
        read(local=str(tmp_path))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("is_remote", [True, False])
@pytest.mark.parametrize("name", ["index.json", "shard.00001.mds"])
def test_what_is_no_file_is_refused_at_once(tmp_path, read, name, is_remote):
    data = tmp_path / "data"
    write_shards(data, SIZES)
    (data / name).unlink()
    os.mkfifo(data / name)
    place = {"local": str(data)}
    if is_remote:
        place = {"local": str(tmp_path / "cache"), "remote": str(data)}
    with pytest.raises(DatasetError, match=f"{name} is no regular file"):
        read(**place)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (None, "'epoch' is None, not an integer from -1"),
        ({}, "'epoch' is None"),
        ({"sample_in_epoch": -7}, "'sample_in_epoch' is -7, not an integer from 0"),
        ({"epoch": -2}, "'epoch' is -2"),
        ({"epoch": True}, "'epoch' is True"),
        ({"num_canonical_nodes": 0}, "'num_canonical_nodes' is 0"),
        ({"shuffle_seed": "1"}, "'shuffle_seed' is '1'"),
        ({"initial_physical_nodes": "x"}, "'initial_physical_nodes' is 'x'"),
    ],
)
def test_a_state_that_is_none(tmp_path, state, problem):
    write_shards(tmp_path, SIZES)
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=10)
    good = dataset.state_dict(0, from_beginning=True)
    dataset.load_state_dict(good)
    bad = {**good, **state} if state else state
    with pytest.raises(ValueError, match=f"This is no state of a StreamingDataset: .*{problem}"):
        dataset.load_state_dict(bad)
    with pytest.raises(ValueError, match="This is no state") as caught:
        dataset.load_state_dict({"a" * 5000: "b"})
    assert len(str(caught.value)) < 300
    assert len(ids(dataset)) == 6


def test_streaming_without_a_name_that_is_replaced_is_told():
    def function():
        return os.sep

    assert with_names(function, os=threading)
    with pytest.raises(RuntimeError, match=r"does not use \['Spanner'\].*Update petastorm-bridge"):
        with_names(function, Spanner=object)
