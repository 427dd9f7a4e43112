"""The pytest plugin, as a project that has the package installed meets it."""

import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
from parity_tables import batches, columns, flipped

from petastorm_bridge.parity import assert_same_batches

TESTS = """
import numpy as np
import pytest
from petastorm_bridge.parity import assert_same_batches

def loader(n=10, wrong=0):
    ids = np.arange(n)
    for start in range(0, n, 4):
        yield {"id": ids[start : start + 4], "x": ids[start : start + 4] / 3 + wrong}

def test_same():
    assert_same_batches(loader(), loader())

def test_different():
    assert_same_batches(loader(), loader(wrong=1e-9))

def test_recorded(parity):
    recorded = parity.record(loader)
    assert parity.assert_same(recorded, loader()).same

@pytest.mark.parity(order="shuffled", tolerances={})
class TestMarked:
    def test_shuffled(self, parity):
        parity.assert_same(loader(), list(loader(8))[::-1] + list(loader())[2:])

    @pytest.mark.parity(order="exact")
    def test_innermost(self, parity):
        parity.assert_same(loader(8), list(loader(8))[::-1])

def test_golden(parity):
    parity.check(loader, "digits")
"""


def run(folder, *arguments):
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"),
            *("-W", "error", "--strict-markers", *arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


@pytest.fixture
def project(tmp_path):
    (tmp_path / "test_loader.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_the_entry_point_is_declared():
    points = metadata.entry_points(group="pytest11")
    assert "petastorm_bridge.parity.pytest_plugin" in {point.value for point in points}


@pytest.mark.smoke
@pytest.mark.slow
def test_a_project_uses_it(project):
    done = run(project, "--parity-record", "-k", "golden")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert (project / "golden" / "digits" / "manifest.json").is_file()
    done = run(project)
    lines = done.stdout.splitlines()
    failed = sorted(line.split(" ")[1] for line in lines if line.startswith("FAILED"))
    assert failed == [
        "test_loader.py::TestMarked::test_innermost",
        "test_loader.py::test_different",
    ], done.stdout + done.stderr
    assert "4 passed" in lines[-1]
    assert "[values] column 'x' differs in 10 rows" in done.stdout
    assert "expected: 0.0" in done.stdout
    (project / "test_loader.py").write_text(TESTS.replace("check(loader,", "check(loader(9),"))
    done = run(project, "-k", "golden")
    assert "[count] 1 row too few on loader" in done.stdout
    assert "digits: id=9, x=3.0" in done.stdout


def test_a_missing_recording_is_named(project):
    done = run(project, "-k", "golden")
    assert "there is no recording" in done.stdout
    assert "1 failed" in done.stdout


def test_starting_pytest_loads_nothing_else():
    code = (
        "import sys; import petastorm_bridge.parity.pytest_plugin\n"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'rich', 'torch', 'typer', 'tensorflow', 'streaming'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_message_tells_where_they_part():
    table = columns()
    assert assert_same_batches(batches(table), batches(table)).same
    with pytest.raises(AssertionError) as caught:
        assert_same_batches(batches(table), batches(flipped(table, "image", 30, 9)), order="exact")
    message = str(caught.value)
    assert "column 'image' differs in 1 row" in message
    assert f"expected: [0, 1]: {table['image'][30, 0, 1]}" in message
    assert "\x1b" not in message
    rows = np.arange(60)[::-1]
    assert_same_batches(
        batches(table), batches({n: c[rows] for n, c in table.items()}), order="shuffled"
    )
