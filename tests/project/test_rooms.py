"""`make test` and `make test-changed` run the tests that their names promise."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import rooms  # noqa: E402 - of that folder

pytestmark = pytest.mark.modern


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("README.md", {"project"}),
        ("tools/bars.py", {"project"}),
        ("tests/spark/test_cache.py", {"spark"}),
        ("codemods/petastorm_codemods/rules/pm001_import.py", {"codemods"}),
        ("bridge/petastorm_bridge/mds_support.py", {"native", "streaming"}),
        ("bridge/petastorm_bridge/cli/_convert.py", {"converting"}),
        ("bridge/petastorm_bridge/mds/deleted.py", {"mds"}),
    ],
)
def test_a_change_concerns_the_tests_of_its_room(file, expected):
    assert expected <= rooms.folders([file]) <= expected | {"project"}


def test_a_change_concerns_the_tests_of_all_that_import_it():
    """The engine is under everything but the codemod."""
    chosen = rooms.folders(["bridge/petastorm_bridge/mds/schema.py"])
    assert {"mds", "sources", "reading", "torch", "tensorflow", "spark", "streaming"} <= chosen
    assert "codemods" not in chosen


@pytest.mark.parametrize("file", ["tests/helpers/warm.py", "tests/conftest.py"])
def test_what_all_tests_use_concerns_all_of_them(file):
    assert {"blocks", "codemods", "project", "spark"} <= rooms.folders([file])


def test_a_deleted_file_and_an_unknown_folder_concern_no_room_that_is_not_there():
    assert rooms.folders(["tests/gone/test_gone.py"]) == set()
    assert rooms.folders([]) == set()


def test_every_module_has_tests_that_are_there():
    there = {path.name for path in (ROOT / "tests").iterdir()}
    for name in rooms.modules():
        assert rooms.folder(name) in there, name
    assert set(rooms.TESTS.values()) <= there


def test_the_command_says_what_it_cannot_compare_with():
    program = [sys.executable, str(ROOT / "tools" / "rooms.py"), "no-such-commit"]
    answer = subprocess.run(program, check=False, capture_output=True, text=True)
    assert answer.returncode == 1
    assert "no-such-commit" in answer.stderr


def test_every_room_with_slow_tests_shows_its_main_path():
    """`make test` leaves no room out whose tests are mostly slow."""
    for folder in sorted((ROOT / "tests").iterdir()):
        texts = [path.read_text(encoding="utf-8") for path in folder.rglob("test_*.py")]
        whole = [
            text for text in texts if re.search(r"^pytestmark = .*(slow|spark)", text, re.MULTILINE)
        ]
        if len(whole) > len(texts) / 2:
            assert any("mark.smoke" in text for text in texts), folder.name


def test_no_test_is_left_out_on_both_version_sets():
    """What today's versions ignore runs on the older ones, which leave `modern` out."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    once = re.search(r"^ONCE := \$\(addprefix (\S+),(.+)\)$", makefile, re.MULTILINE)
    for name in once[2].split():
        text = (ROOT / f"{once[1]}{name}").read_text(encoding="utf-8")
        assert "mark.modern" not in text, name


# Installed with today's versions alone: a slow test that needs them would run nowhere without the mark.
OF_TODAY = re.compile(r"torchdata|optuna|sqlalchemy|\b4\b")


def test_slow_tests_that_need_todays_versions_say_so():
    checked = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        skips = re.findall(r"(?:importorskip|skipif)\((.+?\))", text, re.DOTALL)
        if "mark.slow" in text and any(OF_TODAY.search(skip) for skip in skips):
            assert "mark.modern" in text, path
            checked.add(path.name)
    assert len(checked) > 3
