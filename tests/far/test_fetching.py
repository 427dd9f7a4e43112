"""What is asked of a far place, counted there: each byte once, the first rows first, faults overcome or told."""

import contextlib
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from far_datasets import write_numbers
from far_mount import far_mount, no_mount_because

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources._far.fetch import Extent, Fetch, _requests
from petastorm_bridge._sources._far.limits import (
    ATTEMPTS_VARIABLE,
    CACHE_VARIABLE,
    LIMIT_VARIABLE,
    TIMEOUT_VARIABLE,
)
from petastorm_bridge._sources._far.stores import MountStore
from petastorm_bridge.errors import DatasetError, DatasetNotFoundError
from petastorm_bridge.mds.schema import SIDECAR_NAME
from petastorm_bridge.pytorch import BatchedDataLoader

pytestmark = [
    pytest.mark.usefixtures("cache"),
    pytest.mark.skipif(no_mount_because() is not None, reason=str(no_mount_because())),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

ROWS, WIDTH, SHARDS = 1200, 1024, 3  # a shard takes 4.9 MB


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    return write_numbers(tmp_path_factory.mktemp("behind") / "data", ROWS, SHARDS, WIDTH).parent


@pytest.fixture
def mount(behind, tmp_path):
    with far_mount(behind, tmp_path / "far", seconds=0.01, bandwidth=1e9) as mount:
        yield mount


def url(mount):
    return f"file://{mount.path}/data"


def ids_of(url, **options):
    with make_batch_reader(url, shuffle_row_groups=False, **options) as reader:
        return np.concatenate([group.id for group in reader]).tolist()


def rows_of(mount):
    return json.loads((mount.behind / "data" / "index.json").read_text())["shards"][0]["samples"]


ALL = list(range(ROWS * SHARDS))


def read_of_shards(mount):
    return {
        n[5:]: size for n, size in mount.counts().items() if n.startswith("read ") and ".mds" in n
    }


def sizes(mount):
    return {path.name: path.stat().st_size for path in (mount.behind / "data").glob("*.mds")}


def test_each_byte_is_fetched_once_for_all_epochs_and_readers(mount):
    assert ids_of(url(mount), num_epochs=2) == ALL * 2
    assert read_of_shards(mount) == sizes(mount)
    assert ids_of(url(mount), workers_count=1) == ALL
    assert read_of_shards(mount) == sizes(mount)


def test_opening_again_takes_what_reading_a_file_takes(mount):
    ids_of(url(mount))
    chains = []
    # What is asked at once on an idle machine may come one after the other on a busy one.
    for _ in range(3):
        time.sleep(1.1)  # Linux asks again for names after a second
        mount.start_counting()
        make_batch_reader(url(mount)).stop()
        chains.append(mount.counts()["in_sequence"])
    # The names of the directory and of a file in it, opening that, its content; the sidecar comes beside the index.
    assert min(chains) <= 4


def test_an_empty_sidecar_is_a_damaged_one(tmp_path):
    """Without a sidecar columns would have the types that their encodings tell, and none nulls."""
    data = write_numbers(tmp_path / "behind" / "data", 10, 1, 4)
    (data / SIDECAR_NAME).write_bytes(b"")
    with far_mount(tmp_path / "behind", tmp_path / "far", seconds=0.001, bandwidth=1e9) as mount:
        for place in (data, mount.path / "data"):
            with pytest.raises(DatasetError, match=f"{SIDECAR_NAME} cannot be used"):
                make_batch_reader(f"file://{place}")


def test_without_room_each_epoch_is_fetched_anew(mount, monkeypatch, cache, caplog):
    monkeypatch.setenv(LIMIT_VARIABLE, "1mb")
    assert ids_of(url(mount), num_epochs=2) == ALL * 2
    once = sizes(mount)
    assert read_of_shards(mount).keys() == once.keys()
    # The system may have kept some of the pages.
    assert all(once[name] <= size <= 2 * once[name] for name, size in read_of_shards(mount).items())
    assert not list(cache.rglob("*.mds*"))
    assert caplog.text.count("is fetched again, because there is no room for a copy of it") == 1
    assert f"Raise {LIMIT_VARIABLE} or cache_size_limit" in caplog.text


def test_one_pass_without_room_is_not_worth_a_word(mount, monkeypatch, caplog):
    monkeypatch.setenv(LIMIT_VARIABLE, "1mb")
    assert ids_of(url(mount)) == ALL
    assert "no room" not in caplog.text


def test_a_reader_says_how_much_is_here(mount):
    with make_batch_reader(url(mount), shuffle_row_groups=False) as reader:
        list(reader)
        assert "3 row groups, far, 14.8 MB of it here, fields id, x" in repr(reader)


def test_copies_are_kept_while_there_is_room(mount, monkeypatch, cache):
    monkeypatch.setenv(LIMIT_VARIABLE, "12mb")
    ids_of(url(mount))
    assert len(list(cache.rglob("*.mds"))) == 2
    mount.start_counting()
    assert ids_of(url(mount)) == ALL
    assert len(read_of_shards(mount)) <= 1


class NotingStore(MountStore):
    """A mount's files; notes which ranges of them are asked for."""

    def __init__(self):
        self.ranges = []
        self.files = []

    @contextlib.contextmanager
    def open(self, url):
        with super().open(url) as pieces:

            def noted(start, size):
                self.ranges.append((start, size))
                self.files.append(os.path.basename(url))
                return pieces(start, size)

            yield noted


@pytest.mark.parametrize("beginning", [0, 128 << 10, 1536 << 10, 2 << 20, 3 << 20])
@pytest.mark.parametrize(
    ("busy", "each"), [(16, 1 << 20), (10, 1 << 20), (9, 512 << 10), (0, 256 << 10)]
)
def test_ranges_are_smaller_where_requests_are_free(beginning, busy, each, tmp_path):
    """Behind a beginning they start at multiples of their size.

    Where they met amid pages that Linux keeps as one, a mount was asked for some of them twice.
    """
    content = np.random.default_rng(0).bytes((5 << 20) + 7)
    (tmp_path / "file").write_bytes(content)
    store, extent = NotingStore(), Extent(str(tmp_path / "file"), "file", len(content))
    assert (store.range_bytes, _requests.most) == (1 << 20, 16)
    go_on = threading.Event()
    held = [_requests.submit(lambda: go_on.wait(30)) for _ in range(busy)]
    while len(_requests._crew.at_work) < busy:
        time.sleep(0.001)
    fetch = Fetch(store, extent, beginning)
    with ThreadPoolExecutor() as pool:
        fetching = pool.submit(fetch.to_memory)
        if busy == _requests.most:
            while not _requests._crew.waiting:
                time.sleep(0.001)
            go_on.set()
        assert bytes(fetching.result(30)) == content
    go_on.set()
    assert all(future.result(30) for future in held)
    assert content[:beginning] == (bytes(fetch.beginning.result()) if beginning else b"")
    answers = [*range(0, beginning, store.answer_bytes)]
    multiples = [start for start in range(0, len(content), each) if start >= beginning]
    between = [beginning] if beginning not in multiples else []
    assert sorted(start for start, _ in store.ranges) == [*answers, *between, *multiples]


def test_what_was_wanted_first_comes_first_even_if_it_is_opened_last(tmp_path):
    """A mount opens the files of a directory one after the other, in any order."""
    store, content = NotingStore(), bytes(4 << 20)
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(content)
    first, second = (
        Fetch(store, Extent(str(tmp_path / name), name, len(content)))
        for name in ("first", "second")
    )
    one_goes_on, all_go_on = threading.Event(), threading.Event()
    held = [_requests.submit(lambda: all_go_on.wait(30)) for _ in range(_requests.most - 1)]
    held.append(_requests.submit(lambda: one_goes_on.wait(30)))
    with ThreadPoolExecutor() as pool:
        fetching = []
        for fetch, ranges in ((second, 4), (first, 8)):
            fetching.append(pool.submit(fetch.to_memory))
            while len(_requests._crew.waiting) < ranges:
                time.sleep(0.001)
        one_goes_on.set()
        assert [bytes(future.result(30)) for future in fetching] == [content, content]
        all_go_on.set()
    assert all(future.result(30) for future in held)
    assert store.files == ["first"] * 4 + ["second"] * 4


class TestTheFirstBatch:
    """It comes after a few requests, and not after those of a whole shard.

    Each takes long enough that a busy machine makes a batch before many more have been answered.
    """

    @pytest.fixture(params=[(4000, WIDTH, 0), (130_000, 0, 15)], ids=["lists", "numbers"])
    def slow(self, request, tmp_path):
        rows, width, columns = request.param  # 16 MB
        write_numbers(tmp_path / "behind" / "data", rows, 1, width, columns)
        with far_mount(tmp_path / "behind", tmp_path / "slow", seconds=0.2, bandwidth=1e9) as mount:
            yield mount

    @pytest.mark.parametrize("limit", ["1mb", "1gb"])
    def test_comes_before_the_shard(self, slow, monkeypatch, limit):
        monkeypatch.setenv(LIMIT_VARIABLE, limit)
        reader = make_batch_reader(url(slow), shuffle_row_groups=False, num_epochs=1)
        with BatchedDataLoader(reader, batch_size=256) as loader:
            slow.start_counting()
            batches = iter(loader)
            first = next(batches)
            counts = slow.counts()
            assert counts["bytes_read"] < 8 << 20
            assert counts["in_sequence"] <= 3 + counts["open"] + 2  # and what names and sizes take
            rest = [batch["id"].numpy() for batch in batches]
        assert np.concatenate([first["id"].numpy(), *rest]).tolist() == list(range(rows_of(slow)))
        ((name, read),) = read_of_shards(slow).items()
        # Linux asks a mount again for pages that it gave away, on a machine short of memory, before they were read.
        # Each range of ours is more than that.
        assert 0 <= read - sizes(slow)[name] < MountStore.answer_bytes

    def test_holds_what_a_later_one_holds(self, slow):
        found = []
        for _ in range(2):
            reader = make_batch_reader(url(slow), shuffle_row_groups=False, num_epochs=1)
            with BatchedDataLoader(reader, batch_size=100) as loader:
                found.append(next(iter(loader)))
        for name, values in found[0].items():
            assert np.array_equal(values, found[1][name])

    def test_of_a_reader_is_a_row_group(self, slow):
        with make_batch_reader(url(slow), shuffle_row_groups=False) as reader:
            assert len(next(reader).id) == rows_of(slow)


class TestFaults:
    @pytest.mark.parametrize("kind", ["error", "short", "closed"])
    def test_that_pass_are_not_noticed(self, mount, kind, caplog):
        mount.fail(".mds", kind, times=6)
        assert ids_of(url(mount)) == ALL
        assert (
            kind == "error" or "Attempt 1 of 5 failed" in caplog.text
        )  # Linux asks again by itself, once

    @pytest.mark.parametrize("kind", ["error", "short"])
    def test_that_stay_are_told_once(self, mount, kind, monkeypatch, cache):
        monkeypatch.setenv(ATTEMPTS_VARIABLE, "2")
        mount.fail("shard.00001", kind, times=10_000)
        with make_batch_reader(url(mount), shuffle_row_groups=False) as reader:
            assert next(reader).id[0] == 0
            with pytest.raises(DatasetError, match=r"shard\.00001\.00000\.mds"):
                next(reader)
        assert not list(cache.rglob("*.part"))

    def test_what_is_no_file_is_told_at_once(self, tmp_path, caplog):
        """To ask again would not make one of it."""
        write_numbers(tmp_path / "behind" / "data", 10, SHARDS, 4)
        path = tmp_path / "behind" / "data" / "shard.00001.00000.mds"
        path.unlink()
        os.mkfifo(path)
        with (
            far_mount(tmp_path / "behind", tmp_path / "far", seconds=0.001) as mount,
            pytest.raises(DatasetError, match=f"{path.name} is no regular file"),
        ):
            ids_of(url(mount))
        assert "Attempt" not in caplog.text

    def test_a_file_that_is_lost(self, tmp_path):
        write_numbers(tmp_path / "behind" / "data", 10, SHARDS, 4)
        with far_mount(tmp_path / "behind", tmp_path / "far", seconds=0.001) as mount:
            (mount.behind / "data" / "shard.00001.00000.mds").unlink()
            with pytest.raises(DatasetNotFoundError, match=r"shard\.00001\.00000\.mds is missing"):
                ids_of(url(mount))

    def test_a_file_that_is_replaced(self, tmp_path, monkeypatch):
        monkeypatch.setenv(ATTEMPTS_VARIABLE, "2")
        write_numbers(tmp_path / "behind" / "data", 10, SHARDS, 4)
        with far_mount(tmp_path / "behind", tmp_path / "far", seconds=0.001) as mount:
            path = mount.behind / "data" / "shard.00001.00000.mds"
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
            with pytest.raises(
                DatasetError, match=r"shard\.00001\.00000\.mds does not match.*expected xxh64"
            ):
                ids_of(url(mount))

    @pytest.mark.modern
    @pytest.mark.slow
    def test_silence_ends(self, behind, tmp_path, monkeypatch, caplog):
        monkeypatch.setenv(ATTEMPTS_VARIABLE, "2")
        monkeypatch.setenv(TIMEOUT_VARIABLE, "1")
        with far_mount(behind, tmp_path / "far", seconds=0.01, bandwidth=1e9) as mount:
            mount.fail(".mds", "silent", times=10_000)
            began = time.monotonic()
            with pytest.raises(DatasetError, match="no answer for 2 seconds"):
                ids_of(url(mount))
            assert time.monotonic() - began < 50  # a read takes a minute
        # Requests that waited end with the mount, and close its files.
        while any("petastorm-bridge request" in thread.name for thread in threading.enumerate()):
            time.sleep(0.1)
        assert "could not be read" in caplog.text
        assert "exception calling callback" not in caplog.text


class TestTheLocalDisk:
    @pytest.fixture
    def small_disk(self, tmp_path, monkeypatch):
        """A disk of 6 MB."""
        place = tmp_path / "small"
        place.mkdir()
        if os.system(f"mount -t tmpfs -o size=6m none {place}"):
            pytest.skip("needs the right to mount a disk")
        monkeypatch.setenv(CACHE_VARIABLE, str(place / "copies"))
        yield place
        os.system(f"umount -l {place}")

    def test_has_room_for_one_shard(self, mount, small_disk):
        assert ids_of(url(mount), num_epochs=2) == ALL * 2
        assert len(list(small_disk.rglob("*.mds"))) == 1

    def test_fills_up_meanwhile(self, mount, small_disk, monkeypatch, caplog):
        monkeypatch.setattr(
            "petastorm_bridge._sources._far.copies.Copies.has_room", lambda *_: True
        )
        assert ids_of(url(mount), num_epochs=2) == ALL * 2
        assert caplog.text.count("is fetched again, because there is no room for a copy of it") == 1
        assert not list(small_disk.rglob("*.part"))

    def test_fills_up_with_small_files(self, tmp_path, small_disk, monkeypatch):
        monkeypatch.setattr(
            "petastorm_bridge._sources._far.copies.Copies.has_room", lambda *_: True
        )
        write_numbers(tmp_path / "behind" / "data", 200, 10, WIDTH)  # of 0.8 MB
        with far_mount(tmp_path / "behind", tmp_path / "few", seconds=0.001) as mount:
            assert ids_of(url(mount), num_epochs=2) == [*range(2000)] * 2
        assert 4 < len(list(small_disk.rglob("*.mds"))) < 8
        assert not list(small_disk.rglob("*.part"))

    def test_is_read_only_from_the_beginning(self, mount, small_disk):
        os.system(f"mount -o remount,ro {small_disk}")
        with pytest.raises(
            OSError, match=f"{CACHE_VARIABLE}={small_disk}/copies.*Set {CACHE_VARIABLE}"
        ):
            ids_of(url(mount))
