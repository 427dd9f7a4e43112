"""What is taken for offered is what the bridge has, and Petastorm has modules of these names."""

import importlib
import importlib.resources
import pathlib

import pytest

from petastorm_codemods._petastorm.offered import is_module, is_offered, names_of, renamed

FOLDER = pathlib.Path(str(importlib.resources.files("petastorm_bridge")))
PATHS = [
    ".".join(["petastorm", *file.relative_to(FOLDER).with_suffix("").parts]).removesuffix(
        ".__init__"
    )
    for file in sorted(FOLDER.rglob("*.py"))
]
MODULES = [path for path in PATHS if is_module(path)]


@pytest.mark.parametrize("module", MODULES)
def test_the_bridge_has_every_offered_name(module):
    bridge = importlib.import_module(renamed(module))
    assert set(bridge.__all__) <= names_of(module)
    for name in names_of(module):
        assert getattr(bridge, name) is not None


@pytest.mark.parametrize("module", MODULES)
def test_petastorm_has_every_offered_module(module):
    pytest.importorskip("petastorm", reason="compares with the real package")
    importlib.import_module(module)


def test_modules_of_ours_alone_are_none_of_petastorms():
    ours = {"cli", "convert", "mds", "native", "parity", "streaming"}
    assert len(MODULES) > 25
    assert not {module.split(".")[1] for module in MODULES if "." in module} & ours
    assert not any("._" in module for module in MODULES)
    assert not is_module("petastorm./etc/hosts")
    assert not is_module("petastorm." + "x" * 5000)


@pytest.mark.parametrize(
    ("path", "offered"),
    [
        ("petastorm", True),
        ("petastorm.spark", True),
        ("petastorm.spark.make_spark_converter", True),
        ("petastorm.spark.SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF", True),
        ("petastorm.spark.converter.parentCacheDirUrl", False),
        ("petastorm.make_reader", True),
        ("petastorm.codecs.ScalarCodec", True),
        ("petastorm.workers_pool.thread_pool.ThreadPool", False),
        ("petastorm.sparks", False),
    ],
)
def test_paths(path, offered):
    assert is_offered(path) is offered


def test_names_are_no_modules():
    assert is_module("petastorm.spark")
    assert not is_module("petastorm.TransformSpec")
