"""The far places that tests read: late as they say, counted, and wrong where that is ordered."""

import contextlib
import http.client
import os
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import far_mount as far_mount_module
import fsspec
import pytest
from far_fsspec import far_fsspec
from far_mount import far_mount, no_mount_because
from far_store import far_store, no_store_because

SECONDS, SIZE = 0.05, 300_000


def read_mount(mount, name, start=0, stop=SIZE):
    """Read a range as a program does that asks once."""
    with open(mount.path / name, "rb", buffering=0) as file:
        data = os.pread(file.fileno(), stop - start, start)
    assert len(data) == stop - start, "an end in mid-range"
    return data


def read_store(store, name, start=0, stop=SIZE):
    wanted = {"Range": f"bytes={start}-{stop - 1}", "Authorization": "AWS4-HMAC-SHA256 Credential="
              "testing/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"}  # fmt: skip
    request = urllib.request.Request(f"{store.endpoint}/{store.bucket}/{name}", headers=wanted)
    with urllib.request.urlopen(request, timeout=2) as answer:
        return answer.read()


def read_fsspec(place, name, start=0, stop=SIZE):
    data = fsspec.filesystem("far").cat_file(f"{place.url}/{name}", start, stop)
    assert len(data) == stop - start, "an end in mid-range"
    return data


@contextlib.contextmanager
def mounted(behind, folder):
    with far_mount(behind, folder / "mounted", seconds=SECONDS) as mount:
        yield mount, read_mount


@contextlib.contextmanager
def stored(behind, folder):
    with far_store(seconds=SECONDS) as store:
        store.put(behind)
        yield store, read_store


@contextlib.contextmanager
def shown(behind, folder):
    with far_fsspec(behind, seconds=SECONDS) as place:
        yield place, read_fsspec


def unless(reason):
    return pytest.mark.skipif(reason is not None, reason=str(reason))


MOUNT = pytest.param(mounted, marks=unless(no_mount_because()), id="mount")
STORE = pytest.param(stored, marks=unless(no_store_because()), id="store")
FSSPEC = pytest.param(shown, id="fsspec")
PLACES = pytest.mark.parametrize("kind", [MOUNT, STORE, FSSPEC])


@pytest.fixture
def behind(tmp_path):
    folder = tmp_path / "behind"
    folder.mkdir()
    for name in ("one", "other"):
        (folder / name).write_bytes(os.urandom(SIZE))
    return folder


@PLACES
def test_answers_are_late_and_counted(kind, behind, tmp_path):
    with kind(behind, tmp_path) as (place, read):
        place.start_counting()
        begun = time.monotonic()
        assert read(place, "one") == (behind / "one").read_bytes()
        assert time.monotonic() - begun > SECONDS
        counts = place.counts()
        assert counts["bytes_read"] == counts["read one"] == SIZE
        assert read(place, "one", 1000, 3000) == (behind / "one").read_bytes()[1000:3000]
        assert "read other" not in place.counts()
        place.start_counting()
        assert not place.counts().get("bytes_read")


@pytest.mark.parametrize("kind", [MOUNT, STORE])
def test_requests_at_once_are_no_longer_chain_than_one(kind, behind, tmp_path):
    (behind / "large").write_bytes(bytes(1 << 20))
    with kind(behind, tmp_path) as (place, read):
        chains = []
        for at_once in (1, 8):
            place.start_counting()
            with ThreadPoolExecutor(at_once) as pool:
                starts = range(0, 1 << 20, 1 << 17)
                list(pool.map(lambda start: read(place, "large", start, start + 1000), starts))
            chains.append(place.counts()["in_sequence"])
        assert chains[0] >= 8 > chains[1]


@PLACES
@pytest.mark.parametrize("fault", ["error", "short", "missing"])
def test_faults_pass_and_are_of_the_file_that_is_named(kind, fault, behind, tmp_path):
    with kind(behind, tmp_path) as (place, read):
        place.fail("one", fault, times=4)
        assert read(place, "other") == (behind / "other").read_bytes()
        failed = 0
        data = b""
        while failed <= 4 and not data:
            try:
                data = read(place, "one")
            except (OSError, AssertionError, http.client.HTTPException):
                failed += 1
        # The kernel asks a mount again by itself.
        assert failed == 4 or (kind is mounted and 0 < failed < 4)
        assert data == (behind / "one").read_bytes()


@unless(no_store_because())
def test_a_store_that_is_busy_or_silent_or_has_another_object(behind, tmp_path):
    with stored(behind, tmp_path) as (store, read):
        store.fail("one", "busy")
        with pytest.raises(OSError, match="503"):
            read(store, "one")
        store.fail("one", "silent")
        with pytest.raises(TimeoutError):
            read(store, "one")
        before = store.client().head_object(Bucket=store.bucket, Key="one")["ETag"]
        store.fail("one", "replaced")
        first, second = read(store, "one"), read(store, "one")
        assert first == second != (behind / "one").read_bytes()
        assert store.client().head_object(Bucket=store.bucket, Key="one")["ETag"] != before


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.parametrize("kind", [MOUNT, FSSPEC])
def test_a_silent_file_keeps_whoever_asks_waiting(kind, behind, tmp_path):
    with kind(behind, tmp_path) as (place, read):
        place.fail("one", "silent")
        opened = "fsspec.open(sys.argv[1]).open()" if kind is shown else "open(sys.argv[1], 'rb')"
        program = f"import sys, fsspec; print({opened}.read()[:1])"
        name = f"{place.url}/one" if kind is shown else str(place.path / "one")
        command = [sys.executable, "-c", program, name]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as waiting:
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(3)
            waiting.kill()
        assert read(place, "other") == (behind / "other").read_bytes()


def test_other_processes_know_the_scheme(behind, tmp_path):
    with shown(behind, tmp_path) as (place, _):
        place.start_counting()
        program = "import sys, fsspec; print(len(fsspec.open(sys.argv[1]).open().read()))"
        done = subprocess.run(
            [sys.executable, "-c", program, f"{place.url}/one"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **place.environment},
        )
        assert int(done.stdout) == SIZE
        assert place.counts()["read one"] == SIZE


@pytest.mark.parametrize("kind", [MOUNT, STORE])
def test_nothing_of_a_place_is_left(kind, behind, tmp_path):
    before = children()
    with kind(behind, tmp_path):
        assert children() > before
    assert children() == before
    assert not os.path.ismount(tmp_path / "mounted")


@unless(no_mount_because())
def test_a_mount_goes_with_the_process_that_made_it(behind, tmp_path):
    program = "import sys, time, far_mount, pathlib; paths = map(pathlib.Path, sys.argv[1:]);\n"
    program += "with far_mount.far_mount(*paths): print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", program, str(behind), str(tmp_path / "mounted")]
    helpers = {"PYTHONPATH": str(Path(far_mount_module.__file__).parent)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **helpers}) as maker:
        maker.stdout.readline()
        assert os.path.ismount(tmp_path / "mounted")
        maker.kill()
    until = time.monotonic() + 30
    while os.path.ismount(tmp_path / "mounted"):
        assert time.monotonic() < until
        time.sleep(0.05)


def children():
    import psutil

    return {child.pid for child in psutil.Process().children()}
