"""Stock streaming reads a directory on a mount by way of this machine's copies: each byte once."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import warm
from far_mount import far_mount, no_mount_because
from far_store import far_store, no_store_because

pytestmark = pytest.mark.filterwarnings("ignore")
needs_mount = pytest.mark.skipif(no_mount_because() is not None, reason=str(no_mount_because()))

# Both forms have the same code for copies on this machine.
ONE_FORM = pytest.mark.parametrize("native", ["copied"], indirect=True)

ROWS = 600
SCRIPT = Path(__file__).parent / "run_reader.py"


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


@pytest.mark.modern
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


@pytest.mark.modern
@needs_mount
@pytest.mark.slow
@ONE_FORM
def test_ranks_fetch_each_shard_once_for_both(native, behind, mount, tmp_path):
    (tmp_path / "tmp").mkdir()
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    mount.start_counting()
    done = warm.run(
        [sys.executable, *launcher, str(SCRIPT), native.__name__, str(mount.path / "data")],
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


@pytest.mark.modern
@needs_mount
@pytest.mark.slow
@ONE_FORM
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


@pytest.mark.slow
@pytest.mark.skipif(no_store_because() is not None, reason=str(no_store_because()))
@pytest.mark.parametrize("workers", [0, 2])
@ONE_FORM
def test_a_store(native, behind, cache, loader, monkeypatch, workers):
    with far_store(seconds=0.002) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        directory = native.MdsDirectory(store.put(behind, "data"), ROWS)
        assert directory.remote == f"s3://{store.bucket}/data"
        assert ids(loader(directory, 50, num_workers=workers, shuffle=True)) == list(range(ROWS))
        store.start_counting()
        assert ids(loader(directory, 50, num_workers=workers, shuffle=True)) == list(range(ROWS))
        assert not [name for name in store.counts() if name.startswith("read ") and ".mds" in name]
