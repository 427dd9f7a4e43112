"""Petastorm's own tests of its row readers, codecs and loaders, with the import prefix changed.

As in `test_petastorm_suite.py`: the files are read from the petastorm wheel, and no line is kept here.
Modules of Petastorm that the bridge does not have stay Petastorm's. `row_exceptions.json` lists what
cannot pass, with the reason, and what fails with the real package in this environment as well.
"""

import functools
import importlib
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

HERE = Path(__file__).parent
FILES = {
    "rows": ("test_end_to_end", "test_reader", "test_predicates"),
    "ngrams": ("test_ngram", "test_ngram_end_to_end"),
    "schemas": (
        "test_codec_compressed_image", "test_codec_ndarray", "test_codec_scalar", "test_unischema",
        "test_transform", "test_end_to_end_predicates_impl",
    ),
    "batches": ("test_parquet_reader",),
    "loaders": (
        "test_pytorch_dataloader", "test_pytorch_utils", "test_tf_dataset", "test_tf_utils",
        "test_tf_autograph", "test_weighted_sampling_reader",
    ),
}  # fmt: skip
# In `make test` those that take a minute; all of them in `make test-all`, which asks Petastorm live.
QUICK = ("schemas", "ngrams")
PARTS = FILES if os.environ.get("PETASTORM_BRIDGE_PARITY") == "live" else QUICK
_IMPORT = re.compile(r"\bpetastorm(?:\.(\w+))?(?=[.\s'\"])")


LAST_PYARROW_OF_PETASTORM = 14
PRELUDE = """
import inspect

if not hasattr(inspect, "getargspec"):  # gone in Python 3.11, used by Petastorm's test helpers
    inspect.getargspec = inspect.getfullargspec
"""


def petastorm_tests():
    """The folder of Petastorm's tests."""
    spec = importlib.util.find_spec("petastorm")
    if spec is None or spec.origin is None:
        pytest.skip("petastorm is not installed in this environment")
    if int(pa.__version__.partition(".")[0]) > LAST_PYARROW_OF_PETASTORM:
        pytest.skip(f"petastorm cannot be imported beside pyarrow {pa.__version__}")
    return Path(spec.origin).with_name("tests")


def outcome_of(case):
    for child in case:
        if child.tag in {"failure", "error", "skipped"}:
            return child.tag, child.get("message") or child.text or ""
    return "passed", ""


@functools.cache
def is_offered(module):
    """Whether the bridge has a module of Petastorm's."""
    try:
        importlib.import_module(f"petastorm_bridge.{module}")
    except ImportError:
        return False
    return True


def swapped(source):
    """Source with the prefix changed where the bridge has the module."""

    def prefix(match):
        module = match.group(1)
        if module == "tests":
            return "row_tests"
        return (
            match.group().replace("petastorm", "petastorm_bridge", 1)
            if is_new(module)
            else match.group()
        )

    return _IMPORT.sub(prefix, source)


def is_new(module):
    return module is None or module in dir(petastorm_bridge) or is_offered(module)


def exceptions():
    entries = json.loads((HERE / "row_exceptions.json").read_text("utf-8"))
    return {test: entry for entry in entries for test in entry["tests"]}


def base(name):
    return name.partition("[")[0]


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A folder with the files, as a package."""
    folder = tmp_path_factory.mktemp("petastorm_rows")
    package = folder / "row_tests"
    package.mkdir()
    for path in petastorm_tests().glob("*.py"):
        source = path.read_text("utf-8")
        # Who writes is the bridge as soon as it writes indexes too; schemas and writer go together.
        if path.name != "test_common.py" or is_offered("etl"):
            source = swapped(source)
        (package / path.name).write_text(source.replace("petastorm.tests", "row_tests"), "utf-8")
    (folder / "sitecustomize.py").write_text(PRELUDE, "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    forked\n    timeout\n", "utf-8")
    return folder


def run(folder, files):
    report = folder / f"{files[0]}.xml"
    bridge = str(Path(petastorm_bridge.__file__).parents[1])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), bridge, os.environ.get("PYTHONPATH", "")]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    # Forked tests find TensorFlow's threads gone.
    options = [
        "-q",
        "-W",
        "ignore",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-p",
        "no:forked",
    ]
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--junitxml={report}"]
        + [f"row_tests/{name}.py" for name in files],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert report.exists(), finished.stdout[-3000:] + finished.stderr[-3000:]
    found = {}
    for case in ET.parse(report).iter("testcase"):
        file = case.get("classname", "").split(".")[1]
        found[f"{file}::{case.get('name', '')}"] = outcome_of(case)
    return found


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.tf
@pytest.mark.timeout(1700)
@pytest.mark.parametrize("part", PARTS)
def test_everything_passes_but_the_listed_exceptions(suite, part):
    outcomes = run(suite, FILES[part])
    listed = exceptions()
    failed = {
        name: text for name, (kind, text) in outcomes.items() if kind not in {"passed", "skipped"}
    }
    assert {n: t.splitlines()[:3] for n, t in failed.items() if base(n) not in listed} == {}
    files = FILES[part]
    mine = {n for n in listed if n.partition("::")[0] in files}
    assert mine <= set(map(base, outcomes)), "listed, but not there"
    stale = mine - set(map(base, failed))
    assert {n for n in stale if not listed[n].get("sometimes")} == set(), "listed, but it passes"
    # Of those that pass with the real package.
    ours = {n for n in failed if not listed[base(n)].get("real fails")}
    able = len(outcomes) - len(failed) + len(ours)
    print(f"{part}: {able - len(ours)} of {able} that the real package passes")


def test_every_exception_gives_a_reason():
    reasons = json.loads((HERE / "row_exceptions.json").read_text("utf-8"))
    assert all(len(entry["reason"]) > 40 for entry in reasons)
    assert all(isinstance(entry["tests"], list) for entry in reasons)


def test_prefixes_are_swapped_where_the_bridge_has_the_module():
    source = (
        "from petastorm import make_reader\nimport petastorm.codecs\n"
        "from petastorm.tests.test_common import x\nfrom petastorm.no_such_module import y\n"
        "@mock.patch('petastorm.unischema._UNISCHEMA_FIELD_ORDER', 'alphabetical')\n"
    )
    assert swapped(source) == (
        "from petastorm_bridge import make_reader\nimport petastorm_bridge.codecs\n"
        "from row_tests.test_common import x\nfrom petastorm.no_such_module import y\n"
        "@mock.patch('petastorm_bridge.unischema._UNISCHEMA_FIELD_ORDER', 'alphabetical')\n"
    )
