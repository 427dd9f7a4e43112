"""Threads that call functions: in order, as many as are needed, and none that stays."""

import gc
import threading
import time

import pytest
from forks import in_fork

from petastorm_bridge._workers.threads import Threads, each_at_once

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)


def test_calls_begin_in_the_order_in_which_they_came():
    threads, go, seen = Threads("test", 1), threading.Event(), []
    threads.submit(go.wait)
    futures = [threads.submit(lambda name=name: seen.append(name)) for name in "bdac"]
    go.set()
    for future in futures:
        future.result(20)
    assert seen == list("bdac")
    threads.close()


def test_calls_of_a_lower_priority_number_come_first():
    threads, go, seen = Threads("test", 1), threading.Event(), []
    threads.submit(go.wait)
    futures = [
        threads.submit(lambda name=name: seen.append(name), priority=priority)
        for name, priority in (("c", 1), ("d", 1), ("e", 2), ("a", 0), ("b", 0))
    ]
    go.set()
    for future in futures:
        future.result(20)
    assert seen == list("abcde")
    threads.close()


def test_a_thread_starts_only_where_none_is_idle(no_leaks):
    with no_leaks():
        threads = Threads("test", 8)
        names = {threads.submit(lambda: threading.current_thread().name).result(20)}
        for _ in range(5):
            while threads._crew.idle == 0:
                time.sleep(0.001)
            names.add(threads.submit(lambda: threading.current_thread().name).result(20))
        threads.close()
    assert len(names) == 1


def test_free_says_how_many_more_calls_would_begin():
    threads, meeting, go = Threads("test", 3), threading.Barrier(3), threading.Event()
    assert threads.free == 3
    futures = [threads.submit(lambda: (meeting.wait(20), go.wait(20))) for _ in range(2)]
    assert threads.free == 1  # whether they have begun or not
    meeting.wait(20)
    assert threads.free == 1
    futures += [threads.submit(lambda: go.wait(20)) for _ in range(2)]
    assert threads.free == 0
    go.set()
    for future in futures:
        future.result(20)
    while threads.free < 3:  # a call is at work a moment longer than its result takes
        time.sleep(0.001)
    threads.close()


def test_one_more_is_allowed_where_something_waits():
    threads, meeting = Threads("test", 1), threading.Barrier(2)
    futures = [threads.submit(lambda: meeting.wait(20)) for _ in range(2)]
    threads.grow()
    assert sorted(future.result(20) for future in futures) == [0, 1]
    threads.grow()
    assert threads.most == 2
    threads.close()


def test_idle_threads_end_and_start_again(no_leaks):
    threads = Threads("test", 2, idle_seconds=0.01)
    with no_leaks():
        assert threads.submit(lambda: 1).result(20) == 1
    assert threads.submit(lambda: 2).result(20) == 2


def test_an_error_is_raised_where_the_result_is_asked_for():
    threads = Threads("test", 1)
    with pytest.raises(KeyError, match="here"):
        threads.submit(lambda: {}["here"]).result(20)
    assert threads.submit(lambda: 2).result(20) == 2
    threads.close()


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "collected"])
def test_what_waits_is_cancelled_at_the_end(no_leaks, is_closed):
    with no_leaks():
        threads, go = Threads("test", 1), threading.Event()
        running, waiting = threads.submit(go.wait), threads.submit(go.wait)
        while not running.running():
            time.sleep(0.001)
        if is_closed:
            threading.Timer(0.1, go.set).start()
            threads.close()
        else:
            del threads
            gc.collect()
            go.set()
        assert waiting.cancelled()
        assert running.result(20)


def test_where_one_of_many_fails_none_is_asked_again():
    asked = []

    def fail(number):
        asked.append(number)
        raise RuntimeError(f"{number} is damaged")

    with pytest.raises(RuntimeError, match="0 is damaged"):
        each_at_once(fail, range(100), is_far=True)
    assert len(asked) == len(set(asked))


def test_what_comes_after_the_end_is_cancelled():
    threads = Threads("test", 1)
    assert threads.submit(lambda: 1).result(20) == 1
    threads.close()
    assert threads.submit(lambda: 2).cancelled()


def test_who_does_not_end_in_time_is_given_up_by_what_it_is_about(monkeypatch):
    monkeypatch.setattr("petastorm_bridge._workers.threads._GRACE_SECONDS", 0.1)
    go, given_up = threading.Event(), []

    def give_up(calls):
        given_up.extend(calls)
        go.set()
        return True

    threads = Threads("test", 2, give_up=give_up)
    futures = [threads.submit(go.wait, about) for about in (7, 3)]
    while not all(future.running() for future in futures):
        time.sleep(0.001)
    threads.close()
    assert sorted(given_up) == [3, 7]
    assert all(future.done() for future in futures)


def test_a_fork_begins_anew():
    threads, go = Threads("test", 1), threading.Event()
    threads.submit(go.wait)
    assert in_fork(lambda: threads.submit(lambda: "there").result(20)) == "'there'"
    go.set()
    assert threads.submit(lambda: "here").result(20) == "here"
    threads.close()
