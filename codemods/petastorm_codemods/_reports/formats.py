"""The formats of ``--report``: a run as people, programs and services want it that show it beside the code."""

from __future__ import annotations

import enum
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import quote

from petastorm_codemods._model import Failed, Result, Site, State
from petastorm_codemods._project.distribution import own_metadata
from petastorm_codemods._registry import GUIDE, Rule, all_rules

from .guide import NOW
from .report import place_of, sites_of, to_json, to_markdown

# The rule of files that are left as they were.
_FAILED = "PM000"


class Level(enum.Enum):
    """How much of a reader's attention a problem wants."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


# What GitHub and GitLab call these.
_COMMANDS = {Level.NOTE: "notice", Level.WARNING: "warning", Level.ERROR: "error"}
_SEVERITIES = {Level.NOTE: "minor", Level.WARNING: "major", Level.ERROR: "critical"}


@dataclass(frozen=True)
class Problem:
    """One site, or one file that failed.

    Attributes:
        path: Path of the file, relative to the working directory if it is below that, with slashes.
        code: Code of the rule.
        message: What was found; of a notebook, with the cell.
        level: How bad it is.
        line: Line in the file, from 1; None for whole files, and in notebooks, whose cells have lines of
            their own.
        column: Column in characters, from 1; None where there is no line.
        fingerprint: Tells the problem from all others of the run, and is the same in the next run,
            also if lines have moved; 64 hexadecimal digits.
    """

    path: str
    code: str
    message: str
    level: Level
    line: int | None
    column: int | None
    fingerprint: str


def problems(result: Result) -> Iterator[Problem]:
    """Yield the sites in the order of files and lines, then the files that failed."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for outcome, site in sites_of(result):
        path = shown_path(outcome.path)
        level = Level.WARNING if site.state is State.MANUAL else Level.NOTE
        message = f"{place_of(site)}: {site.message}" if site.cell else site.message
        line, column = (None, None) if site.cell else (site.line, site.column)
        digest = _fingerprint(seen, path, site)
        yield Problem(path, site.code, message, level, line, column, digest)
    for outcome in result.outcomes:
        if isinstance(outcome, Failed):
            path = shown_path(outcome.path)
            digest = _digest(path, _FAILED, "failed")
            yield Problem(path, _FAILED, outcome.reason, Level.ERROR, None, None, digest)


def shown_path(path: str) -> str:
    """Return a path as services know it: from the working directory where that is possible."""
    if os.path.isabs(path):
        below = os.path.relpath(path)
        path = path if below.startswith(os.pardir) else below
    return os.path.normpath(path).replace(os.sep, "/")


def _fingerprint(seen: Counter[tuple[str, str, str]], path: str, site: Site) -> str:
    what = (path, site.code, site.message)
    seen[what] += 1
    return _digest(*what, *([str(seen[what])] if seen[what] > 1 else []))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode(errors="surrogateescape")).hexdigest()


def to_sarif(result: Result) -> str:
    """Return the run as SARIF 2.1.0: the rules, and a result for each site and failed file.

    https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
    """
    rules = all_rules()
    places = {rule.code: index for index, rule in enumerate(rules)}
    driver: dict[str, object] = {
        "name": "petastorm-bridge codemod",
        "rules": [_rule(rule) for rule in rules],
    }
    if own_metadata()["Version"]:
        driver["version"] = own_metadata()["Version"]
    if GUIDE:
        driver["informationUri"] = GUIDE
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem, places[problem.code]) for problem in problems(result)],
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(document, indent=2)


def _rule(rule: Rule) -> dict[str, object]:
    text, now = rule.text.replace("``", "`"), NOW.get(rule.code, "")
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": text.replace("`", "'")},
        "help": {"text": now or rule.summary, "markdown": f"{text}\n\n{now}".strip()},
        **({"helpUri": rule.link} if rule.link else {}),
    }


def _result(problem: Problem, rule: int) -> dict[str, object]:
    location: dict[str, object] = {"artifactLocation": {"uri": _uri(problem.path)}}
    if problem.line is not None:
        location["region"] = {"startLine": problem.line, "startColumn": problem.column}
    return {
        "ruleId": problem.code,
        "ruleIndex": rule,
        "level": problem.level.value,
        "message": {"text": problem.message},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"petastormBridge/v1": problem.fingerprint},
    }


def _uri(path: str) -> str:
    if os.path.isabs(path):
        return PurePath(path).as_uri()
    return quote(os.fsencode(path))


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
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def to_gitlab(result: Result) -> str:
    """Return a list of the problems in the part of Code Climate's format that GitLab reads.

    https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
    """
    issues = [
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
    return json.dumps(issues, indent=2)


def _text(path: str) -> str:
    """Return a path without what no encoding has, which readers of JSON refuse."""
    return os.fsencode(path).decode(errors="backslashreplace")


FORMATS = {
    "json": to_json,
    "sarif": to_sarif,
    "markdown": to_markdown,
    "github": to_github,
    "gitlab": to_gitlab,
}
