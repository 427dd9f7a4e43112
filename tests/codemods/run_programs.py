"""Runs every program of a folder in one process and writes the batches they record as JSON."""

import contextlib
import json
import pathlib
import sys
import tempfile
import warnings

import numpy as np

warnings.simplefilter("ignore")


def plain(value):
    array = np.asarray(value)
    values = [str(v) for v in array.ravel()] if array.dtype.kind in "OSU" else array.tolist()
    kind = "O" if array.dtype.kind in "OSU" else str(array.dtype)
    return [kind, list(array.shape), values]


def run(path):
    batches = []
    code = path.read_text(encoding="utf-8")
    names = {
        "__name__": path.stem,
        "CACHE": "file://" + tempfile.mkdtemp(),
        "record": lambda batch: batches.append({k: plain(v) for k, v in batch.items()}),
    }
    sys.modules[path.stem] = type(sys)(path.stem)
    exec(compile(code, str(path), "exec"), names)
    return batches


def steady():
    """Keep the real package from losing rows, as the live comparison does."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "parity"))
    from parity_harness.original import repeatable

    return repeatable()


def main():
    from pyspark.sql import SparkSession

    folder, out = map(pathlib.Path, sys.argv[1:])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    with steady() if folder.name == "original" else contextlib.nullcontext():
        found = {path.stem: run(path) for path in sorted(folder.glob("*.py"))}
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
