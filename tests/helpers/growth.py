"""How the cost of an operation grows with its input, counted instead of timed.

A clock on a shared machine says little about whether something is linear; the number of function
calls says it exactly, and the same on every machine. Loops within one call of C code (a `list.index`,
a regular expression) are not seen: count their comparisons, or run them in a process with a limit.
"""

import sys
import threading
from collections.abc import Callable

FACTOR = 4
# Linear growth gives FACTOR; n log n at the sizes of tests stays below this; quadratic gives 16.
LIMIT = 6.0


def count_calls(operation: Callable[[], object]) -> int:
    """Run an operation and count the calls of Python and C functions in it, threads included."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        if event in {"call", "c_call"}:
            calls += 1

    before = sys.getprofile()
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        operation()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return calls


def assert_grows_linearly(
    prepare: Callable[[int], Callable[[], object]], size: int, limit: float = LIMIT
) -> None:
    """Fail unless four times the input costs at most about four times the calls.

    Args:
        prepare: Makes the operation for an input of some size. What it does itself is not counted.
        size: The smaller of the two sizes; large enough that constant costs do not hide the rest.
        limit: The highest ratio of the two counts that passes.
    """
    prepare(size)()  # imports and caches that are filled once belong to neither count
    small = count_calls(prepare(size))
    large = count_calls(prepare(FACTOR * size))
    assert large <= limit * small, (
        f"{small} calls for size {size}, {large} for {FACTOR * size}: "
        f"{large / small:.1f} times, at most {limit} is linear"
    )
