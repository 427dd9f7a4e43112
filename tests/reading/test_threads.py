"""Threads that hang do not keep a program, or a closed reader, from going on."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import CancelledError

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge._workers import threads


@pytest.fixture
def url(tmp_path):
    """A Parquet file of 4 row groups with 10 rows."""
    folder = tmp_path / "table"
    folder.mkdir()
    pq.write_table(pa.table({"id": np.arange(40)}), folder / "x.parquet", row_group_size=10)
    return folder.as_uri()


HANGING = """
    import sys, time
    from petastorm_bridge import TransformSpec, make_batch_reader
    from petastorm_bridge._workers import threads

    threads._GRACE_SECONDS = 0.3

    def hang(frame):
        print("ready", flush=True)
        time.sleep(1000)

    reader = make_batch_reader(sys.argv[1], workers_count=1, shuffle_row_groups=False,
                               transform_spec=TransformSpec(hang))
"""
WITH = """
    with reader:
        next(reader)
"""
WITHOUT = """
    next(reader)
"""


@pytest.mark.parametrize("reading", [WITH, WITHOUT], ids=["with", "without"])
def test_ctrl_c_ends_a_program_whose_transform_hangs(url, tmp_path, reading):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(HANGING) + textwrap.dedent(reading))
    path = os.pathsep.join(p for p in sys.path if p)
    process = subprocess.Popen(
        [sys.executable, str(script), url], env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGINT, errors  # as of any program that is interrupted
    assert errors.count("\nKeyboardInterrupt\n") == 1
    assert "worker threads are still busy with row groups 0" in errors
    assert "Fatal" not in errors


def test_a_closed_reader_waits_for_a_transform_no_longer_than_a_moment(
    url, monkeypatch, caplog, no_leaks
):
    monkeypatch.setattr(threads, "_GRACE_SECONDS", 0.1)
    begun, done = threading.Event(), threading.Event()

    def stick(frame):
        begun.set()
        done.wait()
        return frame

    with no_leaks():
        spec = TransformSpec(stick)
        reader = make_batch_reader(
            url, workers_count=1, transform_spec=spec, shuffle_row_groups=False
        )
        taker = threading.Thread(target=_ignored, args=(next, reader))
        taker.start()
        begun.wait()
        reader.stop()
        assert "busy with row groups 0" in caplog.text
        assert url.removeprefix("file://") in caplog.text
        caplog.clear()
        reader.join()
        assert caplog.text == ""
        done.set()
        taker.join()
        del reader, taker


def _ignored(function, *arguments):
    with contextlib.suppress(RuntimeError, CancelledError, StopIteration):
        function(*arguments)


def test_what_is_under_way_is_waited_for(url, no_leaks, caplog):
    ended = []

    def slow(frame):
        time.sleep(0.2)
        ended.append(frame["id"][0])
        return frame

    with no_leaks(0.0):
        reader = make_batch_reader(
            url, workers_count=2, results_queue_size=2, transform_spec=TransformSpec(slow),
            shuffle_row_groups=False,
        )  # fmt: skip
        with reader:
            next(reader)
        del reader
        gc.collect()
    assert caplog.text == ""
    assert 0 in ended


def test_passes_that_begin_together_share_their_threads(url, monkeypatch, no_leaks):
    made, read = [], []

    class SlowToStart(threads.Threads):
        def __init__(self, *arguments, **options):
            made.append(self)
            time.sleep(0.2)
            super().__init__(*arguments, **options)

    monkeypatch.setattr("petastorm_bridge.reader._pool.Threads", SlowToStart)
    gate = threading.Barrier(2)

    def count(blocks):
        gate.wait(20)
        read.append(sum(block.num_rows for block in blocks))

    with no_leaks():
        spec = TransformSpec(lambda frame: frame)
        with make_batch_reader(url, workers_count=2, transform_spec=spec) as reader:
            both = [
                threading.Thread(target=count, args=(blocks,))
                for blocks in (reader.blocks(), reader.passes.beside())
            ]
            for thread in both:
                thread.start()
            for thread in both:
                thread.join(20)
    assert (read, len(made)) == ([40, 40], 1)


def test_threads_of_a_forgotten_reader_end(url, no_leaks):
    with no_leaks():
        reader = make_batch_reader(
            url, num_epochs=None, workers_count=3, transform_spec=TransformSpec(lambda f: f)
        )
        next(reader)
        del reader
        gc.collect()
