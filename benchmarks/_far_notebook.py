"""One process that runs a notebook whose cache directory is far: ``python -m benchmarks._far_notebook FORM TABLES CACHE``.

The notebook is one of Petastorm's users', with images that a transform decodes. FORM is ``original``, or how the codemod
rewrites it. It is run before with few images and a directory near by, which imports and starts whatever there is to
start. Prints as JSON how long it took to convert and to train, and how many rows were trained on.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from benchmarks._data import jpeg, spark_session
from benchmarks._process import silence

__all__ = ["FORMS", "IMAGES", "WARM", "write_images"]

IMAGES, WARM = "images", "few-images"
_FEW = 400  # of which the tenth for validation has to fill a batch
_FILES = 4
_NOTEBOOK = Path(__file__).parent / "notebook.py.txt"

FORMS: dict[str, list[str]] = {
    "original": [],
    "bridge": ["--to", "bridge"],
    "streaming": ["--to", "streaming"],
    "fast": ["--to", "streaming", "--fast"],
}
"""What the command gets to rewrite the notebook."""


def write_images(tables: Path, count: int) -> None:
    """Write two tables of JPEG images, one of them small."""
    for name, rows in ((WARM, _FEW), (IMAGES, count)):
        (tables / name).mkdir(parents=True)
        for number in range(_FILES):
            ids = range(number, rows, _FILES)
            columns = {"content": [jpeg(i) for i in ids], "label": [i % 10 for i in ids]}
            parquet.write_table(pa.table(columns), tables / name / f"part-{number}.parquet")


def _cells(form: str) -> list[str]:
    """Return the cells of the notebook in a form."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "notebook.py")
        path.write_text(_NOTEBOOK.read_text(encoding="utf-8"), encoding="utf-8")
        if FORMS[form]:
            command = [sys.executable, "-m", "petastorm_bridge", "codemod", folder, *FORMS[form]]
            subprocess.run([*command, "--write"], check=True, capture_output=True)
        return path.read_text(encoding="utf-8").split("# COMMAND ----------\n")


def _run(cells: list[str], table: Path, cache: str) -> dict[str, float]:
    """Run the cells; return seconds of converting and of training, and rows."""
    names = {"__name__": "notebook", "TABLE": table.as_uri(), "CACHE": cache}
    seconds, printed = [], io.StringIO()
    with contextlib.redirect_stdout(printed):
        for cell in cells:
            begin = time.perf_counter()
            exec(compile(cell, "notebook", "exec"), names)  # noqa: S102 - our own
            seconds.append(time.perf_counter() - begin)
    rows = re.search(r"rows: (\d+)", printed.getvalue())
    assert rows
    _, _, converting, _, training, _ = seconds
    return {"converting": converting, "training": training, "rows": int(rows[1])}


def main(form: str, tables: str, cache: str) -> None:
    """Run the notebook twice; print what came of the second run."""
    silence()
    with tempfile.TemporaryDirectory() as folder:
        spark_session(folder)
        cells = _cells(form)
        _run(cells, Path(tables, WARM), Path(folder, "near").as_uri())
        print(json.dumps(_run(cells, Path(tables, IMAGES), cache)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
