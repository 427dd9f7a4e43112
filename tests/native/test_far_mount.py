"""Stock streaming reads a directory on a mount by way of this machine's copies: each byte once."""

import json
import os
import sys

import numpy as np
import pytest
import warm
from far_mount import far_mount, no_mount_because

boto3 = pytest.importorskip("boto3", reason="talks to the store")
moto_server = pytest.importorskip("moto.server", reason="is the store")

pytestmark = pytest.mark.filterwarnings("ignore")
needs_mount = pytest.mark.skipif(no_mount_because() is not None, reason=str(no_mount_because()))

ROWS = 600


@pytest.fixture
def behind(streaming, tmp_path):
    out = tmp_path / "behind" / "data"
    with streaming.MDSWriter(
        out=str(out), columns={"id": "int64"}, size_limit=1 << 11, hashes=["sha1"]
    ) as writer:
        for number in range(ROWS):
            writer.write({"id": np.int64(number)})
    return out


@pytest.fixture
def mount(behind, tmp_path):
    with far_mount(behind.parent, tmp_path / "far", seconds=0.002) as mount:
        yield mount


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PETASTORM_BRIDGE_LOCAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def ids(loader):
    return sorted(i for batch in loader for i in batch["id"].tolist())


def read_of_shards(mount):
    return {
        name.removeprefix("read "): size
        for name, size in mount.counts().items()
        if name.startswith("read ") and name.endswith(".mds")
    }


@needs_mount
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_shards_are_fetched_once(native, behind, mount, cache, loader, workers):
    directory = native.MdsDirectory(str(mount.path / "data"), ROWS)
    assert directory.remote == str(mount.path / "data")
    sizes = {path.name: path.stat().st_size for path in behind.glob("*.mds")}
    assert len(sizes) == 4
    mount.start_counting()
    assert ids(loader(directory, 50, num_workers=workers, shuffle=True)) == list(range(ROWS))
    assert read_of_shards(mount) == sizes
    mount.start_counting()
    assert ids(loader(directory, 50, num_workers=workers, shuffle=True)) == list(range(ROWS))
    assert read_of_shards(mount) == {}


READ = """
import importlib, json, sys
native = importlib.import_module(sys.argv[1])
from streaming import StreamingDataLoader, StreamingDataset
directory = native.MdsDirectory(sys.argv[2], 600)
dataset = StreamingDataset(remote=directory.remote, local=directory.local, shuffle=True, batch_size=10)
ids = [i for batch in StreamingDataLoader(dataset, batch_size=10) for i in batch["id"].tolist()]
print(json.dumps([dataset.streams[0].local, ids]), flush=True)
"""


@needs_mount
@pytest.mark.slow
def test_ranks_fetch_each_shard_once_for_both(native, behind, mount, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(READ)
    (tmp_path / "tmp").mkdir()
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    mount.start_counting()
    done = warm.run(
        [sys.executable, *launcher, str(script), native.__name__, str(mount.path / "data")],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path / "tmp")},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    (place,) = {place for place, _ in results}
    assert sorted(i for _, rows in results for i in rows) == list(range(ROWS))
    assert read_of_shards(mount) == {p.name: p.stat().st_size for p in behind.glob("*.mds")}
    assert place.startswith(str(tmp_path / "tmp"))
    assert not os.path.exists(place)  # the last of them deletes it


@needs_mount
def test_copies_are_not_for_mounts_that_refuse_modes(native, mount, tmp_path, monkeypatch):
    """Streaming sets modes when it copies, in threads whose failure its loaders wait for."""
    (tmp_path / "copies").mkdir()
    with far_mount(tmp_path / "copies", tmp_path / "other", seconds=0, refusing=True) as other:
        monkeypatch.setenv("PETASTORM_BRIDGE_LOCAL_CACHE", str(other.path))
        directory = native.MdsDirectory(str(mount.path / "data"), ROWS)
        with pytest.raises(OSError, match=r"takes no file modes: .* PETASTORM_BRIDGE_LOCAL_CACHE"):
            _ = directory.local
        directory.delete_copies()  # as an exit does it


@needs_mount
@pytest.mark.slow
def test_copies_go_to_a_mount_that_takes_them(native, streaming, mount, tmp_path, monkeypatch):
    """A cluster may have no other disk."""
    (tmp_path / "copies").mkdir()
    with far_mount(tmp_path / "copies", tmp_path / "other", seconds=0) as other:
        monkeypatch.setenv("PETASTORM_BRIDGE_LOCAL_CACHE", str(other.path))
        directory = native.MdsDirectory(str(mount.path / "data"), ROWS)
        dataset = streaming.StreamingDataset(
            remote=directory.remote, local=directory.local, shuffle=False, batch_size=1
        )
        assert [int(sample["id"]) for sample in dataset] == list(range(ROWS))


@pytest.fixture
def stored(behind, monkeypatch, tmp_path):
    """The directory in a store, as its URL, and what removes the shards there."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name in [name for name in os.environ if name.startswith(("AWS_", "S3_"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "S3_ENDPOINT_URL": f"http://{host}:{port}",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}")
    client.create_bucket(Bucket="training")
    for path in behind.iterdir():
        client.put_object(Bucket="training", Key=f"data/{path.name}", Body=path.read_bytes())

    def remove_shards():
        for path in behind.glob("*.mds"):
            client.delete_object(Bucket="training", Key=f"data/{path.name}")

    yield "s3://training/data", remove_shards
    client.close()
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_store(native, stored, cache, loader, workers):
    url, remove_shards = stored
    directory = native.MdsDirectory(url, ROWS)
    assert directory.remote == url
    assert ids(loader(directory, 50, num_workers=workers, shuffle=True)) == list(range(ROWS))
    remove_shards()
    assert ids(loader(directory, 50, num_workers=workers, shuffle=True)) == list(range(ROWS))
