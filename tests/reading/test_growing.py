"""How many threads read, and how much is read ahead: by the cores, and by bytes."""

import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge._workers import threads
from petastorm_bridge.reader import _pool as pool

GROUPS = 24


@pytest.fixture
def url(tmp_path):
    """A Parquet file of 24 row groups with 100 rows."""
    data = pa.table({"id": np.arange(100 * GROUPS)})
    pq.write_table(data, tmp_path / "x.parquet", row_group_size=100)
    return tmp_path.as_uri()


class Seen:
    """Notes in how many threads a transform runs, and how many row groups it has had."""

    def __init__(self, work):
        self.names, self.calls, self._work = set(), 0, work

    def __call__(self, frame):
        self.names.add(threading.current_thread().name)
        self.calls += 1
        self._work()
        return frame


def read(url, work, workers, **options):
    seen = Seen(work)
    with make_batch_reader(
        url, workers_count=workers, transform_spec=TransformSpec(seen), **options
    ) as reader:
        rows = sum(len(group.id) for group in reader)
    assert rows == 100 * GROUPS
    return seen


def spin(seconds=0.02):
    """Keep a core busy; NumPy lets other threads run meanwhile."""
    values = np.random.default_rng(0).standard_normal(200_000)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        np.sort(values)


def test_where_cores_are_busy_no_more_threads_start_than_there_are_cores(url):
    assert len(read(url, spin, workers=threads.usable_cores() + 6).names) <= threads.usable_cores()


def test_where_a_transform_waits_all_threads_start(url, monkeypatch):
    monkeypatch.setattr(pool, "usable_cores", lambda: 1)
    seen = read(url, lambda: time.sleep(0.3), workers=4)
    assert len(seen.names) == 4


def test_transforms_that_wait_for_each_other_find_each_other(url, monkeypatch):
    """As many as there are workers, though there be fewer cores."""
    monkeypatch.setattr(pool, "usable_cores", lambda: 1)
    meeting = threading.Barrier(3)
    read(url, lambda: meeting.wait(timeout=60), workers=3)


@pytest.mark.parametrize("workers", [1, 4])
def test_what_is_read_ahead_is_limited_in_bytes(url, monkeypatch, workers):
    monkeypatch.setattr(pool, "usable_cores", lambda: 1)
    for limit, most in ((2000, 2), (5 * 800, 5), (1 << 30, 2 * workers)):
        monkeypatch.setattr(pool, "_AHEAD_BYTES", limit)  # a row group takes 800
        seen = Seen(lambda: None)
        spec = TransformSpec(seen)
        with make_batch_reader(url, workers_count=workers, transform_spec=spec) as reader:
            for taken in range(1, GROUPS):
                next(reader)
                time.sleep(0.01)
                # Before the first block nobody knows how large blocks are.
                assert seen.calls - taken <= max(min(most, 2 * workers), workers - taken)
