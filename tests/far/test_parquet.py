"""Parquet far away: only the columns that are read, each byte once, in few large requests."""

import pickle

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from far_fsspec import far_fsspec
from far_mount import far_mount, no_mount_because
from far_store import far_store, no_store_because

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources._far.limits import ATTEMPTS_VARIABLE, LIMIT_VARIABLE
from petastorm_bridge._sources.open import open_source
from petastorm_bridge.errors import DatasetError

pytestmark = pytest.mark.usefixtures("cache")

ROWS, GROUPS, COLUMNS = 40_000, 4, 10


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """Two files of two row groups; a column takes 80 kB in a row group, or 8 MB with all."""
    folder = tmp_path_factory.mktemp("behind") / "data"
    folder.mkdir()
    random = np.random.default_rng(0)
    half = ROWS // 2
    for number in range(2):
        columns = {"id": np.arange(number * half, (number + 1) * half)}
        columns |= {f"c{i}": random.random(half * 10).reshape(half, 10).tolist() for i in range(2)}
        columns |= {f"d{i}": random.random(half) for i in range(COLUMNS)}
        pq.write_table(
            pa.table(columns), folder / f"{number}.parquet", half // 2, use_dictionary=False
        )
    return folder.parent


@pytest.fixture(params=["mount", "store"])
def far(request, behind, tmp_path):
    if request.param == "store":
        with far_fsspec(behind, seconds=0.005, bandwidth=1e9) as far:
            yield far, f"{far.url}/data"
    else:
        if no_mount_because():
            pytest.skip(no_mount_because())
        with far_mount(behind, tmp_path / "far", seconds=0.002, bandwidth=1e9) as far:
            yield far, f"file://{far.path}/data"


def ids_of(url, **options):
    with make_batch_reader(url, shuffle_row_groups=False, **options) as reader:
        return np.concatenate([group.id for group in reader]).tolist()


ALL = list(range(ROWS))


def size_of(folder):
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))


