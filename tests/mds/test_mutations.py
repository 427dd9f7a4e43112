"""Damaged datasets are refused or read right by every face; none crashes, hangs or misleads.

``PETASTORM_BRIDGE_MUTATIONS=100000`` tries that many; the usual run takes a seeded share of them.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

import mutations
import pytest

COUNT = int(os.environ.get("PETASTORM_BRIDGE_MUTATIONS", "1500"))


@pytest.mark.parametrize("face", mutations.FACES)
def test_damaged_datasets(face):
    if face != "make_batch_reader" and find_spec("streaming") is None:
        pytest.skip("streaming is not installed")
    # In a process of its own, because what is looked for are crashes, too.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", mutations.__file__, str(COUNT // 3), "1", face],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    tally = dict(reversed(line.split(maxsplit=1)) for line in done.stdout.splitlines())
    # The damages are neither all noticed nor all harmless, or they would test little.
    for file in ("index.json", "shard"):
        assert int(tally[f"{face} {file}: refused"]) > COUNT / 60
        assert int(tally[f"{face} {file}: right"]) > 0
