"""Damaged datasets are refused or read right by every face; none crashes, hangs or misleads.

``PETASTORM_BRIDGE_MUTATIONS=100000`` tries that many; the usual run takes a seeded share of them.
"""

import os
import sys
from collections import Counter
from importlib.util import find_spec

import mutations
import pytest
import warm

COUNT = int(os.environ.get("PETASTORM_BRIDGE_MUTATIONS", "120"))


@pytest.mark.modern
@pytest.mark.slow
def test_damaged_datasets():
    faces = [*mutations.OUR_READERS, *(mutations.STREAMING if find_spec("streaming") else ())]
    # In a process of its own, because what is looked for are crashes, too.
    done = warm.run(
        [sys.executable, "-W", "ignore", mutations.__file__, str(COUNT), "1", *faces],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    lines = (line.split(maxsplit=1) for line in done.stdout.splitlines())
    tally = Counter({text: int(times) for times, text in lines})
    # The damages are neither all noticed nor all harmless, or they would test little.
    for file in ("index.json", "shard"):
        assert min(tally[f"{face} {file}: refused"] for face in faces) > COUNT / 60
        assert sum(tally[f"{face} {file}: right"] for face in faces) > 0
