"""What ``--vendor`` writes, for whatever a repository uses."""

import itertools
import subprocess
import sys

import pytest

from petastorm_codemods._project import vendor
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings

DIRECTORY = {"dataframe_to_mds", "MdsDirectory"}
TORCH = {"StreamingDataset", "StreamingDataLoader"}
TENSORFLOW = {"StreamingDataset", "tf_dataset"}
TRANSFORM = {"TransformSpec"}
# Attributes of converters, keyword dictionaries, partial, calls that were left to a human.
RARE = {"cache_dir_url", "file_urls", "from_petastorm"}
RARE_TORCH = {*RARE, "open_torch", "make_torch_dataloader"}
RARE_TENSORFLOW = {*RARE, "open_tf", "make_tf_dataset"}
FRAMEWORKS = {
    "torch": (TORCH, RARE_TORCH),
    "tensorflow": (TENSORFLOW, RARE_TENSORFLOW),
    "both": (TORCH | TENSORFLOW, RARE_TORCH | RARE_TENSORFLOW),
}
COMBINATIONS = {
    f"{name}{' with transforms' if transform else ''}{', everything' if rare else ''}": (
        DIRECTORY | FRAMEWORKS[name][0] | transform | (FRAMEWORKS[name][1] if rare else set())
    )
    for name, transform, rare in itertools.product(FRAMEWORKS, (set(), TRANSFORM), (False, True))
}


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_size(combination):
    """The limit does not hold for a repository that uses both frameworks and all there is."""
    limit = 300 if combination == "both with transforms, everything" else 275
    assert len(vendor.vendored(COMBINATIONS[combination]).splitlines()) <= limit


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_form(combination, tmp_path):
    pytest.importorskip("ruff", reason="judges the form; it comes with the development tools")
    text = vendor.vendored(COMBINATIONS[combination])
    path = tmp_path / "mds_support.py"
    path.write_text(text)
    compile(text, path, "exec")
    for command in (["format", "--check"], ["check", "--select", "E,F,D101", "--ignore", "E401"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--line-length=100", path],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
    for name in COMBINATIONS[combination] - {"make_torch_dataloader", "make_tf_dataset"}:
        assert f" {name}" in text


def test_a_file_that_was_written_keeps_its_names():
    torch = vendor.vendored(DIRECTORY | TORCH)
    assert vendor.names_in(torch) >= DIRECTORY | TORCH
    assert "tf_dataset" not in torch
    assert "cache_dir_url" not in torch
    again = vendor.vendored(vendor.names_in(torch))
    assert again == torch


MAKES = "from petastorm.spark import make_spark_converter\nc = make_spark_converter(df)\n"


@pytest.mark.parametrize(
    ("files", "given", "homes"),
    [
        (["src/pkg/__init__.py", "src/pkg/a.py", "tests/test_a.py"], ".", ["src/pkg"]),
        (["ranker/train.py", "libs/common/__init__.py", "libs/common/a.py"], ".", None),
        (["top-level/__init__.py", "top-level/a.py"], "top-level", ["top-level"]),
        (["a/__init__.py", "a/b/__init__.py", "a/b/c.py"], "a/b", ["a/b"]),
    ],
)
def test_copies_go_where_their_importers_find_them(tmp_path, monkeypatch, files, given, homes):
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if name.endswith("__init__.py") else MAKES)
    monkeypatch.chdir(tmp_path)
    outcomes = run([given], Settings(vendor=True)).outcomes
    written = [each.path for each in outcomes if each.path.endswith("mds_support.py")]
    folders = homes or ["libs/common", "ranker"]
    assert sorted(written) == [f"{folder}/mds_support.py" for folder in folders]


def test_a_link_in_the_place_of_a_copy_is_refused(tmp_path):
    (tmp_path / "a.py").write_text(MAKES)
    (tmp_path / "mds_support.py").symlink_to(tmp_path / "elsewhere.py")
    outcomes = run([str(tmp_path)], Settings(vendor=True)).outcomes
    assert any("it is a link" in getattr(each, "reason", "") for each in outcomes)
    assert not (tmp_path / "elsewhere.py").exists()
