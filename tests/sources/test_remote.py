"""Remote datasets without a network: fetching, caching, checking, and what errors say."""

import errno
import gc
import http.server
import os
import pickle
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import ClientResponseError
from far_fsspec import far_fsspec
from forks import in_fork

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources._far.errors import RemoteAccessError, RemoteError, explain
from petastorm_bridge._sources._far.fetch import UNKNOWN_SIZE, Extent, Fetch
from petastorm_bridge._sources._far.limits import (
    ATTEMPTS_VARIABLE,
    CACHE_VARIABLE,
    TIMEOUT_VARIABLE,
)
from petastorm_bridge._sources._far.stores import open_store
from petastorm_bridge._sources.far_mds import FarMdsSource
from petastorm_bridge._sources.mds import MdsSource
from petastorm_bridge._sources.open import open_source
from petastorm_bridge.errors import DatasetError, DatasetNotFoundError
from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.errors import ShardCorruptedError
from petastorm_bridge.mds.writer import ShardWriter

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

ROWS = 10


@pytest.fixture
def memory():
    """An empty `memory://` store."""
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "copies"
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    return folder


def write_dataset(folder, ids, compression=None, hashes=("sha1",)):
    """Write an MDS dataset of shards with 10 rows."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": np.asarray(ids), "s": [f"text {i}" for i in ids]})
    writer = ShardWriter(
        table.schema, str(folder), prefix="shard", size_limit=1, min_rows=ROWS,
        compression=compression, hashes=hashes,
    )  # fmt: skip
    for start in range(0, len(table), ROWS):
        writer.write(table.slice(start, ROWS).to_batches()[0])
    commit_dataset(str(folder), table.schema, writer.finish())
    return folder


@pytest.fixture
def dataset(memory, tmp_path):
    """URL of a dataset with 3 shards."""
    folder = write_dataset(tmp_path / "local", range(3 * ROWS))
    memory.put(f"{folder}/", "/bucket/data", recursive=True)
    return "memory://bucket/data"


def fetch_file(store, url, path):
    """Fetch a file of which nothing is known."""
    Fetch(store, Extent(url, "x", UNKNOWN_SIZE)).to_file(path)


def ids_of(url, **options):
    with make_batch_reader(url, shuffle_row_groups=False, **options) as reader:
        return np.concatenate([group.id for group in reader]).tolist()


def path_of(source, position):
    """Path of a shard's copy."""
    return source.ahead.path(source._extent(source._entry(position)))


def files_below(folder):
    names = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return sorted(name for name in names if not name.endswith(".in-use"))


def test_shards_are_fetched_when_first_read_and_kept(dataset, memory, cache):
    source = open_source(dataset)
    assert source.description == dataset
    assert list(source.row_counts) == [ROWS] * 3
    (folder,) = cache.iterdir()
    assert files_below(folder) == ["index.json", "petastorm_bridge_schema.json"]
    assert not source.is_cheap(1)
    source.open(1)
    assert source.is_cheap(1)
    assert not source.is_cheap(0)
    memory.rm("/bucket/data", recursive=True)
    assert source.open(1).load(["id"], slice(0, 2))["id"].tolist() == [10, 11]
    with pytest.raises(DatasetNotFoundError, match=r"memory://bucket/data/shard\.00000\.mds"):
        source.open(0)
    assert len(files_below(folder)) == 3


def test_epochs_and_readers_share_the_copies(dataset, memory, cache):
    assert ids_of(dataset, num_epochs=2) == list(range(3 * ROWS)) * 2
    for name in memory.ls("/bucket/data", detail=False):
        if name.endswith(".mds"):
            memory.rm(name)
    assert ids_of(dataset, workers_count=2) == list(range(3 * ROWS))
    assert ids_of([f"{dataset}/shard.00002.mds"]) == list(range(20, 30))
    assert len(list(cache.iterdir())) == 1


def test_a_dataset_written_anew_is_read_anew(dataset, memory, cache, tmp_path):
    assert ids_of(dataset)[:2] == [0, 1]
    other = write_dataset(tmp_path / "other", range(100, 100 + 3 * ROWS))
    memory.put(f"{other}/", "/bucket/data", recursive=True)
    assert ids_of(dataset)[:2] == [100, 101]


