"""Which files a run looks at."""

import os
import shutil
import subprocess

import pytest

from petastorm_codemods._model import Destination
from petastorm_codemods._project import listing
from petastorm_codemods._project.files import concerns
from petastorm_codemods._project.listing import find_files, is_dependency_file


def make(root, *names, **texts):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts.get(name, "x"))


def found(root, *paths, exclude=()):
    paths = find_files([str(root / path) for path in paths or ("",)], exclude)
    return [os.path.relpath(path, root) for path in paths]


def test_python_notebooks_and_dependency_files(tmp_path):
    make(tmp_path, "a.py", "b.ipynb", "c.txt", "requirements.txt", "sub/setup.cfg", "sub/d.pyc")
    assert found(tmp_path) == ["a.py", "b.ipynb", "requirements.txt", "sub/setup.cfg"]


def test_folders_that_are_not_the_users(tmp_path):
    make(tmp_path, ".git/a.py", ".venv/b.py", "x/node_modules/c.py", "x/.ipynb_checkpoints/d.ipynb")
    make(tmp_path, "x/e.py")
    assert found(tmp_path) == ["x/e.py"]


def test_named_files_and_overlapping_paths_come_once(tmp_path):
    make(tmp_path, "a.py", "b/c.py", ".venv/d.py", "notes")
    assert found(tmp_path, "b", "", ".venv/d.py", "notes") == [
        "b/c.py",
        "a.py",
        ".venv/d.py",
        "notes",
    ]


def test_a_path_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        found(tmp_path, "nowhere")


def test_exclude(tmp_path):
    make(tmp_path, "a.py", "b/c.py", "b/d_pb2.py")
    assert found(tmp_path, exclude=["*_pb2.py", "a.*"]) == ["b/c.py"]
    assert found(tmp_path, exclude=["b"]) == ["a.py"]


def test_links_are_not_followed(tmp_path):
    make(tmp_path, "tree/a/b.py", "other.py")
    (tmp_path / "tree" / "a" / "again").symlink_to(tmp_path / "tree" / "a")
    (tmp_path / "tree" / "a" / "a_second_name.py").symlink_to("b.py")
    (tmp_path / "tree" / "outside.py").symlink_to(tmp_path / "other.py")
    (tmp_path / "tree" / "broken.py").symlink_to("nowhere.py")
    assert found(tmp_path / "tree") == ["a/b.py"]


def test_what_is_no_file_is_passed_over(tmp_path):
    make(tmp_path, "a.py/b.py", "empty.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert sorted(found(tmp_path)) == ["a.py/b.py", "empty.py"]


def git(root, *command):
    subprocess.run(["git", "-C", str(root), *command], check=True, capture_output=True)


def test_in_a_repository_git_says_what_is_ignored(tmp_path):
    git(tmp_path, "init", "-q")
    make(tmp_path, "a.py", "b/c.py", "b/d.py", "gone.py", ".venv/e.py", "kept/x.py")
    git(tmp_path, "add", "gone.py", "kept")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "kept").rename(tmp_path.parent / f"{tmp_path.name}-outside")
    (tmp_path / "kept").symlink_to(tmp_path.parent / f"{tmp_path.name}-outside")
    (tmp_path / ".git" / "info" / "exclude").write_text("d.py\n")
    make(
        tmp_path, "nested/.gitignore", "nested/f.py", "nested/g.py", **{"nested/.gitignore": "f.py"}
    )
    git(tmp_path / "nested", "init", "-q")
    assert found(tmp_path) == ["a.py", "b/c.py", "nested/g.py"]
    assert found(tmp_path, "b") == ["b/c.py"]
    assert found(tmp_path, exclude=["b"]) == ["a.py", "nested/g.py"]


@pytest.mark.parametrize("repository", [True, False])
def test_where_git_cannot_be_asked_every_file_is_looked_at(tmp_path, monkeypatch, repository):
    if repository:
        git(tmp_path, "init", "-q")
        monkeypatch.setenv("PATH", "/nowhere")
    make(tmp_path, "a.py", "b.py", "c/b.py")
    (tmp_path / ".gitignore").write_text("b.py\n")
    assert found(tmp_path) == ["a.py", "b.py", "c/b.py"]


def test_nothing_that_a_repository_configures_is_run(tmp_path):
    git(tmp_path, "init", "-q")
    make(tmp_path, "a.py")
    git(tmp_path, "config", "core.fsmonitor", f"touch {tmp_path}/was-run; false")
    assert found(tmp_path) == ["a.py"]
    assert not (tmp_path / "was-run").exists()


def test_no_remote_is_asked_for_what_a_repository_lacks(tmp_path):
    """Git fetches objects of a partial clone when it needs them, by a program that the repository names."""
    git(tmp_path, "init", "-q")
    make(tmp_path, "a.py")
    (tmp_path / ".gitignore").write_text("b.py\n")
    git(tmp_path, "add", ".gitignore")
    git(tmp_path, "update-index", "--skip-worktree", ".gitignore")
    (tmp_path / ".gitignore").unlink()
    for folder in (tmp_path / ".git" / "objects").glob("??"):
        shutil.rmtree(folder)
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": str(tmp_path),
        "remote.origin.uploadpack": f"touch {tmp_path}/was-run; false",
        "protocol.allow": "always",
    }.items():
        git(tmp_path, "config", name, value)
    assert found(tmp_path) == ["a.py"]
    assert not (tmp_path / "was-run").exists()


def test_a_pattern_made_to_take_for_ever_does_not(tmp_path, monkeypatch):
    """Git is given up on, and what it would ignore is looked at."""
    monkeypatch.setattr(listing, "_SECONDS", 0.5)
    git(tmp_path, "init", "-q")
    make(tmp_path, "a" * 120 + ".py")
    (tmp_path / ".gitignore").write_text("*a" * 20 + "b\n")
    assert found(tmp_path) == ["a" * 120 + ".py"]


def test_patterns_above_and_below_count(tmp_path):
    git(tmp_path, "init", "-q")
    make(tmp_path, "a/b/one.py", "a/b/two.py", "a/b/three.py")
    (tmp_path / ".gitignore").write_text("one.py\ntwo.py\n")
    (tmp_path / "a" / "b" / ".gitignore").write_text("!two.py\nthree.py\n")
    assert found(tmp_path, "a") == ["a/b/two.py"]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("requirements.txt", True),
        ("requirements-gpu.txt", True),
        ("requirements/dev.txt", True),
        ("requirements/dev.in", True),
        ("constraints.txt", True),
        ("requirements.in", True),
        ("pyproject.toml", True),
        ("setup.py", True),
        ("environment.yml", True),
        ("conda-env.yaml", True),
        ("Dockerfile", True),
        ("gpu.Dockerfile", True),
        ("Dockerfile.gpu", True),
        ("notes.txt", False),
        ("setup_data.py", False),
        ("docker-compose.yml", False),
    ],
)
def test_dependency_files(name, known):
    assert is_dependency_file(os.path.join("somewhere", name)) is known


def test_words():
    assert concerns(b"import Petastorm", Destination.BRIDGE)
    assert not concerns(b"c.make_torch_dataloader()", Destination.BRIDGE)
    assert concerns(b"c.make_torch_dataloader()", Destination.STREAMING)
    assert not concerns(b"make_torch", Destination.STREAMING)
