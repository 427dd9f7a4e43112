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
import time
import types
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import current_process
from pathlib import Path

import numpy as np
import pytest
import warm
from prefixes import reserve, unused
from streaming import Stream
from streaming.base.shared import prefix
from streaming_oracle import RAGGED, columnar_loader, ids, stock_loader, write_shards

from petastorm_bridge.streaming import ColumnarStreamingDataset, _leftovers
from petastorm_bridge.streaming._leftovers import clear_leftovers
from petastorm_bridge.streaming._stock import with_names

# Of the stock samples.
pytestmark = [
    pytest.mark.modern,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning"),
]

SCRIPT = Path(__file__).parent / "run_rank.py"
SIZES = [30, 11, 25, 40, 17, 33, 8, 36]
SHARED_MEMORY = Path("/dev/shm")


@pytest.mark.smoke
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


def test_threads_that_take_samples_at_once(tmp_path):
    """Each opens shards, and lets go of those that windows before it did not touch."""
    count = write_shards(tmp_path, [10] * 100)
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=7)

    def taken(seed):
        draw = np.random.default_rng(seed)
        wanted = [draw.integers(0, count, 6) for _ in range(200)]
        return all(np.array_equal(dataset.take(each)["id"], each) for each in wanted)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that they meet
    try:
        with ThreadPoolExecutor(6) as threads:
            assert all(threads.map(taken, range(6)))
    finally:
        sys.setswitchinterval(usual)


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


@contextlib.contextmanager
def coming_and_going(prefix):
    """Other runs that begin and end in this moment, all under the same prefix."""
    made = SHARED_MEMORY / f"test_{os.getpid()}_{prefix:06}"
    made.write_bytes(b"\4\0\0\0")
    place, is_over, count = SHARED_MEMORY / f"{prefix:06}_locals", threading.Event(), 0

    def come_and_go():
        nonlocal count
        while not is_over.is_set():
            with contextlib.suppress(FileExistsError):  # ranks have it by now
                os.link(made, place)
                time.sleep(0.002)
                place.unlink()
                count += 1
            time.sleep(0.002)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        made.unlink()
    assert count


@pytest.mark.slow
def test_ranks_agree_on_shared_memory_while_other_runs_begin_and_end(tmp_path, short, prefixes):
    remote = tmp_path / "remote"
    write_shards(remote, SIZES, {"id": "int64"})
    arguments = {
        "local": str(remote), "batch_size": 6, "shuffle": True, "num_canonical_nodes": 2,
    }  # fmt: skip
    wanted = [ids(stock_loader(arguments, (1, 3, rank))) for rank in range(3)]
    with coming_and_going(unused(prefixes).start):
        for run in range(3):
            folder = short / f"ranks{run}"
            place = [remote, tmp_path / f"local{run}", tmp_path / "no-state", 0]
            assert finish(start(3, place, folder), folder) == wanted


WITHOUT_VARIABLES = """
import sys
import torch
from petastorm_bridge.streaming import ColumnarStreamingDataset

def run(rank, folder):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    try:
        ColumnarStreamingDataset(local=folder, batch_size=6)
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)  # torch tells one rank's error only
        raise

if __name__ == "__main__":
    torch.multiprocessing.spawn(run, (sys.argv[1],), 2)
"""


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "of 2, and streaming takes it for rank 0 of 1"),
        ({"WORLD_SIZE": "2"}, "rank 1 of 2, and streaming takes it for rank 0 of 2"),
    ],
)
def test_ranks_that_are_not_in_the_environment_are_refused(tmp_path, variables, words):
    """Each would begin as the only one and wait for the others for ever, or read the rows of another."""
    write_shards(tmp_path, SIZES)
    script = tmp_path / "spawn.py"
    script.write_text(WITHOUT_VARIABLES)
    command = [sys.executable, "-W", "ignore", str(script), str(tmp_path)]
    environment = os.environ | variables
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 1
    assert words in done.stderr


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
            prefix = f"{loader.dataset._shm_prefix_int:06}"
            assert sum(map(len, ids(loader))) == sum(SIZES)
            assert list(SHARED_MEMORY.glob(f"{prefix}_*"))
            assert list(Path(tempfile.gettempdir()).glob(f"{prefix}_*_filelock"))
            del loader
            assert not list(SHARED_MEMORY.glob(f"{prefix}_*"))
            # Streaming leaves them, and looks through all that are left when a dataset is made.
            assert not list(Path(tempfile.gettempdir()).glob(f"{prefix}_*_filelock"))
    finally:
        gc.enable()


