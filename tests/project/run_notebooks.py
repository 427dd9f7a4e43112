"""Runs Databricks notebooks of a folder one after the other on one Spark session.

``python run_notebooks.py FOLDER CACHE MASTER`` writes a line for each: its name, and what it printed as JSON.
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


def run(path, cache):
    code = path.read_text(encoding="utf-8")
    assert WORKSPACE in code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.replace(WORKSPACE, cache), str(path), "exec"), {"__name__": "__main__"})
    return printed.getvalue()


if __name__ == "__main__":
    folder, cache, master = sys.argv[1:]
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    for path in sorted(pathlib.Path(folder).glob("*.py")):
        print(json.dumps([path.stem, run(path, cache)]), flush=True)
    spark.stop()
