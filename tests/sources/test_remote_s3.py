"""Remote datasets in a real object store: an S3 server on the loopback interface."""

import contextlib
import http.client
import http.server
import os
import pickle
import subprocess
import sys
import threading

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge._sources._far.fetch import UNKNOWN_SIZE, Extent, Fetch
from petastorm_bridge._sources._far.limits import (
    ATTEMPTS_VARIABLE,
    CACHE_VARIABLE,
    TIMEOUT_VARIABLE,
)
from petastorm_bridge._sources._far.stores import open_store
from petastorm_bridge._sources.open import open_source
from petastorm_bridge.errors import DatasetError, DatasetNotFoundError
from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.writer import ShardWriter
from petastorm_bridge.spark import make_spark_converter

boto3 = pytest.importorskip("boto3", reason="talks to the store")
moto_server = pytest.importorskip("moto.server", reason="is the store")
MDSWriter = pytest.importorskip("streaming", reason="its downloaders fetch the shards").MDSWriter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore.*"),
]

ROWS, SHARDS = 100, 3
BUCKET = "training"


@pytest.fixture(scope="module")
def server():
    """Endpoint URL of an S3 server."""
    store = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    host, port = store.get_host_and_port()
    yield f"http://{host}:{port}"
    store.stop()


@pytest.fixture
def client(server, monkeypatch, tmp_path):
    """A client of the store, which holds an empty bucket; the environment points there too."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "S3_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    point_to(server, monkeypatch)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "copies"))
    client = boto3.client("s3", endpoint_url=server)
    client.create_bucket(Bucket=BUCKET)
    yield client
    for item in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=item["Key"])
    client.delete_bucket(Bucket=BUCKET)
    client.close()


def point_to(endpoint, monkeypatch):
    monkeypatch.setenv("S3_ENDPOINT_URL", endpoint)  # streaming's name
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)  # botocore's, and so s3fs'
    # fsspec keeps file systems by their arguments, which the environment is none of.
    with contextlib.suppress(ImportError):
        fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture
def dataset(client, tmp_path):
    """URL of a dataset with 3 shards."""
    folder = tmp_path / "local"
    folder.mkdir()
    ids = np.arange(ROWS * SHARDS)
    table = pa.table({"id": ids, "x": ids / 2, "s": [f"text {i}" for i in ids]})
    writer = ShardWriter(
        table.schema, str(folder), prefix="shard", size_limit=1, min_rows=ROWS,
        compression="zstd:3", hashes=("sha1",),
    )  # fmt: skip
    for batch in table.to_batches(max_chunksize=ROWS):
        writer.write(batch)
    commit_dataset(str(folder), table.schema, writer.finish())
    return upload(client, folder, "data")


def upload(client, folder, prefix):
    for path in folder.rglob("*"):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(folder).as_posix()}"
            client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
    return f"s3://{BUCKET}/{prefix}"


def ids_of(url, **options):
    with make_batch_reader(url, shuffle_row_groups=False, **options) as reader:
        return np.concatenate([group.id for group in reader]).tolist()


def copies(tmp_path):
    return sorted(p.name for p in (tmp_path / "copies").rglob("*") if p.is_file())


SHARD_COPIES = [f"shard.{i:05}.mds.zstd" for i in range(SHARDS)]
ALL = list(range(ROWS * SHARDS))


@pytest.mark.smoke
def test_reads_what_was_written(dataset, client, tmp_path):
    assert ids_of(dataset, num_epochs=2) == ALL * 2
    for name in SHARD_COPIES:
        client.delete_object(Bucket=BUCKET, Key=f"data/{name}")
    assert ids_of(dataset) == ALL  # from the copies
    assert ids_of([f"{dataset}/shard.00001.mds.zstd"]) == ALL[ROWS : 2 * ROWS]
    assert [name for name in copies(tmp_path) if "shard." in name] == SHARD_COPIES


def test_storage_options_go_to_the_filesystem(dataset, server, monkeypatch, tmp_path):
    pytest.importorskip("s3fs", reason="takes the options")
    for name in ("S3_ENDPOINT_URL", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name)
    options = {"key": "a", "secret": "b", "client_kwargs": {"endpoint_url": server}}
    assert ids_of(dataset, storage_options=options) == ALL
    assert [name for name in copies(tmp_path) if "shard." in name] == SHARD_COPIES


@pytest.mark.parametrize("given", ["environment", "storage_options"])
def test_live_rows_of_a_delta_table_are_read_in_the_store(
    client, server, monkeypatch, tmp_path, given
):
    pytest.importorskip("s3fs", reason="reads the files")
    deltalake = pytest.importorskip("deltalake", reason="reads the log")
    for start in (0, 10):
        rows = pa.table({"id": np.arange(start, start + 8), "part": [1, 2] * 4})
        deltalake.write_deltalake(
            tmp_path / "t", rows, mode="overwrite", partition_by=["part"]
        )  # the first version's files stay
    url = upload(client, tmp_path / "t", "deep/t")
    options = None
    if given == "storage_options":
        for name in ("S3_ENDPOINT_URL", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID"):
            monkeypatch.delenv(name)
        region = {"endpoint_url": server, "region_name": "us-east-1"}
        options = {"key": "a", "secret": "b", "client_kwargs": region}
    else:
        converter = make_spark_converter(url)
        assert (len(converter), converter.file_urls) == (8, [f"{url}@v1"])
        with converter.make_torch_dataloader(num_epochs=1) as loader:
            assert sum(len(batch["id"]) for batch in loader) == 8
    for asked, expected in {
        url: range(10, 18),
        f"{url}@v0": range(8),
        f"{url}/part=2": range(11, 18, 2),
        f"{url}/part=2@v0": range(1, 8, 2),
    }.items():
        assert sorted(ids_of(asked, storage_options=options)) == list(expected)
    later = pa.table({"id": np.arange(20, 28), "part": [1, 2] * 4})
    deltalake.write_deltalake(tmp_path / "t", later, mode="overwrite", partition_by=["part"])
    upload(client, tmp_path / "t", "deep/t")
    assert sorted(ids_of(url, storage_options=options)) == list(range(20, 28))


@pytest.mark.parametrize("name", ["_delta_log/0.json", "metadata/v1.metadata.json"])
def test_a_directory_that_becomes_a_table_is_not_read_as_plain_files(client, tmp_path, name):
    """Listings that the store's package keeps are of the moment before."""
    pytest.importorskip("s3fs", reason="lists the files")
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    client.upload_file(str(tmp_path / "a.parquet"), BUCKET, "t/a.parquet")
    assert ids_of(f"s3://{BUCKET}/t") == [1, 2]
    client.put_object(Bucket=BUCKET, Key=f"t/{name}", Body=b"{}")
    with pytest.raises(DatasetError, match="table"):
        ids_of(f"s3://{BUCKET}/t")


