"""Two Spark programs convert the same table into one parent directory at the same time."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.modern]

ROWS, ROUNDS = 3_000, 4
PROGRAM = """
import json, pathlib, sys, time
from petastorm_bridge import make_batch_reader
from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter
from pyspark.sql import SparkSession

parent, rows, rounds, name = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, pathlib.Path(parent).as_uri())
    .getOrCreate()
)
pathlib.Path(name).touch()
deadline = time.monotonic() + 120
while len(list(pathlib.Path().glob("driver-?"))) < 2 and time.monotonic() < deadline:
    time.sleep(0.01)
sums, places = [], []
for number in range(rounds):
    frame = spark.range(0, rows, 1, 3).selectExpr("id", f"id * {number} as x")
    converter = make_spark_converter(frame, parquet_row_group_size_bytes=4096)
    with make_batch_reader(converter.file_urls, num_epochs=1) as reader:
        sums.append(sum(int(batch.x.sum()) for batch in reader))
    places.append(converter.cache_dir_url)
    if number % 2:
        converter.delete()
pathlib.Path(f"{name}.json").write_text(json.dumps({"sums": sums, "places": places}))
"""


def test_neither_takes_or_clears_what_the_other_writes(tmp_path):
    parent = tmp_path / "parent"
    arguments = [str(parent), str(ROWS), str(ROUNDS)]
    drivers = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, *arguments, f"driver-{name}"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    ended = [(driver.communicate(timeout=300)[1], driver.returncode) for driver in drivers]
    assert [code for _, code in ended] == [0, 0], ended
    found = [json.loads((tmp_path / f"driver-{name}.json").read_text()) for name in "ab"]
    due = [number * ROWS * (ROWS - 1) // 2 for number in range(ROUNDS)]
    assert [each["sums"] for each in found] == [due, due]
    assert len({place for each in found for place in each["places"]}) == 2 * ROUNDS
    assert not list(parent.iterdir()), "each deletes at its end what it wrote"
