"""Shards that are fetched, expanded, checked, evicted and found damaged."""

import copy
import itertools
import json
import os
import pickle
import shutil
import time
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from datasets import write_dataset
from forks import in_fork
from streaming import Stream, StreamingDataLoader
from streaming_oracle import (
    FIXED,
    RAGGED,
    columnar_loader,
    ids,
    mapped_loader,
    stock_loader,
    write_shards,
)
from torch.utils.data import DataLoader

from petastorm_bridge.mds.errors import ShardCorruptedError
from petastorm_bridge.streaming import ColumnarStreamingDataset, MappedStreamingDataset

pytestmark = [
    pytest.mark.modern,
    # Of single samples, as of stock ones.
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning"),
    # Stock streaming opens files to check or expand them and leaves them to the collector.
    pytest.mark.filterwarnings(
        r"ignore:unclosed file <_io.BufferedReader name='.*shard:ResourceWarning"
    ),
    pytest.mark.filterwarnings(
        r"ignore:Exception ignored in. <_io.FileIO name='.*shard:pytest.PytestUnraisableExceptionWarning"
    ),
]

SIZES = [40, 7, 25, 33, 40, 40, 12, 28, 35, 40]


each_dataset = pytest.mark.parametrize("loaded", [columnar_loader, mapped_loader])


def chained(batches):
    return list(itertools.chain.from_iterable(batches))


def wanted(tmp_path, **arguments):
    """Two epochs of stock streaming over a copy that needs no fetching."""
    copy = tmp_path / "copy"
    if not copy.exists():
        write_shards(copy, SIZES, {"id": "int64"})
    loader = stock_loader({"local": str(copy), **arguments})
    return [ids(loader), ids(loader)]


@each_dataset
@pytest.mark.parametrize("columns", [FIXED, RAGGED], ids=["fixed", "ragged"])
@pytest.mark.parametrize("compression", [None, "zstd:3", "gz"])
@pytest.mark.parametrize("keep_zip", [False, True])
def test_remote_shards(tmp_path, loaded, compression, columns, keep_zip):
    """Fetched ahead, checked by their hash, expanded."""
    remote = tmp_path / "remote"
    write_shards(remote, SIZES, columns, compression=compression, hashes=["sha1", "xxh3_64"])
    arguments = {"batch_size": 16, "shuffle": True, "shuffle_block_size": 64, "predownload": 20}
    place = {"remote": str(remote), "local": str(tmp_path / "local"), "validate_hash": "sha1"}
    loader = loaded({**arguments, **place, "keep_zip": keep_zip})
    assert [ids(loader), ids(loader)] == wanted(tmp_path, **arguments)
    names = {path.suffix for path in (tmp_path / "local").iterdir()}
    assert ".mds" in names
    assert bool(names - {".mds", ".json"}) == (keep_zip and compression is not None)


def test_local_shards_that_are_compressed(tmp_path):
    write_shards(tmp_path / "local", SIZES, RAGGED, compression="zstd")
    arguments = {"batch_size": 16, "shuffle": True}
    loader = columnar_loader({**arguments, "local": str(tmp_path / "local")})
    assert [ids(loader), ids(loader)] == wanted(tmp_path, **arguments)


@each_dataset
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("workers", [0, 2])
def test_cache_limit(tmp_path, loaded, compression, workers):
    """More shards are in use at once than the cache holds: they come and go while they are read."""
    remote, local = tmp_path / "remote", tmp_path / "local"
    write_shards(remote, SIZES, RAGGED, compression=compression)
    shards = json.loads((remote / "index.json").read_text())["shards"]
    pairs = [[shard["raw_data"], shard["zip_data"]] for shard in shards]
    largest = max(sum(info["bytes"] for info in pair if info) for pair in pairs)
    limit = 5 * largest
    arguments = {"batch_size": 8, "shuffle": True, "shuffle_block_size": 200}
    place = {"remote": str(remote), "local": str(local), "cache_limit": limit}
    loader = loaded({**arguments, **place}, num_workers=workers)
    found = [ids(loader), ids(loader)]
    if workers == 0:
        assert found == wanted(tmp_path, **arguments)
    assert [sorted(chained(epoch)) for epoch in found] == [list(range(sum(SIZES)))] * 2
    dataset = loader.dataset
    # Streaming makes room for a shard before it fetches it, in each thread for itself.
    threads = 2 * max(workers, 1)
    assert dataset.cache_usage <= limit + (threads - 1) * largest
    assert sum(path.stat().st_size for path in local.iterdir()) == dataset.cache_usage
    assert len(list(local.glob("*.mds"))) < len(SIZES)


