"""Runs programs in one process, one after the other, and records the batches that they pass to ``record``.

``python run_programs.py OUT FOLDER CACHE NAME ...`` runs the named programs of FOLDER, each with a directory of
its own in the one that the URL CACHE names. A program's batches become recordings of the parity tool in OUT, one
for each set of columns; what came of the programs is written as JSON there, by each rank of a launch.
"""

import contextlib
import faulthandler
import io
import json
import os
import pathlib
import sys
import traceback
import warnings
from unittest import mock

import shared_memory

from petastorm_bridge import parity

# A program that hangs shows where each of its threads is, before those who wait for it give up.
SECONDS = 450

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


def run(path, recordings, cache):
    """Return what came of a program.

    That is the sizes of batches by recording, the lines that it printed, how many directories were in its
    cache as it ended, and its error if there was one.
    """
    batches, printed = [], io.StringIO()
    name = name_of(path)
    place = f"{cache}/{name}"
    if place.startswith("file://"):
        os.makedirs(place.removeprefix("file://"), exist_ok=True)
    names = {
        "__name__": name,
        "CACHE": place,
        "record": lambda batch: batches.append({name: batch[name] for name in sorted(batch)}),
    }
    before = set(sys.modules)
    sys.modules[name] = type(sys)(name)
    sys.path.insert(0, str(path.parent))
    found = {}
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code_of(path), str(path), "exec"), names)
    except BaseException:  # noqa: BLE001 - the test shows which program failed or ended, and why
        found["error"] = traceback.format_exc()
    finally:
        sys.path.remove(str(path.parent))
        for module in set(sys.modules) - before:
            home = getattr(sys.modules[module], "__file__", None) or ""
            if home.startswith(str(path.parent)) or module == name:
                del sys.modules[module]
    found["recordings"] = recorded(batches, recordings / name)
    found["printed"] = printed.getvalue().splitlines()
    if place.startswith("file://"):
        found["directories"] = len(list(os.scandir(place.removeprefix("file://"))))
    return found


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


@contextlib.contextmanager
def steady():
    """Keep the real package from losing rows and from mixing up files, as the live comparison does.

    Ranks that write a directory each would read other rows of it, and some twice.
    """
    from petastorm.spark.spark_dataset_converter import SparkDatasetConverter

    tests = pathlib.Path(__file__).parents[1]
    sys.path.insert(0, str(tests / "against_petastorm" / "live"))
    from parity_harness.original import repeatable, sort_files

    make = SparkDatasetConverter.__init__

    def make_and_sort(self, *arguments):
        make(self, *arguments)
        sort_files(self)

    with repeatable(), mock.patch.object(SparkDatasetConverter, "__init__", make_and_sort):
        yield


def run_all(folder, recordings, cache, chosen):
    sys.path.insert(0, str(folder))  # where the support module is
    files = [*folder.glob("*.py"), *folder.glob("*.ipynb"), *folder.glob("*/main.py")]
    files = [path for path in sorted(files) if name_of(path) in chosen]
    found = {}
    with steady() if folder.name == "original" else contextlib.nullcontext():
        for path in files:
            # The memory of a program alone, of which other ranks may have more to read, stays until its process ends.
            with shared_memory.goes_afterwards() if files[1:] else contextlib.nullcontext():
                found[name_of(path)] = run(path, recordings, cache)
    sys.path.remove(str(folder))
    sys.modules.pop("mds_support", None)
    return found


def main():
    from pyspark.sql import SparkSession

    faulthandler.dump_traceback_later(SECONDS, exit=True)
    out, folder, cache = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    # A task that fails is tried again, as on a cluster: plain streaming's datasets in two tasks that start together
    # can take the same name in shared memory.
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    out.mkdir(exist_ok=True)
    found = run_all(folder, out, cache, chosen=sys.argv[4:])
    rank = os.environ.get("RANK", "0")
    (out / f"programs.{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