def test_worker_processes_fetch_what_they_read(dataset, tmp_path):
    pytest.importorskip("s3fs", reason="fetches the shards here")

    def double(frame):
        return frame.assign(id=frame["id"] * 2)

    found = ids_of(
        dataset, reader_pool_type="process", workers_count=1,
        transform_spec=TransformSpec(double), storage_options={"use_listings_cache": False},
    )  # fmt: skip
    assert found == [2 * i for i in ALL]
    assert [name for name in copies(tmp_path) if "shard." in name] == SHARD_COPIES


def test_a_source_fetches_in_another_process_too(dataset):
    source = pickle.loads(pickle.dumps(open_source(dataset)))
    assert source.open(1).load(["id"], slice(0, 2))["id"].tolist() == [ROWS, ROWS + 1]


def test_processes_share_a_named_directory(dataset, tmp_path):
    pytest.importorskip("s3fs", reason="fetches the shards here")
    code = """
import sys
from petastorm_bridge import make_batch_reader
options = {"use_listings_cache": False}  # fsspec, which is imported faster than streaming
with make_batch_reader(sys.argv[1], storage_options=options) as reader:
    print(sum(int(group.id.sum()) for group in reader))
"""
    path = os.pathsep.join(p for p in sys.path if p)
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code, dataset],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        for _ in range(2)
    ]  # fmt: skip
    results = [process.communicate(timeout=300) for process in processes]
    assert [output for output, _ in results] == [f"{sum(ALL)}\n"] * 2, results
    assert [name for name in copies(tmp_path) if "shard." in name] == SHARD_COPIES


