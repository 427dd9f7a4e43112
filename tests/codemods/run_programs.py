"""Runs the programs of some folders in one process and writes the batches they record as JSON."""

import contextlib
import json
import pathlib
import sys
import tempfile
import traceback
import warnings

import numpy as np

warnings.simplefilter("ignore")


def plain(value):
    array = np.asarray(value)
    values = [str(v) for v in array.ravel()] if array.dtype.kind in "OSU" else array.tolist()
    kind = "O" if array.dtype.kind in "OSU" else str(array.dtype)
    return [kind, list(array.shape), values]


def code_of(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    lines = "\n".join("".join(cell["source"]) for cell in cells).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("%", "!")))


def run(path):
    batches = []
    name = path.parent.name if path.stem == "main" else path.stem
    names = {
        "__name__": name,
        "CACHE": "file://" + tempfile.mkdtemp(),
        "record": lambda batch: batches.append({k: plain(v) for k, v in batch.items()}),
    }
    before = set(sys.modules)
    sys.modules[name] = type(sys)(name)
    sys.path.insert(0, str(path.parent))
    try:
        exec(compile(code_of(path), str(path), "exec"), names)
    except Exception:  # noqa: BLE001 - the test shows which program failed and why
        return name, traceback.format_exc()
    finally:
        sys.path.remove(str(path.parent))
        for module in set(sys.modules) - before:
            place = getattr(sys.modules[module], "__file__", None) or ""
            if place.startswith(str(path.parent)) or module == name:
                del sys.modules[module]
    return name, batches


def steady():
    """Keep the real package from losing rows, as the live comparison does."""
    tests = pathlib.Path(__file__).parents[1]
    sys.path.insert(0, str(tests / "against_petastorm" / "live"))
    from parity_harness.original import repeatable

    return repeatable()


def run_all(folder):
    sys.path.insert(0, str(folder))  # where the support module is
    files = [*folder.glob("*.py"), *folder.glob("*.ipynb"), *folder.glob("*/main.py")]
    with steady() if folder.name == "original" else contextlib.nullcontext():
        found = dict(run(path) for path in sorted(files) if path.stem != "mds_support")
    sys.path.remove(str(folder))
    sys.modules.pop("mds_support", None)
    return found


def main():
    from pyspark.sql import SparkSession

    out, *folders = map(pathlib.Path, sys.argv[1:])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    out.write_text(json.dumps({folder.name: run_all(folder) for folder in folders}))


if __name__ == "__main__":
    main()
