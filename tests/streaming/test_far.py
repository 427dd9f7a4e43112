"""Datasets over a mount that answers late: every byte is read once for a machine, faults are overcome or told."""

import pickle
import time

import numpy as np
import pyarrow as pa
import pytest
from far_mount import far_mount, no_mount_because
from far_store import far_store, no_store_because

pytest.importorskip("streaming", reason="the datasets are subclasses of streaming's")

from datasets import write_dataset
from streaming import Stream
from torch.utils.data import DataLoader

from petastorm_bridge.errors import DatasetError
from petastorm_bridge.streaming import ColumnarStreamingDataset, MappedStreamingDataset

pytestmark = [
    pytest.mark.modern,
    pytest.mark.slow,
    pytest.mark.skipif(no_mount_because() is not None, reason=str(no_mount_because())),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

ROWS, SHARDS, WIDTH = 1200, 6, 2048  # a shard takes 0.8 MB


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PETASTORM_BRIDGE_LOCAL_CACHE", str(tmp_path / "copies"))
    monkeypatch.setattr("petastorm_bridge._sources._far.errors._FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    folder = tmp_path_factory.mktemp("behind")
    values = np.random.default_rng(0).integers(0, 1 << 30, ROWS * WIDTH // 2, np.int32)
    offsets = np.arange(0, len(values) + 1, WIDTH // 2, np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
    write_dataset(
        folder / "data", pa.table({"id": np.arange(ROWS), "x": lists}), [ROWS // SHARDS] * SHARDS
    )
    return folder


@pytest.fixture
def size(behind):
    return sum(path.stat().st_size for path in (behind / "data").glob("*.mds"))


@pytest.fixture
def mount(behind, tmp_path):
    with far_mount(behind, tmp_path / "far", seconds=0.01, bandwidth=1e9) as mount:
        yield mount


def columnar(mount, **options):
    return ColumnarStreamingDataset(local=f"{mount.path}/data", batch_size=50, **options)


def ids(batches):
    return [int(number) for batch in batches for number in batch["id"]]


def bytes_of_shards(mount):
    return sum(read for name, read in mount.counts().items() if name.endswith(".mds"))


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_far_directory_is_read_once(mount, size, shuffle):
    """Not again in later epochs, and not by the next dataset either."""
    dataset = columnar(mount, shuffle=shuffle)
    assert dataset.streams[0].remote == f"{mount.path}/data"
    assert not dataset.streams[0].local.startswith(str(mount.path))
    found = ids(dataset)
    assert (found != sorted(found)) == shuffle
    assert sorted(found) == list(range(ROWS))
    assert bytes_of_shards(mount) == size
    mount.start_counting()
    assert sorted(ids(dataset)) == list(range(ROWS))
    assert sorted(ids(columnar(mount, shuffle=shuffle))) == list(range(ROWS))
    assert bytes_of_shards(mount) == 0


def test_values_are_those_of_the_near_directory(mount, behind):
    near = ColumnarStreamingDataset(local=str(behind / "data"), batch_size=50)
    for far_batch, near_batch in zip(columnar(mount), near, strict=True):
        for name in ("id", "x"):
            np.testing.assert_array_equal(far_batch[name], near_batch[name])


def test_requests_are_several_at_once(mount, size):
    ids(columnar(mount))
    answers = size / (128 << 10)
    assert mount.counts()["in_sequence"] < answers


def test_a_shard_is_opened_once(mount):
    """Of small ones opening takes as long as reading."""
    ids(columnar(mount, shuffle=True))
    asked = mount.counts()
    of_index = 2  # once to look whether it is a file, once to copy it
    assert asked["open"] <= SHARDS + of_index


def test_single_samples(mount, size):
    dataset = MappedStreamingDataset(local=f"{mount.path}/data", batch_size=50, shuffle=True)
    assert sorted(int(sample["id"]) for sample in dataset) == list(range(ROWS))
    assert bytes_of_shards(mount) == size


def test_workers_share_copies(mount, size):
    loader = DataLoader(columnar(mount, shuffle=True), batch_size=None, num_workers=2)
    assert sorted(ids(loader)) == list(range(ROWS))
    assert bytes_of_shards(mount) == size


def test_a_pickled_dataset_reads_the_same_copies(mount, size):
    dataset = columnar(mount)
    copy = pickle.loads(pickle.dumps(dataset))
    assert ids(copy) == list(range(ROWS))
    assert copy.streams[0].local == dataset.streams[0].local
    assert bytes_of_shards(mount) == size


def test_a_split_of_the_directory(mount, behind):
    dataset = ColumnarStreamingDataset(local=str(mount.path), split="data", batch_size=50)
    assert ids(dataset) == list(range(ROWS))
    assert dataset.streams[0].remote == f"{mount.path}/data"


def test_remote_and_local_as_streaming_has_them(mount, size, tmp_path):
    dataset = ColumnarStreamingDataset(
        remote=f"{mount.path}/data", local=str(tmp_path / "mine"), batch_size=50
    )
    assert ids(dataset) == list(range(ROWS))
    assert bytes_of_shards(mount) == size
    assert sum(path.stat().st_size for path in (tmp_path / "mine").glob("*.mds")) == size


@pytest.mark.skipif(no_store_because() is not None, reason=str(no_store_because()))
def test_a_bucket_is_asked_for_nothing_but_bytes(behind, tmp_path, monkeypatch):
    """Each look at a file before it is fetched would take as long as an answer."""
    with far_store(seconds=0.01) as store:
        store.put(behind)
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        store.start_counting()
        dataset = ColumnarStreamingDataset(
            remote=f"s3://{store.bucket}/data", local=str(tmp_path / "mine"), batch_size=50
        )
        assert ids(dataset) == list(range(ROWS))
        counts = store.counts()
    assert counts["asked data/index.json"] == 1
    assert not counts.get("HEAD")


def test_streams_of_streaming_itself_are_fetched_as_a_whole(mount, size):
    """Once for a process: they know no place for copies."""
    streams = [Stream(local=f"{mount.path}/data")]
    dataset = ColumnarStreamingDataset(streams=streams, batch_size=50, shuffle=True)
    assert sorted(ids(dataset)) == list(range(ROWS))
    assert bytes_of_shards(mount) == size


def test_a_limit_of_the_cache_holds(mount, size, tmp_path):
    dataset = columnar(mount, cache_limit=int(size / SHARDS * 4.5))
    assert ids(dataset) == list(range(ROWS))
    copies = [*(tmp_path / "copies").rglob("*.mds")]
    # The pass and the thread that fetches ahead of it may make room for one shard each.
    assert 0 < sum(path.stat().st_size for path in copies) <= size / SHARDS * 5.5


@pytest.mark.parametrize("kind", ["error", "short"])
def test_a_fault_on_the_way_is_overcome(mount, kind):
    mount.fail("shard.00002", kind, times=2)
    assert ids(columnar(mount)) == list(range(ROWS))


@pytest.mark.parametrize("kind", ["error", "missing"])
def test_a_shard_that_cannot_be_had_is_an_error_of_the_pass(mount, kind, tmp_path, no_leaks):
    mount.fail("shard.00002", kind, times=1000)
    dataset = columnar(mount)
    with pytest.raises((DatasetError, OSError), match=r"shard\.00002"):
        ids(dataset)
    assert not [*(tmp_path / "copies").rglob("*.part*")]


def test_a_shard_that_comes_late_does_not_hold_up_the_others(tmp_path, monkeypatch):
    """Also if they are more than are fetched at once."""
    monkeypatch.setenv("PETASTORM_BRIDGE_REMOTE_ATTEMPTS", "2")
    monkeypatch.setenv("PETASTORM_BRIDGE_REMOTE_TIMEOUT", "2")
    table = pa.table({"id": np.arange(400)})
    (tmp_path / "behind").mkdir()
    write_dataset(tmp_path / "behind" / "data", table, [10] * 40)
    with far_mount(tmp_path / "behind", tmp_path / "small", seconds=0.001) as mount:
        mount.fail("shard.00003", "silent", times=1000)
        with pytest.raises(DatasetError, match=r"shard\.00003.* no answer for 4 seconds"):
            ids(columnar(mount))
        assert len([*(tmp_path / "copies").rglob("*.mds")]) == 39


def test_a_shard_that_cannot_be_had_is_not_asked_for_by_who_waits_for_it(mount, caplog):
    """The thread of the pass has done so; a mount that does not answer would keep the main thread from a Ctrl-C."""
    mount.fail("shard.00002", "closed", times=1000)
    with pytest.raises(DatasetError, match=r"shard\.00002"):
        ids(columnar(mount))
    assert caplog.text.count("Attempt 1 of") == 1


def test_samples_can_be_had_after_a_pass_that_failed(mount):
    mount.fail("shard.00002", "closed", times=5)  # as often as it is asked for
    dataset = columnar(mount)
    with pytest.raises(DatasetError, match=r"shard\.00002"):
        ids(dataset)
    assert dataset.take([ROWS // SHARDS * 2])["id"].tolist() == [ROWS // SHARDS * 2]


def test_a_silent_place_holds_nobody_up_who_leaves(mount):
    """Who leaves a pass need not wait for what the place does not answer for a minute."""
    mount.fail("shard.00005", "silent", times=1000)
    batches = iter(columnar(mount))
    next(batches)
    time.sleep(1)  # the other shards are here, or nearly
    begun = time.monotonic()
    batches.close()
    assert time.monotonic() - begun < 20


def test_a_pass_that_is_left_gives_up_what_is_under_way(mount, tmp_path):
    """Fifty datasets that are left after a batch each leave no thread."""
    import threading

    before = set(threading.enumerate())
    dataset = columnar(mount, shuffle=True)
    for _ in range(5):
        next(iter(dataset))
    del dataset
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in names if name.startswith(("prefetch", "fetch of a shard"))}
