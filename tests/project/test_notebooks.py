"""The Databricks notebooks of the examples: one original, and what the codemod makes of it, all running."""

import json
import os
import pathlib
import re
import shutil
import sys
from importlib.util import find_spec

import pytest
import warm

from petastorm_codemods._model import Destination
from petastorm_codemods._run import run as codemod
from petastorm_codemods._settings import Settings

HERE = pathlib.Path(__file__).parent
NOTEBOOKS = HERE.parents[1] / "examples" / "notebooks"
ORIGINALS = {path.name: path for path in (NOTEBOOKS / "petastorm").glob("*.py")}
DESTINATIONS = {"bridge": Destination.BRIDGE, "native": Destination.STREAMING}
# A version takes half a minute of two cores; `make test-release` runs all three.
RUN = (
    ["petastorm", "bridge", "native"]
    if os.environ.get("PETASTORM_BRIDGE_NOTEBOOKS")
    else ["native"]
)
# What the scheduler may give to Spark's tasks at once. Streaming's own datasets take shared memory by the first
# name that is free, and two that are opened in one moment on one machine may take the same.
TASKS = {"petastorm": 2, "bridge": 2, "native": 1}


@pytest.mark.parametrize("version", DESTINATIONS)
def test_the_versions_are_what_the_codemod_writes(tmp_path, version):
    for path in ORIGINALS.values():
        shutil.copy(path, tmp_path)
    outcomes = codemod([str(tmp_path)], Settings(DESTINATIONS[version])).outcomes
    written = {pathlib.Path(outcome.path).name: outcome.after for outcome in outcomes}
    assert written == {path.name: path.read_bytes() for path in (NOTEBOOKS / version).glob("*.py")}
    assert set(written) == set(ORIGINALS)


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("version", RUN)
def test_every_notebook_trains(tmp_path, version):
    if version == "petastorm":
        pytest.importorskip("petastorm", reason="the originals need the real package")
    elif find_spec("petastorm"):
        pytest.skip("today's versions run the rewritten ones")
    done = warm.run(
        [
            sys.executable,
            HERE / "run_notebooks.py",
            NOTEBOOKS / version,
            (tmp_path / "cache").as_uri(),
            str(TASKS[version]),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    printed = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert {f"{name}.py" for name in printed} == set(ORIGINALS), done.stderr[-4000:]
    for name, text in printed.items():
        train, val = map(int, re.search(r"train: (\d+), val: (\d+)", text).groups())
        assert train + val == 1797, name
        accuracy = float(re.search(r"accuracy: ([\d.]+)", text)[1])
        assert accuracy > 0.85, (name, text)
        for seen in re.findall(r"on (\d+) rows", text):  # by two tasks together
            assert int(seen) == val, (name, text)
    assert not list((tmp_path / "cache").glob("*")), "the notebooks delete what they converted"