def test_rows_are_those_of_a_near_dataset(far, behind):
    found = []
    for each in (far[1], f"file://{behind}/data"):
        with make_batch_reader(each, shuffle_row_groups=False) as reader:
            found.append(list(reader))
    assert len(found[0]) == GROUPS
    for one, other in zip(*found, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            assert all(map(np.array_equal, mine, theirs))


def test_a_column_costs_what_it_takes(far, behind):
    place, url = far
    place.start_counting()
    assert ids_of(url, schema_fields=["id"]) == ALL
    size = size_of(behind / "data")
    assert place.counts()["bytes_read"] < 0.2 * size
    place.start_counting()
    assert ids_of(url, schema_fields=["id", "d1"], num_epochs=2) == ALL * 2
    assert place.counts()["bytes_read"] < 0.2 * size


def test_each_byte_is_fetched_once(far, behind):
    place, url = far
    place.start_counting()
    assert ids_of(url, num_epochs=2) == ALL * 2
    size = size_of(behind / "data")
    assert size * 0.9 < place.counts()["bytes_read"] < 1.2 * size  # footers are read as well
    place.start_counting()
    assert ids_of(url) == ALL
    assert place.counts()["bytes_read"] < 0.2 * size


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_without_room(far, behind, monkeypatch, pool, cache):
    monkeypatch.setenv(LIMIT_VARIABLE, "1kb")
    place, url = far
    if pool == "process" and url.startswith("far:"):
        pytest.skip("worker processes do not know the tests' scheme")
    place.start_counting()
    assert ids_of(url, reader_pool_type=pool, workers_count=2) == ALL
    assert place.counts()["bytes_read"] < 1.3 * size_of(behind / "data")
    assert not [path for path in cache.rglob("*") if path.is_file() and path.name != ".in-use"]


def test_a_file_that_is_written_again_is_fetched_again(tmp_path):
    folder = tmp_path / "behind" / "data"
    folder.mkdir(parents=True)
    for first in (0, 100):
        pq.write_table(pa.table({"id": np.arange(first, first + 50)}), folder / "0.parquet")
        with far_fsspec(tmp_path / "behind", seconds=0.001) as far:
            assert ids_of(f"{far.url}/data") == list(range(first, first + 50))


def read_with_faults(place, url, kind, times):
    with make_batch_reader(url, shuffle_row_groups=False) as reader:
        place.fail(".parquet", kind, times=times)
        assert np.concatenate([group.id for group in reader]).tolist() == ALL


def test_errors_that_pass_are_not_noticed(far):
    read_with_faults(*far, "error", times=3)


def test_a_store_that_answers_in_part_is_asked_again(behind):
    with far_fsspec(behind, seconds=0.005, bandwidth=1e9) as far:
        read_with_faults(far, f"{far.url}/data", "short", times=3)


@pytest.mark.skipif(no_mount_because() is not None, reason=str(no_mount_because()))
def test_a_mount_that_answers_in_part_is_asked_for_the_rest(behind, tmp_path):
    """Where Linux keeps pages, it fills them with zeros then, for any reader: FUSE forbids mounts such answers."""
    with far_mount(behind, tmp_path / "far", seconds=0.002, bandwidth=1e9, caching=False) as far:
        read_with_faults(far, f"file://{far.path}/data", "short", times=30)


def test_faults_that_stay_are_told(far, monkeypatch):
    monkeypatch.setenv(ATTEMPTS_VARIABLE, "2")
    place, url = far
    with make_batch_reader(url, shuffle_row_groups=False) as reader:
        place.fail("1.parquet", "error", times=10_000)
        next(reader)
        with pytest.raises(DatasetError, match=r"1\.parquet could not be read"):
            list(reader)


def test_a_source_pickles(far):
    _, url = far
    source = open_source(url).narrowed(["id"])
    again = pickle.loads(pickle.dumps(source))
    assert again.ahead is not None
    assert again.want(1) > 0
    assert again.open(1).load(["id"], slice(0, 2))["id"].tolist() == [
        ROWS // GROUPS,
        ROWS // GROUPS + 1,
    ]
    assert again.want(1) == 0


class TestPetastormsCache:
    """`cache_type="local-disk"` and what goes with it."""

    def settings(self, place, limit=10**9):
        return {
            "cache_type": "local-disk", "cache_location": str(place), "cache_size_limit": limit,
            "cache_row_size_estimate": 8,
        }  # fmt: skip

    def test_says_where_copies_stay(self, far, behind, tmp_path, cache):
        place, url = far
        assert ids_of(url, **self.settings(tmp_path / "mine")) == ALL
        assert not cache.exists()
        kept = sum(path.stat().st_size for path in (tmp_path / "mine").rglob("*") if path.is_file())
        assert kept > 0.9 * size_of(behind / "data")
        place.start_counting()
        assert ids_of(url, **self.settings(tmp_path / "mine")) == ALL
        assert place.counts()["bytes_read"] < 0.2 * size_of(behind / "data")

    def test_says_how_many(self, far, tmp_path):
        limit = 3_000_000
        assert ids_of(far[1], **self.settings(tmp_path / "mine", limit)) == ALL
        kept = sum(path.stat().st_size for path in (tmp_path / "mine").rglob("*") if path.is_file())
        assert 0 < kept <= limit

    def test_near_files_are_not_copied(self, behind, tmp_path):
        assert ids_of(f"file://{behind}/data", **self.settings(tmp_path / "mine")) == ALL
        assert not (tmp_path / "mine").exists()


@pytest.mark.skipif(no_store_because() is not None, reason=str(no_store_because()))
@pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore.*")
def test_a_store_is_asked_little_to_open_files(behind, monkeypatch):
    """A request takes 10 to 50 ms; listing where tables of other kinds have their logs took twenty of them."""
    with far_store(seconds=0.0) as store:
        store.put(behind)
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        fsspec.get_filesystem_class("s3").clear_instance_cache()  # they know another endpoint
        store.start_counting()
        with make_batch_reader(f"s3://{store.bucket}/data", num_epochs=1):
            pass
        counts = store.counts()
    assert 0 < counts["LIST"] + counts.get("HEAD", 0) <= 10
