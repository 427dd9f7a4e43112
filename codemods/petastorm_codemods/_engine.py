"""One file: read, plan, rewrite, and check the result before anyone sees it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

from ._model import Destination, Edit, Failed, NeedsHuman, Outcome, State, Success, Unchanged
from ._plan import changes, plan_for
from ._settings import Settings
from ._text.magics import first_magic
from ._text.sources import Source, problem_of_python, read_source
from ._text.verify import changed_statements, undefined_names

_DONE = frozenset({State.REWRITTEN, State.WORKS})
# Without these words no rule finds anything in the result.
_LEFT = {
    Destination.BRIDGE: re.compile(r"petastorm(?![_-]bridge)", re.IGNORECASE),
    Destination.STREAMING: re.compile(
        r"petastorm(?![_-]bridge)|petastorm_bridge(?!\.(?:native|streaming)\b)"
        r"|make_torch_dataloader|make_tf_dataset",
        re.IGNORECASE,
    ),
}


def process(path: str, data: bytes, settings: Settings) -> Outcome:
    """Return what becomes of a file with Python in it; nothing is written, nothing raised."""
    with warnings.catch_warnings():
        # Python's parser warns of the user's invalid escapes and comparisons; that is not our job.
        warnings.simplefilter("ignore")
        return _process(path, data, settings)


def _process(path: str, data: bytes, settings: Settings) -> Outcome:
    try:
        source = read_source(path, data)
        plan = plan_for(source, settings)
        if not plan.edits:
            if any(site.state not in _DONE for site in plan.sites):
                return NeedsHuman(path, data, data, plan.sites, plan.noted)
            told = tuple(site for site in plan.sites if site.told)
            quiet = (site for site in plan.sites if not site.told)
            return Unchanged(path, told, (*quiet, *plan.noted))
        after = source.render(plan.edits)
        problem = _problem(source, plan.edits, after, settings)
    except Exception as error:  # noqa: BLE001 – one bad file never stops a run
        deep = isinstance(error, RecursionError)
        reason = "left alone, because its code is nested too deep" if deep else str(error)
        abnormal = not isinstance(error, ValueError | SyntaxError | RecursionError)
        return Failed(path, reason or type(error).__name__, abnormal=abnormal)
    if problem:
        return Failed(path, f"left alone, because the rewrite {problem}", plan.sites)
    if all(site.state in _DONE for site in plan.sites):
        return Success(path, data, after, plan.sites, plan.noted)
    return NeedsHuman(path, data, after, plan.sites, plan.noted)


def _problem(source: Source, edits: Sequence[Edit], after: bytes, settings: Settings) -> str:
    try:
        # What Python parses LibCST does, which takes many times as long.
        is_python = not problem_of_python(source.masked)
        result = read_source(source.path, after, problem_of_python if is_python else None)
    except ValueError as error:
        return f"does not parse: {error}"
    problem = _cell_problem(source, result) or _harm(source, result, edits)
    if problem:
        return problem
    # Analysis is what takes time, and so it is done only where it may find something.
    if _LEFT[settings.destination].search(result.text) and changes(result, settings):
        return "would be rewritten again by a second run"
    return ""


def _cell_problem(source: Source, result: Source) -> str:
    """Return what a rewrite does to the cells of a source; empty if they are as they were."""
    if len(result.cells) != len(source.cells) or any(
        new.problem and not old.problem
        for old, new in zip(source.cells, result.cells, strict=False)
    ):
        return "has a cell that does not parse"
    if any(
        first_magic(old.text) != first_magic(new.text)
        for old, new in zip(source.cells, result.cells, strict=True)
    ):
        return "moves the magic of a cell away from its first line"
    return ""


def _harm(source: Source, result: Source, edits: Sequence[Edit]) -> str:
    if changed_statements(source.masked, result.masked, edits):
        return "changes statements that it should not touch"
    after = undefined_names(result.masked)
    before = undefined_names(source.masked) if after else None
    if before is not None and after is not None and after - before:
        return f"uses names that nothing defines: {', '.join(sorted(after - before))}"
    return ""
