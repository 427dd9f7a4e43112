"""Compares Petastorm, the bridge and native streaming on the handwritten digits; `make compare`."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from sklearn.datasets import load_digits

PARTS = 4


def write_digits(folder: Path) -> None:
    """Write the demo's table as Parquet files: `id` int, `features` array<float>, `label` int."""
    data = load_digits()
    table = pa.table(
        {
            "id": pa.array(np.arange(len(data.target)), pa.int32()),
            "features": pa.array((data.data / 16).tolist(), pa.list_(pa.float32())),
            "label": pa.array(data.target, pa.int32()),
        }
    )
    rows = -(-table.num_rows // PARTS)
    for part in range(PARTS):
        path = folder / f"part-{part:05d}.parquet"
        parquet.write_table(table.slice(part * rows, rows), path)


def main(page: str, petastorm_python: str | None) -> int:
    """Write the data, run the comparison on it, and return its exit code."""
    with tempfile.TemporaryDirectory(prefix="digits-") as folder:
        data = Path(folder) / "digits"
        data.mkdir()
        write_digits(data)
        command = [sys.executable, "-m", "petastorm_bridge", "parity", "run"]
        command += ["--data", data.name, "--batch-size", "64", "--html", str(Path(page).absolute())]
        if petastorm_python:
            command += ["--petastorm-python", petastorm_python]
        return subprocess.run(command, check=False, cwd=folder).returncode  # noqa: S603


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", default="parity.html", help="where the report goes")
    parser.add_argument("--petastorm-python", help="interpreter in which Petastorm is installed")
    chosen = parser.parse_args()
    sys.exit(main(chosen.page, chosen.petastorm_python))
