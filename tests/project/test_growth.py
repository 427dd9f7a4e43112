"""The measure of growth tells linear from worse."""

import threading

import pytest
from growth import assert_grows_linearly, count_calls

pytestmark = pytest.mark.modern


def nothing():
    pass


def times(count):
    def operation():
        for _ in range(count):
            nothing()

    return operation


def test_linear_passes():
    assert_grows_linearly(times, 100)


@pytest.mark.parametrize("cost", [lambda n: n * n, lambda n: 2 ** (n // 4)])
def test_more_than_linear_fails(cost):
    with pytest.raises(AssertionError, match="at most 6"):
        assert_grows_linearly(lambda size: times(cost(size)), 16)


def test_calls_in_threads_count():
    def in_a_thread():
        thread = threading.Thread(target=times(1000))
        thread.start()
        thread.join()

    assert count_calls(in_a_thread) > 1000
