"""Checks of a rewritten list of dependencies: it is parsed again by what defines its format."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable

from packaging.requirements import InvalidRequirement, Requirement

from .manifests import Form, entries


def problem_of(path: str, before: str, after: str) -> str:
    """Return what is wrong with a rewrite; empty if nothing is."""
    if before == after:
        return ""
    written = {entry.name for entry in entries(path, before)}
    try:
        for entry in entries(path, after):
            if entry.name not in written and entry.form is not Form.KEY:
                Requirement(after[entry.start : entry.end])
    except InvalidRequirement as error:
        return f"is no requirement: {error}"
    load = _loader(path)
    old = _loaded(load, before) if load else None
    if load is None or old is None:
        return ""
    new = _loaded(load, after)
    if new is None:
        return "does not parse"
    changed = path.endswith(".json") and _shape(old) != _shape(new)
    return "changes more than texts" if changed else ""


def _loaded(load: Callable[[str], object], text: str) -> object:
    """Return what a text says; None if it is not of its format."""
    try:
        return load(text)
    except (ValueError, RecursionError):
        return None


def _loader(path: str) -> Callable[[str], object] | None:
    """Return what parses a file of a format that says what is wrong with it."""
    name = os.path.basename(path).lower()
    if name.endswith(".json"):
        return json.loads
    if name.endswith(".toml") or name == "pipfile":
        for module in ("tomllib", "tomli"):  # the latter, if it is there, before Python 3.11
            try:
                loads: Callable[[str], object] = importlib.import_module(module).loads
            except ModuleNotFoundError:
                continue
            return loads
    return None


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return {key: _shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shape(each) for each in value]
    return str if isinstance(value, str) else value
