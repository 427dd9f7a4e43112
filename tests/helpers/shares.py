"""Which tests make runs where, and in which order.

``--share-of`` leaves out what the other stack shows as well. ``--turn`` leaves out most of what needs Spark, TensorFlow
or seconds: those tests take turns by the number of the commit, so that each of them runs on each stack once in
``TURNS`` commits.
"""

import hashlib
from pathlib import Path

import pytest

STACKS = ("legacy", "modern")

# Of the tests marked `anystack` a sample has one in so many, and one of each file; none that is slow.
SAMPLE = 10

TURNS = 6
TAKE_TURNS = {"slow", "spark", "tf"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--share-of`` and ``--turn``."""
    parser.addoption(
        "--share-of",
        choices=STACKS,
        help="run what make runs on a stack of the tests marked `anystack` or `divided`",
    )
    parser.addoption(
        "--turn",
        type=int,
        help=f"of the tests that need Spark, TensorFlow or seconds run one in {TURNS}: those whose "
        "turn it is, by the number of commits",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests that are to run, and put the files that take longest first.

    At the end one test process would have a long file left while the other had nothing to do.
    """
    astray = [item.nodeid for item in items if _is_astray(item)]
    if astray:
        raise pytest.UsageError(
            f"make looks for tests marked `alone` in tests/stress only: {astray}"
        )
    stack = config.getoption("--share-of")
    left = set() if stack is None else _not_in_share(stack, items)
    turn = config.getoption("--turn")
    if turn is not None:
        left |= {item.nodeid for item in items if not _has_turn(item, stack, turn)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]
    marks: dict[Path, set[str]] = {}
    for item in items:
        marks.setdefault(item.path, set()).update(mark.name for mark in item.iter_markers())
    # make's `--no-loadscope-reorder` keeps this order.
    items.sort(key=lambda item: [mark not in marks[item.path] for mark in ("slow", "spark", "tf")])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left for other commits."""
    turn = terminalreporter.config.getoption("--turn")
    if turn is not None:
        terminalreporter.line(
            f"Of the tests that need Spark, TensorFlow or seconds one in {TURNS} ran: turn "
            f"{turn % TURNS + 1} of {TURNS}. `make test TURN=all` runs all of them."
        )


def _is_astray(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("alone")) and item.path.parent.name != "stress"


def _not_in_share(stack: str, items: list[pytest.Item]) -> set[str]:
    """The names of the tests that make leaves to the other stack."""
    left = {item.nodeid for item in items if _stack_of(item) not in {stack, None}}
    if stack == "legacy":
        left |= _not_in_sample([item for item in items if item.get_closest_marker("anystack")])
    return left


def _stack_of(item: pytest.Item) -> str | None:
    """Where make runs a divided test: those with the same argument, or the slow ones of a file, together.

    A test with a condition of its own stays on both stacks: it may be met on one of them only.
    """
    mark = item.get_closest_marker("divided")
    if mark is None or item.get_closest_marker("skipif") or item.get_closest_marker("anystack"):
        return None
    alone = item.path.name if item.get_closest_marker("slow") else item.nodeid
    return STACKS[_digest(mark.args[0] if mark.args else alone)[0] % 2]


def _has_turn(item: pytest.Item, stack: str | None, turn: int) -> bool:
    """Whether a test is quick, or its turn has come; on the two stacks that is at different commits."""
    if not TAKE_TURNS & {mark.name for mark in item.iter_markers()}:
        return True
    if stack == "modern":
        turn += TURNS // 2
    return _digest(_company(item))[0] % TURNS == turn % TURNS


def _company(item: pytest.Item) -> str:
    """What a test shares with others, so that it is made for all of them or for none: a fixture of their file."""
    file, _, _ = item.nodeid.partition("::")
    shared = [
        name
        for name, definitions in item._fixtureinfo.name2fixturedefs.items()  # type: ignore[attr-defined]
        if definitions[-1].scope in {"class", "module"} and definitions[-1].baseid.startswith(file)
    ]
    return f"{file}::{min(shared)}" if shared else item.nodeid


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _not_in_sample(items: list[pytest.Item]) -> set[str]:
    """The names of those that a sample leaves out; the same in every test process and run."""
    left = {item.nodeid for item in items if item.get_closest_marker("slow")}
    files: dict[Path, list[str]] = {}
    for item in items:
        if item.nodeid not in left:
            files.setdefault(item.path, []).append(item.nodeid)
    for names in files.values():
        names.sort(key=_digest)
        left.update(names[-(-len(names) // SAMPLE) :])
    return left
