"""The command line itself; its commands are tested beside what they run."""

import os
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
from typer.testing import CliRunner

from petastorm_bridge import __version__
from petastorm_bridge.cli import app
from petastorm_bridge.parity import record


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("codemod --to bridg", "'--to': 'bridg' is not one of 'bridge', 'streaming'"),
        ("codemod --jobs many", "'--jobs' / '-j': 'many' is not a valid integer\n"),
        ("codemod --jobs -1", "'--jobs' / '-j': '-1' is not greater than or equal to 0\n"),
        ("parity run --data x --batch-size 0", "'0' is not greater than or equal to 1\n"),
    ],
)
def test_a_value_that_is_none_is_refused_in_words_for_people(call, words, said):
    answer = call(*words.split())
    assert answer.exit_code == 2
    assert said in answer.output


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


@pytest.mark.parametrize("words", ["rule", "doctor", "codemod", "parity compare {0} {0}"])
def test_output_that_finds_no_room_is_one_sentence(tmp_path, words):
    (tmp_path / "old.py").write_text("import petastorm\n")
    record([{"x": np.arange(2)}], tmp_path / "recording")
    code = "from petastorm_bridge.cli import app; app()"
    arguments = words.format(tmp_path / "recording").split()
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=tmp_path, stdout=full,
                              stderr=subprocess.PIPE, text=True, check=False)  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.endswith(" [Errno 28] No space left on device\n")
    assert done.stderr.count("\n") == 1


def groups():
    """The program, its commands, and those of its groups, as words of a command line."""
    import typer

    waiting = [((), typer.main.get_command(app))]
    while waiting:
        words, command = waiting.pop()
        yield words, command
        for name, below in getattr(command, "commands", {}).items():
            waiting.append(((*words, name), below))


ALL = {" ".join(words): command for words, command in groups()}


@pytest.mark.parametrize("words", ALL)
def test_each_help_ends_with_examples_that_are_commands(call, words):
    shown = call(*words.split(), "--help").stdout
    if words == "versions":  # it takes nothing
        return
    _, _, examples = shown.partition("  Examples:\n")
    lines = [line.partition("  #")[0].split() for line in examples.splitlines()]
    assert len(lines) > 1
    for program, *given in lines:
        assert program == "petastorm-bridge"
        if given[0] == "COMMAND":
            continue
        name = next(n for n in (" ".join(given[:2]), given[0]) if n in ALL)
        assert name.startswith(words)
        command = ALL[name]
        # It takes these options and arguments: nothing runs.
        command.make_context(name, given[len(name.split()) :], resilient_parsing=False)


def test_no_help_cuts_a_sentence_or_speaks_of_types(call):
    for words in ALL:
        shown = call(*words.split(), "--help").stdout
        assert "..." not in shown.partition("Commands:")[2].partition("Examples:")[0], words
        for word in ("<str>", "<int>", "<float>", "<path>", "<file>", "list["):
            assert word not in shown, (words, word)


def test_rules_are_listed_and_explained(call):
    from petastorm_codemods._registry import all_rules
    from petastorm_codemods._reports.guide import NOW

    listed = call("rule").stdout.splitlines()
    assert [line.split()[0] for line in listed] == [rule.code for rule in all_rules()]
    for rule in all_rules():
        answer = call("rule", rule.code.lower())
        assert answer.exit_code == 0
        assert answer.stdout.startswith(f"{rule.code} {rule.name}: {rule.summary}\n")
        for text in (rule.before, NOW.get(rule.code, "")):
            for line in text.splitlines():
                assert line in answer.stdout
    wrong = call("rule", "PM999")
    assert wrong.exit_code == 2
    assert "no rule has the code 'PM999'; there are PM000" in wrong.output


def test_differences_are_listed_and_explained(call):
    from petastorm_bridge._tables.differences import AREAS, DIFFERENCES
    from petastorm_bridge.parity._comparing.rules import ALLOWANCES

    shown = call("difference").stdout
    assert all(f"\n{area}: if you {touched}\n" in shown for area, touched in AREAS.items())
    listed = [line for line in shown.splitlines() if line.startswith("  ")]
    assert {line.split()[0] for line in listed if line.endswith(" [--allow]")} == set(ALLOWANCES)
    assert {line.split()[0] for line in listed} == {d.name for d in DIFFERENCES} | set(ALLOWANCES)
    for each in DIFFERENCES:
        shown = call("difference", each.name).stdout
        assert f"Petastorm: {each.petastorm}" in shown
        assert f"Why: {each.reason}" in shown
    assert call("difference", "streaming-padding").exit_code == 0
    wrong = call("difference", "no-los-rows")
    assert wrong.exit_code == 2
    assert "no difference is called 'no-los-rows'; did you mean no-lost-rows?" in wrong.output
