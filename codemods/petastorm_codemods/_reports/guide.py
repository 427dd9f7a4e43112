"""The guide's page of rules, built from the rules."""

from __future__ import annotations

from petastorm_codemods._model import Safety
from petastorm_codemods._registry import Rule, all_rules

_HEAD = """# Rules of the codemod

One entry for each rule of [`petastorm-bridge codemod`](run-the-codemod.md). *safe* rewrites give the same
batches, *behaviour-changing* ones wait for `--unsafe`, and what is *manual* is marked with a comment.
"""

_NOW_HEAD = """
## What to do now

With what is left: a mark in a file, or a line of the report. Silence a place that is as it should be with
`# petastorm-bridge: ignore[PM003]`; other rules leave nothing.

| code | what to do |
|---|---|"""

# What a human does about what is left of a rule.
NOW = {
    "PM000": "Mend the file or the cell, or exclude it: `--exclude 'legacy/*'`.",
    "PM003": "Remove the import if it says *unused*. Otherwise do what the mark says: most names are parts of Petastorm's "
    "readers that a caller never needed. Programs that start pools of workers pass `workers_count` and "
    "`reader_pool_type` to a reader.",
    "PM010": "Change the requirement by hand: lock files and files with hashes are made anew from their sources "
    "(`pip-compile`, `uv lock`); conda has no such package, so put it into the `pip:` part of the environment.",
    "PM101": "Give arguments by name, or run `--to bridge` for this file: it takes every form of call.",
    "PM102": "It runs, on the bridge: *stays on the bridge* needs nothing now. Where ranks are in the way, train with "
    "`torchrun` and leave `cur_shard` out; where a dictionary holds the arguments, write them into the call; where "
    "it *may be another class's*, annotate the parameter with `SparkDatasetConverter`.",
    "PM103": "As for PM102.",
    "PM104": "As for PM003.",
    "PM106": "Look which directory is in use, then run with `--unsafe`, or put the key right by hand.",
    "PM107": "It runs, on the bridge. Open the reader where it is used, in a `with` of its own; read `row.name` in the loop "
    "itself; convert with `--columns` in place of `schema_fields`. Images and nulls are for a `collate_fn` of yours over "
    "`StreamingDataset`.",
    "PM108": "Call the method by its name on the converter, and give the converter a name of its own in each branch. In "
    "tests stub or patch what the rewritten code calls: `write_mds`, and streaming's loader. Where the program replaces "
    "a part of Petastorm, leave that out and see whether the bridge needs it.",
}


def rules_page(note: str) -> str:
    """Return the page; the note says that it is generated."""
    lines = [note, _HEAD, "| code | rule | for `--to` | safety |", "|---|---|---|---|"]
    lines += [
        f"| [{rule.code}](#{rule.code.lower()}) | {rule.summary} | {_destinations(rule)} "
        f"| {rule.safety.value} |"
        for rule in all_rules()
    ]
    lines += [_NOW_HEAD, *(f"| [{code}](#{code.lower()}) | {text} |" for code, text in NOW.items())]
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
