"""The guide's page of rules, built from the rules."""

from __future__ import annotations

from petastorm_codemods._model import Safety
from petastorm_codemods._registry import Rule, all_rules

_HEAD = """# Rules of the codemod

One entry for each rule of [`petastorm-bridge codemod`](run-the-codemod.md). *safe* rewrites give the same
batches, *behaviour-changing* ones wait for `--unsafe`, and what is *manual* is marked with a comment.
"""


def rules_page(note: str) -> str:
    """Return the page; the note says that it is generated."""
    lines = [note, _HEAD, "| code | rule | for `--to` | safety |", "|---|---|---|---|"]
    lines += [
        f"| [{rule.code}](#{rule.code.lower()}) | {rule.summary} | {_destinations(rule)} "
        f"| {rule.safety.value} |"
        for rule in all_rules()
    ]
    for rule in all_rules():
        lines += ["", *_entry(rule)]
    return "\n".join([*lines, ""])


def _destinations(rule: Rule) -> str:
    return ", ".join(sorted(destination.value for destination in rule.destinations))


def _entry(rule: Rule) -> list[str]:
    lines = [f'<a id="{rule.code.lower()}"></a>', f"## {rule.code} {rule.name}\n"]
    lines += [line.strip() for line in rule.text.replace("``", "`").splitlines()]
    if rule.after:
        removed = [f"-{line}" for line in rule.before.splitlines()]
        added = [f"+{line}" for line in rule.after.splitlines()]
        lines += ["\n```diff", *removed, *added, "```"]
    elif rule.before:
        what = "Marked" if rule.safety is Safety.MANUAL else "Found"
        lines += [f"\n{what}:\n", "```text", *rule.before.splitlines(), "```"]
    return lines
