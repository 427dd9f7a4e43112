"""Petastorm's own converter tests, with nothing changed but the import prefix.

The test file ships in the petastorm wheel and is read from there; no line of it is kept here. It
runs in a process of its own, because it starts and stops Spark sessions and patches modules.
`exceptions.json` lists the tests that cannot pass, with the reason; one that passes nevertheless is
an error, and so is one that does not exist.
"""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow as pa
import pytest

import petastorm_bridge

EXCEPTIONS = {
    entry["test"]: entry["reason"]
    for entry in json.loads(Path(__file__).with_name("exceptions.json").read_text("utf-8"))
}
TESTS_IN_PETASTORM_0_13 = 30
LAST_PYARROW_OF_PETASTORM = 14

# The prefix in imports, in strings for mock.patch and in the code of subprocesses, but not in
# petastorm.tests.*, whose helpers the test file borrows, nor in a word among data.
PREFIX = re.compile(r"\bpetastorm(?=\.(?!tests\b)|\s+import\b)")

PRELUDE = """
import inspect

if not hasattr(inspect, "getargspec"):  # gone in Python 3.11, used by Petastorm's test helpers
    inspect.getargspec = inspect.getfullargspec
"""


def petastorm_tests() -> Path:
    """The folder of Petastorm's tests."""
    spec = importlib.util.find_spec("petastorm")
    if spec is None or spec.origin is None:
        pytest.skip("petastorm is not installed in this environment")
    if int(pa.__version__.partition(".")[0]) > LAST_PYARROW_OF_PETASTORM:
        pytest.skip(f"petastorm cannot be imported beside pyarrow {pa.__version__}")
    return Path(spec.origin).with_name("tests")


def with_prefix_swapped(source: str) -> str:
    return PREFIX.sub("petastorm_bridge", source)


def fixture_source(conftest: str) -> str:
    """The Spark fixture of Petastorm's conftest and what it needs, without the other fixtures."""
    wanted = {"SparkTestContext", "spark_test_ctx"}
    kept = [
        node
        for node in ast.parse(conftest).body
        if (isinstance(node, ast.Import) and node.names[0].name != "six")
        or (isinstance(node, ast.ImportFrom) and "petastorm.tests" not in str(node.module))
        or getattr(node, "name", None) in wanted
    ]
    return ast.unparse(ast.Module(kept, type_ignores=[]))


def outcome_of(case: ET.Element) -> tuple[str, str]:
    for child in case:
        if child.tag in {"failure", "error", "skipped"}:
            return child.tag, child.get("message") or child.text or ""
    return "passed", ""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, tuple[str, str]]:
    tests = petastorm_tests()
    folder = tmp_path_factory.mktemp("petastorm_suite")
    source = (tests / "test_spark_dataset_converter.py").read_text("utf-8")
    (folder / "test_spark_dataset_converter.py").write_text(with_prefix_swapped(source), "utf-8")
    conftest = fixture_source((tests / "conftest.py").read_text("utf-8"))
    (folder / "conftest.py").write_text(PRELUDE + with_prefix_swapped(conftest), "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    report = folder / "report.xml"
    bridge = str(Path(petastorm_bridge.__file__).parents[1])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([bridge, os.environ.get("PYTHONPATH", "")]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    finished = subprocess.run(
        [*command, f"--junitxml={report}", str(folder)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    # Judged by what it reported: Petastorm's helpers may abort the process after the last test.
    assert report.exists(), finished.stdout[-3000:] + finished.stderr[-3000:]
    cases = ET.parse(report).iter("testcase")
    return {case.get("name", ""): outcome_of(case) for case in cases}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.tf
@pytest.mark.timeout(1600)
class TestPetastormsOwnSuite:
    def test_everything_passes_but_the_listed_exceptions(self, outcomes):
        failed = {
            name: message.splitlines()[:3]
            for name, (outcome, message) in outcomes.items()
            if outcome != "passed" and name not in EXCEPTIONS
        }
        assert failed == {}

    def test_the_whole_file_ran(self, outcomes):
        assert len(outcomes) == TESTS_IN_PETASTORM_0_13

    @pytest.mark.parametrize("name", EXCEPTIONS)
    def test_every_listed_exception_exists_and_still_fails(self, outcomes, name):
        assert outcomes[name][0] == "failure", f"{name} passes or is gone: remove it from the list"


def test_every_exception_gives_a_reason():
    assert all(len(reason) > 40 for reason in EXCEPTIONS.values())


def test_the_prefix_is_swapped_in_code_and_patches_but_not_in_data_or_test_helpers():
    source = (
        "from petastorm import make_batch_reader\n"
        "from petastorm.spark import spark_dataset_converter\n"
        "from petastorm.tests.test_tf_utils import create_tf_graph\n"
        "@mock.patch('petastorm.spark.spark_dataset_converter.make_batch_reader')\n"
        "row = (1, 'petastorm')\n"
        "petastorm_args = 1\n"
    )
    assert with_prefix_swapped(source) == (
        "from petastorm_bridge import make_batch_reader\n"
        "from petastorm_bridge.spark import spark_dataset_converter\n"
        "from petastorm.tests.test_tf_utils import create_tf_graph\n"
        "@mock.patch('petastorm_bridge.spark.spark_dataset_converter.make_batch_reader')\n"
        "row = (1, 'petastorm')\n"
        "petastorm_args = 1\n"
    )


def test_only_the_spark_fixture_is_taken_from_the_conftest():
    conftest = (
        "import os\nfrom petastorm.tests.test_common import x\nfrom petastorm.spark import y\n"
        "def pytest_logger_config(c): pass\nclass SparkTestContext: pass\n"
        "@pytest.fixture\ndef spark_test_ctx(): pass\n@pytest.fixture\ndef other(): pass\n"
    )
    taken = fixture_source(conftest)
    assert "petastorm.tests" not in taken
    assert "pytest_logger_config" not in taken
    assert "other" not in taken
    assert "import os" in taken
    assert "from petastorm.spark import y" in taken
    assert "@pytest.fixture\ndef spark_test_ctx" in taken