def test_without_hashes_copies_are_not_shared(memory, cache, tmp_path):
    """Two such datasets of the same sizes have the same index; their shards must not mix."""
    one = write_dataset(tmp_path / "one", range(ROWS), hashes=())
    two = write_dataset(tmp_path / "two", range(10, 10 + ROWS), hashes=())
    three = write_dataset(tmp_path / "three", range(20, 20 + ROWS), hashes=())
    assert (two / "index.json").read_text() == (three / "index.json").read_text()
    for folder in (one, two, three):
        memory.put(f"{folder}/", f"/bucket/{folder.name}", recursive=True)
    assert ids_of("memory://bucket/two") == list(range(10, 20))
    assert ids_of("memory://bucket/three") == list(range(20, 30))
    source = open_source("memory://bucket/two")
    memory.put(f"{three}/", "/bucket/two", recursive=True)
    assert ids_of("memory://bucket/two") == list(range(20, 30))
    again = pickle.loads(pickle.dumps(source))
    del source
    gc.collect()
    assert files_below(cache)
    del again
    gc.collect()
    assert not any(files_below(cache))  # they went with their sources


@pytest.mark.parametrize("compression", ["zstd:3", "gz"])
def test_compressed_shards_are_kept_compressed(memory, cache, tmp_path, compression):
    folder = write_dataset(tmp_path / "zip", range(ROWS), compression=compression)
    memory.put(f"{folder}/", "/bucket/zip", recursive=True)
    assert ids_of("memory://bucket/zip") == list(range(ROWS))
    extension = compression.partition(":")[0]
    assert next(n for n in files_below(cache) if ".mds" in n).endswith(f".mds.{extension}")


def test_the_default_directory_goes_with_the_process(dataset, monkeypatch):
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    source = open_source(dataset)
    source.open(0)
    folder = os.path.dirname(path_of(source, 0))
    assert os.path.basename(os.path.dirname(folder)).startswith("petastorm-bridge-cache-")
    copy = pickle.loads(pickle.dumps(source))  # as for worker processes
    assert path_of(copy, 0) == path_of(source, 0)
    assert path_of(open_source(dataset), 0) == path_of(source, 0)


class TestDamage:
    @pytest.fixture(autouse=True)
    def _no_pauses(self, monkeypatch):
        monkeypatch.setattr("petastorm_bridge._sources._far.errors._FIRST_PAUSE_SECONDS", 0.0)

    @pytest.mark.parametrize(
        ("change", "found"),
        [
            (lambda data: data[:-1], r"bytes, found"),
            (lambda data: data + b"x", r"bytes, found"),
            (lambda data: b"", "found 0"),
            (lambda data: data[:-1] + bytes([data[-1] ^ 1]), r"expected sha1 \w+, found"),
        ],
    )
    def test_in_the_store_leaves_no_copy(self, dataset, memory, cache, change, found):
        name = "/bucket/data/shard.00001.mds"
        memory.pipe(name, change(memory.cat(name)))
        source = open_source(dataset)
        with pytest.raises(DatasetError, match=rf"shard\.00001\.mds does not match.*{found}"):
            source.open(1)
        assert not [name for name in files_below(cache) if "shard" in name]
        assert source.open(0).load(["id"], slice(0, 1))["id"].tolist() == [0]

    @pytest.mark.parametrize("length", [100, None])
    def test_of_a_copy_is_mended(self, dataset, cache, length):
        source = open_source(dataset)
        (folder,) = cache.iterdir()
        copy = folder / "shard.00000.mds"
        source.open(0)
        content = copy.read_bytes()
        copy.write_bytes(content[:length] if length else content[:-1] + b"\xff")
        assert source.open(0).load(["id"], slice(0, 2))["id"].tolist() == [0, 1]
        assert copy.read_bytes() == content

    def test_of_the_index(self, dataset, memory, cache):
        memory.pipe("/bucket/data/index.json", b'{"version": 2, "shards": [')
        with pytest.raises(DatasetError, match="not a usable MDS index"):
            ids_of(dataset)
        assert files_below(cache) == []

    @pytest.mark.parametrize("name", ["../../escape.mds", "/tmp/escape.mds"])
    def test_an_index_cannot_write_elsewhere(self, dataset, memory, cache, name):
        index = memory.cat("/bucket/data/index.json")
        memory.pipe("/bucket/data/index.json", index.replace(b"shard.00000.mds", name.encode()))
        with pytest.raises(DatasetError, match="names a file outside"):
            ids_of(dataset)

    def test_transient_failures_are_tried_again(self, tmp_path):
        calls = []

        class Flaky:
            tries_again = False
            range_bytes = None

            def fetch(self, url, path):
                calls.append(url)
                with open(path, "wb") as file:
                    file.write(b"ab" if len(calls) < 3 else b"abc")
                if len(calls) == 1:
                    raise ConnectionResetError("reset by peer")

        target = tmp_path / "x"
        Fetch(Flaky(), Extent("s3://b/x", "x", 3)).to_file(str(target))
        assert len(calls) == 3
        assert target.read_bytes() == b"abc"
        assert [p.name for p in tmp_path.iterdir()] == ["x"]

    def test_a_full_disk_is_not_the_stores_fault(self, tmp_path):
        calls = []

        class Full:
            tries_again = False
            range_bytes = None

            def fetch(self, url, path):
                calls.append(url)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with pytest.raises(OSError, match=f"No space left.*s3://b/x.*{CACHE_VARIABLE}") as caught:
            fetch_file(Full(), "s3://b/x", str(tmp_path / "x"))
        assert caught.value.errno == errno.ENOSPC
        assert len(calls) == 1


