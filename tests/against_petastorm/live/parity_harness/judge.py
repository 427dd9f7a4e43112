"""Decide whether two outcomes agree, or differ as `expected_differences` says they do."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from parity_harness.comparison import Mismatch, as_compared, differences
from parity_harness.outcome import Outcome

Relation = Callable[[Outcome, Outcome], "str | None"]


@dataclass(frozen=True)
class Expected:
    """A difference that is meant.

    Attributes:
        name: Its name among the bridge's known differences.
        scenarios: Names of scenarios; `*` stands for anything.
        holds: How the bridge's outcome must look beside the original's; gives a complaint or None.
        why: What the bridge does instead, and why, when the name does not say it all.
    """

    name: str
    scenarios: tuple[str, ...]
    holds: Relation
    why: str = ""

    def covers(self, scenario: str) -> bool:
        """Say whether this entry is about that scenario."""
        return any(_pattern(glob).fullmatch(scenario) for glob in self.scenarios)


@functools.cache
def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, glob.split("*"))), re.DOTALL)


def expectation(scenario: str) -> Expected | None:
    """Find the one entry about a scenario, if there is one."""
    entries: tuple[Expected, ...] = importlib.import_module("expected_differences").EXPECTED
    found = [entry for entry in entries if entry.covers(scenario)]
    if len(found) > 1:
        raise AssertionError(f"{scenario}: several expected differences: {found}")
    return found[0] if found else None


def judge(scenario: str, original: Outcome, bridge: Outcome, *, order: bool = True) -> None:
    """Fail unless the outcomes agree, or part in the way that is written down.

    Args:
        scenario: The scenario's name.
        original: The original's outcome.
        bridge: The bridge's outcome.
        order: Compare the order of rows; otherwise the rows as a multiset and the batch sizes.
    """
    original, bridge = (as_compared(outcome, order=order) for outcome in (original, bridge))
    found = differences(original, bridge)
    expected = expectation(scenario)
    if expected is None:
        assert not found, report(scenario, found)
        return
    assert found, (
        f"{scenario}: the packages agree now; remove it from the expected difference "
        f"{expected.name!r}"
    )
    complaint = expected.holds(original, bridge)
    assert complaint is None, (
        f"{scenario}: differs, but not as the expected difference {expected.name!r} says: "
        f"{complaint}\n{report(scenario, found)}"
    )


def report(scenario: str, found: list[Mismatch]) -> str:
    """Write the differences down, the first few of them."""
    lines = [f"{scenario}: {len(found)} difference(s)", *map(str, found[:5])]
    return "\n".join(lines)
