"""Stock streaming reads a directory in a store, with worker processes that were forked."""

from pathlib import Path

import numpy as np
import pytest
from far_store import far_store, no_store_because

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(no_store_because() is not None, reason=str(no_store_because())),
]
ROWS = 600


def test_workers_do_not_share_the_connection_of_the_index(
    native, streaming, loader, tmp_path, monkeypatch
):
    out = tmp_path / "data"
    with streaming.MDSWriter(out=str(out), columns={"id": "int64"}, size_limit=1 << 11) as writer:
        for number in range(ROWS):
            writer.write({"id": np.int64(number)})
    monkeypatch.setenv("PETASTORM_BRIDGE_LOCAL_CACHE", str(tmp_path / "cache"))
    with far_store(seconds=0.03) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        directory = native.MdsDirectory(store.put(out, "data"), ROWS)
        batches = loader(directory, 16, num_workers=4)
        assert sorted(i for batch in batches for i in batch["id"].tolist()) == list(range(ROWS))


def test_the_bridge_asks_once_for_an_index(tmp_path, monkeypatch):
    """Arrow, which the copied module has, asks for its size first."""
    native = pytest.importorskip("petastorm_bridge.native")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "index.json").write_text('{"version": 2, "shards": []}')
    monkeypatch.setenv("PETASTORM_BRIDGE_LOCAL_CACHE", str(tmp_path / "cache"))
    with far_store(seconds=0.001) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        url = store.put(tmp_path / "data", "data")
        store.start_counting()
        assert len(native.MdsDirectory(url)) == 0
        assert store.counts()["asked data/index.json"] == 1
        store.start_counting()
        place = Path(native.MdsDirectory(url, 0).local)
        assert store.counts()["asked data/index.json"] == 1
    index = tmp_path / "data" / "index.json"
    assert (place / "index.json").read_bytes() == index.read_bytes()
