"""What ``--vendor`` writes, for whatever a repository uses, and where."""

import itertools
import pathlib
import subprocess
import sys

import pytest

from petastorm_codemods._project.assembly import assembled, names_in, offered_names
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings

ROOT = pathlib.Path(__file__).parents[2]
WRITING = {"MdsDirectory", "write_mds"}
PARTS = {
    "writing": WRITING,
    "torch transforms": {"PandasCollate"},
    "tensorflow": {"to_tf_dataset"},
    "stores": {"local", "remote"},
    "readers of the bridge": {"cache_dir_url", "file_urls"},
}
COMBINATIONS = {
    ", ".join(names): set().union(*(PARTS[name] for name in names))
    for count in range(1, len(PARTS) + 1)
    for names in itertools.combinations(PARTS, count)
    if "writing" in names or not {"stores", "readers of the bridge"} & {*names}
}
EVERYTHING = set(offered_names())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """All combinations as files of a package."""
    pytest.importorskip("ruff", reason="judges the form; it comes with the development tools")
    folder = tmp_path_factory.mktemp("vendored") / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""Copies."""\n')
    for number, names in enumerate([*COMBINATIONS.values(), EVERYTHING]):
        (folder / f"support_{number}.py").write_text(assembled(names))
    return folder


def tool(*command):
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", ["check", "format --check"])
def test_ruff_has_nothing_to_say_with_our_own_settings(files, command):
    tool("ruff", *command.split(), "--no-cache", f"--config={ROOT}/pyproject.toml", files)


@pytest.mark.slow
def test_mypy_has_nothing_to_say_with_our_own_settings(tmp_path):
    pytest.importorskip("mypy", reason="judges the types; it comes with the development tools")
    (tmp_path / "mds_support.py").write_text(assembled(EVERYTHING))
    # Engines take mypy a minute; what `make lint` found about them is what they are here.
    options = [f"--config-file={ROOT}/pyproject.toml", f"--cache-dir={ROOT}/.mypy_cache"]
    tool("mypy", *options, "--no-error-summary", tmp_path / "mds_support.py")


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_what_is_not_used_is_not_written(combination):
    text = assembled(COMBINATIONS[combination])
    compile(text, "mds_support.py", "exec")
    assert names_in(text) >= COMBINATIONS[combination]
    used = COMBINATIONS[combination] | {"MdsDirectory"}
    for name in {"PandasCollate", "to_tf_dataset", "write_mds"} - used:
        assert name not in names_in(text)
    assert ("def file_urls" in text) == ("file_urls" in used)
    assert "petastorm_bridge" not in text.replace("keep petastorm_bridge's", "")


def test_a_file_that_was_written_keeps_its_names():
    text = assembled(WRITING)
    assert assembled(names_in(text)) == text
    assert assembled(names_in(text) | {"to_tf_dataset"}) == assembled(WRITING | {"to_tf_dataset"})


MAKES = "from petastorm.spark import make_spark_converter\nc = make_spark_converter(df)\n"
MOCKS = "from unittest import mock\nmock.patch('petastorm.spark.make_spark_converter')\n"


@pytest.mark.parametrize(
    ("files", "given", "homes"),
    [
        (["src/pkg/__init__.py", "src/pkg/a.py", "tests/test_a.py"], ".", ["src/pkg"]),
        (["ranker/train.py", "libs/common/__init__.py", "libs/common/a.py"], ".", None),
        (["top-level/__init__.py", "top-level/a.py"], "top-level", ["top-level"]),
        (["a/__init__.py", "a/b/__init__.py", "a/b/c.py"], "a/b", ["a/b"]),
        # A script that only names things in strings has no say.
        (["tools/mocks.py", "pkg/__init__.py", "pkg/a.py"], ".", ["pkg"]),
        # Each import root of a monorepo has its own, also its tests.
        (
            [
                "one/src/a/__init__.py",
                "one/src/a/x.py",
                "one/tests/test_x.py",
                "two/src/b/__init__.py",
                "two/src/b/y.py",
                "two/tests/test_y.py",
            ],
            ".",
            ["one/src/a", "two/src/b"],
        ),
    ],
)
def test_copies_go_where_their_importers_find_them(tmp_path, monkeypatch, files, given, homes):
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "" if name.endswith("__init__.py") else MOCKS if "mocks" in name else MAKES
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    outcomes = run([given], Settings(vendor=True)).outcomes
    written = [each.path for each in outcomes if each.path.endswith("mds_support.py")]
    folders = homes or ["libs/common", "ranker"]
    assert sorted(written) == [f"{folder}/mds_support.py" for folder in folders]
    tests = {each.path: each.after.decode() for each in outcomes if "/tests/" in each.path}
    for path, text in tests.items():
        package = "a" if path.startswith("one/") else "b"
        assert f"from {package}.mds_support import write_mds" in text


@pytest.mark.parametrize(
    ("importing", "module"),
    [
        ("from libs.common.c import c\n", "libs.common"),
        ("import libs.common.c as used\n", "libs.common"),
        ("from common.c import c\n", "common"),
        # By both names: the shorter one needs no folder that happens to be there.
        ("from libs.common import c\nfrom common import c as d\n", "common"),
        ("from libs.commons import c\n", "common"),
        ("", "common"),
    ],
)
def test_a_package_is_called_what_others_call_it(tmp_path, monkeypatch, importing, module):
    """Folders without ``__init__.py`` are packages, too, where the tree is imported from above them."""
    monkeypatch.chdir(tmp_path)
    texts = {"ranker/train.py": MAKES, "ranker/main.py": importing, "libs/common/c.py": MAKES}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "libs/common/__init__.py").touch()
    outcomes = {
        each.path: each.after.decode() for each in run(["."], Settings(vendor=True)).outcomes
    }
    assert f"from {module}.mds_support import write_mds" in outcomes["libs/common/c.py"]
    assert "from mds_support import write_mds" in outcomes["ranker/train.py"]
    written = {path for path in outcomes if path.endswith("mds_support.py")}
    assert written == {"libs/common/mds_support.py", "ranker/mds_support.py"}


def test_a_link_in_the_place_of_a_copy_is_refused(tmp_path):
    (tmp_path / "a.py").write_text(MAKES)
    (tmp_path / "mds_support.py").symlink_to(tmp_path / "elsewhere.py")
    outcomes = run([str(tmp_path)], Settings(vendor=True)).outcomes
    assert any("it is a link" in getattr(each, "reason", "") for each in outcomes)
    assert not (tmp_path / "elsewhere.py").exists()