DESCRIPTORS = """
import gc, os, sys
from streaming import StreamingDataset
from petastorm_bridge.streaming import ColumnarStreamingDataset, MappedStreamingDataset
classes = [StreamingDataset, ColumnarStreamingDataset, MappedStreamingDataset]
for made in classes:
    counts = []
    for _ in range(8):
        dataset = made(local=sys.argv[1], batch_size=6)
        dataset.load_state_dict({**STATE, "epoch": 0, "sample_in_epoch": 6})
        list(dataset)
        dataset = None
        gc.collect()
        counts.append(len(os.listdir("/proc/self/fd")))
    print(counts[-1] - counts[0])
""".replace("STATE", repr({"num_canonical_nodes": 1, "shuffle_seed": 9176}))


def test_datasets_one_after_the_other_keep_no_descriptors(tmp_path, short):
    """Also where a state was loaded; the resource tracker has nothing to complain of in the end."""
    write_shards(tmp_path, SIZES)
    command = [sys.executable, "-W", "ignore", "-c", DESCRIPTORS, str(tmp_path)]
    environment = os.environ | {"TMPDIR": str(short)}  # the locks of all others are elsewhere
    beside = ColumnarStreamingDataset(local=str(tmp_path), batch_size=6)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    stock, columnar, mapped = map(int, done.stdout.split())
    assert beside.num_samples
    assert stock > 0
    assert (columnar, mapped) == (0, 0)
    assert "resource_tracker" not in done.stderr
    assert "leaked" not in done.stderr


def test_a_copy_keeps_the_memory_of_its_dataset(tmp_path):
    """It may be given to a worker process, which finds the memory by its name."""
    write_shards(tmp_path, SIZES)
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=6)
    prefix = f"{dataset._shm_prefix_int:06}"
    copy = pickle.loads(pickle.dumps(dataset))
    del dataset
    again = pickle.loads(pickle.dumps(copy))
    assert sum(len(batch["id"]) for batch in again) == sum(SIZES)
    del copy
    assert list(SHARED_MEMORY.glob(f"{prefix}_*"))
    del again
    assert not list(SHARED_MEMORY.glob(f"{prefix}_*"))


def test_a_dataset_leaves_its_prefix_to_who_has_it_by_now(tmp_path):
    """Streaming's `clean_stale_shared_memory` removes what is in use, too."""
    write_shards(tmp_path, SIZES)
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=6)
    mine = sorted(SHARED_MEMORY.glob(f"{dataset._shm_prefix_int:06}_*"))
    for path in mine:
        path.unlink()
    for path in mine:
        path.touch()
    try:
        del dataset
        assert all(path.exists() for path in mine)
    finally:
        for path in mine:
            path.unlink()


def test_leftovers_of_live_runs_stay(tmp_path):
    write_shards(tmp_path, SIZES)
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=6)
    (prefix,) = registered(str(tmp_path))
    assert prefix not in clear_leftovers()
    assert registered(str(tmp_path)) == {prefix}
    assert len(list(dataset)) == len(dataset)


@pytest.mark.parametrize("is_plain", [False, True])
def test_only_runs_with_the_mark_are_leftovers(prefixes, is_plain):
    """Plain streaming holds no lock, so that nothing tells whether its run goes on."""
    name = f"{prefixes[-1]:06}"
    parts = [SHARED_MEMORY / f"{name}_{part}" for part in ("locals", "barrier", "epoch_data")]
    for part in parts:
        part.write_bytes(b"\4\0\0\0" if is_plain else b"\4\0\0\0\0petastorm_bridge")
    try:
        removed = clear_leftovers()
        # A process of other tests may have removed it before.
        assert all(part.exists() == is_plain for part in parts)
        assert not is_plain or name not in removed
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


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
    find = prefix._check_and_find

    def find_while_another_starts(*arguments):
        found = find(*arguments)
        if not others and arguments[-1] == prefix.SHM_TO_CLEAN[-1]:
            pipe = subprocess.PIPE
            others.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
            assert others[0].stdout.readline() == "here\n"
        return found

    def with_another(function, **names):
        wanted = function is prefix._check_and_find
        return find_while_another_starts if wanted else with_names(function, **names)

    monkeypatch.setattr(_leftovers, "with_names", with_another)
    try:
        dataset = ColumnarStreamingDataset(local=str(mine), batch_size=6)
        assert registered(str(mine)) != registered(str(theirs)) != []
        assert sum(len(batch["id"]) for batch in dataset) == sum(SIZES)
    finally:
        for other in others:
            other.communicate()
    assert others


