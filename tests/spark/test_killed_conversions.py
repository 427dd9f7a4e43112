"""Several programs that convert into one parent directory, and are killed at any moment.

The programs do what a driver does to the directories, without Spark, which would take a minute to
start as often as they are killed here.
"""

import json
import os
import re
import subprocess
import sys

import pytest
from datasets import IMPORTABLE

KILLS = 60
HALF_A_MARKER = re.compile(r"_petastorm_bridge_cache\.json\.[0-9a-f]{32}\.tmp")

PROGRAM = """
import json, os, random, signal, sys, time, uuid
import pyarrow as pa
from datasets import read_table
from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.writer import ShardWriter
from petastorm_bridge.spark._directory.deletion import default_delete_handler
from petastorm_bridge.spark._directory.mounted import _clear, clear_unfinished
from petastorm_bridge.spark._directory.store import store_at

PARENT, KILLS = sys.argv[1], int(sys.argv[2])
BATCH = pa.RecordBatch.from_pydict({"id": list(range(500))})

def convert():
    _clear.cache_clear()
    clear_unfinished(f"file://{PARENT}")
    directory = f"{PARENT}/{uuid.uuid4()}"
    with store_at(f"file://{directory}").creating():
        infos = []
        for partition in range(4):
            writer = ShardWriter(
                BATCH.schema, directory, prefix=f"shard.{partition:05}.a{partition}", size_limit=1000
            )
            writer.write(BATCH)
            infos += writer.finish()
        commit_dataset(directory, BATCH.schema, infos)
    assert read_table(open_dataset(directory)).num_rows == 2000
    return directory

def work():
    while True:
        directory = convert()
        if random.random() < 0.7:
            default_delete_handler(f"file://{directory}")
            assert not os.path.exists(directory)

def start():
    child = os.fork()
    if child:
        return child
    random.seed(os.getpid())
    try:
        work()
    finally:
        os._exit(1)  # an error; those who work are killed

random.seed(int(sys.argv[3]))
convert()
children = [start() for _ in range(4)]
failed = 0
for _ in range(KILLS):
    time.sleep(random.uniform(0.01, 0.1))
    killed = children.pop(random.randrange(4))
    os.kill(killed, signal.SIGKILL)
    failed += os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) != -signal.SIGKILL
    children.append(start())
for child in children:
    os.kill(child, signal.SIGKILL)
    failed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL
convert()
print(json.dumps({"failed": failed}))
"""


@pytest.mark.slow
def test_nothing_is_lost_half_visible_or_left(tmp_path):
    parent = tmp_path / "cache"
    parent.mkdir()
    (parent / "a file").write_text("mine")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORTABLE + PROGRAM, str(parent), str(KILLS), "1"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {"failed": 0}, done.stderr[-3000:]
    (parent / "a file").unlink()
    for directory in parent.iterdir():
        names = os.listdir(directory)
        if not names or (len(names) == 1 and HALF_A_MARKER.fullmatch(names[0])):
            continue  # killed in its first or last moment: nobody's, and no data
        assert "index.json" in names
        index = json.loads((directory / "index.json").read_text("utf-8"))
        assert {shard["raw_data"]["basename"] for shard in index["shards"]} <= set(names)
        assert sum(shard["samples"] for shard in index["shards"]) == 2000
