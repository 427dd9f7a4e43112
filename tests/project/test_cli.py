"""The command line itself; its commands are tested beside what they run."""

import os
import subprocess
import sys
from importlib import metadata

import pytest
from typer.testing import CliRunner

from petastorm_bridge import __version__
from petastorm_bridge.cli import app


@pytest.fixture
def call():
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_version(call):
    answer = call("--version")
    assert answer.exit_code == 0
    assert answer.stdout == f"petastorm-bridge {__version__}\n"


def test_versions_lists_what_is_installed(call):
    answer = call("versions")
    assert answer.exit_code == 0
    found = dict(line.split(maxsplit=1) for line in answer.stdout.splitlines())
    assert found["petastorm-bridge"] == __version__
    assert found["numpy"] == metadata.version("numpy")
    assert found["libcst"] == metadata.version("libcst")


def test_no_command_shows_help(call):
    answer = call()
    assert "versions" in answer.output
    assert answer.exit_code == 2


def test_unknown_command_is_refused(call):
    assert call("no-such-command").exit_code == 2


def test_a_value_that_is_none_is_refused_in_words_for_people(call):
    answer = call("codemod", "--to", "bridg")
    assert answer.exit_code == 2
    assert "'--to': 'bridg' is not one of 'bridge', 'streaming'" in answer.output


@pytest.mark.parametrize(
    ("words", "completed"),
    [("", {"codemod", "parity", "versions"}), ("codemod --to st", {"streaming"})],
)
def test_a_shell_is_told_what_may_follow(words, completed):
    code = "from petastorm_bridge.cli import app; app(prog_name='petastorm-bridge')"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "_PETASTORM_BRIDGE_COMPLETE": "complete_bash",
        "COMP_WORDS": f"petastorm-bridge {words}",
        "COMP_CWORD": str(max(1, len(words.split()))),
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert completed <= set(done.stdout.split())


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "petastorm_bridge", "--version"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"petastorm-bridge {__version__}\n"
