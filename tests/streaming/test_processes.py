"""Workers, ranks, and runs that are killed: real processes."""

import contextlib
import errno
import gc
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from multiprocessing.process import current_process
from pathlib import Path

import pytest
import warm
from prefixes import reserve
from streaming.base.shared import prefix
from streaming_oracle import RAGGED, columnar_loader, ids, stock_loader, write_shards

from petastorm_bridge.streaming import ColumnarStreamingDataset, _leftovers
from petastorm_bridge.streaming._leftovers import clear_leftovers, until_free

# Of the stock samples.
pytestmark = [
    pytest.mark.anystack,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning"),
]

SCRIPT = Path(__file__).parent / "run_rank.py"
SIZES = [30, 11, 25, 40, 17, 33, 8, 36]
SHARED_MEMORY = Path("/dev/shm")


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_workers(tmp_path, shuffle, drop_last):
    """Two epochs with two workers that are kept, and what the state of the loader is in between."""
    write_shards(tmp_path, SIZES, RAGGED)
    arguments = {"local": str(tmp_path), "batch_size": 7, "shuffle": shuffle}
    options = {"num_workers": 2, "persistent_workers": True, "drop_last": drop_last}
    found = []
    for make in (stock_loader, columnar_loader):
        loader = make(arguments, **options)
        epochs = [ids(loader), ids(loader, 5)]
        found.append((epochs, loader.state_dict()))
    assert found[1] == found[0]


def test_forked_from_a_dataset_in_use(tmp_path):
    """Stock streaming fails or hangs here: the locks of the first pass are its process's own."""
    write_shards(tmp_path / "remote", SIZES, RAGGED)
    place = {"remote": str(tmp_path / "remote"), "local": str(tmp_path / "local")}
    loader = columnar_loader({**place, "batch_size": 7, "shuffle": True}, num_workers=2)
    dataset = loader.dataset
    batches = iter(dataset)
    next(batches)
    batches.close()
    dataset.next_epoch = 0
    stock = {"local": str(tmp_path / "remote"), "batch_size": 7, "shuffle": True}
    assert ids(loader) == ids(stock_loader(stock, num_workers=2))
    assert len(list(dataset)) == len(dataset)


@pytest.mark.slow
def test_spawned_workers(tmp_path):
    write_shards(tmp_path, SIZES, RAGGED)
    arguments = {"local": str(tmp_path), "batch_size": 7, "shuffle": True}
    expected = ids(stock_loader(arguments, num_workers=2))
    loader = columnar_loader(
        arguments, columns=["id", "text"], num_workers=2, multiprocessing_context="spawn"
    )
    next(iter(loader.dataset))  # a dataset in use, too, travels
    loader.dataset.next_epoch = 0
    assert ids(loader) == expected


def test_pickling_a_dataset_in_use(tmp_path):
    write_shards(tmp_path, SIZES)
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=7)
    batches = iter(dataset)
    next(batches)
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.take([3])["id"].tolist() == [3]
    batches.close()


@pytest.mark.parametrize("replication", [1, 2])
def test_replication(tmp_path, replication):
    """In a world of one rank there is only one factor; others are refused as by stock."""
    write_shards(tmp_path, SIZES)
    arguments = {"local": str(tmp_path), "batch_size": 7, "replication": replication}
    if replication == 1:
        assert ids(columnar_loader(arguments)) == ids(stock_loader(arguments))
        return
    for make in (stock_loader, columnar_loader):
        with pytest.raises(ValueError, match="World size must be divisible"):
            make(arguments)


