"""Every golden case: its output, that a second run changes nothing, and other newline styles."""

import functools

from petastorm_codemods._engine import process
from petastorm_codemods._model import (
    Failed,
    NeedsHuman,
    Success,
    Unchanged,
)
from petastorm_codemods._project.dependency_files import Wanted, rewritten
from petastorm_codemods._project.distribution import bridge
from petastorm_codemods._project.listing import is_dependency_file
from petastorm_codemods._registry import all_rules


@functools.cache
def run(case, text):
    settings = case.settings
    if is_dependency_file(case.path):
        return rewritten(case.path, text.encode(), Wanted(bridge()))
    return process(case.path, text.encode(), settings)


def wanted(case):
    if "failed" in case.flags:
        return Failed
    if "human" in case.flags:
        return NeedsHuman
    return Unchanged if case.before == case.after else Success


def after(outcome, before):
    return getattr(outcome, "after", before.encode()).decode()


def test_case(case):
    outcome = run(case, case.before)
    assert after(outcome, case.before) == case.after, getattr(outcome, "reason", "")
    assert type(outcome) is wanted(case), getattr(outcome, "reason", outcome.sites)


def test_second_run_is_a_no_op(case):
    outcome = run(case, case.after)
    assert after(outcome, case.after) == case.after
    assert type(outcome) in {Unchanged, NeedsHuman, wanted(case)}


def test_windows_newlines(text_case):
    before, expected = (text.replace("\n", "\r\n") for text in (text_case.before, text_case.after))
    assert after(run(text_case, before), before) == expected


def test_every_rule_has_a_case(all_cases):
    outcomes = (run(case, case.before) for case in all_cases)
    seen = {site.code for outcome in outcomes for site in outcome.sites}
    # The file of the support module comes from a whole run: test_vendor.py.
    assert seen >= {rule.code for rule in all_rules()} - {"PM100"}