def test_threads_fetch_a_shard_once(dataset, memory, cache):
    counts = []

    class Counting:
        tries_again = False
        range_bytes = None

        def __init__(self, inner):
            self.inner = inner

        def fetch(self, url, path):
            counts.append(url)
            self.inner.fetch(url, path)

    source = FarMdsSource(dataset, None, Counting(open_store(dataset, None)))
    counts.clear()
    start = threading.Barrier(4)

    def read(_):
        start.wait()
        return [source.open(i).load(["id"], slice(0, 1))["id"].item() for i in range(3)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, range(4))) == [[0, 10, 20]] * 4
    assert len(counts) == 3


SHARING = """
import sys
from petastorm_bridge import make_batch_reader
with make_batch_reader(sys.argv[1]) as reader:
    print(sum(len(group.id) for group in reader))
"""


@pytest.mark.slow
def test_processes_fetch_a_shard_once(tmp_path, cache):
    folder = write_dataset(tmp_path / "local", range(2 * ROWS))
    with far_fsspec(folder, seconds=0.3) as far:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", SHARING, far.url],
                stdout=subprocess.PIPE, text=True, env=os.environ | far.environment,
            )
            for _ in range(3)
        ]  # fmt: skip
        answers = [process.communicate(timeout=120)[0] for process in processes]
        counts = far.counts()
    assert answers == [f"{2 * ROWS}\n"] * 3
    for path in folder.glob("*.mds"):
        assert counts[f"read {path.name}"] == path.stat().st_size
    (copies,) = cache.iterdir()
    assert [name for name in files_below(copies) if not name.endswith((".mds", ".json"))] == []


def test_a_fork_does_not_wait_for_what_its_parent_fetches(dataset, cache):
    """Nor is it kept from fetching when the parent's threads hold locks for ever in its eyes."""
    fetching, go_on = threading.Event(), threading.Event()
    inner = open_store(dataset, {"skip_instance_cache": False})
    source = FarMdsSource(dataset, None, inner)

    class Waiting:
        tries_again = False
        range_bytes = None

        def fetch(self, url, path):
            fetching.set()
            go_on.wait()
            inner.fetch(url, path)

    source.ahead._store = Waiting()
    thread = threading.Thread(target=source.open, args=(0,))
    thread.start()
    fetching.wait()
    try:
        answer = in_fork(partial(_read_with_little_patience, dataset))
    finally:
        go_on.set()
        thread.join()
    assert answer == repr(list(range(3 * ROWS)))


