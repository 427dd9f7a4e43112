"""Runs the named programs of a folder in one process and records the batches that they pass to ``record``.

Each program's batches become recordings of the parity tool, one for each set of columns; what came of the
programs, with the lines that they print, is written as JSON.
"""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import traceback
import warnings

from petastorm_bridge import parity

warnings.simplefilter("ignore")


def code_of(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    lines = "\n".join("".join(cell["source"]) for cell in cells).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("%", "!")))


def name_of(path):
    return path.parent.name if path.stem == "main" else path.stem


def run(path, recordings):
    """Return the program's name with its error, or with sizes of batches by recording and what it printed."""
    batches, printed = [], io.StringIO()
    name = name_of(path)
    names = {
        "__name__": name,
        "CACHE": "file://" + tempfile.mkdtemp(),
        "record": lambda batch: batches.append({name: batch[name] for name in sorted(batch)}),
    }
    before = set(sys.modules)
    sys.modules[name] = type(sys)(name)
    sys.path.insert(0, str(path.parent))
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code_of(path), str(path), "exec"), names)
        sizes = recorded(batches, recordings / name)
        return name, {"recordings": sizes, "printed": printed.getvalue().splitlines()}
    except Exception:  # noqa: BLE001 - the test shows which program failed and why
        return name, {"error": traceback.format_exc()}
    finally:
        sys.path.remove(str(path.parent))
        for module in set(sys.modules) - before:
            place = getattr(sys.modules[module], "__file__", None) or ""
            if place.startswith(str(path.parent)) or module == name:
                del sys.modules[module]


def recorded(batches, folder):
    """Record batches and return the sizes of each recording's."""
    groups = {}
    for batch in batches:
        groups.setdefault(",".join(batch), []).append(batch)
    for columns, group in groups.items():
        parity.record(group, folder / columns)
    return {
        columns: [len(next(iter(batch.values()))) for batch in group]
        for columns, group in groups.items()
    }


def steady():
    """Keep the real package from losing rows, as the live comparison does."""
    tests = pathlib.Path(__file__).parents[1]
    sys.path.insert(0, str(tests / "against_petastorm" / "live"))
    from parity_harness.original import repeatable

    return repeatable()


def run_all(folder, recordings, chosen):
    sys.path.insert(0, str(folder))  # where the support module is
    files = [*folder.glob("*.py"), *folder.glob("*.ipynb"), *folder.glob("*/main.py")]
    with steady() if folder.name == "original" else contextlib.nullcontext():
        found = dict(run(path, recordings) for path in sorted(files) if name_of(path) in chosen)
    sys.path.remove(str(folder))
    sys.modules.pop("mds_support", None)
    return found


def main():
    from pyspark.sql import SparkSession

    out, folder = map(pathlib.Path, sys.argv[1:3])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    out.mkdir()
    found = run_all(folder, out, chosen=sys.argv[3:])
    (out / "programs.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
