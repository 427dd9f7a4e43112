"""Worker processes: tasks, what is reported meanwhile, errors and ends."""

import os
import pickle
import signal
import sys
import threading

import psutil
import pytest

from petastorm_bridge._workers.process import WorkerEndedError, WorkerProcesses


class Evaluating:
    """A function that evaluates tasks; the worker, which cannot import this module, makes its own."""

    def __reduce__(self):
        return eval, (
            "lambda task, report: eval(task, {'report': report, 'os': __import__('os')})",
        )


@pytest.fixture
def processes():
    made = WorkerProcesses(pickle.dumps(Evaluating()))
    yield made
    made.kill()


def test_results_and_reports(processes):
    reported = []
    assert processes.run("[report(1), report('two')] and 3", reported.append) == 3
    assert reported == [1, "two"]


def test_one_process_serves_one_task_after_the_other(processes):
    assert len({processes.run("os.getpid()") for _ in range(3)}) == 1


def test_two_tasks_at_a_time_have_two_processes(processes):
    found, meeting = [], threading.Barrier(2)

    def run():
        meeting.wait(20)
        found.append(processes.run("(__import__('time').sleep(1), os.getpid())[1]"))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 2


def test_an_error_comes_as_it_was_raised_and_the_process_goes_on(processes):
    process = processes.run("os.getpid()")
    with pytest.raises(ZeroDivisionError) as caught:
        processes.run("1 / 0")
    assert "Traceback" in str(caught.value.__cause__)
    assert processes.run("os.getpid()") == process


def test_an_answer_that_nobody_read_is_no_other_tasks(processes, no_leaks):
    def fail(_):
        raise OSError("nobody listens")

    with no_leaks():
        with pytest.raises(OSError, match="nobody listens"):
            processes.run("[report(1), 'first'][1]", fail)
        assert [processes.run(f"{n} + {n}") for n in (2, 3)] == [4, 6]
        processes.kill()


def test_a_path_in_the_search_path_is_ignored_as_python_does(processes, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])
    assert str(tmp_path) not in processes.run("__import__('sys').path")


def test_a_process_that_dies_is_told_and_another_takes_its_place(processes):
    process = processes.run("os.getpid()")
    with pytest.raises(WorkerEndedError, match=r"by signal 9 \(SIGKILL\)"):
        processes.run(f"os.kill(os.getpid(), {int(signal.SIGKILL)})")
    with pytest.raises(WorkerEndedError, match="with exit code 3"):
        processes.run("os._exit(3)")
    assert processes.run("os.getpid()") not in {process, os.getpid()}


def test_kill_ends_what_is_under_way_and_what_starts_later(processes, no_leaks):
    with no_leaks():
        idle = psutil.Process(processes.run("os.getpid()"))
        threading.Timer(0.5, processes.kill).start()
        with pytest.raises(WorkerEndedError):
            processes.run("__import__('time').sleep(300)")
        with pytest.raises(WorkerEndedError):
            processes.run("1")
    assert not idle.is_running()
