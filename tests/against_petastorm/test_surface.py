"""Whatever programs import from Petastorm either works here or fails with one sentence that helps.

The list is made of the real package: all modules but its tests, and all that they define themselves.
"""

import importlib
import pkgutil
import re
import types
import warnings

import pytest

from petastorm_bridge._tables.missing import MISSING, MISSING_IN

petastorm = pytest.importorskip("petastorm", exc_type=ImportError)

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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in pkgutil.walk_packages(petastorm.__path__, "petastorm."):
            if ".tests" not in info.name and "entrypoint" not in info.name:
                yield info.name


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


EVERY = [(module, name) for module in modules() for name in own_names(module)]
NAMES = [pair for pair in EVERY if ".".join(pair) not in WITHOUT_USE]


def test_the_list_is_that_of_the_original():
    """Of modules and names that everybody uses, so that an empty list cannot pass."""
    assert {
        ("petastorm.reader", "make_reader"),
        ("petastorm.codecs", "CompressedImageCodec"),
        ("petastorm.etl.dataset_metadata", "materialize_dataset"),
        ("petastorm.workers_pool.thread_pool", "ThreadPool"),
    } <= set(NAMES)
    assert len(NAMES) > 120
    assert {".".join(pair) for pair in EVERY} >= WITHOUT_USE.keys()


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[".".join(pair) for pair in NAMES])
def test_every_name_works_or_says_what_to_use(module, name):
    ours = module.replace("petastorm", "petastorm_bridge", 1)
    try:
        exec(f"from {ours} import {name}", {})
    except ImportError as error:
        assert SENTENCE.fullmatch(str(error)), error  # noqa: PT017 - most names are there
        with pytest.raises((ImportError, AttributeError), match="does not offer"):
            getattr(importlib.import_module(ours), name)


@pytest.mark.parametrize("module", sorted({module for module, _ in NAMES}))
def test_every_module_is_there_or_says_what_to_use(module):
    ours = module.replace("petastorm", "petastorm_bridge", 1)
    try:
        importlib.import_module(ours)
    except ImportError as error:
        assert SENTENCE.fullmatch(str(error)), error  # noqa: PT017 - most modules are there


def test_no_row_is_about_what_the_original_has_not():
    names = {f"{module}.{name}".removeprefix("petastorm.") for module, name in NAMES}
    names |= {module.removeprefix("petastorm.") for module in modules()}
    rows = {*MISSING, *(f"{place}.{name}" for place, row in MISSING_IN.items() for name in row)}
    assert rows <= names
