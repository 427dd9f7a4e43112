"""What there is to say of each rule: for ``petastorm-bridge rule`` and for the guide's page of rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from petastorm_codemods._model import Safety
from petastorm_codemods._registry import Rule, all_rules

_HEAD = """# Rules of the codemod

For people who review what [`petastorm-bridge codemod`](run-the-codemod.md) did, or who met a mark such as
`# petastorm-bridge rule PM003: …` in their code. At the end you know what the rule does, why a place was left to you, and what
to do there. `petastorm-bridge rule PM003` prints the same in a terminal.

What the words in the last column mean:

- *safe*: the rewritten code gives the same batches.
- *behaviour-changing*: the rewrite is made only with `--unsafe`.
- *manual*: the codemod changes nothing here. It writes a comment, and you decide.

To silence a place that is as it should be, write `# petastorm-bridge: ignore[PM003]` at the end of its line.
"""

_LIKE_PM003 = """- The mark says *unused*: remove the import.
- The mark names a replacement: use that.
- Pools of workers (`ThreadPool`, `ProcessPool`): remove them. Pass `workers_count` and `reader_pool_type` to the reader."""

_LIKE_PM102 = """- *stays on the bridge*: nothing. The call runs, over the same shards.
- Ranks are in the way (`cur_shard`, `shard_count`): start the training with `torchrun` and leave both arguments out.
- The arguments are in a dictionary (`**options`): write them into the call.
- *may be another class's*: annotate the parameter, `def fit(converter: SparkDatasetConverter)`."""

# What a human does about what is left of a rule: one line for each case.
NOW = {
    "PM000": "- Mend the file or the cell, or exclude it: `--exclude 'legacy/*'`.\n"
    "- `--ignore PM000` leaves out cells; a file that does not parse is always named.",
    "PM002": "- A program in a string: rewrite it there as in a file of its own.\n"
    "- A path that nothing uses any more: name what took its place, or remove the patch.",
    "PM003": _LIKE_PM003,
    "PM010": """- Lock files and files with hashes: make them anew from their sources (`pip-compile`, `uv lock`).
- Conda: it has no such package. Put it into the `pip:` part of the environment.
- Everything else: change the line by hand.""",
    "PM101": "- Give the arguments by name, or run `--to bridge` for this file: it takes every form of call.",
    "PM102": _LIKE_PM102,
    "PM103": _LIKE_PM102,
    "PM104": _LIKE_PM003,
    "PM106": "- Look which directory is in use. Then run with `--unsafe`, or put the key right by hand.",
    "PM107": """- *stays on the bridge*: nothing. The reader runs.
- To have it moved, open the reader where it is used, in a `with`, and read `row.name` in the loop itself.
- It has `schema_fields`: convert with `petastorm-bridge convert --columns` instead.
- It has images or nulls: write a `collate_fn` over `StreamingDataset`.""",
    "PM108": """- `getattr(converter, "make_torch_dataloader")`: call the method by its name.
- One variable is a converter in one branch and something else in another: use two names.
- A test stubs or patches `make_torch_dataloader`: patch what the rewritten code calls, `write_mds` or the loader.
- The program replaces a part of Petastorm by its own: leave that out, and see whether the bridge needs it.
- The program checks Petastorm's version: remove the check, or ask whether what it needs can be imported.""",
}


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


def rule_list() -> Iterator[str]:
    """Yield a line for each rule."""
    for rule in all_rules():
        yield f"{rule.code}  {rule.summary} [{rule.safety.value}]"


def rule_lines(code: str) -> Iterator[str]:
    """Yield what there is to say of a rule, for a terminal.

    Raises:
        ValueError: There is no such rule.
    """
    by_code = {rule.code: rule for rule in all_rules()}
    rule = by_code.get(code.upper())
    if rule is None:
        raise ValueError(f"no rule has the code {code!r}; there are {', '.join(by_code)}")
    yield f"{rule.code} {rule.name}: {rule.summary}"
    yield f"For --to {_destinations(rule)}; {rule.safety.value}."
    yield ""
    yield from _body(rule, [f"    {line}" for line in _example(rule)])


def _destinations(rule: Rule) -> str:
    return ", ".join(sorted(destination.value for destination in rule.destinations))


def _body(rule: Rule, example: Sequence[str]) -> Iterator[str]:
    """Yield what a rule does, an example, and what to do where it does nothing."""
    yield from (line.rstrip() for line in rule.text.replace("``", "`").splitlines())
    if rule.before:
        unchanged = "Marked" if rule.safety is Safety.MANUAL else "Met"
        yield from ("", f"{'Example' if rule.after else unchanged}:", "", *example)
    if rule.code in NOW:
        yield from ("", "If a place is left to you:", "", *NOW[rule.code].splitlines())


def _example(rule: Rule) -> list[str]:
    """Return the example: a diff, or what is marked."""
    if not rule.after:
        return rule.before.splitlines()
    removed = [f"-{line}" for line in rule.before.splitlines()]
    return [*removed, *(f"+{line}" for line in rule.after.splitlines())]


def _entry(rule: Rule) -> list[str]:
    example = ["```diff" if rule.after else "```text", *_example(rule), "```"]
    heading = [f'<a id="{rule.code.lower()}"></a>', f"## {rule.code} {rule.name}", ""]
    return [*heading, *_body(rule, example)]
