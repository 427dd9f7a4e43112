"""Petastorm's own tests of what writes its datasets, with nothing changed but the import prefix.

Its helpers are swapped too, so that the datasets under test are written by the bridge. In `make test` those
files run that start no Spark; all of them in `make test-all`, which asks Petastorm live.
"""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow as pa
import pytest

import petastorm_bridge

HELPERS = ("__init__", "conftest", "tempdir", "test_common")
QUICK = ("test_decode_row", "test_run_in_subprocess")
LONG = (
    "test_copy_dataset",
    "test_dataset_metadata",
    "test_generate_metadata",
    "test_metadata_read",
    "test_spark_session_cli",
    "test_spark_utils",
)
# Why a test fails; Petastorm itself fails these beside the pyarrow that it runs with.
EXCEPTIONS = dict.fromkeys(
    ("test_regenerate_metadata", "test_regenerate_using_row_group_summary_metadata"),
    "asks a ParquetDataset for attributes of the one that pyarrow 14 no longer makes by default",
)
LAST_PYARROW_OF_PETASTORM = 14
PREFIX = re.compile(r"\bpetastorm(?=\.(?!tests\b)|\s+import\b)")
PRELUDE = """
import inspect

if not hasattr(inspect, "getargspec"):  # gone in Python 3.11, used by Petastorm's test helpers
    inspect.getargspec = inspect.getfullargspec
"""


def their_tests():
    """The folder of Petastorm's tests."""
    spec = importlib.util.find_spec("petastorm")
    if spec is None or spec.origin is None:
        pytest.skip("petastorm is not installed in this environment")
    if int(pa.__version__.partition(".")[0]) > LAST_PYARROW_OF_PETASTORM:
        pytest.skip(f"petastorm cannot be imported beside pyarrow {pa.__version__}")
    return Path(spec.origin).with_name("tests")


def swapped(source):
    return PREFIX.sub("petastorm_bridge", source).replace("petastorm.tests.", "their_tests.")


def names_of_tests(source):
    return {
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What became of each test, and the names of all."""
    theirs = their_tests()
    chosen = QUICK + (LONG if os.environ.get("PETASTORM_BRIDGE_PARITY") == "live" else ())
    folder = tmp_path_factory.mktemp("datasets")
    (folder / "their_tests").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    names = set()
    for name in (*HELPERS, *chosen):
        source = swapped((theirs / f"{name}.py").read_text("utf-8"))
        if name in chosen:
            names |= names_of_tests(source)
        prelude = PRELUDE if name == "conftest" else ""
        (folder / "their_tests" / f"{name}.py").write_text(prelude + source, "utf-8")
    report = folder / "report.xml"
    bridge = str(Path(petastorm_bridge.__file__).parents[1])
    path = os.pathsep.join([bridge, str(folder), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    finished = subprocess.run(
        [*command, f"--junitxml={report}", "--pyargs", str(folder / "their_tests")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert report.exists(), finished.stdout[-3000:] + finished.stderr[-3000:]
    found = {}
    for case in ET.parse(report).iter("testcase"):
        bad = [child for child in case if child.tag in {"failure", "error", "skipped"}]
        found[case.get("name", "").partition("[")[0]] = bad[0].get("message", "") if bad else None
    return found, names


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1600)
class TestPetastormsTestsOfDatasets:
    def test_everything_passes_but_the_listed_exceptions(self, outcomes):
        found, _ = outcomes
        failed = {name: text for name, text in found.items() if text is not None}
        assert failed.keys() == EXCEPTIONS.keys() & found.keys(), failed

    def test_all_of_them_ran(self, outcomes):
        found, names = outcomes
        assert found.keys() == names
        assert len(names) >= 5