def test_threads_take_turns_with_the_cache(tmp_path):
    """By a lock that stays, and that a call which fails while it makes room does not keep."""
    write_shards(tmp_path / "remote", [20] * 8)
    limit = 6 * max(path.stat().st_size for path in (tmp_path / "remote").glob("*.mds"))
    dataset = ColumnarStreamingDataset(
        remote=str(tmp_path / "remote"),
        local=str(tmp_path / "local"),
        batch_size=20,
        cache_limit=limit,
    )
    lock = dataset._cache_filelock
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "_evict_coldest_shard", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(map(dataset.prepare_shard, range(8)))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(dataset.prepare_shard, range(8), timeout=60))
        with lock:  # as often as it acquires it
            with lock:
                waiting = threads.submit(dataset.evict_shard, 7)
            assert wait([waiting], 0.2).not_done
        waiting.result(60)
    assert dataset._cache_filelock is lock
    with lock:
        for other in (dataset, pickle.loads(pickle.dumps(dataset))):
            assert in_fork(partial(other.prepare_shard, 0), 0.5) == "hangs"
    assert in_fork(partial(dataset.prepare_shard, 0)) == "None"


def test_mapped_files_do_not_keep_evicted_ones_on_disk(tmp_path):
    remote = tmp_path / "remote"
    write_shards(remote, [200] * 30)
    limit = 6 * max(path.stat().st_size for path in remote.glob("*.mds"))
    dataset = ColumnarStreamingDataset(
        remote=str(remote), local=str(tmp_path / "local"), batch_size=20, cache_limit=limit
    )
    for batch in dataset:
        held = len(dataset._mapped._readers)
        assert held <= 10, batch["id"][0]


@pytest.mark.parametrize("damage", ["cut", "replaced", "deleted"])
@pytest.mark.parametrize("made", [ColumnarStreamingDataset, MappedStreamingDataset])
def test_a_mapped_shard_that_changes_is_an_error_before_it_kills(tmp_path, made, damage):
    """From one pass to the next; pages of a file that was cut short would end the process."""
    write_shards(tmp_path, [30, 30], {"id": "int64"})
    dataset = made(local=str(tmp_path), batch_size=6)
    first = list(dataset)
    shard = min(tmp_path.glob("*.mds"))
    if damage == "cut":
        os.truncate(shard, 40)
    elif damage == "deleted":
        shard.unlink()
    else:
        (tmp_path / "other").write_bytes(b"x" * 10)
        os.replace(tmp_path / "other", shard)
    if damage == "deleted":  # what is mapped stays
        assert len(list(dataset)) == len(first)
    else:
        with pytest.raises(ShardCorruptedError, match=shard.name):
            list(dataset)


