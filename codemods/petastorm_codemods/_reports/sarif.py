"""A run as SARIF 2.1.0, which code scanning services take.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import contextlib
import json
import os
from importlib import metadata
from pathlib import PurePath
from urllib.parse import quote

from petastorm_codemods._model import Result
from petastorm_codemods._project.requirements import DISTRIBUTION
from petastorm_codemods._registry import GUIDE, Rule, all_rules

from .guide import NOW
from .problems import Problem, problems


def to_sarif(result: Result) -> str:
    """Return the run as one document with the rules, and a result for each site and failed file."""
    rules = all_rules()
    places = {rule.code: index for index, rule in enumerate(rules)}
    driver: dict[str, object] = {
        "name": "petastorm-bridge codemod",
        "rules": [_rule(rule) for rule in rules],
    }
    with contextlib.suppress(metadata.PackageNotFoundError):
        driver["version"] = metadata.version(DISTRIBUTION)
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
