"""Ten million rows: in bounded memory, and with a progress bar."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.anystack

SCRIPT = """
import json, resource, sys
import numpy as np
from petastorm_bridge.parity import Rules, compare, record

ROWS, BATCH = 10_000_000, 4096

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
record(loader(wrong=7_654_321), f"{out}/b")
found = {}
for order in ("exact", "shuffled"):
    result = compare(f"{out}/a", f"{out}/b", Rules(order=order), progress=progress)
    failure = result.first_failure
    found[order] = [failure.promise.value, failure.column, failure.row, failure.a, failure.b]
    found[f"{order} peak"] = peak()
done = [d for what, d, total in said if what == "comparing"]
assert done == sorted(done) and done[-1] == ROWS and len(done) > 100
print(json.dumps({"start": start, "recorded": recorded, **found}))
"""


@pytest.mark.slow
def test_ten_million_rows(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    failure = ["values", "x", 7_654_321, "3827160.5", "3827161.5"]
    assert found["exact"] == found["shuffled"] == failure
    size = sum(file.stat().st_size for file in tmp_path.rglob("*")) >> 20
    assert size > 700, "the recordings are not what they should be"
    # Whatever the recordings' size: a few blocks, and a few bytes a row where rows must be found.
    assert found["recorded"] - found["start"] < 150
    assert found["exact peak"] - found["start"] < 250
    assert found["shuffled peak"] - found["start"] < 500