class Cutting(http.server.BaseHTTPRequestHandler):
    """Passes requests on, and closes the connection half-way through shards."""

    target = ""
    cut = 0  # how often to cut; counts down
    requests = 0

    def do_GET(self):
        cls = type(self)
        connection = http.client.HTTPConnection(self.target)
        connection.request(self.command, self.path, headers=dict(self.headers))
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"connection", "server", "date"}:
                self.send_header(name, value)
        self.end_headers()
        if ".mds" in self.path and self.command == "GET":
            cls.requests += 1
            if cls.cut:
                cls.cut -= 1
                body = body[: len(body) // 2]
                self.close_connection = True
        self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name http.server looks for

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def cutting_proxy(server, cut):
    handler = type(
        "Handler", (Cutting,), {"target": server.removeprefix("http://"), "cut": cut, "requests": 0}
    )
    with serving(handler) as endpoint:
        yield endpoint, handler


@contextlib.contextmanager
def serving(handler):
    """Endpoint URL of a server with a handler."""
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()


def test_a_connection_cut_short_is_made_again(dataset, server, monkeypatch):
    with cutting_proxy(server, cut=1) as (endpoint, handler):
        point_to(endpoint, monkeypatch)
        assert ids_of(dataset, reader_pool_type="dummy") == ALL
        assert handler.requests == SHARDS + 1


@pytest.mark.parametrize("with_options", [False, True])
def test_connections_always_cut_short_leave_no_copy(
    dataset, server, monkeypatch, tmp_path, with_options
):
    monkeypatch.setattr("petastorm_bridge._sources._far.errors._FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with cutting_proxy(server, cut=1000) as (endpoint, _):
        point_to(endpoint, monkeypatch)
        options = {"storage_options": {"use_listings_cache": False}} if with_options else {}
        with pytest.raises(DatasetError, match=r"s3://training/data/shard\.00000\.mds\.zstd"):
            ids_of(dataset, **options)
    assert not [name for name in copies(tmp_path) if "shard." in name]
    point_to(server, monkeypatch)
    assert ids_of(dataset) == ALL


def test_a_missing_bucket_or_dataset(client):
    for place in ("no-such-bucket/data", f"{BUCKET}/nothing-here"):
        for url in (f"s3://{place}", [f"s3://{place}/0.mds"], [f"s3://{place}/0.parquet"]):
            with pytest.raises(DatasetNotFoundError, match=place):
                make_batch_reader(url)


def test_missing_credentials(dataset, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for options in ({}, {"storage_options": {"use_ssl": False}}):
        with pytest.raises(
            PermissionError, match=r"No access to s3://training/data/.*AWS_ACCESS_KEY_ID"
        ):
            make_batch_reader(dataset, **options)


def test_wrong_credentials(dataset, server):
    host = server.removeprefix("http://")
    reset_auth(host, b"0")  # from now on the store looks at keys
    try:
        with pytest.raises(
            PermissionError, match=r"No access to .*(InvalidAccessKeyId|403|Forbidden)"
        ):
            make_batch_reader(dataset)
    finally:
        reset_auth(host, b"inf")


class Public(Cutting):
    """Passes on requests without credentials, and refuses those with some, as some public stores do."""

    refused: list[str]

    def do_GET(self):
        if "Authorization" not in self.headers:
            super().do_GET()
            return
        type(self).refused.append(self.path)
        self.send_response(400)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815 - the name http.server looks for


def test_a_public_store_that_refuses_credentials(dataset, client, server, monkeypatch):
    client.put_bucket_acl(Bucket=BUCKET, ACL="public-read")
    for item in client.list_objects_v2(Bucket=BUCKET)["Contents"]:
        client.put_object_acl(Bucket=BUCKET, Key=item["Key"], ACL="public-read")
    handler = type("Handler", (Public,), {"target": server.removeprefix("http://"), "refused": []})
    with serving(handler) as endpoint:
        point_to(endpoint, monkeypatch)
        assert ids_of(dataset) == ALL
        assert handler.refused
        assert not [path for path in handler.refused if ".mds" in path]  # no more with them


def test_streaming_is_not_imported(dataset):
    code = (
        "import sys; from petastorm_bridge import make_batch_reader\n"
        "with make_batch_reader(sys.argv[1], num_epochs=1) as reader: list(reader)\n"
        "print('streaming' in sys.modules, 'torch' in sys.modules)"
    )
    program = [sys.executable, "-W", "ignore", "-c", code, dataset]
    path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"PYTHONPATH": path}
    output = subprocess.run(
        program, check=True, capture_output=True, text=True, env=environment, timeout=300
    ).stdout
    assert output == "False False\n"


def reset_auth(host, after):
    connection = http.client.HTTPConnection(host)
    connection.request("POST", "/moto-api/reset-auth", body=after)
    assert connection.getresponse().status == 200
    connection.close()


def test_a_store_that_does_not_answer(dataset, monkeypatch):
    monkeypatch.setattr("petastorm_bridge._sources._far.errors._FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    point_to("http://127.0.0.1:9", monkeypatch)
    with pytest.raises(OSError, match=r"s3://training/data/index\.json could not be read.*127"):
        make_batch_reader(dataset)


class Stalling(http.server.BaseHTTPRequestHandler):
    """Answers nothing, or half of a body, and waits."""

    within_body = False
    requests: list[str]
    go_on: threading.Event

    def do_GET(self):
        self.requests.append(self.command)
        if self.within_body:
            self.send_response(200)
            for name, value in [
                ("Content-Length", "1000"), ("ETag", '"x"'),
                ("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT"),
            ]:  # fmt: skip
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            self.wfile.write(b"x" * 100)
            self.wfile.flush()
        self.go_on.wait(60)

    do_HEAD = do_GET  # noqa: N815 - the name http.server looks for

    def log_message(self, *args):
        pass


@pytest.mark.parametrize("within_body", [False, True])
@pytest.mark.parametrize("with_options", [False, True])
@pytest.mark.usefixtures("client")
def test_attempts_at_a_silent_store_are_counted_once(
    monkeypatch, tmp_path, caplog, within_body, with_options
):
    monkeypatch.setattr("petastorm_bridge._sources._far.errors._FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv(ATTEMPTS_VARIABLE, "2")
    monkeypatch.setenv(TIMEOUT_VARIABLE, "0.3")
    if with_options:
        pytest.importorskip("s3fs", reason="takes the options")
    handler = type(
        "Handler", (Stalling,),
        {"within_body": within_body, "requests": [], "go_on": threading.Event()},
    )  # fmt: skip
    with serving(handler) as endpoint:
        try:
            point_to(endpoint, monkeypatch)
            options = {"use_listings_cache": False} if with_options else None
            fetcher = open_store("s3://b/d", options)
            with pytest.raises(DatasetError, match=r"s3://b/d/x\.mds could not be read \(.*Time"):
                Fetch(fetcher, Extent("s3://b/d/x.mds", "x", UNKNOWN_SIZE)).to_file(
                    str(tmp_path / "x")
                )
        finally:
            handler.go_on.set()
    assert handler.requests.count("GET") == 2
    assert caplog.text.count("Attempt 1 of 2 failed") == 1


def test_what_streaming_wrote(client, tmp_path):
    """No hashes, no sidecar."""
    from streaming import MDSWriter

    for first in (0, 100):
        folder = tmp_path / f"from {first}"
        with MDSWriter(out=str(folder), columns={"id": "int64", "s": "str"}) as writer:
            for i in range(first, first + 10):
                writer.write({"id": np.int64(i), "s": f"text {i:03}"})
        url = upload(client, folder, "foreign")
        assert ids_of(url) == list(range(first, first + 10))


def test_parquet_in_place(client, tmp_path):
    pytest.importorskip("s3fs", reason="reads Parquet from the store")
    for key in ("a", "b"):
        path = tmp_path / "table" / f"k={key}" / "part 0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(
            pa.table({"id": np.arange(5), "n": [1, None, 2, 3, 4]}), path, row_group_size=3
        )
    url = upload(client, tmp_path / "table", "table")
    local = (tmp_path / "table").as_uri()

    def read(url, **options):
        with make_batch_reader(url, shuffle_row_groups=False, **options) as reader:
            return [(*(v.tolist() for v in group),) for group in reader]

    expected = read(local)
    assert [group[1] for group in expected] == [[0, 1, 2], [3, 4]] * 2
    assert repr(read(url)) == repr(expected)
    assert repr(read(url, reader_pool_type="process", workers_count=1)) == repr(expected)
    files = [f"{url}/k={key}/part 0.parquet" for key in ("b", "a")]
    assert [group[0] for group in read(files)] == [[0, 1, 2], [3, 4]] * 2
    assert copies(tmp_path)  # of the columns that were read


@pytest.mark.parametrize("written_by", ["us", "streaming"])
def test_a_converter_stands_on_a_dataset_in_the_store(
    client, dataset, written_by, tmp_path, caplog
):
    if written_by == "streaming":
        with MDSWriter(out=str(tmp_path / "stock"), columns={"id": "int64"}) as writer:
            for number in ALL:
                writer.write({"id": number})
        dataset = upload(client, tmp_path / "stock", "stock")
    converter = make_spark_converter(dataset)
    assert len(converter) == len(ALL)
    assert all(url.startswith(f"{dataset}/shard.") for url in converter.file_urls)
    converter = pickle.loads(pickle.dumps(converter))
    with converter.make_torch_dataloader(
        batch_size=7, num_epochs=1, shuffle_row_groups=False, schema_fields=["id"]
    ) as loader:
        assert [int(i) for batch in loader for i in batch["id"]] == ALL
    converter.delete()  # the user's own data
    assert f"Not deleting {dataset}: petastorm-bridge did not write it" in caplog.text
    assert len(make_spark_converter(dataset + "/")) == len(ALL)
