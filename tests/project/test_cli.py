"""The command line itself; its commands are tested beside what they run."""

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
