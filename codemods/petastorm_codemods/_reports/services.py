"""A run as GitHub's workflow commands and as GitLab's Code Quality report."""

from __future__ import annotations

import json
import os

from petastorm_codemods._model import Result

from .problems import Level, problems

_COMMANDS = {Level.NOTE: "notice", Level.WARNING: "warning", Level.ERROR: "error"}
_SEVERITIES = {Level.NOTE: "minor", Level.WARNING: "major", Level.ERROR: "critical"}


def to_github(result: Result) -> str:
    """Return a workflow command for each problem, which GitHub Actions shows beside the line.

    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
    """
    lines = []
    for problem in problems(result):
        given = {
            "file": problem.path,
            "line": problem.line,
            "col": problem.column,
            "title": f"petastorm-bridge ({problem.code})",
        }
        values = {name: _data(str(value)) for name, value in given.items() if value}
        # In the value of a property two more characters have a meaning.
        pairs = [
            f"{name}={value.replace(':', '%3A').replace(',', '%2C')}"
            for name, value in values.items()
        ]
        command = f"::{_COMMANDS[problem.level]} {','.join(pairs)}"
        lines.append(f"{command}::{_data(f'{problem.code} {problem.message}')}")
    return "\n".join(lines)


def _data(text: str) -> str:
    """Escape what follows the second pair of colons."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def to_gitlab(result: Result) -> str:
    """Return a list of the problems in the part of Code Climate's format that GitLab reads.

    https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
    """
    found = [
        {
            "description": f"{problem.code} {problem.message}",
            "check_name": problem.code,
            "fingerprint": problem.fingerprint,
            "severity": _SEVERITIES[problem.level],
            # A line is required; of notebooks and whole files it is the first.
            "location": {"path": _text(problem.path), "lines": {"begin": problem.line or 1}},
        }
        for problem in problems(result)
    ]
    return json.dumps(found, indent=2)


def _text(path: str) -> str:
    """Return a path without what no encoding has, which readers of JSON refuse."""
    return os.fsencode(path).decode(errors="backslashreplace")
