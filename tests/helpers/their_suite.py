"""Petastorm's own tests, with nothing changed but the import prefix, or with nothing changed at all.

The files ship in Petastorm's wheel and are read from there; no line of them is kept here. They run in a
process of their own, because they start and stop Spark sessions and patch modules.
"""

import functools
import importlib
import importlib.util
import json
import os
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
import warm

import petastorm_bridge

HERE = Path(__file__).parents[1] / "against_petastorm" / "their_suite"
ORIGINAL = HERE / "original.json"
PACKAGE = "swapped_tests"
LAST_PYARROW_OF_PETASTORM = 14

PARTS = {
    "rows": ("test_end_to_end", "test_reader", "test_predicates", "test_reader_mock"),
    "ngrams": ("test_ngram", "test_ngram_end_to_end"),
    "schemas": (
        "test_codec_compressed_image", "test_codec_ndarray", "test_codec_scalar", "test_unischema",
        "test_transform", "test_end_to_end_predicates_impl", "test_decode_row", "test_run_in_subprocess",
    ),
    "batches": ("test_parquet_reader",),
    "loaders": (
        "test_pytorch_dataloader", "test_pytorch_utils", "test_tf_dataset", "test_tf_utils",
        "test_tf_autograph", "test_weighted_sampling_reader",
    ),
    "datasets": (
        "test_copy_dataset", "test_dataset_metadata", "test_generate_metadata", "test_metadata_read",
        "test_spark_session_cli", "test_spark_utils",
    ),
    "converter": ("test_spark_dataset_converter",),
}  # fmt: skip

NOT_RUN = {
    "test_arrow_table_serializer": "of how Petastorm's processes talk to one another",
    "test_pickle_serializer": "of how Petastorm's processes talk to one another",
    "test_benchmark": "of Petastorm's tool that measures throughput, which is not offered",
    "test_cache": "of caches; there is none, and asking for one has no effect",
    "test_disk_cache": "of caches; there is none, and asking for one has no effect",
    "test_fs_utils": "of HDFS name nodes by mocks of pyarrow.hdfs, which pyarrow no longer has",
    "test_reading_legacy_datasets": "reads datasets that the wheel does not have",
    "test_shuffling_buffer": "of the buffers within Petastorm's loaders",
}
"""Files of Petastorm's that no part has, and what they are about."""

PRELUDE = """
import inspect

if not hasattr(inspect, "getargspec"):  # gone in Python 3.11, used by Petastorm's test helpers
    inspect.getargspec = inspect.getfullargspec
"""
# A test of Petastorm's that hangs has failed, and its threads are not waited for.
_SECONDS = 600
_RUN = (
    "import os, sys, pytest; code = pytest.main(sys.argv[1:]); sys.stdout.flush(); os._exit(code)"
)
# Not the word among data: 'petastorm'.
_IMPORT = re.compile(r"\bpetastorm(?:\.(\w+)|(?=\s))")


def petastorm_tests():
    """The folder of Petastorm's tests."""
    spec = importlib.util.find_spec("petastorm")
    if spec is None or spec.origin is None:
        pytest.skip("petastorm is not installed in this environment")
    if int(pa.__version__.partition(".")[0]) > LAST_PYARROW_OF_PETASTORM:
        pytest.skip(f"petastorm cannot be imported beside pyarrow {pa.__version__}")
    return Path(spec.origin).with_name("tests")


@functools.cache
def is_offered(module):
    """Whether the bridge has a module of Petastorm's."""
    try:
        importlib.import_module(f"petastorm_bridge.{module}")
    except ImportError:
        return False
    return True


def swapped(source):
    """Source with the prefix changed where the bridge has the module, in code and in patches."""

    def prefix(match):
        module = match.group(1)
        if module == "tests":
            return PACKAGE
        if module is None or module in dir(petastorm_bridge) or is_offered(module):
            return match.group().replace("petastorm", "petastorm_bridge", 1)
        return match.group()

    return _IMPORT.sub(prefix, source)


def written(folder, swap=swapped):
    """The folder, with Petastorm's tests in it as a package.

    Args:
        folder: Where they go.
        swap: From their source to that of the package.
    """
    package = folder / PACKAGE
    package.mkdir()
    for path in petastorm_tests().glob("*.py"):
        source = swap(path.read_text("utf-8")).replace("petastorm.tests", PACKAGE)
        (package / path.name).write_text(source, "utf-8")
    with (package / "__init__.py").open("a", encoding="utf-8") as file:
        file.write(PRELUDE)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    forked\n    timeout\n", "utf-8")
    return folder


def outcome_of(case):
    """``failed``, ``skipped`` or ``passed``, and the message."""
    for child in case:
        if child.tag in {"failure", "error", "skipped"}:
            kind = "skipped" if child.tag == "skipped" else "failed"
            return kind, child.get("message") or child.text or ""
    return "passed", ""


def outcomes(folder, files):
    """What became of each test, ``file::test[parameters]``, of files in a folder that was written."""
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
    plugins = [
        part for name in ("cacheprovider", "randomly", "forked") for part in ("-p", f"no:{name}")
    ]
    limit = f"--timeout={_SECONDS}"
    finished = warm.run(
        [sys.executable, "-c", _RUN, "-q", "-W", "ignore", limit, *plugins, f"--junitxml={report}"]
        + [f"{PACKAGE}/{name}.py" for name in files],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2400,
        check=False,
    )
    # Judged by what it reported: Petastorm's helpers may abort the process after the last test.
    assert report.exists(), finished.stdout[-3000:] + finished.stderr[-3000:]
    found = {}
    for case in ET.parse(report).iter("testcase"):
        file = case.get("classname", "").split(".")[1]
        found[f"{file}::{case.get('name', '')}"] = outcome_of(case)
    return found


def base(name):
    """The name of a test without its parameters."""
    return name.partition("[")[0]


def exceptions():
    """The entries of ``exceptions.json`` by test."""
    entries = json.loads((HERE / "exceptions.json").read_text("utf-8"))
    return {test: entry for entry in entries for test in entry["tests"]}


def original():
    """What became of each test with the real package: ``passed``, ``failed`` or ``skipped``."""
    return json.loads(ORIGINAL.read_text("utf-8"))


def counts():
    """For each file: how many tests pass with the real package, and how many of these with the bridge.

    A test that the bridge passes counts as one that the real package passes, which fails some now and then:
    it loses rows, or takes too long where the machine is busy. The tests that run the files hold the bridge to
    these figures: all but the listed ones pass.
    """
    listed = exceptions()
    able, mine = Counter(), Counter()
    for name, outcome in original().items():
        entry = listed.get(base(name), {})
        if outcome == "skipped" or (outcome == "failed" and entry.get("real fails")):
            continue
        file = name.partition("::")[0]
        able[file] += 1
        mine[file] += not entry or bool(entry.get("real fails"))
    return {file: (able[file], mine[file]) for files in PARTS.values() for file in files}
