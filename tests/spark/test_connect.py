"""The converter on Spark Connect, where Petastorm cannot run: there is no JVM to reach into."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pyspark
import pytest

import petastorm_bridge

BRIDGE = str(Path(petastorm_bridge.__file__).parents[1])
MAJOR = int(pyspark.__version__.partition(".")[0])

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(MAJOR < 4, reason="pyspark's package includes Spark Connect from 4.0 on"),
]

# One session for all steps; each prints one JSON value.
STEPS = {
    "it is Spark Connect": ("hasattr(type(spark), '_jsparkSession')", False),
    "rows in partition order": ("rows(convert(spark.range(0, 1000, 1, 5)))", list(range(1000))),
    "files are local": ("url(spark.range(3)).startswith('file://' + os.getcwd())", True),
    "the application is named": ("'-appid-unknown-' in url(spark.range(3))", False),
    "equal plans are reused": ("url(spark.range(7)) == url(spark.range(7))", True),
    "other names are not": ("url(spark.range(7).toDF('a')) == url(spark.range(7))", False),
    "nulls in some partitions": ("rows(convert(nulls()))", [0, 1, 2, 3, 4, 5, 6, 7, None]),
    "vectors": ("rows(convert(vectors()))", [[1.0, 2.0]]),
    "local data": ("len(convert(spark.createDataFrame([(1, 'x'), (2, None)], ['a', 'b'])))", 2),
    "an overwritten source": ("overwritten()", [5, 3]),
    "delete": ("deleted()", False),
    "a failing task": ("failing()", ["MaterializationError", True]),
    "what the failing task says": ("said()", "ZeroDivisionError"),
    "a failing plan": (
        "raised(spark.sql('SELECT NULL AS v'))",
        ["AnalysisException", "ValueError"],
    ),
    "a task": ("task()", [[0, 1, 2]]),
}

SCRIPT = """
import json, os, sys, pickle
from pyspark.sql import SparkSession, functions as sf
from pyspark.ml.linalg import Vectors
from petastorm_bridge.fs_utils import local_path
from petastorm_bridge.mds.dataset import open_dataset, read_table
from petastorm_bridge.spark import make_spark_converter as convert

spark = SparkSession.builder.remote("local[2]").getOrCreate()
spark.conf.set("petastorm.spark.converter.parentCacheDirUrl", "file:" + os.getcwd() + "/cache")

def rows(converter):
    dataset = open_dataset(local_path(converter.cache_dir_url))
    return read_table(dataset).column(0).to_pylist()

def url(df):
    return convert(df).cache_dir_url

def nulls():
    return spark.range(0, 9, 1, 3).selectExpr("IF(id > 7, NULL, id) AS n")

def vectors():
    return spark.createDataFrame([(Vectors.dense([1.0, 2.0]),)], ["v"])

def overwritten():
    source = os.getcwd() + "/a source"
    lengths = []
    for number in (5, 3):
        spark.range(number).write.mode("overwrite").parquet(source)
        lengths.append(len(convert(spark.read.parquet(source))))
    return lengths

def deleted():
    converter = convert(spark.range(21))
    converter.delete()
    return os.path.exists(local_path(converter.cache_dir_url))

def failure():
    try:
        convert(spark.range(3).select(sf.udf(lambda x: 1 // x, "long")("id")))
    except Exception as error:
        return error

def failing():
    before = os.listdir("cache")
    return [type(failure()).__name__, before == os.listdir("cache")]

def said():
    text = str(failure())
    return "ZeroDivisionError" if "ZeroDivisionError" in text else text

def raised(df):
    try:
        convert(df)
    except Exception as error:
        names = {kind.__name__ for kind in type(error).__mro__}
        return sorted(names & {"AnalysisException", "ValueError"})

def task():
    converter = convert(spark.range(0, 3, 1, 1))
    def use(batches):
        import pyarrow as pa
        for _ in batches:
            from petastorm_bridge import make_batch_reader
            with make_batch_reader(converter.file_urls, num_epochs=1) as reader:
                yield pa.RecordBatch.from_pydict({"ids": [g.id.tolist() for g in reader]})
    return [row["ids"] for row in spark.range(1).repartition(1).mapInArrow(use, "ids array<long>").collect()]

for name, expression in json.loads(sys.argv[1]).items():
    try:
        found = eval(expression)
    except Exception as error:
        found = repr(error)[:2000]
    print("STEP", json.dumps([name, found]), flush=True)
os._exit(0)  # stopping a local Connect server takes long and tests nothing
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("connect")
    (folder / "script.py").write_text(textwrap.dedent(SCRIPT), "utf-8")
    environment = {**os.environ, "PYTHONPATH": BRIDGE, "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    finished = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "script.py",
            json.dumps({name: expression for name, (expression, _) in STEPS.items()}),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    lines = [line for line in finished.stdout.splitlines() if line.startswith("STEP ")]
    assert lines, finished.stderr[-3000:]
    return dict(json.loads(line.removeprefix("STEP ")) for line in lines)


@pytest.mark.parametrize("step", STEPS)
def test_on_spark_connect(found, step):
    assert found[step] == STEPS[step][1]