def renamed(path, other):
    """Put a file of the same size and date in another's place."""
    shutil.copy(other, f"{path}.new")
    os.utime(f"{path}.new", ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    os.replace(f"{path}.new", path)


def linked(path, other):
    path.unlink()
    path.symlink_to(other)


def written(path, other):
    with path.open("r+b") as file:
        file.write(other.read_bytes())


@pytest.mark.parametrize("replace", [renamed, linked, written])
@pytest.mark.parametrize("hashes", [[], ["xxh64"]], ids=["", "hashes"])
@pytest.mark.parametrize("made", [ColumnarStreamingDataset, MappedStreamingDataset])
@pytest.mark.parametrize("which", ["all", "open", "read", "last"])
@pytest.mark.parametrize("stream", [None, Stream])
def test_rows_of_another_shard_of_the_same_size(tmp_path, replace, hashes, made, which, stream):
    """Whether the shard was open, is opened later, was read to its end, or is the last one of the pass."""
    write_shards(tmp_path / "data", [700] * 4, {"id": "int64"}, hashes=hashes)
    write_shards(tmp_path / "other", [700] * 4, {"id": "int64"}, first=10_000, hashes=hashes)
    place = {"streams": [stream(local=str(tmp_path / "data"))]} if stream else {}
    dataset = made(**place or {"local": str(tmp_path / "data")}, batch_size=50)
    shards = sorted((tmp_path / "data").glob("*.mds"))
    chosen = {"all": shards, "last": shards[-1:]}.get(which, shards[:1])
    rows, replaced = [], {"read": 680, "last": len(shards) * 700 - 20}.get(which, 20)

    def read():
        for found in dataset:
            rows.extend(np.atleast_1d(found["id"]).tolist())
            if replaced <= len(rows) < replaced + len(np.atleast_1d(found["id"])):
                for path in chosen:
                    replace(path, tmp_path / "other" / path.name)

    with pytest.raises(ShardCorruptedError, match=r"shard\.0000\d\.mds was replaced.* Open the"):
        read()
    if replace is not written:
        assert rows == list(range(len(rows)))
    elif which == "open":
        assert max(rows) < 10_700


@pytest.mark.parametrize("made", [ColumnarStreamingDataset, MappedStreamingDataset])
@pytest.mark.parametrize("hashes", [[], ["sha1"]], ids=["", "hashes"])
def test_a_shard_that_was_only_touched(tmp_path, made, hashes):
    """Its hash shows that it is the same, where the index has one."""
    write_shards(tmp_path, [700] * 4, {"id": "int64"}, hashes=hashes)
    dataset = made(local=str(tmp_path), batch_size=50)
    iterator = iter(dataset)
    next(iterator)
    for path in tmp_path.glob("*.mds"):
        shutil.copy(path, tmp_path / "copy")
        os.replace(tmp_path / "copy", path)
    if hashes:
        assert len(list(iterator)) + 1 == len(list(dataset))
    else:
        with pytest.raises(ShardCorruptedError, match="was replaced"):
            list(iterator)


@pytest.mark.parametrize("made", [ColumnarStreamingDataset, MappedStreamingDataset])
def test_copies_that_are_fetched_again_are_no_others(tmp_path, made):
    """The files in the cache are new ones then, also where they were there before the dataset."""
    remote, local = tmp_path / "remote", tmp_path / "local"
    write_shards(remote, [700] * 10, {"id": "int64"})
    shutil.copytree(remote, local)
    limit = 4 * max(path.stat().st_size for path in remote.glob("*.mds"))
    dataset = made(remote=str(remote), local=str(local), batch_size=50, cache_limit=limit)
    for _ in range(2):
        rows = np.concatenate([np.atleast_1d(found["id"]) for found in dataset])
        assert rows.tolist() == list(range(7000))
    for path in local.glob("*.mds"):
        renamed(path, remote / path.name)
    assert sum(len(np.atleast_1d(found["id"])) for found in dataset) == 7000


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("made", [ColumnarStreamingDataset, MappedStreamingDataset])
def test_workers_know_the_files_that_their_dataset_was_opened_with(
    tmp_path, made, context, monkeypatch
):
    # Torch waits so long for each worker of an iterator that has failed, whatever it iterates.
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)
    write_shards(tmp_path / "data", [30] * 4, {"id": "int64"})
    write_shards(tmp_path / "other", [30] * 4, {"id": "int64"}, first=1000)
    dataset = made(local=str(tmp_path / "data"), batch_size=6)
    size = None if made is ColumnarStreamingDataset else 6
    loader = DataLoader(dataset, size, num_workers=2, multiprocessing_context=context)
    assert len(list(loader)) == 20
    path = max((tmp_path / "data").glob("*.mds"))
    renamed(path, tmp_path / "other" / path.name)
    batches = iter(loader)
    with pytest.raises(ShardCorruptedError, match="was replaced"):
        list(batches)
    batches._shutdown_workers()


@pytest.mark.parametrize("made", [ColumnarStreamingDataset, MappedStreamingDataset])
def test_shards_that_are_not_to_be_mapped_are_copied(tmp_path, monkeypatch, made, no_leaks):
    """To files without a name: what becomes of the shards meanwhile does not matter to the copies."""
    data, temporary = tmp_path / "data", tmp_path / "temporary"
    write_shards(data, [30, 30], RAGGED)
    temporary.mkdir()
    mapped = copy.deepcopy(list(made(local=str(data), batch_size=6, shuffle=True)))
    monkeypatch.setenv("PETASTORM_BRIDGE_SHARD_ACCESS", "read")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    dataset = made(local=str(data), batch_size=6, shuffle=True)
    with no_leaks():
        np.testing.assert_equal(list(dataset), mapped)
    assert not [*temporary.glob("petastorm-bridge-*")]
    for shard in data.glob("*.mds"):
        status = shard.stat()
        shard.write_bytes(b"\0" * status.st_size)
        os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))  # or it would be noticed
    dataset.next_epoch = 0
    np.testing.assert_equal(list(dataset), mapped)


