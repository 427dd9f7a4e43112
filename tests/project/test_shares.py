"""What `make test` leaves to other commits is run by them."""

from types import SimpleNamespace

import pytest
import shares
from shares import STACKS, TAKE_TURNS, TURNS


def item(name, marks=(), fixture=None):
    """What pytest collects of a test that has marks, and uses a fixture of the given scope and place."""
    definitions = {} if fixture is None else {"made": [SimpleNamespace(**fixture)]}
    return SimpleNamespace(
        nodeid=name,
        iter_markers=lambda: [SimpleNamespace(name=mark) for mark in marks],
        _fixtureinfo=SimpleNamespace(name2fixturedefs=definitions),
    )


def turns_of(test, stack):
    return [turn for turn in range(700, 700 + TURNS) if shares._has_turn(test, stack, turn)]


def collected(count=300, **more):
    return [item(f"tests/a/test_a.py::test_{number}", **more) for number in range(count)]


def test_quick_tests_have_every_turn():
    for test in collected(10, marks=["anystack", "parametrize"]):
        assert turns_of(test, "legacy") == turns_of(test, "modern") == list(range(700, 700 + TURNS))


@pytest.mark.parametrize("mark", sorted(TAKE_TURNS))
def test_the_others_have_one_on_each_stack_and_never_both_at_once(mark):
    taken = {stack: [turns_of(test, stack) for test in collected(marks=[mark])] for stack in STACKS}
    assert {len(turns) for stack in STACKS for turns in taken[stack]} == {1}
    assert all(one != other for one, other in zip(*taken.values(), strict=True))
    # None of the turns is left without tests, or has most of them.
    for stack in STACKS:
        counts = [taken[stack].count([turn]) for turn in range(700, 700 + TURNS)]
        assert min(counts) > 300 / TURNS / 2
        assert max(counts) < 300 / TURNS * 2


def test_what_is_made_for_several_tests_is_made_in_one_turn():
    own = {"scope": "module", "baseid": "tests/a/test_a.py"}
    assert len({tuple(turns_of(t, "modern")) for t in collected(marks=["spark"], fixture=own)}) == 1
    for elsewhere in (own | {"baseid": "tests"}, own | {"scope": "function"}):
        apart = collected(marks=["spark"], fixture=elsewhere)
        assert len({tuple(turns_of(test, "modern")) for test in apart}) == TURNS
