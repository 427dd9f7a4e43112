"""Importing the package stays light: no engine, no Spark, no pandas."""

import subprocess
import sys

import pytest

import petastorm_bridge

HEAVY = ["torch", "tensorflow", "pyspark", "streaming", "petastorm", "pandas"]

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


def test_the_check_notices_an_import():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "json", "json", "torch"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["json"]


@pytest.mark.parametrize("name", ["fs_utils", "predicates", "reader", "transform", "unischema"])
def test_a_plain_import_is_enough_for_what_petastorm_loads_along(name):
    """`import petastorm; petastorm.predicates.in_set(...)` works with the original."""
    code = f"import petastorm_bridge as p; assert p.{name}.__name__ == 'petastorm_bridge.{name}'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_attributes_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        petastorm_bridge.nothing  # noqa: B018
