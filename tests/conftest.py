"""What every test may use: a Spark session, a converter cache directory, a check for leaks."""

import gc
import importlib.util
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

PARENT_CACHE_DIR_URL_CONF = "petastorm.spark.converter.parentCacheDirUrl"

# Tests are no package; what all of them may import lies in this folder.
sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from prefixes import SHARED_MEMORY, reserve  # noqa: E402 - from that folder

# The same examples on every run and every machine: a failure here is a failure everywhere.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("repeatable")

# Spark's workers would otherwise run whatever `python3` is on the PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Test processes and what they start are more than there are cores: threads of one would wait for another's.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Importing streaming imports transformers for datasets of texts, which no test has. Without the parts of it
# that are for torch, each of the hundred processes that tests start spares two seconds.
os.environ.setdefault("USE_TORCH", "0")
# Java that lives for seconds only is faster without its slow second compiler.
# `make` adds an archive of its classes.
for _variable in ("SPARK_DAEMON_JAVA_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
    if "-XX:+UseSerialGC" not in os.environ.get(_variable, ""):
        _set = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {os.environ.get(_variable, '')}"
        os.environ[_variable] = _set.strip()
# tools/environment.py puts a Java here when the machine has none that Spark accepts.
EMBEDDED_JAVA = Path(sys.prefix) / "java"
if EMBEDDED_JAVA.is_dir():
    os.environ["JAVA_HOME"] = str(EMBEDDED_JAVA)

# Who starts the tests in the background may have them ignore interrupts; the programs under test must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first: at the end one test process would be alone with such a file.

    make's ``--no-loadscope-reorder`` keeps this order.
    """
    astray = [item.nodeid for item in items if _is_astray(item)]
    if astray:
        raise pytest.UsageError(f"make runs tests marked `alone` from tests/stress only: {astray}")
    marks: dict[Path, set[str]] = {}
    for item in items:
        marks.setdefault(item.path, set()).update(mark.name for mark in item.iter_markers())
    items.sort(key=lambda item: [mark not in marks[item.path] for mark in ("slow", "spark")])


def _is_astray(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("alone")) and item.path.parent.name != "stress"


def pytest_collection_finish() -> None:
    """What the engines' modules hold is no garbage; looking through it takes half a second each time."""
    gc.collect()
    gc.freeze()


# Prefixes of streaming's shared memory that each test process has for itself.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PREFIXES = range(500 * _WORKER, 500 * (_WORKER + 1))


@pytest.fixture(scope="session", autouse=True)
def own_prefixes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Test processes and their children take different prefixes for streaming's shared memory.

    Streaming takes the first prefix that has no shared memory and no lock file in the temporary
    directory, and fails if another program takes it at that moment. It never deletes lock files.
    """
    tmp_path_factory.getbasetemp()  # pytest keeps its directories, in the place they always have
    _remove_leftovers()  # of tests that were killed themselves
    directory = Path(tempfile.mkdtemp(prefix="tests-"))
    reserve(directory, PREFIXES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(directory))
        patch.setattr(tempfile, "tempdir", str(directory))
        yield directory
    shutil.rmtree(directory, ignore_errors=True)
    _remove_leftovers()


def _remove_leftovers() -> None:
    """Remove shared memory of programs that were killed: of prefixes of which no process has anything.

    Each dataset of streaming opens all that is there, and keeps it open: where some hundred datasets were left,
    a process with as many of its own has no descriptors any more. And streaming looks for each part's first free
    prefix alone: where only some parts of several prefixes are left, it may take a prefix that is in use.
    """
    names = _of_our_prefixes()  # first: what comes while we look at processes is in use
    mapped = {name[:6] for name in _mapped(psutil.pids())}
    for name in names:
        if name[:6] not in mapped:
            (SHARED_MEMORY / name).unlink(missing_ok=True)


def _of_our_prefixes() -> set[str]:
    numbered = (
        (entry.name, re.match(r"(\d{6})_", entry.name)) for entry in SHARED_MEMORY.iterdir()
    )
    return {name for name, prefix in numbered if prefix and int(prefix[1]) in PREFIXES}


@pytest.fixture(scope="session")
def environment() -> Iterator[types.ModuleType]:
    """The script behind ``make setup``, as a module."""
    path = Path(__file__).resolve().parent.parent / "tools" / "environment.py"
    spec = importlib.util.spec_from_file_location("environment_script", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="session")
def prefixes() -> range:
    """The prefixes of streaming's shared memory that this test process and its children take."""
    return PREFIXES


@pytest.fixture(scope="module", autouse=True)
def unused_locks(own_prefixes: Path) -> Iterator[None]:
    """Delete the lock files of datasets that have ended, which make the next ones slow."""
    placeholders = {entry.name for entry in own_prefixes.glob("*_filelock")}
    yield
    for lock in own_prefixes.glob("*_filelock"):
        in_use = (SHARED_MEMORY / f"{lock.name[:6]}_locals").exists()
        if lock.name not in placeholders and not in_use:
            lock.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def eager_stock_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have streaming's writer ask more often whether its shards are where they belong than once a second."""
    writing = sys.modules.get("streaming.base.format.base.writer")
    if writing is not None:
        monkeypatch.setattr(writing, "sleep", lambda _: time.sleep(0.005))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One Spark session per test process; never stop it in a test.

    Its workers are forks of a Python that has imported the engines.
    """
    import warm
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2,3]")  # a closed worker socket is tried again
        .appName("petastorm-bridge tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config(PARENT_CACHE_DIR_URL_CONF, (folder / "cache").as_uri())
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    session.sparkContext.pythonExec = warm.python()
    yield session
    session.stop()


@pytest.fixture
def cache_dir(spark, tmp_path) -> Iterator[Path]:
    """An empty parent directory for converters, set in Spark's configuration for one test."""
    directory = tmp_path / "cache"
    directory.mkdir()
    before = spark.conf.get(PARENT_CACHE_DIR_URL_CONF, None)
    spark.conf.set(PARENT_CACHE_DIR_URL_CONF, directory.as_uri())
    yield directory
    if before is None:
        spark.conf.unset(PARENT_CACHE_DIR_URL_CONF)
    else:
        spark.conf.set(PARENT_CACHE_DIR_URL_CONF, before)


@pytest.fixture
def write(tmp_path):
    """``write(table, rows=[4, 6])`` → url of a dataset with shards of so many rows."""
    from datasets import write_dataset

    def write(table, rows=None, name="data"):
        return write_dataset(tmp_path / name, table, rows)

    return write


@pytest.fixture
def numbered(write):
    """``numbered(10, [4, 6])`` → url of a dataset with ``id`` 0 … 9 and ``x`` twice that."""
    import numpy as np
    import pyarrow as pa

    def numbered(total, rows=None, name="data"):
        ids = np.arange(total)
        table = pa.table({"id": ids, "x": (ids * 2).astype(np.float32)})
        return write(table, rows, name)

    return numbered


@pytest.fixture
def ids_of():
    """Return the ids a torch loader yields, in order, as a list."""
    from petastorm_bridge import make_batch_reader
    from petastorm_bridge.pytorch import DataLoader

    def ids_of(url, *, loader=DataLoader, batch_size=4, capacity=0, **options):
        with make_batch_reader(url, **options) as reader:
            batches = loader(reader, batch_size=batch_size, shuffling_queue_capacity=capacity)
            return [int(i) for batch in batches for i in batch["id"]]

    return ids_of


@pytest.fixture
def no_leaks() -> Callable[..., AbstractContextManager[None]]:
    """`with no_leaks():` fails if its body leaves a thread, an open file, a child or shared memory.

    Run the body once before measuring if it imports an engine or opens one of its thread pools.
    """
    return _no_leaks


@contextmanager
def _no_leaks(patience: float = 10.0) -> Iterator[None]:
    gc.collect()
    before = _resources()
    yield
    deadline = time.monotonic() + patience
    # Threads and processes that were told to end may need a moment.
    while (left := _left_over(before)) and time.monotonic() < deadline:
        time.sleep(0.02)
    sockets = psutil.Process().net_connections("all") if "files" in left else []
    assert not left, f"left behind: {left}, with the sockets {sockets}"


def _resources() -> dict[str, set[object]]:
    descriptors = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            descriptors[number] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the one that listed the directory
            continue
    return {
        "threads": set(threading.enumerate()),
        "files": set(descriptors.items()),
        "children": {child.pid for child in psutil.Process().children(recursive=True)},
        "shared memory": {entry.name for entry in SHARED_MEMORY.iterdir() if _is_ours(entry)},
    }


def _to_spark() -> set[str]:
    """The descriptors of connections with Spark's Java, which follows earlier tests in its own time.

    References of earlier tests open them as they end, and so do the last tasks of a job that was not awaited.
    """
    process = psutil.Process()
    ports: set[int] = set()
    for child in process.children(recursive=True):
        with suppress(psutil.Error):  # ended meanwhile
            if child.name() == "java":
                ports |= {each.laddr.port for each in child.net_connections("tcp")}
    connections = process.net_connections("tcp")
    listed = {str(each.fd) for each in connections if each.raddr and each.raddr.port in ports}
    return listed | _of_py4j()


def _of_py4j() -> set[str]:
    """The descriptors that Py4J holds, also of sockets that are no connections any more.

    A fork that ends shuts the connection of Py4J's finalizer thread, which its parent shares. No table of the kernel
    lists such a socket; the parent opens another one when a reference ends the next time.
    """
    sockets = [
        each.socket for each in gc.get_objects() if type(each).__name__ == "ClientServerConnection"
    ]
    return {str(each.fileno()) for each in sockets if each is not None}


def _is_ours(entry: Path) -> bool:
    streaming = re.match(r"(\d{6})_", entry.name)
    if streaming and int(streaming[1]) not in PREFIXES:
        return False  # of a test process that runs at the same time; it looks after its own
    try:
        return entry.stat().st_uid == os.getuid()
    except OSError:  # removed meanwhile
        return False


def _of_others() -> set[str]:
    """The names of the shared memory that processes which are not ours have mapped."""
    process = psutil.Process()
    ours = {process.pid} | {child.pid for child in process.children(recursive=True)}
    return _mapped(pid for pid in psutil.pids() if pid not in ours)


def _mapped(pids: Iterable[int]) -> set[str]:
    """The names of the shared memory that any of the processes has mapped.

    By inode: a semaphore is mapped under another name than the one that it is found by.
    """
    inodes: set[int] = set()
    for pid in pids:
        with suppress(OSError):  # not ours to look at, or ended meanwhile
            maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
            shared = (line for line in maps.splitlines() if f"{SHARED_MEMORY}/" in line)
            inodes |= {int(line.split(maxsplit=5)[4]) for line in shared}
    return {entry.name for entry in os.scandir(SHARED_MEMORY) if entry.inode() in inodes}


def _left_over(before: dict[str, set[object]]) -> dict[str, set[object]]:
    now = _resources()
    new = {kind: now[kind] - before[kind] for kind in now}
    if new["files"]:
        spark = _to_spark()
        new["files"] = {(number, path) for number, path in new["files"] if number not in spark}
    if new["shared memory"]:  # tests that run at the same time have theirs
        new["shared memory"] -= _of_others()
    return {kind: things for kind, things in new.items() if things}
