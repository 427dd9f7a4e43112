"""A conversion that is killed at any of its steps never leaves what is taken for another one's data."""

import contextlib
import json
import operator
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import warm
from datasets import read_table

from petastorm_bridge._sources.parquet_files import CONVERSION_NAME
from petastorm_bridge.convert import _run as run
from petastorm_bridge.convert import convert_dataset
from petastorm_bridge.convert._workers import WorkerPool
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.schema import content_digest

pytestmark = pytest.mark.modern

_PROGRAM = """
import os, sys
os.environ["CONVERSION"] = str(os.getpid())
sys.path.insert(0, os.environ["PYTHONPATH"])
import dies
from petastorm_bridge.convert import convert_dataset
convert_dataset(sys.argv[1], sys.argv[2], workers=1, size_limit=1)
"""


@pytest.fixture
def stores(tmp_path):
    """Two tables that differ in nothing but values; shards of the first file are written twice, for null flags."""
    for name, first in (("a", 0), ("b", 1000)):
        (tmp_path / name).mkdir()
        for number, last in enumerate((first + 2, None)):
            values = pa.array([first + 10 * number, first + 1, last], pa.int64())
            pq.write_table(pa.table({"x": values}), tmp_path / name / f"{number}.parquet")
    return tmp_path / "a", tmp_path / "b"


def values(place):
    table = read_table(open_dataset(str(place))) if place.name.startswith("made") else None
    return (pq.read_table(place) if table is None else table)["x"].to_pylist()


