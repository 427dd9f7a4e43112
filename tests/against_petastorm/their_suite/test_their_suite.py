"""Petastorm's own tests pass, with nothing changed but the import prefix, but for listed exceptions.

`exceptions.json` lists what cannot pass, with the reason, and what fails with the real package in this
environment as well; an entry that passes, or does not exist, is an error. `original.json` has what becomes of
each test with the real package. `python report.py` prints both, by file.
"""

import json
import os

import pytest
from their_suite import (
    HERE,
    NOT_RUN,
    PARTS,
    base,
    counts,
    exceptions,
    original,
    outcomes,
    petastorm_tests,
    swapped,
    written,
)

# In `make test` those that take a minute or two; all of them in `make test-release`, which asks Petastorm live.
QUICK = ("schemas", "ngrams", "converter")
RUN = tuple(PARTS) if os.environ.get("PETASTORM_BRIDGE_PARITY") == "live" else QUICK


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A folder with the tests, their prefix swapped."""
    return written(tmp_path_factory.mktemp("their_suite"))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(2500)
@pytest.mark.parametrize("part", RUN)
def test_everything_passes_but_the_listed_exceptions(suite, part):
    found = outcomes(suite, PARTS[part])
    failed = {name: text for name, (kind, text) in found.items() if kind == "failed"}
    listed = exceptions()
    assert {n: t.splitlines()[:3] for n, t in failed.items() if base(n) not in listed} == {}
    mine = {name for name in listed if name.partition("::")[0] in PARTS[part]}
    passing = mine - {base(name) for name in failed}
    assert {n for n in passing if not listed[n].get("sometimes")} == set(), "listed, but it passes"
    known = {
        name: kind for name, kind in original().items() if name.partition("::")[0] in PARTS[part]
    }
    assert found.keys() == known.keys(), "python report.py --record"
    with_reason = {name for name in failed if listed[base(name)].get("real fails")}
    assert {name for name in with_reason if known[name] != "failed"} == set(), "the real one passes"
    skipped = {name for name, (kind, _) in found.items() if kind == "skipped"}
    assert {name for name in skipped if known[name] == "passed"} == set()


def test_over_95_percent_pass_of_what_the_real_package_passes():
    able, mine = (sum(column) for column in zip(*counts().values(), strict=True))
    assert able > 350
    assert mine / able > 0.95


def test_every_exception_exists_and_gives_a_reason():
    there = {}
    for name, kind in original().items():
        there.setdefault(base(name), set()).add(kind)
    for name, entry in exceptions().items():
        assert name in there, name
        assert len(entry["reason"]) > 40
        assert "failed" in there[name] or not entry.get("real fails"), name


def test_every_file_of_theirs_is_run_or_left_out_with_a_reason():
    files = {path.stem for path in petastorm_tests().glob("test_*.py")} - {"test_common"}
    run = {file for files in PARTS.values() for file in files}
    assert files == run | NOT_RUN.keys()
    assert not run & NOT_RUN.keys()


def test_what_is_stored_is_sorted():
    assert list(original()) == sorted(original())
    assert json.loads((HERE / "exceptions.json").read_text("utf-8"))


def test_prefixes_are_swapped_where_the_bridge_has_the_module():
    source = (
        "from petastorm import make_reader\nimport petastorm.codecs\n"
        "from petastorm.tests.test_common import x\nfrom petastorm.no_such_module import y\n"
        "@mock.patch('petastorm.unischema._UNISCHEMA_FIELD_ORDER', 'alphabetical')\n"
        "row = (1, 'petastorm')\npetastorm_args = petastorm.make_reader(1)\n"
    )
    assert swapped(source) == (
        "from petastorm_bridge import make_reader\nimport petastorm_bridge.codecs\n"
        "from swapped_tests.test_common import x\nfrom petastorm.no_such_module import y\n"
        "@mock.patch('petastorm_bridge.unischema._UNISCHEMA_FIELD_ORDER', 'alphabetical')\n"
        "row = (1, 'petastorm')\npetastorm_args = petastorm_bridge.make_reader(1)\n"
    )
