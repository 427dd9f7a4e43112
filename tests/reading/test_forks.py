"""Readers and locks in forked processes: an error or an answer, and never a wait without end."""

import os
import sys
import threading
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from forks import in_fork

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge._workers.locks import ForkSafeLock
from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.writer import ShardWriter

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

ROWS, GROUPS = 5, 12
ALL = list(range(ROWS * GROUPS))


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """An MDS dataset of 12 shards with 5 rows."""
    folder = tmp_path_factory.mktemp("forks")
    table = pa.table({"id": np.arange(ROWS * GROUPS)})
    writer = ShardWriter(table.schema, str(folder), prefix="shard", size_limit=1, min_rows=ROWS)
    for batch in table.to_batches(max_chunksize=ROWS):
        writer.write(batch)
    commit_dataset(str(folder), table.schema, writer.finish())
    return folder.as_uri()


def unchanged(frame):
    return frame


def open_reader(url, pool="thread", **options):
    options = {"workers_count": 2, "shuffle_row_groups": False, "num_epochs": 1} | options
    return make_batch_reader(
        url, reader_pool_type=pool, transform_spec=TransformSpec(unchanged), **options
    )


def ids_of(reader):
    return [int(i) for group in reader for i in group.id]


def read_own(url, pool):
    with open_reader(url, pool) as reader:
        return ids_of(reader) == ALL


@pytest.mark.parametrize("pool", ["thread", "process"])
class TestAHalfReadReader:
    def test_is_refused_in_a_fork_and_goes_on_in_its_process(self, url, pool, no_leaks):
        read_own(url, pool)
        with no_leaks():
            with open_reader(url, pool) as reader:
                first = next(reader).id.tolist()
                answer = in_fork(partial(ids_of, reader))
                assert answer.startswith("RuntimeError: This reader was opened and used in another")
                assert f"({os.getpid()})" in answer
                assert in_fork(partial(ids_of, reader)).startswith("RuntimeError")
                assert first + ids_of(reader) == ALL
            del reader

    @pytest.mark.parametrize(
        "what",
        [
            lambda reader, url, pool: reader.stop() or reader.join(),
            lambda reader, url, pool: reader.__exit__(None, None, None),
            lambda reader, url, pool: None,
        ],
        ids=["stop and join", "leave", "nothing"],
    )
    def test_does_not_keep_a_fork_from_other_work(self, url, pool, what):
        def work():
            what(reader, url, pool)
            return read_own(url, "thread")

        with open_reader(url, pool) as reader:
            first = next(reader).id.tolist()
            assert in_fork(work) == "True"
            assert first + ids_of(reader) == ALL

    def test_that_was_not_begun_is_read_in_the_fork(self, url, pool):
        with open_reader(url, pool) as reader:
            assert in_fork(lambda: ids_of(reader) == ALL) == "True"
            assert ids_of(reader) == ALL


def test_blocks_that_need_no_worker_are_read_in_a_fork(url):
    with make_batch_reader(url, shuffle_row_groups=False) as reader:
        first = next(reader).id.tolist()
        assert in_fork(lambda: first + ids_of(reader) == ALL) == "True"


def test_threads_share_a_reader(url):
    found = []

    def read():
        found.extend(ids_of(reader))

    with open_reader(url, num_epochs=50) as reader:
        threads = [threading.Thread(target=read) for _ in range(4)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
        finally:
            for thread in threads:
                thread.join()
            sys.setswitchinterval(interval)
    assert sorted(found) == sorted(ALL * 50)


class TestLock:
    def test_excludes_threads(self):
        lock = ForkSafeLock()
        inside, most = 0, 0

        def work():
            nonlocal inside, most
            for _ in range(20):
                with lock:
                    inside += 1
                    most = max(most, inside)
                    time.sleep(0.0001)
                    inside -= 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 1

    def test_held_by_another_thread_is_free_in_a_fork(self):
        lock = ForkSafeLock()
        held, done = threading.Event(), threading.Event()

        def hold():
            with lock:
                held.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()

        def work():
            with lock:
                pass
            with lock:
                return "free"

        try:
            assert in_fork(work, patience=10) == "'free'"
        finally:
            done.set()
            thread.join()

    def test_is_left_where_a_fork_happens_within(self):
        lock = ForkSafeLock()

        def work():
            lock.__exit__()
            with lock:
                return "free"

        with lock:
            assert in_fork(work, patience=10) == "'free'"
        with lock:
            pass
