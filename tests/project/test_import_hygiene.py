"""Importing stays light: no engine, no Spark, no pandas; and pyspark's classic corners stay alone."""

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import petastorm_bridge
import petastorm_bridge.spark
from petastorm_bridge._tables.missing import MISSING, MISSING_IN

HEAVY = ["torch", "tensorflow", "pyspark", "streaming", "petastorm", "pandas"]

BRIDGE = Path(petastorm_bridge.__file__).parent
SPARK_MODULES = sorted((BRIDGE / "spark").rglob("*.py"))

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

SCRIPT = """
import importlib, sys
importlib.import_module(sys.argv[1])
print(*sorted(name for name in sys.argv[2:] if name in sys.modules))
"""


@pytest.mark.parametrize(
    "module",
    [
        "petastorm_bridge",
        "petastorm_bridge.errors",
        "petastorm_bridge.mds",
        "petastorm_bridge.mds.writer",
        "petastorm_bridge.mds.dataset",
        "petastorm_bridge.mds.decode",
        "petastorm_bridge.reader",
        "petastorm_bridge.transform",
        "petastorm_bridge.predicates",
        "petastorm_bridge.unischema",
        "petastorm_codemods",
    ],
)
def test_nothing_heavy_is_imported(module):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, module, *HEAVY], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("petastorm_bridge.spark", HEAVY),
        (
            "petastorm_bridge.spark.spark_dataset_converter",
            [name for name in HEAVY if name != "pandas"],
        ),
        (
            "petastorm_bridge.spark._writing.executor",
            [*(name for name in HEAVY if name != "pyspark"), "pyarrow.parquet"],
        ),
    ],
)
def test_the_converter_imports_little(module, unwanted):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, module, *unwanted],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_reading_columns_does_not_load_what_decodes_rows():
    rows = (
        "petastorm_bridge.reader._rows.reader",
        "petastorm_bridge.reader._rows.schema",
        "petastorm_bridge.codecs",
    )
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "petastorm_bridge.reader", *rows],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == []


def test_the_check_notices_an_import():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "json", "json", "torch"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["json"]


@pytest.mark.parametrize(
    "name",
    [
        "cache.NullCache",
        "errors.NoDataAvailableError",
        "etl.dataset_metadata.materialize_dataset",
        "etl.legacy.restricted_loads",
        "etl.rowgroup_indexing.build_rowgroup_index",
        "fs_utils.FilesystemResolver",
        "ngram.NGram",
        "predicates.in_set",
        "reader.Reader",
        "selectors.SingleIndexSelector",
        "transform.TransformSpec",
        "unischema.Unischema",
        "utils.decode_row",
    ],
)
def test_a_plain_import_is_enough_for_what_petastorm_loads_along(name):
    """`import petastorm; petastorm.predicates.in_set(...)` works with the original."""
    last = name.rpartition(".")[2]
    code = f"import petastorm_bridge as p; assert p.{name}.__name__ == {last!r}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_attributes_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        petastorm_bridge.nothing  # noqa: B018


@pytest.mark.parametrize("name", sorted(MISSING))
def test_missing_parts_say_what_to_do(name):
    text = f"petastorm_bridge does not offer {name}: "
    for statement in (
        f"from petastorm_bridge import {name}",
        f"import petastorm_bridge.{name}",
        f"from petastorm_bridge.{name} import anything",
        f"from petastorm_bridge.{name}.below import anything",
    ):
        with pytest.raises(ImportError, match=text):
            exec(statement, {})
    with pytest.raises(AttributeError, match=text):
        getattr(petastorm_bridge, name)
    assert not hasattr(petastorm_bridge, name)
    assert getattr(petastorm_bridge, name, 1) == 1
    assert f"petastorm_bridge.{name}" not in sys.modules


@pytest.mark.parametrize(
    ("place", "name"),
    [(m, n) for m, names in MISSING_IN.items() if "." not in m for n in names],
)
def test_missing_names_of_a_module_say_what_to_do(place, name):
    text = rf"petastorm_bridge does not offer {place}\.{name}: "
    module = importlib.import_module(f"petastorm_bridge.{place}")
    with pytest.raises(ImportError, match=text):
        exec(f"from petastorm_bridge.{place} import {name}", {})
    with pytest.raises(AttributeError, match=text):
        getattr(module, name)
    assert not hasattr(module, name)
    assert f"petastorm_bridge.{place}.{name}" not in sys.modules


@pytest.mark.parametrize("place", ["reader", "unischema"])
def test_other_names_of_a_module_are_missing_as_ever(place):
    with pytest.raises(ImportError, match="cannot import name 'nothing' from"):
        exec(f"from petastorm_bridge.{place} import nothing", {})
    module = importlib.import_module(f"petastorm_bridge.{place}")
    with pytest.raises(AttributeError, match=f"'petastorm_bridge.{place}' has no attribute"):
        module.nothing  # noqa: B018


WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from petastorm_bridge.native import {}
"""


@pytest.mark.parametrize(
    ("module", "package", "name"),
    [
        ("pandas", "pandas", "PandasCollate"),
        ("pandas", "pandas", "write_mds"),
    ],
)
def test_the_support_module_names_the_extra_it_needs(module, package, name):
    code = WITHOUT.format(name)
    done = subprocess.run(
        [sys.executable, "-c", code, module], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {package} is not installed. Install it with: "
        "pip install 'petastorm-bridge[streaming]'"
    )


def test_the_support_module_loads_what_is_asked_for():
    code = (
        "import sys; from petastorm_bridge.native import MdsDirectory; "
        "print([name for name in ('pyspark', 'streaming', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_other_modules_are_missing_as_ever():
    importlib.invalidate_caches()
    assert importlib.util.find_spec("petastorm_bridge.nothing") is None
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'petastorm_bridge\.nothing'"):
        importlib.import_module("petastorm_bridge.nothing")
    with pytest.raises(ImportError, match="does not offer workers_pool"):
        importlib.import_module("petastorm_bridge.workers_pool")


def test_the_directory_of_the_package_shows_what_it_offers():
    names = [name for name in dir(petastorm_bridge) if not name.startswith("_")]
    assert {"make_batch_reader", "TransformSpec", "NoDataAvailableError", "reader"} <= set(names)
    assert not {"Any", "TYPE_CHECKING", "annotations", "import_module"} & set(names)


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


def test_the_converter_offers_petastorm_s_two_names():
    assert petastorm_bridge.spark.__all__ == ["SparkDatasetConverter", "make_spark_converter"]
    assert set(petastorm_bridge.spark.__all__) <= set(dir(petastorm_bridge.spark))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        petastorm_bridge.spark.nothing  # noqa: B018 - the access is the test


@pytest.mark.slow
def test_a_first_batch_of_variable_width_does_without_pandas(tmp_path):
    from streaming import MDSWriter

    with MDSWriter(out=str(tmp_path), columns={"a": "int64", "b": "ndarray"}) as writer:
        for i in range(20):
            writer.write({"a": i, "b": np.full(3, i, np.float32)})
    code = (
        "import sys; from petastorm_bridge import make_batch_reader; "
        "from petastorm_bridge.pytorch import DataLoader; "
        "loader = DataLoader(make_batch_reader(sys.argv[1], num_epochs=1), batch_size=4); "
        "print(len(next(iter(loader))['b']), 'pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"file://{tmp_path}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["4", "False"], done.stderr
