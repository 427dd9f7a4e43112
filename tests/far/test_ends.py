"""Processes that end while they fetch, and many that fetch the same."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from far_datasets import write_numbers
from far_fsspec import far_fsspec

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources._far.limits import CACHE_VARIABLE

ROWS, SHARDS = 500, 6


@pytest.fixture
def far(tmp_path, monkeypatch, request):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "copies"))
    write_numbers(tmp_path / "behind" / "data", ROWS, SHARDS, width=64)
    with far_fsspec(tmp_path / "behind", seconds=getattr(request, "param", 0.3)) as far:
        yield far


# The index comes after a second, the shards after two.
interrupted_while_it_fetches = pytest.mark.parametrize(
    ("far", "delay"), [(1.0, 0.5), (1.0, 1.2), (1.0, 1.7)], indirect=["far"],
    ids=["the index", "shards", "shards, later"],
)  # fmt: skip


READ = """
import json, sys
from petastorm_bridge import make_batch_reader
print("ready", flush=True)
with make_batch_reader(sys.argv[1], shuffle_row_groups=False) as reader:
    for group in reader:
        print(int(group.id[0]), flush=True)
"""


def start(far):
    process = subprocess.Popen(
        [sys.executable, "-c", READ, f"{far.url}/data"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | far.environment,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


FIRST_IDS = [str(number * ROWS) for number in range(SHARDS)]


@pytest.mark.modern
@pytest.mark.slow
@interrupted_while_it_fetches
def test_a_killed_process_leaves_nothing_in_the_way(far, tmp_path, delay):
    process = start(far)
    time.sleep(delay)
    process.kill()
    process.communicate()
    output, errors = start(far).communicate(timeout=120)  # nobody waits for the lock of the dead
    assert output.split() == FIRST_IDS, errors
    left = [
        path.name for path in (tmp_path / "copies").rglob("*") if path.suffix in (".part", ".lock")
    ]
    assert left == []


@interrupted_while_it_fetches
def test_ctrl_c_ends_a_process_that_fetches(far, tmp_path, delay):
    process = start(far)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT, errors
    assert "KeyboardInterrupt" in errors
    left = [
        path.name for path in (tmp_path / "copies").rglob("*") if path.suffix in (".part", ".lock")
    ]
    assert left == []


def test_a_place_that_streaming_does_not_know_is_read_without_it(far):
    """Its import takes seconds, and torch in it ends the process by SIGABRT at a Ctrl-C."""
    code = f"{READ}\nprint(*{{'streaming', 'torch'}} & {{*sys.modules}})"
    program = [sys.executable, "-W", "ignore", "-c", code, f"{far.url}/data"]
    output = subprocess.check_output(program, text=True, env=os.environ | far.environment)
    assert output.split() == ["ready", *FIRST_IDS]


@pytest.mark.modern
@pytest.mark.slow
def test_ranks_fetch_each_shard_once_for_all(far, tmp_path):
    processes = [start(far) for _ in range(3)]
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert output.split() == FIRST_IDS, errors
    counts = far.counts()
    for path in (tmp_path / "behind" / "data").glob("*.mds"):
        assert counts[f"read {path.name}"] == path.stat().st_size


def test_readers_that_are_left_early_leave_no_threads(far):
    before = set(threading.enumerate())
    for _ in range(2):
        with make_batch_reader(f"{far.url}/data", num_epochs=None) as reader:
            next(reader)
    deadline = time.monotonic() + 20
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert set(threading.enumerate()) <= before


@pytest.mark.modern
@pytest.mark.slow
def test_many_small_shards_take_time_in_proportion(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "copies"))
    write_numbers(tmp_path / "behind" / "data", 2, 1, 0)
    folder = tmp_path / "behind" / "data"
    index = json.loads((folder / "index.json").read_text())
    (shard,) = index["shards"]
    data = (folder / shard["raw_data"]["basename"]).read_bytes()
    (folder / "petastorm_bridge_schema.json").unlink()
    took = []
    for count in (1000, 4000):
        shards = []
        for number in range(count):
            name = f"shard.{number:05}.mds"
            (folder / name).write_bytes(data)
            shards.append({**shard, "raw_data": {**shard["raw_data"], "basename": name}})
        (folder / "index.json").write_text(json.dumps({**index, "shards": shards}))
        with far_fsspec(tmp_path / "behind", seconds=0.0) as far:
            began = time.monotonic()
            with make_batch_reader(f"{far.url}/data", shuffle_row_groups=False) as reader:
                ids = np.concatenate([group.id for group in reader])
            took.append(time.monotonic() - began)
        assert ids.tolist() == [0, 1] * count
    assert took[1] < 8 * took[0]  # four times as many
