"""What importing loads, and which corners of pyspark the code keeps away from."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import petastorm_bridge
import petastorm_bridge.spark

BRIDGE = Path(petastorm_bridge.__file__).parents[1]
SPARK_MODULES = sorted((BRIDGE / "petastorm_bridge" / "spark").rglob("*.py"))

# None of these exists on Spark Connect.
CLASSIC_ONLY = {
    "_jdf",
    "_jvm",
    "_jsparkSession",
    "_jconf",
    "sparkContext",
    "_sc",
    "rdd",
    "_ssql_ctx",
}

# Functions that ask for it where it may be missing, and take the other way then.
ASKS = {("jobs", "_context", "sparkContext")}


@pytest.mark.parametrize("path", SPARK_MODULES, ids=lambda path: path.stem)
def test_nothing_that_spark_connect_lacks_is_touched(path):
    tree = ast.parse(path.read_text("utf-8"))
    touched = {
        (path.stem, getattr(statement, "name", None), node.attr)
        for statement in tree.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute) and node.attr in CLASSIC_ONLY
    }
    assert touched <= ASKS


@pytest.mark.parametrize("path", SPARK_MODULES, ids=lambda path: path.stem)
def test_pyspark_is_imported_inside_functions_only(path):
    tree = ast.parse(path.read_text("utf-8"))
    for node in tree.body:
        names = [alias.name for alias in getattr(node, "names", []) if isinstance(node, ast.Import)]
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not any(name.split(".")[0] == "pyspark" for name in names)


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        (
            "petastorm_bridge.spark",
            ["torch", "tensorflow", "pyspark", "streaming", "petastorm", "pandas"],
        ),
        (
            "petastorm_bridge.spark.spark_dataset_converter",
            ["torch", "tensorflow", "pyspark", "streaming", "petastorm"],
        ),
        (
            "petastorm_bridge.spark._writing.executor",
            ["torch", "tensorflow", "streaming", "petastorm", "pandas", "pyarrow.parquet"],
        ),
    ],
)
def test_importing_is_light(module, unwanted):
    script = (
        f"import json, sys, importlib; importlib.import_module({module!r})\n"
        f"print(json.dumps([name for name in {unwanted!r} if name in sys.modules]))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(BRIDGE)},
    )
    assert json.loads(finished.stdout) == []


def test_the_package_offers_petastorms_two_names():
    assert petastorm_bridge.spark.__all__ == ["SparkDatasetConverter", "make_spark_converter"]
    assert set(petastorm_bridge.spark.__all__) <= set(dir(petastorm_bridge.spark))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        petastorm_bridge.spark.nothing  # noqa: B018 - the access is the test
