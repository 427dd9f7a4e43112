"""Altered shards are refused or read as something valid; they never crash the interpreter."""

import subprocess
import sys

import fuzz
import numpy as np
import pytest
from sample_datasets import fixed_table, mixed_table, write

ROUNDS = 120


@pytest.mark.slow
def test_altered_shards(tmp_path):
    streaming = pytest.importorskip("streaming")
    datasets = tmp_path / "datasets"
    write(datasets / "fixed", fixed_table(), hashes=())
    write(datasets / "mixed", mixed_table(), hashes=())
    write(datasets / "lists", mixed_table().select(["r", "j", "n"]), hashes=())
    columns = {"a": "ndarray", "b": "ndarray:int16", "c": "str_int", "d": "str_float", "e": "str"}
    foreign = str(datasets / "foreign")
    with streaming.MDSWriter(columns=columns, out=foreign) as writer:
        for row in range(8):
            array = np.arange(6, dtype=np.int16).reshape(2, 3) + row
            sample = {
                "a": array,
                "b": array[0, : 1 + row % 3],
                "c": row,
                "d": row / 2,
                "e": "x" * row,
            }
            writer.write(sample)
    done = subprocess.run(
        [sys.executable, fuzz.__file__, str(datasets), str(ROUNDS), "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    # The alterations are neither all noticed nor all harmless, or they would test little.
    assert len(outcomes) == 8  # messages that do not name the file would be outcomes of their own
    for name in ("fixed", "foreign", "lists", "mixed"):
        assert int(outcomes[f"{name} read"]) > 10
        assert int(outcomes[f"{name} refused"]) > 10
