"""Runs Databricks notebooks of a folder one after the other.

``python run_notebooks.py FOLDER CACHE TASKS`` writes a line for each: its name, and what it printed as JSON. TASKS is
how many tasks Spark may run at once.
"""

import contextlib
import io
import json
import pathlib
import sys
import warnings

from pyspark.sql import SparkSession

warnings.simplefilter("ignore")
WORKSPACE = "file:///dbfs/tmp/petastorm/cache"
# Those whose tasks wait for each other, with the number of them; they come first in the alphabet.
TOGETHER = {"tensorflow_distributed": 2}


def run(path, cache):
    code = path.read_text(encoding="utf-8")
    assert WORKSPACE in code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.replace(WORKSPACE, cache), str(path), "exec"), {"__name__": "__main__"})
    return printed.getvalue()


def start_spark(tasks):
    builder = SparkSession.builder.master(f"local[{tasks}]").config("spark.ui.enabled", "false")
    return builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()


if __name__ == "__main__":
    folder, cache, asked = sys.argv[1], sys.argv[2], int(sys.argv[3])
    spark, started = None, 0
    for path in sorted(pathlib.Path(folder).glob("*.py")):
        tasks = max(asked, TOGETHER.get(path.stem, 1))
        if tasks != started:
            if spark:
                spark.stop()
            spark, started = start_spark(tasks), tasks
        print(json.dumps([path.stem, run(path, cache)]), flush=True)
    spark.stop()
