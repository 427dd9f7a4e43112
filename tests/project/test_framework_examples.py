"""The examples for training frameworks deliver the rows they should, in the form their users write."""

import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import warm

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ROWS = list(range(1797))


def launcher_of(script):
    """Return the launcher that the first lines of an example name, as arguments of Python."""
    text = (EXAMPLES / script).read_text()
    (arguments,) = re.findall(rf"\btorchrun (.*) {script}\b", text)
    return ["-m", "torch.distributed.run", *arguments.split()]


pytestmark = [
    pytest.mark.modern,
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("optuna") is None, reason="the frameworks are in requirements/modern"
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the examples put the digits, once for all."""
    return tmp_path_factory.mktemp("digits")


@pytest.fixture
def run(folder, tmp_path):
    """``run("train_ray.py")`` → the rows that each part of an example saw, and what it printed."""

    def start(script, *launcher):
        return warm.run(
            [sys.executable, *launcher, str(EXAMPLES / script), "--cache-dir", str(folder)],
            check=False,
            capture_output=True,
            text=True,
            timeout=500,
            cwd=tmp_path,
            env={
                **os.environ,
                "SEEN_ROWS": str(tmp_path / "seen"),
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
        )

    def run(script, *launcher):
        done = start(script, *launcher)
        for _ in range(2):  # Ray gives its processes 30 seconds, which a busy machine may not
            if "The current node timed out during startup" in done.stderr:
                done = start(script, *launcher)
        assert done.returncode == 0, done.stdout + done.stderr[-5000:]
        seen = (tmp_path / "seen").read_text()
        return dict(map(json.loads, seen.splitlines())), done.stdout

    return run


def assert_two_epochs(first, second, share):
    """Each rank has ``share`` rows of every epoch, and together they have all rows."""
    assert len(first) == len(second) == 2 * share
    for epoch in (slice(share), slice(share, None)):
        assert set(first[epoch]) | set(second[epoch]) == set(ROWS)


def test_lightning_resumes_in_the_middle_of_the_second_epoch(run):
    seen, printed = run("train_lightning.py")
    rows = seen["until the checkpoint"] + seen["after the checkpoint"]
    assert len(seen["until the checkpoint"]) == len(ROWS) + 11 * 64
    assert sorted(rows[: len(ROWS)]) == sorted(rows[len(ROWS) :]) == ROWS
    assert rows[: len(ROWS)] != rows[len(ROWS) :]
    assert accuracy_in(printed) > 0.85


def test_torchrun(run):
    seen, _ = run("train_torchrun.py", *launcher_of("train_torchrun.py"))
    assert_two_epochs(seen["rank 0, 30 steps"], seen["rank 1, 30 steps"], 899)


def test_accelerate(run):
    seen, printed = run("train_accelerate.py", *launcher_of("train_accelerate.py"))
    assert_two_epochs(seen["rank 0, trained"], seen["rank 1, trained"], 899)
    assert len(seen["rank 0, validated"]) == len(seen["rank 1, validated"]) == 899
    assert {*seen["rank 0, validated"], *seen["rank 1, validated"]} == set(ROWS)
    assert accuracy_in(printed) > 0.8


@pytest.mark.timeout(1200)
def test_ray(run):
    seen, _ = run("train_ray.py")
    assert_two_epochs(seen["rank 0, 30 steps"], seen["rank 1, 30 steps"], 899)


@pytest.mark.spark
def test_torch_distributor(run):
    """The odd row is dropped."""
    seen, _ = run("train_torch_distributor.py")
    for epoch in (slice(898), slice(898, None)):
        first, second = seen["rank 0"][epoch], seen["rank 1"][epoch]
        assert len(set(first)) == len(set(second)) == 898
        assert not set(first) & set(second)


@pytest.mark.slow
def test_keras(run):
    seen, printed = run("train_keras.py")
    rows = seen["trained"]
    for epoch in range(3):
        assert sorted(rows[epoch * len(ROWS) : (epoch + 1) * len(ROWS)]) == ROWS
    assert accuracy_in(printed) > 0.85


def test_optuna(run):
    seen, printed = run("tune_optuna.py")
    assert len(seen) == 2 * 6
    for who, rows in seen.items():
        is_training = who.endswith("trained")
        assert sorted(rows) == [row for row in ROWS if (row % 5 != 0) == is_training]
    assert accuracy_in(printed) > 0.8


@pytest.mark.spark
def test_batch_inference(run):
    seen, printed = run("batch_inference.py")
    assert sorted(seen["joined"]) == ROWS
    assert accuracy_in(printed) > 0.7


def accuracy_in(printed):
    return float(re.findall(r"accuracy ([\d.]+)", printed)[-1])