@pytest.fixture
def short(prefixes):
    """A folder with a short name: worker processes put sockets into it, whose paths have a limit.

    Its files keep ranks from the prefixes of test processes beside; see ``own_prefixes``.
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        reserve(Path(folder), prefixes)
        yield Path(folder)


def start(world, arguments, folder, *, killable=False):
    """Start every rank of a run; each finds its temporary directory and leaves its errors in the folder.

    A killable one is a Python of its own and leads a group of processes that can be killed as a whole.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir()
    for lock in folder.parent.glob("*_barrier_filelock"):
        (folder / lock.name).touch()
    processes = []
    python = sys.executable if killable else warm.python()
    command = [python, str(SCRIPT), *map(str, arguments)]
    for rank in range(world):
        given = {
            "RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
            # The locks of a killed run may be gone (a cleaner, a restarted machine): without them
            # streaming takes the run for one that goes on.
            "TMPDIR": folder, "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        environment = os.environ | {name: str(value) for name, value in given.items()}
        with (folder / f"{rank}").open("w") as errors:
            process = subprocess.Popen(
                command,
                env=environment,
                text=True,
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        processes.append(process)
    return processes


def finish(processes, folder):
    """The batches of every rank of a run that ends by itself."""
    try:
        outputs = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        end(processes)
    errors = [(folder / f"{rank}").read_text() for rank in range(len(processes))]
    assert [process.returncode for process in processes] == [0] * len(processes), errors
    return [[json.loads(line) for line in output.splitlines()] for output in outputs]


def kill_when_waiting(processes):
    """The batches of every rank of a run up to where all are killed, with all their helpers."""
    found = []
    for process in processes:
        lines = []
        for line in process.stdout:
            if line.strip() == "waiting":
                break
            lines.append(json.loads(line))
        found.append(lines)
    end(processes)
    return found


def end(processes):
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def registered(local):
    """Prefixes in shared memory whose run uses a directory."""
    found = set()
    for path in SHARED_MEMORY.glob("*_locals"):
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            if os.fsencode(local) in data[: int.from_bytes(data[:4], "little")]:
                found.add(path.name.partition("_")[0])
    return found


@pytest.mark.slow
def test_a_killed_run_is_resumed_by_another_number_of_ranks(tmp_path, short):
    """Two ranks are killed in the middle; one, then three go on where stock streaming would."""
    remote, local, state = tmp_path / "remote", tmp_path / "local", tmp_path / "state.json"
    write_shards(remote, SIZES, {"id": "int64"})
    begun = kill_when_waiting(start(2, [remote, local, state, 4], short / "first", killable=True))
    arguments = {
        "local": str(remote), "batch_size": 6, "shuffle": True, "num_canonical_nodes": 2,
    }  # fmt: skip
    assert begun == [ids(stock_loader(arguments, (1, 2, rank)), 4) for rank in range(2)]
    left = registered(local)
    assert left
    saved = json.loads(state.read_text())
    assert saved["sample_in_epoch"] == 48
    again = columnar_loader(
        {**arguments, "remote": str(remote), "local": str(local)}  # what is left is in the way
    )
    again.load_state_dict(saved)
    assert ids(again) == resumed_by_stock(arguments, saved, 1)[0]
    del again
    folder = short / "again"
    resumed = finish(start(3, [remote, local, state, 0], folder), folder)
    assert resumed == resumed_by_stock(arguments, saved, 3)
    assert not registered(local)


@pytest.mark.slow
def test_ranks_with_workers_are_those_of_stock_ranks(tmp_path, short):
    """Two ranks with two workers each, all of them processes, also those of stock streaming."""
    remote = tmp_path / "remote"
    write_shards(remote, SIZES, {"id": "int64"})
    found = {}
    for kind in ("stock", "columnar"):
        place = [remote, tmp_path / f"{kind}-cache", tmp_path / "no-state", 0, kind, 2]
        folder = short / kind
        found[kind] = finish(start(2, place, folder), folder)
    assert found["columnar"] == found["stock"]
    read = {number for rank in found["stock"] for batch in rank for number in batch}
    assert read == set(range(sum(SIZES)))


def test_workers_whose_sockets_would_have_too_long_a_path_say_so(tmp_path, monkeypatch):
    """Their tensors would not arrive, and the program would wait for ever."""
    write_shards(tmp_path / "data", SIZES)
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    monkeypatch.delitem(current_process()._config, "tempdir", raising=False)
    loader = columnar_loader({"local": str(tmp_path / "data"), "batch_size": 7}, num_workers=1)
    with pytest.raises(RuntimeError, match="too deep for the sockets"):
        list(loader)


@pytest.mark.slow
def test_ranks_evict_shards_of_a_cache_that_they_share(tmp_path, short):
    """Three ranks, whose cache holds a third of the shards, see what ranks with all of them would."""
    remote, local, sizes = tmp_path / "remote", tmp_path / "local", [30, 11, 25] * 8
    write_shards(remote, sizes, {"id": "int64"})
    largest = max(path.stat().st_size for path in remote.glob("*.mds"))
    limit = (remote / "index.json").stat().st_size + 8 * largest
    place = [remote, local, tmp_path / "no-state", 0, "columnar", 0, limit]
    found = finish(start(3, place, short / "ranks"), short / "ranks")
    arguments = {
        "local": str(remote), "batch_size": 6, "shuffle": True, "num_canonical_nodes": 2,
    }  # fmt: skip
    assert found == [ids(stock_loader(arguments, (1, 3, rank))) for rank in range(3)]
    # Each may be about to fetch one for which it has just made room.
    kept = sorted(path.stat().st_size for path in local.glob("*.mds"))
    assert (
        0 < sum(kept) <= (8 + 2 * 3) * largest < sum(p.stat().st_size for p in remote.glob("*.mds"))
    )


def resumed_by_stock(arguments, state, world):
    """The batches of every rank from a state on."""
    found = []
    for rank in range(world):
        loader = stock_loader(arguments, (1, world, rank))
        loader.load_state_dict(state)
        found.append(ids(loader))
    return found


def test_a_dataset_that_is_deleted_makes_way_at_once(tmp_path):
    """One after the other over the same cache, without waiting for the garbage collector."""
    write_shards(tmp_path / "remote", SIZES)
    gc.disable()
    try:
        for _ in range(2):
            loader = columnar_loader(
                {
                    "remote": str(tmp_path / "remote"),
                    "local": str(tmp_path / "local"),
                    "batch_size": 6,
                }
            )
            mark = SHARED_MEMORY / f"{loader.dataset._shm_prefix_int:06}_petastorm_bridge"
            locks = f"{loader.dataset._shm_prefix_int:06}_*_filelock"
            assert sum(map(len, ids(loader))) == sum(SIZES)
            assert mark.exists()
            assert list(Path(tempfile.gettempdir()).glob(locks))
            del loader
            assert not mark.exists()
            # Streaming leaves them, and looks through all that are left when a dataset is made.
            assert not list(Path(tempfile.gettempdir()).glob(locks))
    finally:
        gc.enable()


def test_leftovers_of_live_runs_stay(tmp_path):
    write_shards(tmp_path, SIZES)
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=6)
    (prefix,) = registered(str(tmp_path))
    assert not removed_of(prefix, [str(tmp_path)])
    assert registered(str(tmp_path)) == {prefix}
    assert len(list(dataset)) == len(dataset)


@pytest.mark.slow
def test_plain_streaming_takes_the_memory_that_was_found(tmp_path, monkeypatch):
    """Another program starts between the two steps in which streaming takes shared memory."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    write_shards(mine, SIZES)
    write_shards(theirs, SIZES)
    script = (
        "import sys; from streaming import StreamingDataset as D\n"
        "d = D(local=sys.argv[1], batch_size=6); print('here', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, str(theirs)]
    others = []
    find = prefix._check_and_find_retrying

    def find_while_another_starts(*arguments, shm_name, **options):
        found = find(*arguments, shm_name=shm_name, **options)
        if not others and shm_name == prefix.SHM_TO_CLEAN[-1]:
            pipe = subprocess.PIPE
            others.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
            assert others[0].stdout.readline() == "here\n"
        return found

    monkeypatch.setattr(prefix, "_check_and_find_retrying", find_while_another_starts)
    try:
        dataset = ColumnarStreamingDataset(local=str(mine), batch_size=6)
        assert registered(str(mine)) != registered(str(theirs)) != []
        assert sum(len(batch["id"]) for batch in dataset) == sum(SIZES)
    finally:
        for other in others:
            other.communicate()
    assert others


def test_a_file_in_the_place_of_a_directory_is_told_at_once():
    attempts = []

    def initialise():
        attempts.append(1)
        raise FileExistsError(errno.EEXIST, "File exists", "/data/train")

    with pytest.raises(FileExistsError, match="/data/train"):
        until_free(initialise)
    assert len(attempts) == 1


@pytest.mark.skipif(
    os.readlink("/proc/self/ns/pid") != _leftovers._FIRST_NAMESPACE,
    reason="a container does not show whether another one uses the memory",
)
@pytest.mark.parametrize("stale", ["", "1"])
def test_leftovers_of_plain_streaming(tmp_path, monkeypatch, stale):
    """Nobody has the memory of a dead run mapped; while it lives, its own process has."""
    write_shards(tmp_path / "remote", SIZES)
    local = str(tmp_path / "local")
    script = (
        "import sys, time; from streaming import StreamingDataset as D\n"
        "d = D(remote=sys.argv[1], local=sys.argv[2], batch_size=6)\n"
        "print('waiting', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "remote"), local],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "waiting\n"
        (prefix,) = registered(local)
        # Left of a dead run of ours, whose number this run has taken.
        (SHARED_MEMORY / f"{prefix}_petastorm_bridge").write_text(stale)
        assert not removed_of(prefix, [local])
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    with monkeypatch.context() as within_a_container:
        within_a_container.setattr(_leftovers, "_PID_NAMESPACE", "/proc/self/ns/net")
        assert not removed_of(prefix, [local])
    assert len(removed_of(prefix, [local, "/elsewhere"])) == 7
    assert not registered(local)


def removed_of(prefix, directories):
    """What is cleared away of one run; tests that go on beside may have killed others."""
    return [name for name in clear_leftovers(directories) if name.startswith(prefix)]


def test_nobody_begins_to_use_memory_while_it_is_removed():
    """A run that gets the number of a dead one waits, and has a file of its own then."""
    path = SHARED_MEMORY / "999999_petastorm_bridge"
    path.touch()
    alive = threading.Thread(target=lambda: found.append(_leftovers._locked(str(path))))
    found = []
    try:
        with _leftovers._if_dead("999999", [path.name]) as is_dead:
            assert is_dead
            alive.start()
            alive.join(0.2)
            assert not found
            _leftovers._remove("999999", [path.name])
        alive.join()
        with _leftovers._if_dead("999999", [path.name]) as is_dead:
            assert not is_dead
    finally:
        path.unlink()
        os.close(found[0])
