"""Millions of rows: in bounded memory, and with a progress bar."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.modern
# `make test-release` takes ten.
MILLIONS = int(os.environ.get("PARITY_MILLIONS", "3"))
WRONG = MILLIONS * 1_000_000 - 345_679

SCRIPT = """
import json, resource, sys
import numpy as np
from petastorm_bridge.parity import Rules, compare, record

ROWS, WRONG, BATCH = int(sys.argv[2]), int(sys.argv[3]), 4096

def loader(first=0, wrong=None):
    for start in range(first, ROWS, BATCH):
        ids = np.arange(start, min(start + BATCH, ROWS))
        x = ids * 0.5
        if wrong is not None:
            x[ids == wrong] += 1
        yield {"id": ids, "x": x, "small": ids.astype("f4"), "pair": np.stack([ids, ids], 1)}

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

said = []
def progress(what, done, total):
    said.append((what, done, total))

out = sys.argv[1]
start = peak()
record(loader(), f"{out}/a")
recorded = peak()
record(loader(wrong=WRONG), f"{out}/b")
found = {}
for order in ("exact", "shuffled"):
    result = compare(f"{out}/a", f"{out}/b", Rules(order=order), progress=progress)
    failure = result.first_failure
    found[order] = [failure.promise.value, failure.column, failure.row, failure.a, failure.b]
    found[f"{order} peak"] = peak()
done = [d for what, d, total in said if what == "comparing"]
assert done == sorted(done) and done[-1] == ROWS and len(done) > 30
print(json.dumps({"start": start, "recorded": recorded, **found}))
"""


@pytest.mark.slow
def test_millions_of_rows(tmp_path):
    sizes = [str(MILLIONS * 1_000_000), str(WRONG)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *sizes],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    failure = ["values", "x", WRONG, str(WRONG * 0.5), str(WRONG * 0.5 + 1)]
    assert found["exact"] == found["shuffled"] == failure
    size = sum(file.stat().st_size for file in tmp_path.rglob("*")) >> 20
    assert size > 70 * MILLIONS, "the recordings are not what they should be"
    # Whatever the recordings' size: a few blocks, and a few bytes a row where rows must be found.
    assert found["recorded"] - found["start"] < 150
    assert found["exact peak"] - found["start"] < 250
    assert found["shuffled peak"] - found["start"] < 500
