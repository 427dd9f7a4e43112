"""Programs after the usual patterns are run on Petastorm, on the bridge and on native streaming."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from petastorm_codemods._engine import Settings, process
from petastorm_codemods._model import Destination, Success

HERE = pathlib.Path(__file__).parent
# Specimens of other people's style: the suffix keeps our own formatter away from them.
PROGRAMS = sorted((HERE / "programs").glob("*.py.txt"))
IDS = [program.name.removesuffix(".py.txt") for program in PROGRAMS]

pytestmark = [pytest.mark.spark, pytest.mark.tf, pytest.mark.slow]


def rewritten(program, destination):
    outcome = process(program.stem, program.read_bytes(), Settings(destination))
    assert isinstance(outcome, Success), (program, outcome)
    return outcome.after


def run(folder):
    out = folder.with_suffix(".json")
    done = subprocess.run(
        [sys.executable, str(HERE / "run_programs.py"), str(folder), str(out)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    pytest.importorskip("petastorm", reason="compares with the real package")
    found = {}
    for form in ("original", "bridge", "streaming"):
        folder = tmp_path_factory.mktemp("programs") / form
        folder.mkdir()
        for program in PROGRAMS:
            code = program.read_bytes()
            if form != "original":
                code = rewritten(program, Destination(form))
                assert b"petastorm." not in code.replace(b"petastorm_bridge.", b"")
            (folder / program.stem).write_bytes(code)
        found[form] = run(folder)
    return found


def rows(batches):
    """All rows, sorted: batches without the order in which they came."""
    found = []
    for batch in batches:
        columns = [values for _, _, values in batch.values()]
        found += [[str(value) for value in row] for row in zip(*columns, strict=True)]
    return sorted(found)


@pytest.mark.parametrize("form", ["bridge", "streaming"])
@pytest.mark.parametrize("program", PROGRAMS, ids=IDS)
def test_same_batches(results, program, form):
    name = program.name.removesuffix(".py.txt")
    original, ours = results["original"][name], results[form][name]
    assert original
    if program.read_text("utf-8").startswith("# rows only"):
        assert [list(batch) for batch in ours[:1]] == [list(batch) for batch in original[:1]]
        assert rows(ours) == rows(original)
    else:
        assert ours == original
