"""The script behind `make setup`: when it installs again, and which Java it chooses."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest


@pytest.fixture
def project(environment, tmp_path, monkeypatch):
    """A small project folder that the script believes to be its own."""
    (tmp_path / "requirements").mkdir()
    for name in ("legacy.txt", "legacy-overrides.txt", "java.txt"):
        (tmp_path / "requirements" / name).write_text(f"{name}\n")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\n\n[tool.ruff]\nline-length = 9\n'
    )
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "REQUIREMENTS", tmp_path / "requirements")
    return replace(environment.ENVIRONMENTS["dev"], folder=tmp_path / ".venv")


def edit(project, name, text):
    with (project.folder.parent / name).open("a") as file:
        file.write(text)


def fake_java(folder, version):
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    java.chmod(0o755)


def test_setting_up_again_does_nothing(environment, project, monkeypatch):
    monkeypatch.setattr(environment, "installed_java", lambda: 17)
    monkeypatch.setattr(environment, "run", lambda command: pytest.fail(f"ran {command}"))
    project.folder.mkdir()
    (project.folder / environment.STAMP).write_text(environment.fingerprint(project, False))
    environment.setup(project)


def test_two_at_once_make_it_once(environment, project, monkeypatch):
    made = []

    def create(one, _):
        made.append(one)
        time.sleep(0.3)  # the other one has begun by then
        one.folder.mkdir()

    monkeypatch.setattr(environment, "installed_java", lambda: 17)
    monkeypatch.setattr(environment, "create", create)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(environment.setup, [project, project]))
    assert made == [project]


@pytest.mark.parametrize("name", ["requirements/legacy.txt", "requirements/legacy-overrides.txt"])
def test_a_changed_requirement_changes_the_fingerprint(environment, project, name):
    before = environment.fingerprint(project, False)
    edit(project, name, "numpy\n")
    assert environment.fingerprint(project, False) != before


def test_a_changed_lint_rule_does_not(environment, project):
    before = environment.fingerprint(project, False)
    edit(project, "pyproject.toml", "[tool.other]\n")
    assert environment.fingerprint(project, False) == before


def test_the_java_package_counts_only_where_it_is_used(environment, project):
    with_java, without = (environment.fingerprint(project, java) for java in (True, False))
    assert with_java != without
    edit(project, "requirements/java.txt", "more\n")
    assert environment.fingerprint(project, False) == without
    assert environment.fingerprint(project, True) != with_java


def test_a_failing_step_is_named(environment):
    with pytest.raises(environment.SetupError, match="This step failed: false"):
        environment.run(["false"])


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("17.0.9", 17), ("21", 21)])
def test_java_version_is_read(environment, tmp_path, monkeypatch, version, major):
    fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert environment.installed_java() == major
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", f"{tmp_path / 'jdk' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert environment.installed_java() == major


def test_no_java_at_all(environment, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert environment.installed_java() is None
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert environment.installed_java() is None


def test_the_wrapper_drops_one_option_and_keeps_the_rest(environment, tmp_path):
    real = tmp_path / "real runtime" / "bin" / "java"
    real.parent.mkdir(parents=True)
    real.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    real.chmod(0o755)
    wrapper = tmp_path / "java"
    wrapper.write_text(environment.JAVA_WRAPPER.format(home=real.parent.parent))
    wrapper.chmod(0o755)
    wanted = ["-Xmx1g", "-Dkey=two words", "", "--add-modules=java.base"]
    command = [str(wrapper), *wanted[:2], "--add-modules=jdk.incubator.vector", *wanted[2:]]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.split("\n")[:-1] == wanted


def test_commands_see_the_environments_python_and_java(environment, project, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/somewhere/else")
    monkeypatch.setenv("JAVA_HOME", "/old/java")
    values = environment.variables(project)
    assert values["PYSPARK_PYTHON"] == str(project.folder / "bin" / "python")
    assert values["PATH"].startswith(str(project.folder / "bin"))
    assert values["JAVA_HOME"] == "/old/java"
    assert "SPARK_HOME" not in values
    project.java_home.mkdir(parents=True)
    assert environment.variables(project)["JAVA_HOME"] == str(project.java_home)


def test_pip_sources_become_options(environment, monkeypatch):
    listing = (
        ":env:.find-links='/from/environment /second'\n"
        "global.find-links='/from/file'\n"
        "global.index-url='https://index.example/simple'\n"
        "global.timeout='60'\n"
    )
    monkeypatch.setattr(
        environment.subprocess,
        "run",
        lambda *_, **__: subprocess.CompletedProcess([], 0, stdout=listing),
    )
    options = environment.index_options()
    assert options[:2] == ["--default-index", "https://index.example/simple"]
    assert options[2:6] == ["--find-links", "/from/environment", "--find-links", "/second"]
    assert options[6:] == ["--index-strategy", "unsafe-best-match"]


def fake_python(folder, name, *, works):
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / name
    python.write_text(f"#!/bin/sh\nexit {0 if works else 127}\n")
    python.chmod(0o755)
    return str(python)


def test_the_first_python_that_starts_is_taken(environment, tmp_path, monkeypatch):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}")
    find = environment.find_python
    assert find(("3.98", "3.99")) == "3.99"  # left to uv
    second = fake_python(tmp_path / "b", "python3.99", works=True)
    assert find(("3.98", "3.99")) == second
    fake_python(tmp_path / "a", "python3.98", works=False)  # pyenv's, for a version not shown
    assert find(("3.98", "3.99")) == second
    first = fake_python(
        tmp_path / "pyenv" / "versions" / "3.98.1" / "bin", "python3.98", works=True
    )
    assert find(("3.98", "3.99")) == first
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert find((ours, "3.98")) == sys.executable


@pytest.mark.parametrize(("java", "stores"), [(8, False), (11, False), (17, True), (None, False)])
def test_an_archive_of_classes_is_for_the_java_that_wrote_it(
    environment, project, monkeypatch, java, stores
):
    monkeypatch.setattr(environment, "installed_java", lambda: java)
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    archive = project.class_archive()
    assert (archive is not None) == stores
    assert "SPARK_SUBMIT_OPTS" not in environment.variables(project)
    if archive is not None:
        archive.parent.mkdir()
        archive.touch()
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx1g")
        options = environment.variables(project)["SPARK_SUBMIT_OPTS"]
        assert options.startswith(f"-Xmx1g -XX:SharedArchiveFile={archive} ")


@pytest.mark.parametrize("does", ["exit 127", "exec sleep 60"])
def test_setting_up_goes_on_without_an_archive(environment, project, monkeypatch, capsys, does):
    monkeypatch.setattr(environment, "installed_java", lambda: 17)
    monkeypatch.setattr(environment, "ARCHIVING_SECONDS", 2)
    python = fake_python(project.folder / "bin", "python", works=False)
    Path(python).write_text(f"#!/bin/sh\n{does}\n")
    environment.store_classes(project)
    assert "so Spark starts slowly" in capsys.readouterr().out
    assert not project.class_archive().exists()
