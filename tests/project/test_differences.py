"""Every known difference is exercised by a test, and nothing else claims to be one."""

import ast
import pathlib
import sys

from petastorm_bridge._tables.differences import DIFFERENCES

TESTS = pathlib.Path(__file__).parents[1]


def marked_names():
    """Names in `@pytest.mark.difference("…")` anywhere in the tests."""
    found = set()
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "difference"
            ):
                found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return found


def expected_names():
    """Names that the live comparison accepts; an entry that is never met fails there."""
    sys.path.insert(0, str(TESTS / "against_petastorm" / "live"))
    try:
        import expected_differences
    finally:
        sys.path.remove(str(TESTS / "against_petastorm" / "live"))
    return {entry.name for entry in expected_differences.EXPECTED}


def test_every_difference_is_exercised_and_every_exercise_is_listed():
    listed = {difference.name for difference in DIFFERENCES}
    exercised = marked_names() | expected_names()
    assert listed - exercised == set(), "listed, but no test exercises them"
    assert exercised - listed == set(), "exercised, but not listed"


def test_names_are_unique():
    names = [difference.name for difference in DIFFERENCES]
    assert len(names) == len(set(names))