def test_download_that_was_cut_short_is_done_again(tmp_path):
    remote, local = tmp_path / "remote", tmp_path / "local"
    write_shards(remote, SIZES)
    shutil.copytree(remote, local)
    shards = sorted(local.glob("*.mds"))
    shards[2].write_bytes(shards[2].read_bytes()[:-100])
    shards[3].write_bytes(b"")
    loader = columnar_loader({"remote": str(remote), "local": str(local), "batch_size": 50})
    assert chained(ids(loader)) == list(range(sum(SIZES)))


@pytest.mark.parametrize("damage", [lambda data: data[:-100], lambda data: b"\0" * len(data)])
def test_damaged_copy_is_replaced(tmp_path, damage):
    """Found while reading; with the stock Stream, too, which does not look at sizes."""
    remote, local = tmp_path / "remote", tmp_path / "local"
    write_shards(remote, SIZES)
    streams = [Stream(remote=str(remote), local=str(local))]
    dataset = ColumnarStreamingDataset(streams=streams, batch_size=50)
    assert len(list(dataset)) == len(dataset)
    path = sorted(local.glob("*.mds"))[4]
    path.write_bytes(damage(path.read_bytes()))
    dataset.shards[4].unmap()
    assert chained(ids(dataset)) == list(range(sum(SIZES)))


@each_dataset
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_fetch_that_fails_is_an_error_not_a_wait(tmp_path, loaded, workers):
    remote = tmp_path / "remote"
    write_shards(remote, SIZES)
    sorted(remote.glob("*.mds"))[5].unlink()
    loader = loaded(
        {"remote": str(remote), "local": str(tmp_path / "local"), "batch_size": 16},
        num_workers=workers,
    )
    with pytest.raises(FileNotFoundError, match=r"shard\.00005\.mds"):
        ids(loader)
    states = set(loader.dataset._shard_states.numpy().tolist())
    assert states == {1, 3}  # none is being prepared for ever


def test_wrong_hash(tmp_path):
    remote = tmp_path / "remote"
    write_shards(remote, SIZES, hashes=["sha1"])
    path = sorted(remote.glob("*.mds"))[1]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    dataset = ColumnarStreamingDataset(
        remote=str(remote), local=str(tmp_path / "local"), batch_size=16, validate_hash="sha1"
    )
    with pytest.raises(ValueError, match="expected sha1"):
        list(dataset)
    assert not (tmp_path / "local" / path.name).exists()  # nobody reads what was not approved


def test_predownload_is_kept(tmp_path):
    """No more shards are fetched than what lies so many samples ahead."""
    remote, local = tmp_path / "remote", tmp_path / "local"
    write_shards(remote, [10] * 20)
    dataset = ColumnarStreamingDataset(
        remote=str(remote), local=str(local), batch_size=10, predownload=10
    )
    for position, _ in enumerate(dataset):
        present = len(list(local.glob("*.mds")))
        assert position + 1 <= present <= position + 3


def test_a_pass_that_is_left_ends_its_thread(tmp_path, no_leaks):
    remote = tmp_path / "remote"
    write_shards(remote, [10] * 20)
    arguments = {"remote": str(remote), "batch_size": 4, "predownload": 8}
    next(iter(ColumnarStreamingDataset(local=str(tmp_path / "first"), **arguments)))
    dataset = ColumnarStreamingDataset(local=str(tmp_path / "second"), **arguments)
    loader = StreamingDataLoader(dataset, batch_size=None)
    with no_leaks():
        batches = iter(dataset)
        next(batches)
        batches.close()
        first, second = iter(dataset), iter(dataset)
        next(first)
        next(second)
        assert list(first) == []  # as with stock, only one pass at a time
        assert len(list(second)) == 49
        for _ in range(2):
            for _batch in loader:
                break
        for shard in dataset.shards:
            shard.unmap()
        del batches, first, second


def test_shards_are_fetched_as_far_ahead_as_was_asked(tmp_path):
    """Whatever the program does meanwhile, and no further."""
    rows, ahead = 60_000, 45_000
    (tmp_path / "remote").mkdir()
    write_dataset(tmp_path / "remote", pa.table({"id": np.arange(rows)}), [1_000] * 60)
    dataset = ColumnarStreamingDataset(
        remote=str(tmp_path / "remote"),
        local=str(tmp_path / "local"),
        batch_size=10,
        predownload=ahead,
    )
    batches = iter(dataset)
    next(batches)
    deadline = time.monotonic() + 30
    while len(here := [*(tmp_path / "local").glob("*.mds")]) < 46 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)
    assert len(here) == len([*(tmp_path / "local").glob("*.mds")]) == 46
    batches.close()