def _read_with_little_patience(url):
    os.environ.update({ATTEMPTS_VARIABLE: "1", TIMEOUT_VARIABLE: "0.2"})  # of the fork alone
    return ids_of(url, storage_options={"skip_instance_cache": False}, reader_pool_type="dummy")


def test_what_a_killed_process_left_of_a_fetch_is_replaced(dataset, cache):
    source = open_source(dataset)
    path = path_of(source, 0)
    for end in (".part", ".lock"):
        with open(path + end, "w") as file:
            file.write("left")
    source.open(0)
    assert [name for name in os.listdir(os.path.dirname(path)) if "shard" in name] == [
        "shard.00000.mds"
    ]


def test_a_damaged_copy_that_another_reader_has_replaced_stays(dataset, cache, monkeypatch):
    """Removing it again would take it away from under that reader."""
    source = open_source(dataset)
    source.open(0)
    path = path_of(source, 0)
    with open(path, "rb") as file:
        whole = file.read()
    with open(path, "r+b") as file:
        file.write(b"damaged")
    inodes = []

    def fail_beside_another_reader(self, position, data):
        monkeypatch.undo()
        with pytest.raises(ShardCorruptedError):
            self._open(position, data)
        with open(f"{path}.other", "wb") as file:
            file.write(whole)
        os.replace(f"{path}.other", path)
        inodes.append(os.stat(path).st_ino)
        raise ShardCorruptedError.because(path, "its hash", "another")

    monkeypatch.setattr(MdsSource, "_open", fail_beside_another_reader)
    source.open(0)
    assert inodes == [os.stat(path).st_ino]


class TestAttempts:
    @pytest.fixture
    def failing(self, monkeypatch):
        monkeypatch.setattr("petastorm_bridge._sources._far.errors._FIRST_PAUSE_SECONDS", 0.0)
        calls = []

        class Failing:
            tries_again = False
            range_bytes = None

            def fetch(self, url, path):
                calls.append(url)
                raise ConnectionResetError(f"reset by peer: {url}")

        return Failing(), calls

    def test_are_logged_and_as_many_as_asked_for(self, failing, tmp_path, monkeypatch, caplog):
        fetcher, calls = failing
        monkeypatch.setenv(ATTEMPTS_VARIABLE, "3")
        with pytest.raises(RemoteError, match=r"reset by peer"):
            fetch_file(fetcher, "https://h/x?sig=SECRET", str(tmp_path / "x"))
        assert len(calls) == 3
        lines = [record.getMessage() for record in caplog.records]
        assert [line[:22] for line in lines] == ["Attempt 1 of 3 failed:", "Attempt 2 of 3 failed:"]
        assert "https://h/x?sig=***" in lines[0]
        assert "ConnectionResetError" in lines[0]
        assert "The next one begins in 0.0 seconds" in lines[0]
        assert "SECRET" not in caplog.text

    def test_of_the_stores_package_count(self, failing, tmp_path, caplog):
        fetcher, calls = failing
        fetcher.tries_again = True
        with pytest.raises(RemoteError):
            fetch_file(fetcher, "gs://b/x", str(tmp_path / "x"))
        assert len(calls) == 1

    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            *((ATTEMPTS_VARIABLE, value) for value in ("0", "-1", "2.5", "many")),
            *((TIMEOUT_VARIABLE, value) for value in ("0", "-1", "long", "inf", "nan")),
        ],
    )
    def test_that_are_no_number(self, dataset, monkeypatch, variable, value):
        monkeypatch.setenv(variable, value)
        with pytest.raises(ValueError, match=f"{variable} is '{value}'; it must be"):
            make_batch_reader(dataset)