@pytest.fixture
def killed(tmp_path, stores):
    """Convert the first table, ended at a call; return the directory and whether it was ended."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("sitecustomize.py", "dies.py"):
        shutil.copy(Path(__file__).with_name("dies.py"), hooks / name)

    def convert(last):
        made, notes = tmp_path / f"made{last}", tmp_path / f"changes{last}"
        done = warm.run(
            [sys.executable, "-c", _PROGRAM, str(stores[0]), str(made)],
            env={
                **os.environ,
                "PYTHONPATH": str(hooks),
                "CHANGES": str(notes),
                "LAST_CHANGE": str(last),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in {0, -signal.SIGKILL}, done.stderr
        return made, done.returncode != 0, notes.read_text().split()

    return convert


def check(stores, made):
    """The other table is refused or converted, the same one always; nothing is left of the killed run."""
    a, b = stores
    other = made.with_name(f"{made.name}-other")
    if made.exists():
        shutil.copytree(made, other)
    if (other / CONVERSION_NAME / "plan.json").exists() or (other / "index.json").exists():
        with pytest.raises(FileExistsError, match="with other source"):
            convert_dataset(b, other, workers=1, size_limit=1)
    else:
        convert_dataset(b, other, workers=1, size_limit=1)
        assert values(other) == values(b)
    for _ in range(2):
        convert_dataset(a, made, workers=1, size_limit=1)
        assert values(made) == values(a)
        names = {path.name for path in made.iterdir()}
        shards = {name for e in open_dataset(str(made)).shards for name in e.basenames}
        assert names - {"index.json", "petastorm_bridge_schema.json"} == shards


@pytest.mark.slow
def test_every_step(killed, stores):
    _, was_killed, steps = killed(0)
    assert not was_killed
    assert {"mkdir", "open", "fsync", "replace", "remove", "rmdir"} <= {*steps}
    for last in range(1, len(steps) + 1):
        made, was_killed, before = killed(last)
        assert was_killed
        assert before == steps[:last]
        check(stores, made)


def test_a_dataset_is_tied_to_what_it_was_made_of(stores, tmp_path):
    """An empty directory of notes beside it says nothing; the sidecar does."""
    a, b = stores
    made = tmp_path / "made"
    convert_dataset(a, made, workers=1, size_limit=1)
    notes = made / CONVERSION_NAME
    notes.mkdir()
    for source, options, said in (
        (b, {}, "other source"),
        (a, {"compression": "zstd"}, "other compression"),
        (a, {"hashes": ["md5"]}, "other hashes"),
    ):
        with pytest.raises(FileExistsError, match=f"holds a dataset already, made with {said}"):
            convert_dataset(source, made, workers=1, size_limit=1, **options)
    assert list(notes.iterdir()) == []
    done = convert_dataset(a, made, workers=1, size_limit=1)
    assert (done.was_finished, done.taken_over, notes.exists()) == (True, 6, False)
    # Said only if it is still true.
    shard = next(made.glob("*.mds"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DatasetError, match=shard.name):
        convert_dataset(a, made, workers=1, size_limit=1)


def test_a_file_with_the_size_and_the_time_of_the_old_one(stores, tmp_path):
    file, made = stores[0] / "0.parquet", tmp_path / "made"
    plain = {"compression": "none", "use_dictionary": False}
    pq.write_table(pa.table({"x": [1, 2, 3]}), file, **plain)
    convert_dataset(file, made, workers=1)
    before = file.stat()
    pq.write_table(pa.table({"x": [1, 2, 4]}), file, **plain)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    with pytest.raises(FileExistsError, match="other source"):
        convert_dataset(file, made, workers=1, verify=False)


def interrupted(*_, **__):
    raise KeyboardInterrupt


def _signed(note):
    """Of a version that cut parts elsewhere: whole, but about other rows."""
    content = {name: value for name, value in note.items() if name != "sha256"}
    return {**content, "sha256": content_digest(content)}


@pytest.mark.parametrize(
    "damage",
    [
        lambda note: {**note, "shards": [{**info, "stats": None} for info in note["shards"]]},
        lambda note: {**note, "part": {**note["part"], "rows": 4}},
        lambda note: _signed({**note, "part": {**note["part"], "start": 1}}),
        lambda note: [note],
        lambda note: "text",
        lambda note: {name: value for name, value in note.items() if name != "sha256"},
        None,
    ],
)
def test_a_damaged_note_counts_for_nothing(stores, tmp_path, damage):
    a, _ = stores
    made = tmp_path / "made"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "commit_dataset", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert_dataset(a, made, workers=1, size_limit=1)
    note = made / CONVERSION_NAME / "part-00000.json"
    if damage is None:
        note.write_text("[" * 200_000)
    else:
        note.write_text(json.dumps(damage(json.loads(note.read_text()))))
    done = convert_dataset(a, made, workers=1, size_limit=1)
    assert done.taken_over == 3
    assert values(made) == values(a)


def test_parts_without_hashes_are_written_again(stores, tmp_path):
    """Nothing would tell whether their bytes are still what was written."""
    a, _ = stores
    made = tmp_path / "made"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "commit_dataset", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert_dataset(a, made, workers=1, size_limit=1, hashes=[])
    for shard in made.glob("*.mds"):
        content = shard.read_bytes()
        shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    done = convert_dataset(a, made, workers=1, size_limit=1, hashes=[], verify=False)
    assert done.taken_over == 0
    assert values(made) == values(a)


@pytest.mark.parametrize("text", ["[" * 200_000, "[]", "\udcff", "{"])
def test_a_damaged_plan_is_named(stores, tmp_path, text):
    made = tmp_path / "made"
    (made / CONVERSION_NAME).mkdir(parents=True)
    (made / CONVERSION_NAME / "plan.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DatasetError, match=r"plan\.json, which says .* is damaged"):
        convert_dataset(stores[0], made, workers=1)


def test_notes_of_another_conversion_are_not_taken_over(stores, tmp_path):
    a, b = stores
    for name, source in (("made", a), ("made-b", b)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "commit_dataset", interrupted)
            with pytest.raises(KeyboardInterrupt):
                convert_dataset(source, tmp_path / name, workers=1, size_limit=1)
    made, other = tmp_path / "made", tmp_path / "made-b"
    shutil.copy(other / CONVERSION_NAME / "part-00000.json", made / CONVERSION_NAME)
    for shard in other.glob("shard.00000.*"):
        shutil.copy(shard, made)
    done = convert_dataset(a, made, workers=1, size_limit=1, verify=False)
    assert done.taken_over == 3
    assert values(made) == values(a)


def test_workers_take_no_notice_of_ctrl_c_at_any_moment(capfd):
    """It is for the process that started them; those that were still starting printed a traceback."""
    ended = threading.Event()

    def interrupt(pool):
        while not ended.wait(0.005):
            for process in [*pool._processes._living]:
                process._process.send_signal(signal.SIGINT)

    with contextlib.closing(WorkerPool(2, None)) as pool:
        thread = threading.Thread(target=interrupt, args=(pool,))
        thread.start()
        try:
            done = dict(pool.run([(operator.is_, ())] * 6, print))
        finally:
            ended.set()
            thread.join()
    assert done == dict.fromkeys(range(6), False)
    assert capfd.readouterr().err == ""
