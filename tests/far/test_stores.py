"""What comes out of an S3 store: in pieces that fit the processor's cache, put right where a request is repeated."""

import numpy as np
import pytest
from far_datasets import write_numbers
from far_store import far_store, no_store_because

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources._far.s3 import PIECE_BYTES, S3Store
from petastorm_bridge.mds import codecs
from petastorm_bridge.pytorch import BatchedDataLoader

pytestmark = [
    pytest.mark.usefixtures("cache"),
    pytest.mark.skipif(no_store_because() is not None, reason=str(no_store_because())),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

ROWS, SHARDS, WIDTH = 1200, 2, 1024  # a shard takes 4.9 MB


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_numbers(tmp_path_factory.mktemp("near") / "data", ROWS, SHARDS, WIDTH)


@pytest.fixture
def store(folder, monkeypatch):
    with far_store(seconds=0.001) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        store.put(folder, "data")
        yield store


def first_shard(folder):
    return min(folder.glob("*.mds"))


def test_a_range_comes_in_pieces(store, folder):
    path = first_shard(folder)
    start, size = 1000, 3 * PIECE_BYTES + 7
    with S3Store().open(f"s3://{store.bucket}/data/{path.name}") as file:
        pieces = [bytes(piece) for piece in file(start, size)]
    assert b"".join(pieces) == path.read_bytes()[start : start + size]
    assert max(map(len, pieces)) <= PIECE_BYTES


def test_a_range_beyond_the_end_is_what_there_is(store, folder):
    path = first_shard(folder)
    size = path.stat().st_size
    with S3Store().open(f"s3://{store.bucket}/data/{path.name}") as file:
        assert sum(map(len, file(size - 10, 100))) == 10


@pytest.mark.parametrize("limit", ["1mb", "1gb"])  # into memory, into copies
def test_an_answer_that_is_cut_in_the_middle_is_asked_for_again(store, monkeypatch, limit, caplog):
    monkeypatch.setenv("PETASTORM_BRIDGE_LOCAL_CACHE_LIMIT", limit)
    store.fail(".mds", "short", times=3)
    reader = make_batch_reader(f"s3://{store.bucket}/data", shuffle_row_groups=False, num_epochs=1)
    with BatchedDataLoader(reader, batch_size=100) as loader:
        ids = np.concatenate([batch["id"].numpy() for batch in loader])
    assert ids.tolist() == list(range(ROWS * SHARDS))
    assert "Attempt 1 of 5 failed" in caplog.text


def test_names_with_marks_of_urls(store, folder):
    for name in ("run#2", "run?2", "a;b"):
        store.put(folder, name)
        url = f"s3://{store.bucket}/{name}"
        with make_batch_reader(url, shuffle_row_groups=False, num_epochs=1) as reader:
            ids = np.concatenate([group.id for group in reader])
        assert ids.tolist() == list(range(ROWS * SHARDS))


def test_each_hash_is_computed_once(store, monkeypatch):
    sizes = []
    compute = codecs.digest

    def counted(name, *parts):
        sizes.append(sum(map(len, parts)))
        return compute(name, *parts)

    monkeypatch.setattr(codecs, "digest", counted)
    for _ in range(2):
        with make_batch_reader(f"s3://{store.bucket}/data", num_epochs=1) as reader:
            assert sum(len(group.id) for group in reader) == ROWS * SHARDS
    assert len(sizes) == SHARDS