class TestParquet:
    @pytest.fixture
    def table(self, memory, tmp_path):
        for key in (1, 2):
            folder = tmp_path / "table" / f"k={key}"
            folder.mkdir(parents=True)
            rows = pa.table({"id": np.arange(4) + 10 * key, "s": list("abcd")})
            pq.write_table(rows, folder / "a.parquet", row_group_size=3)
        memory.put(f"{tmp_path}/table", "/bucket/", recursive=True)
        return "memory://bucket/table"

    def test_is_read_in_place(self, table, cache):
        with make_batch_reader(table, shuffle_row_groups=False) as reader:
            found = [(g.k.tolist()[0], g.id.tolist(), g.s.tolist()) for g in reader]
        assert found[:2] == [(1, [10, 11, 12], ["a", "b", "c"]), (1, [13], ["d"])]
        assert len(found) == 4
        assert files_below(cache)  # of the columns that were read

    def test_file_lists(self, table):
        urls = [f"{table}/k={key}/a.parquet" for key in (2, 1)]
        with make_batch_reader(urls, shuffle_row_groups=False) as reader:
            assert reader.schema.fields.keys() == {"id", "s"}
            assert [g.id[0] for g in reader] == [20, 23, 10, 13]

    def test_nothing_there(self, memory, cache):
        with pytest.raises(OSError, match="Passed non-file path: /bucket/nope"):
            ids_of("memory://bucket/nope")
        with pytest.raises(OSError, match="Passed non-file path: /bucket/nope"):
            ids_of(["memory://bucket/nope.parquet"])


class WebServer(http.server.SimpleHTTPRequestHandler):
    """A web server that knows ranges."""

    def do_GET(self):
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked:
            super().do_GET()
            return
        data = Path(self.translate_path(self.path)).read_bytes()
        start, stop = int(asked[1]), min(int(asked[2]) + 1, len(data))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        self.wfile.write(data[start:stop])

    def end_headers(self):
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def log_message(self, *args):
        pass


def test_parquet_on_a_web_server(tmp_path):
    """Whose files come whole if they are copied."""
    pytest.importorskip("aiohttp", reason="asks the server")
    pq.write_table(pa.table({"id": np.arange(1000)}), tmp_path / "a.parquet", row_group_size=300)
    handler = partial(WebServer, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            place = f"http://127.0.0.1:{server.server_port}"
            assert ids_of([f"{place}/a.parquet"]) == ids_of(f"{place}/") == list(range(1000))
        finally:
            server.shutdown()
            thread.join()


def test_urls_of_several_places(memory):
    for urls in (["memory://a/x.mds", "s3://a/x.mds"], ["s3://a/x.mds", "s3://b/x.mds"]):
        with pytest.raises(ValueError, match="same scheme and netloc"):
            make_batch_reader(urls)
    with pytest.raises(ValueError, match="Shards of several datasets"):
        make_batch_reader(["memory://a/x/0.mds", "memory://a/y/0.mds"])


REFUSED = """
import sys
from petastorm_bridge import make_batch_reader, make_reader
for make in (make_batch_reader, make_reader):
    for url in ("nowhere://user:secret@bucket/data", ["nowhere://bucket/a", "nowhere://bucket/b"]):
        try:
            make(url)
        except ValueError as error:
            print(error)
print(*sorted({"pandas", "pyspark", "streaming", "tensorflow", "torch"} & {*sys.modules}))
"""


def test_unknown_scheme():
    """Said before anything is imported that takes seconds."""
    done = subprocess.run(
        [sys.executable, "-c", REFUSED], capture_output=True, text=True, check=True
    )
    *said, imported = done.stdout.split("\n")[:-1]
    assert imported == ""
    assert len(said) == 4
    for line in said:
        assert line.startswith(
            "Nothing here reads nowhere:// urls. Write file:///path or dbfs:/path"
        )
        assert "secret" not in line


def test_a_scheme_that_a_program_makes_known(monkeypatch):
    """To fsspec, or to streaming."""
    from fsspec.implementations.memory import MemoryFileSystem

    class Cellar(MemoryFileSystem):
        protocol = "cellar"

    fsspec.register_implementation("cellar", Cellar, clobber=True)
    with pytest.raises(DatasetNotFoundError):
        make_batch_reader("cellar://bucket/data")
    from streaming.base.storage import download

    class Attic(download.CloudDownloader):
        @staticmethod
        def _client_identifier():
            return "attic"

        def clean_up(self):
            pass

        def _download_file_impl(self, remote, local, timeout):
            raise FileNotFoundError(remote)

    monkeypatch.setitem(download.DOWNLOADER_MAPPINGS, "attic", Attic)
    with pytest.raises(DatasetNotFoundError, match="attic"):
        make_batch_reader("attic://bucket/data")


def test_a_store_whose_package_is_missing():
    with pytest.raises(ImportError, match=r"abfs:// urls needs a package.*pip install adlfs"):
        make_batch_reader("abfs://c@a/data")


@pytest.mark.parametrize(
    ("url", "error", "text"),
    [
        ("abfss://c@a.dfs.core.windows.net/x", ImportError, "abfss:// .*pip install adlfs"),
        ("wasbs://c@a.blob.core.windows.net/x", ValueError, "old driver. Write abfss://"),
        ("s3n://b/x", ValueError, "old driver. Write s3://"),
        ("hdfs://host:8020/x", ImportError, "libhdfs.*HADOOP_HOME"),
    ],
)
def test_a_driver_that_is_missing(url, error, text, monkeypatch):
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(error, match=text) as caught:
        make_batch_reader(url)
    assert "\n" not in str(caught.value)


def test_options_of_pyarrow():
    options = {"endpoint_override": "http://127.0.0.1:9", "access_key": "a"}
    with pytest.raises(TypeError, match=r"s3fs.S3FileSystem.*endpoint_url.*write key\.$"):
        make_batch_reader("s3://b/x", storage_options=options)


def test_a_cache_directory_that_cannot_be_made(dataset, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "below"))
    with pytest.raises(OSError, match=f"{CACHE_VARIABLE}={tmp_path}/file/below") as caught:
        make_batch_reader(dataset)
    assert isinstance(caught.value, DatasetError)


