"""The list of expected differences holds nothing that no scenario meets."""

from collections import Counter

import pytest
from expected_differences import EXPECTED
from other_versions import NOT_JUDGED
from parity_scenarios import all_names

NAMES = list(all_names())


def test_scenario_names_are_unique():
    assert [name for name, count in Counter(NAMES).items() if count > 1] == []


@pytest.mark.parametrize("entry", EXPECTED, ids=lambda entry: f"{entry.name} {entry.scenarios[0]}")
def test_every_pattern_names_a_scenario(entry):
    for pattern in entry.scenarios:
        alone = type(entry)(entry.name, (pattern,), entry.holds)
        assert any(alone.covers(name) for name in NAMES), f"{pattern!r} names no scenario"


def test_no_scenario_is_named_twice():
    for name in NAMES:
        assert sum(entry.covers(name) for entry in EXPECTED) <= 1, name


def test_what_other_versions_cannot_judge_are_scenarios():
    assert set(NOT_JUDGED) <= set(NAMES)