IN_A_THREAD = """
import sys, threading
from petastorm_bridge.streaming import ColumnarStreamingDataset, MappedStreamingDataset

def read():
    threading.main_thread().join()
    for made in (ColumnarStreamingDataset, MappedStreamingDataset):
        local = sys.argv[2] + made.__name__
        dataset = made(remote=sys.argv[1], local=local, batch_size=6)
        print(sum(1 for _ in dataset), flush=True)

threading.Thread(target=read).start()
"""


def test_a_pass_in_a_thread_is_whole_after_the_main_thread_has_ended(tmp_path):
    """Python waits for such a thread. From 3.12 on it lets nothing start threads then, which is an error."""
    write_shards(tmp_path / "remote", SIZES)
    command = [sys.executable, "-W", "ignore", "-c", IN_A_THREAD]
    command += [str(tmp_path / "remote"), str(tmp_path / "local")]
    done = warm.run(command, capture_output=True, text=True, check=False)
    if sys.version_info < (3, 12):
        batches = -(-sum(SIZES) // 6)
        assert done.stdout.split() == [f"{batches}", f"{sum(SIZES)}"], done.stderr[-3000:]
    else:
        assert "can't create new thread at interpreter shutdown" in done.stderr
        assert not done.stdout


TOGETHER = """
import os, sys, time
from petastorm_bridge.streaming import MappedStreamingDataset
children = []
begin = time.time() + 1
for _ in range(4):
    child = os.fork()
    if child == 0:
        while time.time() < begin:
            pass
        for _ in range(10):
            dataset = MappedStreamingDataset(local=sys.argv[1], batch_size=6)
            assert sum(1 for _ in dataset) == dataset.size
        os._exit(0)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
"""


def test_programs_that_start_together_take_different_memory(tmp_path, short):
    """As a tuner's trials do: all look for a free name in the same moment."""
    write_shards(tmp_path, SIZES)
    command = [sys.executable, "-W", "ignore", "-c", TOGETHER, str(tmp_path)]
    done = warm.run(
        command, env=os.environ | {"TMPDIR": str(short)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["[0,", "0,", "0,", "0]"], done.stderr[-3000:]


@pytest.mark.parametrize("streams", [1, 2])
def test_streams_are_registered_again_as_they_were(tmp_path, monkeypatch, streams):
    """The weights that streaming writes into the user's streams are written once."""
    folders = [tmp_path / str(number) for number in range(streams)]
    for folder in folders:
        write_shards(folder, SIZES)
    make, failures = _leftovers.registry.SharedMemory, [1, 1]

    def taken(name, create=False, *arguments):
        if create and failures:
            failures.pop()
            raise FileExistsError(errno.EEXIST, "File exists", "/000000_locals")
        return make(name, create, *arguments)

    monkeypatch.setattr(_leftovers.registry, "SharedMemory", taken)
    given = [Stream(local=str(folder)) for folder in folders]
    dataset = ColumnarStreamingDataset(streams=given, batch_size=6)
    assert not failures
    assert sum(len(batch["id"]) for batch in dataset) == streams * sum(SIZES)


def test_a_link_in_the_place_of_shared_memory(tmp_path, monkeypatch):
    """Anybody may put one there: what it leads to is neither written to nor locked."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"000123_{_leftovers.LOCALS}").symlink_to(victim)
    monkeypatch.setattr(_leftovers, "_SHARED_MEMORY", str(tmp_path))
    with pytest.raises(OSError, match="symbolic links"):
        _leftovers.keep_alive(types.SimpleNamespace(), 123, [])
    assert not clear_leftovers()
    assert victim.read_text() == "precious"