@pytest.mark.skipif(os.path.isdir("/Volumes"), reason="there are real volumes here")
def test_databricks_volumes_without_credentials(monkeypatch, tmp_path):
    pytest.importorskip("databricks.sdk", reason="it is what refuses")
    for name in list(os.environ):
        if name.startswith("DATABRICKS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for url in ("dbfs:/Volumes/main/data/x", "dbfs:///Volumes/main/data/x"):
        with pytest.raises(PermissionError, match="DATABRICKS_HOST and DATABRICKS_TOKEN") as caught:
            make_batch_reader(url)
        assert "default auth: cannot configure default credentials" in str(caught.value)


REQUEST = SimpleNamespace(real_url="http://host/x")


def error(name, text="words", bases=(Exception,), **attributes):
    return type(name, bases, attributes)(text)


@pytest.mark.filterwarnings(
    "error"
)  # before the exception for the real Petastorm, whose pattern fits us, too
@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (FileNotFoundError("b/x"), DatasetNotFoundError, "is not there"),
        (error("NotFound"), DatasetNotFoundError, "is not there"),
        (
            error("ClientError", response={"Error": {"Code": "NoSuchBucket"}}),
            DatasetNotFoundError,
            "or its bucket is not",
        ),
        (error("NoCredentialsError"), RemoteAccessError, "AWS_ACCESS_KEY_ID"),
        (
            error("ClientError", response={"Error": {"Code": "SignatureDoesNotMatch"}}),
            RemoteAccessError,
            "in every worker",
        ),
        (PermissionError("b/x"), RemoteAccessError, "No access to s3://b/x"),
        (error("HttpError", code=403), RemoteAccessError, "No access"),
        (error("HttpError", code={"a": 1}, status=None), RemoteError, "could not be read"),
        (ClientResponseError(REQUEST, (), status=403), RemoteAccessError, "No access"),
        (ClientResponseError(REQUEST, (), status=404), DatasetNotFoundError, "is not there"),
        (error("ConnectTimeoutError"), RemoteError, "could not be read"),
        (
            ValueError("default auth: cannot configure default credentials"),
            RemoteAccessError,
            "DATABRICKS_TOKEN",
        ),
    ],
)
def test_one_clear_error(raised, kind, text):
    explained = explain(raised, "s3://b/x")
    assert type(explained) is kind
    assert text in str(explained)
    assert "s3://b/x" in str(explained)
    assert type(raised).__name__ in str(explained)
    assert explain(explained, "s3://b/x") is explained
