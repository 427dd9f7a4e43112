"""The table of offered names is what the bridge has and what Petastorm has under these names."""

import importlib

import pytest

from petastorm_codemods._petastorm.offered import OFFERED, is_module, is_offered, renamed

MODULES = [f"petastorm.{name}" if name else "petastorm" for name in OFFERED]


@pytest.mark.parametrize("module", MODULES)
def test_the_bridge_has_every_offered_name(module):
    bridge = importlib.import_module(renamed(module))
    for name in OFFERED[module[len("petastorm.") :]]:
        assert getattr(bridge, name) is not None


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_of_both_is_offered(module):
    pytest.importorskip("petastorm", reason="compares with the real package")
    bridge, original = importlib.import_module(renamed(module)), importlib.import_module(module)
    both = {name for name in bridge.__all__ if hasattr(original, name)} - {"__version__"}
    assert both <= OFFERED[module[len("petastorm.") :]]
    assert {name for name in OFFERED[module[len("petastorm.") :]] if hasattr(original, name)}


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
