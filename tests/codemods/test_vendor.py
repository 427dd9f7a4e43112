"""What ``--vendor`` writes, and where."""

import ast
import pathlib
import sys

import pytest

import petastorm_bridge
from petastorm_codemods import _engine
from petastorm_codemods._model import NeedsHuman
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings

SUPPORT = pathlib.Path(petastorm_bridge.__file__).parent / "mds_support.py"
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
    ("importing", "folder", "module"),
    [
        ("import pkg\n", ".", "pkg.mds_support"),
        ("from pkg.a import train\n", ".", "pkg.mds_support"),
        # An installed package, and one whose code would run for nothing else.
        ("import pkg\n", "src", "mds_support"),
        ("import pkgs\n", ".", "mds_support"),
    ],
)
def test_a_notebook_has_that_of_a_package_beside_it_that_it_imports(
    tmp_path, monkeypatch, importing, folder, module
):
    monkeypatch.chdir(tmp_path)
    package = tmp_path / folder / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "a.py").write_text(MAKES)
    (tmp_path / "nb.py").write_text(importing + MAKES)
    outcomes = {
        each.path: each.after.decode() for each in run(["."], Settings(vendor=True)).outcomes
    }
    assert f"from {module} import write_mds" in outcomes["nb.py"]
    written = {path for path in outcomes if path.endswith("mds_support.py")}
    copies = {str((package / "mds_support.py").relative_to(tmp_path))}
    assert written == copies | ({"mds_support.py"} if module == "mds_support" else set())


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


@pytest.mark.parametrize(
    ("importing", "module"),
    [
        ("from libs.feeds.conv import c\n", "libs.feeds.mds_support"),
        ("from libs.feeds import conv\n", "libs.feeds.mds_support"),
        # As a program's neighbour, and by both names.
        ("import conv\n", "mds_support"),
        ("import libs.feeds.conv\nimport conv\n", "mds_support"),
        ("from libs.feeds import other\n", "mds_support"),
        ("", "mds_support"),
    ],
)
def test_a_module_is_called_what_others_call_it(tmp_path, monkeypatch, importing, module):
    """No folder around it has an ``__init__.py``, and what imports it may be started above them only."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "libs/feeds").mkdir(parents=True)
    (tmp_path / "libs/feeds/conv.py").write_text(MAKES)
    (tmp_path / "main.py").write_text(importing)
    outcomes = {
        each.path: each.after.decode() for each in run(["."], Settings(vendor=True)).outcomes
    }
    assert f"from {module} import write_mds" in outcomes["libs/feeds/conv.py"]
    assert set(outcomes) == {"libs/feeds/conv.py", "libs/feeds/mds_support.py"}


def test_a_link_in_the_place_of_a_copy_is_refused(tmp_path):
    (tmp_path / "a.py").write_text(MAKES)
    (tmp_path / "mds_support.py").symlink_to(tmp_path / "elsewhere.py")
    outcomes = run([str(tmp_path)], Settings(vendor=True)).outcomes
    assert any("it is a link" in getattr(each, "reason", "") for each in outcomes)
    assert not (tmp_path / "elsewhere.py").exists()


def test_the_copy_is_the_file_of_the_package(tmp_path):
    (tmp_path / "a.py").write_text(MAKES)
    (copy,) = (
        each for each in run([str(tmp_path)], Settings(vendor=True)).outcomes if not each.before
    )
    assert copy.path.endswith("mds_support.py")
    assert copy.after == SUPPORT.read_bytes()


def test_it_needs_nothing_of_ours():
    roots = set()
    for node in ast.walk(ast.parse(SUPPORT.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            roots.add(node.module.partition(".")[0])
    engines = {"numpy", "pandas", "pyarrow", "pyspark", "streaming", "tensorflow", "torch"}
    assert roots - set(sys.stdlib_module_names) == engines


def test_a_copy_of_an_earlier_release_is_replaced(tmp_path):
    title = SUPPORT.read_text(encoding="utf-8").splitlines()[0]
    (tmp_path / "a.py").write_text(MAKES)
    (tmp_path / "mds_support.py").write_text(f"{title}\n\nOLD = True\n")
    outcomes = run([str(tmp_path)], Settings(vendor=True)).outcomes
    (copy,) = (each for each in outcomes if getattr(each, "after", b"") == SUPPORT.read_bytes())
    assert copy.path.endswith("mds_support.py")


def test_there_is_no_copy_where_nothing_needs_it(tmp_path):
    """Petastorm's own reader stays on the bridge, and a file that was there before stays as it is."""
    (tmp_path / "a.py").write_text("from petastorm import make_batch_reader\n")
    outcomes = run([str(tmp_path)], Settings(vendor=True)).outcomes
    assert not any(each.path.endswith("mds_support.py") for each in outcomes)


def test_a_copy_makes_no_converters_for_the_loaders_beside_it(tmp_path):
    """A second run leaves what stayed on the bridge as it is, over what its own file made."""
    opening = (
        "def opened(converters):\n    contexts.append(converters[0].make_torch_dataloader())\n"
    )
    (tmp_path / "base.py").write_text(MAKES + opening)
    (tmp_path / "spec.py").write_text(
        "from petastorm import TransformSpec\nimport base\nspec = TransformSpec()\n"
    )
    (tmp_path / "mds_support.py").write_bytes(SUPPORT.read_bytes())
    for outcome in run([str(tmp_path)], Settings(vendor=True)).outcomes:
        if not outcome.path.endswith("mds_support.py"):
            pathlib.Path(outcome.path).write_bytes(outcome.after)
    assert "PandasCollate()" in (tmp_path / "spec.py").read_text()
    assert "(converters[0].make_torch_dataloader())" in (tmp_path / "base.py").read_text()
    again = run([str(tmp_path)], Settings(vendor=True)).outcomes
    assert all(getattr(each, "after", b"") == getattr(each, "before", b"") for each in again)


def test_only_a_copy_that_somebody_changed_is_parsed_again(tmp_path, monkeypatch):
    """It is the longest file of many repositories, and ours."""
    parsed = []
    original = _engine.read_source

    def read_source(path, *arguments):
        parsed.append(pathlib.Path(path).name)
        return original(path, *arguments)

    copy = tmp_path / "mds_support.py"
    (tmp_path / "train.py").write_text(MAKES)
    copy.write_bytes(SUPPORT.read_bytes())
    monkeypatch.setattr(_engine, "read_source", read_source)
    run([str(tmp_path)], Settings(vendor=True))
    assert {*parsed} == {"train.py"}
    copy.write_bytes(SUPPORT.read_bytes() + MAKES.encode())
    (changed,) = run([str(copy)], Settings()).outcomes
    assert "mds_support.py" in parsed
    assert isinstance(changed, NeedsHuman)
