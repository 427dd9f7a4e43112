"""Whatever programs import from Petastorm either works here or fails with one sentence that helps.

The list is made of the real package: all modules but its tests, and all that they define themselves.
"""

import functools
import importlib
import importlib.util
import re
import types
import warnings
from pathlib import Path

import pytest

from petastorm_bridge._tables.missing import MISSING, MISSING_IN

SPEC = importlib.util.find_spec("petastorm")
pytestmark = [
    pytest.mark.skipif(SPEC is None, reason="compares with the real package"),
    pytest.mark.slow,  # some modules import it
]

SENTENCE = re.compile(r"petastorm_bridge does not offer [\w.]+: \S.{20,}\.", re.DOTALL)
# Names that no program has a use for, and why.
WITHOUT_USE = {
    "petastorm.codecs.OPENCV_AVAILABLE": "what its own import of OpenCV gave",
    "petastorm.etl.legacy.RestrictedUnpickler": "runs what it reads; here nothing that is read is run",
    "petastorm.etl.rowgroup_indexing.PARALLEL_SLICE_NUM": "how many tasks its own function starts",
    "petastorm.etl.rowgroup_indexing.PieceInfo": "what its own tasks are given",
    "petastorm.pytorch.PY2": "Python 2",
}


def modules():
    """The names of the original's modules, packages included; nothing is imported."""
    for place in SPEC.submodule_search_locations if SPEC else ():
        for path in Path(place).rglob("*.py"):
            parts = path.relative_to(place).with_suffix("").parts
            name = ".".join(part for part in ("petastorm", *parts) if part != "__init__")
            if name != "petastorm" and ".tests" not in name and "entrypoint" not in name:
                yield name


MODULES = sorted(modules())


def own_names(name):
    """What a module defines itself: functions, classes, constants."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module(name)
    for key, value in vars(module).items():
        if key.startswith("_") or isinstance(value, types.ModuleType):
            continue
        home = getattr(value, "__module__", None)
        if home == name or (key.isupper() and not isinstance(home, str)):
            yield key


@functools.cache
def names_of(module):
    """The names of a module that a program may have a use for."""
    return [name for name in own_names(module) if f"{module}.{name}" not in WITHOUT_USE]


def test_the_list_is_that_of_the_original():
    """Of modules and names that everybody uses, so that an empty list cannot pass."""
    for module, name in (
        ("petastorm.reader", "make_reader"),
        ("petastorm.codecs", "CompressedImageCodec"),
        ("petastorm.etl.dataset_metadata", "materialize_dataset"),
        ("petastorm.workers_pool.thread_pool", "ThreadPool"),
    ):
        assert name in names_of(module)
    assert sum(len(names_of(module)) for module in MODULES) > 120
    for name in WITHOUT_USE:
        module, _, last = name.rpartition(".")
        assert last in own_names(module)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_and_its_names_work_or_say_what_to_use(module):
    ours = module.replace("petastorm", "petastorm_bridge", 1)
    said = {name: refusal(f"from {ours} import {name}") for name in names_of(module)}
    said["the module"] = refusal(f"import {ours}") if said else ""
    wrong = {name: text for name, text in said.items() if text and not SENTENCE.fullmatch(text)}
    assert not wrong
    for name in said.keys() - {"the module"}:
        if said[name]:
            with pytest.raises((ImportError, AttributeError), match="does not offer"):
                getattr(importlib.import_module(ours), name)


def refusal(statement):
    """What the ImportError of a statement says; nothing if the statement works."""
    try:
        exec(statement, {})
    except ImportError as error:
        return str(error)
    return ""


@pytest.mark.smoke
def test_no_row_is_about_what_the_original_has_not():
    names = {f"{module}.{name}" for module in MODULES for name in names_of(module)} | {*MODULES}
    rows = {*MISSING, *(f"{place}.{name}" for place, row in MISSING_IN.items() for name in row)}
    assert {f"petastorm.{row}" for row in rows} <= names
