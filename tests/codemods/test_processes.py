"""Files that end the process which parses them, or hold it up: all others get done."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

from petastorm_codemods import _processes
from petastorm_codemods._engine import process
from petastorm_codemods._model import Destination, Failed, Success
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings

pytestmark = pytest.mark.modern

BRIDGE = Settings(Destination.BRIDGE)
GOOD = "from petastorm.spark import make_spark_converter\n"
DEEP = GOOD + "x=" + "+(" * 3000 + "1" + ")" * 3000 + "\n"


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "deep.py").write_text(DEEP)
    for number in range(20):
        (tmp_path / f"good{number}.py").write_text(GOOD)
    return tmp_path


def outcomes_of(folder, jobs):
    found = run([str(folder)], BRIDGE, jobs=jobs).outcomes
    failed = {
        os.path.basename(each.path): each.reason for each in found if isinstance(each, Failed)
    }
    return sum(isinstance(each, Success) for each in found), failed


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_that_kills_the_parser_fails_alone(tree, jobs):
    good, failed = outcomes_of(tree, jobs)
    assert (good, list(failed)) == (20, ["deep.py"])
    assert "nested too deep" in failed["deep.py"]


def test_so_does_one_that_is_not_expected_to(tree, monkeypatch):
    monkeypatch.setattr(_processes, "is_risky", lambda *_: False)
    good, failed = outcomes_of(tree, 2)
    assert (good, list(failed)) == (20, ["deep.py"])


def test_a_file_that_takes_too_long_is_given_up():
    text = GOOD + "x = " + "1 + " * 20_000 + "1\n"
    assert _processes.is_risky("x.py", text.encode())
    start = time.monotonic()
    outcome = next(
        _processes.in_processes([("x.py", text.encode())], lambda _: BRIDGE, 1, seconds=0.1)
    )
    assert isinstance(outcome, Failed)
    assert "more than 0.1 seconds" in outcome.reason
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("text", "risky"),
    [
        (DEEP, True),
        ("if a: pass\n" + "elif b: pass\n" * 10_000, True),
        ("x = " + "not " * 5000 + "1", True),
        ("x = [" + "[1, (2, 3)],\n" * 20_000 + "]", False),
        (")" * 5000 + "(" * 100, False),
    ],
)
def test_what_is_worked_on_alone(text, risky):
    assert _processes.is_risky("x.py", text.encode()) is risky


def test_long_files_are_shared_among_processes(monkeypatch):
    long = (GOOD + "x = [" + "1 + 2,\n" * 3100 + "]\n").encode()
    assert _processes.is_risky("x.py", long)
    started = []
    monkeypatch.setattr(
        _processes, "_Worker", lambda make=_processes._Worker: started.append(1) or make()
    )
    files = [(f"{name}.py", long) for name in "abcd"]
    assert len(list(_processes.work_on(files, lambda _: BRIDGE, 2))) == 4
    assert len(started) == 2


@pytest.mark.slow
def test_deep_code_that_the_parser_survives_fails_with_a_reason():
    outcome = process("x.py", (GOOD + "x=" + "[" * 900 + "]" * 900).encode(), BRIDGE)
    assert isinstance(outcome, Failed)
    assert "nested too deep" in outcome.reason


@pytest.fixture
def hundreds(tmp_path):
    """Files that keep two processes busy for seconds."""
    text = GOOD + "".join(
        f"conv{n} = make_spark_converter(frame)\n"
        f"with conv{n}.make_torch_dataloader(num_epochs=1) as loader{n}:\n"
        f"    print(sum(len(batch) for batch in loader{n}))\n"
        for n in range(20)
    )
    for number in range(200):
        (tmp_path / f"m{number}.py").write_text(text)
    return tmp_path


def started(folder, *more):
    command = [sys.executable, "-m", "petastorm_bridge", "codemod", str(folder), "-j", "2", *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def workers_of(process):
    """Wait until workers are there; return them, or what there is if the process ends before."""
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(process.pid).children(recursive=True)
            if len(children) == 2:
                return children
        time.sleep(0.01)
    return []


MOMENTS = int(os.environ.get("PETASTORM_BRIDGE_INTERRUPTS", "4"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(MOMENTS))
def test_ctrl_c_ends_a_run_with_one_sentence_at_any_moment(hundreds, seed):
    rng = random.Random(seed)
    run = started(hundreds, "--to", "streaming", "--write")
    workers = workers_of(run)
    assert workers, run.communicate()
    time.sleep(rng.uniform(0, 2))
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does it
    while run.poll() is None and seed % 2:
        time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGINT)  # people press it again
    _, err = run.communicate(timeout=120)
    sentence = "petastorm-bridge codemod: interrupted; no file was changed."
    assert (run.returncode, err.strip()) in {(130, sentence), (-signal.SIGINT, sentence)}
    psutil.wait_procs(workers, timeout=60)
    assert not [worker for worker in workers if worker.is_running()]
    assert not list(hundreds.glob(".*"))


@pytest.mark.slow
def test_workers_end_with_a_process_that_is_killed(hundreds):
    run = started(hundreds)
    workers = workers_of(run)
    run.kill()
    run.communicate()
    assert workers
    psutil.wait_procs(workers, timeout=60)
    assert not [worker for worker in workers if worker.is_running()]
