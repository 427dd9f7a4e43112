"""What a run found in numbers, rule by rule, as JSON, as Markdown and as unified diffs."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator

from petastorm_codemods._model import (
    Failed,
    NeedsHuman,
    Outcome,
    Result,
    Rewritten,
    Site,
    State,
    pending,
)
from petastorm_codemods._registry import all_rules
from petastorm_codemods._text.decode import decode

# Line ends stay, those of Windows too.
_STEERING = re.compile(
    r"\r(?!\n)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
    r"|[\ud800-\udfff]"
)
# Marks of the numbers of rules, and what they mean.
_ALL, _SOME, _NONE = "[*]", "[-]", "[ ]"
_LEGEND = {
    _ALL: f"{_ALL} rewritten with --write",
    _SOME: f"{_SOME} rewritten in part with --write",
}
_STATUS = {"Success": "rewritten", "NeedsHuman": "needs a human", "Failed": "failed"}


def status(outcome: Outcome) -> str:
    """Return one word or two for what became of a file."""
    return _STATUS.get(type(outcome).__name__, "unchanged")


def exit_code(result: Result, *, written: bool) -> int:
    """Return 0 if nothing is left to do, 1 if something is, 2 if the run ended abnormally.

    Left to do are changes that are not written, places for a human, and files that do not parse.
    """
    if any(isinstance(outcome, Failed) and outcome.abnormal for outcome in result.outcomes):
        return 2
    unfinished = any(isinstance(outcome, Failed | NeedsHuman) for outcome in result.outcomes)
    return int(unfinished or (not written and any(map(pending, result.outcomes))))


def printable(text: str) -> str:
    """Return text with escapes in place of what could steer a terminal, lines and tabs apart.

    Also of characters that reverse the direction of what follows, and of what no encoding has.
    """
    return _STEERING.sub(lambda match: ascii(match[0])[1:-1], text)


def diff(outcome: Outcome) -> str:
    """Return the unified diff of one file; empty if it does not change."""
    if not isinstance(outcome, Rewritten) or not pending(outcome):
        return ""
    before, after = (
        re.findall(
            r"[^\n]*\n|[^\n]+", decode(outcome.path, data).text
        )  # Git's lines: form feeds end none
        for data in (outcome.before, outcome.after)
    )
    name = outcome.path.replace(os.sep, "/").lstrip("/")
    old = f"a/{name}" if outcome.before else "/dev/null"  # as Git says of a new file
    lines = difflib.unified_diff(before, after, old, f"b/{name}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def counts(result: Result) -> dict[str, int]:
    """Return the numbers of files and call sites by what became of them."""
    files = Counter(status(outcome) for outcome in result.outcomes)
    # What was to be rewritten in a file that failed is not.
    sites = Counter(
        site.state
        for outcome, site in sites_of(result)
        if not isinstance(outcome, Failed) or site.state is not State.REWRITTEN
    )
    return {
        "scanned": result.scanned,
        "rewritten": files["rewritten"],
        "needs a human": files["needs a human"],
        "failed": files["failed"],
        "sites rewritten": sites[State.REWRITTEN],
        "sites left": sites[State.MANUAL] + sites[State.NEEDS_UNSAFE],
    }


def sites_of(result: Result) -> Iterator[tuple[Outcome, Site]]:
    """Yield every site with the file that it is in."""
    for outcome in result.outcomes:
        for site in outcome.sites:
            yield outcome, site


def _listed(outcome: Outcome) -> list[Site]:
    sites = [*outcome.sites, *([] if isinstance(outcome, Failed) else outcome.noted)]
    return sorted(sites, key=lambda site: (site.cell or 0, site.line, site.column))


def place_of(site: Site) -> str:
    """Say in which line a site is, and in which cell of a notebook."""
    return f"cell {site.cell}, line {site.line}" if site.cell else str(site.line)


def to_json(result: Result) -> str:
    """Return the run as JSON: counts, and for each file its status, reason and call sites."""
    files = [
        {
            "path": outcome.path,
            "status": status(outcome),
            "reason": outcome.reason if isinstance(outcome, Failed) else None,
            "changes": pending(outcome),
            "sites": [
                {
                    "code": site.code,
                    "cell": site.cell,
                    "line": site.line,
                    "column": site.column,
                    "message": site.message,
                    "safety": site.safety.value,
                    "state": site.state.value,
                    "confidence": site.confidence,
                }
                for site in _listed(outcome)
            ],
        }
        for outcome in result.outcomes
    ]
    return json.dumps({"version": 1, "counts": counts(result), "files": files}, indent=2)


def to_markdown(result: Result) -> str:
    """Return the run as Markdown: counts, a table of call sites, and the files that failed."""
    lines = ["# petastorm-bridge codemod\n", "| what | number |", "|---|---|"]
    lines += [f"| {what} | {number} |" for what, number in counts(result).items()]
    rows = [
        f"| {_cell(outcome.path)} | {place_of(site)} | {site.code} | {site.state.value} "
        f"| {site.confidence} | {_cell(site.message)} |"
        for outcome in result.outcomes
        for site in _listed(outcome)
    ]
    if rows:
        lines += ["\n## Call sites\n", "| file | line | rule | result | confidence | what |"]
        lines += ["|---|---|---|---|---|---|", *rows]
        lines += ["\n`petastorm-bridge rule CODE` explains a rule, and says what to do."]
    failed = [
        f"- `{outcome.path}`: {outcome.reason}"
        for outcome in result.outcomes
        if isinstance(outcome, Failed)
    ]
    if failed:
        lines += ["\n## Failed\n", *failed]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def statistics(result: Result, *, written: bool) -> Iterator[str]:
    """Yield a line for each rule with something left to do, as ruff does: number, code, whether it is rewritten, name.

    Args:
        result: What came of the run.
        written: Whether the rewrites are made; they are not counted then, as nothing is left of them.
    """
    totals: Counter[str] = Counter()
    rewritten: Counter[str] = Counter()
    for _, site in sites_of(result):
        if site.state is State.WORKS or (written and site.state is State.REWRITTEN):
            continue
        totals[site.code] += 1
        rewritten[site.code] += site.state is State.REWRITTEN
    totals["PM000"] += sum(isinstance(outcome, Failed) for outcome in result.outcomes)
    names = {rule.code: rule.name for rule in all_rules()}
    ordered = sorted((-number, code) for code, number in totals.items() if number)
    width = max((len(str(-number)) for number, _ in ordered), default=0)
    marks = set()
    for negative, code in ordered:
        mark = _mark(rewritten[code], -negative)
        marks.add(mark)
        yield f"{-negative:>{width}}\t{code}\t{mark} {names[code]}"
    yield from (text for mark, text in _LEGEND.items() if mark in marks)


def _mark(part: int, number: int) -> str:
    if part == number:
        return _ALL
    return _SOME if part else _NONE
