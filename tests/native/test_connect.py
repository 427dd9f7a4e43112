"""Writing through Spark Connect, in a program of its own."""

import json
import sys

import local_connect
import pyspark
import pytest
import warm

pytestmark = [
    pytest.mark.modern,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(
        int(pyspark.__version__.partition(".")[0]) < 4,
        reason="pyspark's package includes Spark Connect from 4.0 on",
    ),
]

SCRIPT = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
import streaming

spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert not hasattr(type(spark), "_jsparkSession")
write_mds = importlib.import_module(sys.argv[1]).write_mds
vectors = spark.createDataFrame([(4, Vectors.dense([1.0, 2.0]))], ["id", "vector"])
frame = spark.range(0, 9, 1, 3).selectExpr("id", "if(id > 7, null, int(id)) as holes")
found = {}
for name, each in {"holes": frame, "vector": vectors}.items():
    directory = write_mds(each, f"{sys.argv[2]}/{name}")
    dataset = streaming.StreamingDataset(local=directory.path, batch_size=1)
    found[name] = [{k: v.tolist() for k, v in sample.items()} for sample in dataset]
try:
    write_mds(frame.selectExpr("date(timestamp_seconds(id)) as day"), f"{sys.argv[2]}/day")
except ValueError as error:
    found["refused"] = "day: of type date" in str(error)
print("found:" + json.dumps(found))
"""


def test_connect(native, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(local_connect.FREE_PORT + SCRIPT)
    done = warm.run(
        [sys.executable, str(script), native.__name__, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("found:")]
    assert lines, done.stderr[-4000:]
    found = json.loads(lines[0].removeprefix("found:"))
    assert [row["id"] for row in found["holes"]] == list(range(9))
    assert [row["holes"] for row in found["holes"]][:8] == list(range(8))
    assert str(found["holes"][8]["holes"]) == "nan"
    assert found["vector"] == [{"id": 4, "vector": [1.0, 2.0]}]
    assert found["refused"]
