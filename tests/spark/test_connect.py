"""The converter on Spark Connect, where Petastorm cannot run: there is no JVM to reach into.

The same steps against the server that pyspark starts inside the program, and against one that is a
process of its own, from a program that has no Java at all.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import local_connect
import pyspark
import pytest
import warm
from datasets import IMPORTABLE

MAJOR = int(pyspark.__version__.partition(".")[0])

pytestmark = [
    pytest.mark.modern,
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
    "an interrupt": ("interrupted()", ["KeyboardInterrupt", [], True]),
    "a cancelled conversion": ("cancelled()", ["MaterializationError", True]),
    "a failing plan": (
        "raised(spark.sql('SELECT NULL AS v'))",
        ["AnalysisException", "ValueError"],
    ),
    "a task": ("task()", [[0, 1, 2]]),
    "all types, to the bit": ("same_batches()", "the same"),
    "a parent directory as argument": ("parent(parent_cache_dir_url=url_of('given'))", "given"),
    "the conf before the environment": ("parent()", "cache"),
    "the environment without a conf": ("unset(parent)", "from the environment"),
    "no parent directory": ("unset(nowhere)", "ValueError"),
    "mapInPandas": ("scores_of_shards()", list(range(0, 8_000, 2))),
    "a pandas UDF": ("sums_of_shards()", [sum(range(n, n + 125)) for n in range(0, 500, 125)]),
}

# The program's own server is the same one, nearer: what may differ is where files are, how errors and signals come, and
# what tasks find.
INSIDE = {
    name: STEPS[name]
    for name in (
        "it is Spark Connect",
        "rows in partition order",
        "files are local",
        "the application is named",
        "an overwritten source",
        "delete",
        "what the failing task says",
        "an interrupt",
        "a task",
        "all types, to the bit",
    )
}

# These need a server that is not this program's own.
SEPARATE = {
    "no Java here": ("[child.name() for child in psutil.Process().children(recursive=True)]", []),
    "no JVM to reach into": (
        "type(attempt(lambda: spark.sparkContext)).__name__",
        "PySparkAttributeError",
    ),
    "a deleted dataset in a task": ("deleted_in_a_task()", True),
    "two sessions": ("two_sessions()", [[0, 1, 2, 3], [0, 1, 2]]),
    "the end of the program": ("url(spark.range(40))", None),
}

SCRIPT = """
import json, os, pickle, signal, sys, threading, time, uuid
import numpy as np, pandas as pd, psutil, torch
from pyspark.sql import SparkSession, functions as sf
from pyspark.ml.linalg import Vectors
from petastorm_bridge.fs_utils import local_path
from datasets import read_table
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.spark import make_spark_converter as convert

spark = SparkSession.builder.remote(sys.argv[2]).getOrCreate()
KEY = "petastorm.spark.converter.parentCacheDirUrl"
VARIABLE = "PETASTORM_BRIDGE_PARENT_CACHE_DIR_URL"

def url_of(name):
    return "file:" + os.getcwd() + "/" + name

spark.conf.set(KEY, url_of("cache"))
os.environ[VARIABLE] = url_of("from the environment")

def rows(converter):
    dataset = open_dataset(local_path(converter.cache_dir_url))
    return read_table(dataset).column(0).to_pylist()

def url(df, **arguments):
    return convert(df, **arguments).cache_dir_url

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

def held_up():
    # A name of its own: tasks of a cancelled conversion may still begin.
    began = os.getcwd() + "/began " + uuid.uuid4().hex
    def wait(batches):
        for batch in batches:
            open(began, "w").close()
            time.sleep(30)
            yield batch
    frame = spark.range(2)
    return frame.mapInArrow(wait, frame.schema), began

def while_held_up(action):
    frame, began = held_up()
    ended = threading.Event()  # before it began, if it fails
    def act():
        while not os.path.exists(began):
            if ended.wait(0.05):
                return
        action()
    thread = threading.Thread(target=act)
    thread.start()
    before, started = set(os.listdir("cache")), time.monotonic()
    try:
        convert(frame)
    except BaseException as error:
        left = sorted(set(os.listdir("cache")) - before)
        return error, left, time.monotonic() - started < 25
    finally:
        ended.set()
        thread.join()

def interrupted():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    error, left, soon = while_held_up(lambda: os.kill(os.getpid(), signal.SIGINT))
    return [type(error).__name__, left, soon]

def cancelled():
    error, left, soon = while_held_up(lambda: spark.interruptAll())
    said = "Spark cancelled the job" in str(error) and not left
    return [type(error).__name__, said or str(error)]

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

def same_batches():
    from petastorm_bridge.parity import assert_same_batches
    frame = spark.range(0, 5000, 1, 4).selectExpr(
        "id", "CAST(id AS double) / 7 AS real", "CAST(id % 250 - 125 AS tinyint) AS small",
        "id % 3 = 0 AS flag", "ARRAY(id, -id) AS pair", "IF(id % 5 = 0, NULL, CAST(id AS int)) AS few",
    )
    ids = np.arange(5000)
    pandas = {
        "id": ids, "real": (ids / 7).astype(np.float32), "small": (ids % 250 - 125).astype(np.int8),
        "flag": (ids % 3 == 0).astype(np.uint8), "pair": np.stack([ids, -ids], 1),
        "few": np.where(ids % 5 == 0, np.nan, ids),
    }
    wanted = [
        {name: torch.as_tensor(column[start:start + 96]) for name, column in pandas.items()}
        for start in range(0, 5000, 96)
    ]
    with convert(frame).make_torch_dataloader(
        batch_size=96, num_epochs=1, shuffle_row_groups=False
    ) as loader:
        result = assert_same_batches(wanted, list(loader))
    return "the same" if result.same else str(result)

def parent(**arguments):
    found = url(spark.range(30), **arguments)
    return local_path(found).split("/")[-2]

def unset(what):
    spark.conf.unset(KEY)
    try:
        return what()
    finally:
        spark.conf.set(KEY, url_of("cache"))

def nowhere():
    value = os.environ.pop(VARIABLE)
    try:
        return type(attempt(lambda: convert(spark.range(31)))).__name__
    finally:
        os.environ[VARIABLE] = value

def attempt(what):
    try:
        return what()
    except Exception as error:
        return error

def shards(converter, number, count):
    options = {"cur_shard": number, "shard_count": count, "shuffle_row_groups": False}
    with converter.make_torch_dataloader(batch_size=100, num_epochs=1, **options) as loader:
        yield from loader

def scores_of_shards():
    converter = convert(spark.range(0, 4000, 1, 3))
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, 2.0)
    def infer(frames):
        for frame in frames:
            for number in frame["id"]:
                for batch in shards(converter, number, 4):
                    with torch.no_grad():
                        score = model(batch["id"].float()[:, None])[:, 0]
                    yield pd.DataFrame({"score": score.long().numpy()})
    rows = spark.range(0, 4, 1, 4).mapInPandas(infer, "score long").collect()
    return sorted(row["score"] for row in rows)

def sums_of_shards():
    converter = convert(spark.range(500))
    @sf.pandas_udf("long")
    def total(numbers: pd.Series) -> pd.Series:
        return numbers.map(lambda number: sum(int(b["id"].sum()) for b in shards(converter, number, 4)))
    rows = spark.range(0, 4, 1, 2).select("id", total("id").alias("sum")).collect()
    return sorted(row["sum"] for row in rows)

def deleted_in_a_task():
    converter = convert(spark.range(77))
    converter.delete()
    def read(frames):
        for frame in frames:
            yield pd.DataFrame({"n": [len(list(shards(converter, 0, 1)))]})
    text = str(attempt(lambda: spark.range(1).mapInPandas(read, "n long").collect()))
    return "they were deleted" in text or text

def two_sessions():
    other = SparkSession.builder.remote(sys.argv[2]).create()
    other.conf.set(KEY, url_of("another cache"))
    one, two = convert(spark.range(4)), convert(other.range(3))
    assert "/another cache/" in local_path(two.cache_dir_url), two.cache_dir_url
    return [rows(one), rows(two)]

for name, expression in json.loads(sys.argv[1]).items():
    try:
        found = eval(expression)
    except Exception as error:
        found = repr(error)[:2000]
    print("STEP", json.dumps([name, found]), flush=True)
sys.stdout.flush()
if sys.argv[2].startswith("local"):
    os._exit(0)  # stopping a server inside this program takes long and tests nothing
"""


def run(remote, steps, folder, **environment):
    """What each step gave, in a program of its own."""
    inside = local_connect.FREE_PORT if remote.startswith("local") else ""
    (folder / "script.py").write_text(IMPORTABLE + inside + SCRIPT, "utf-8")
    expressions = {name: expression for name, (expression, _) in steps.items()}
    finished = warm.run(
        [sys.executable, "-W", "ignore", "script.py", json.dumps(expressions), remote],
        cwd=folder,
        env={**surroundings(), **environment},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    lines = [line for line in finished.stdout.splitlines() if line.startswith("STEP ")]
    assert lines, finished.stderr[-3000:]
    return dict(json.loads(line.removeprefix("STEP ")) for line in lines)


def surroundings():
    ours = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**os.environ, **ours}


@contextlib.contextmanager
def server(folder):
    """A Spark Connect server on the loopback interface, as its URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[2]"]
    for setting in (f"connect.grpc.binding.port={port}", "ui.enabled=false", "log.level=ERROR"):
        command += ["--conf", f"spark.{setting}"]
    command += [
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    ]
    environment = {**surroundings(), "SPARK_HOME": str(submit.parents[1])}
    log = folder / "server.log"
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + 120
        while not listens(port):
            alive = process.poll() is None and time.monotonic() < deadline
            assert alive, log.read_text("utf-8")[-3000:]
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def found_inside(tmp_path_factory):
    return run("local[2]", INSIDE, tmp_path_factory.mktemp("inside"))


@pytest.fixture(scope="module")
def found_apart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("apart")
    with server(folder) as remote:
        found = run(remote, STEPS | SEPARATE, folder, JAVA_HOME="/no/java/here")
    # Deleted at the end of the program, through no JVM.
    found["the end of the program"] = os.listdir(folder / "cache") or None
    return found


@pytest.mark.parametrize("step", INSIDE)
def test_a_server_inside_the_program(found_inside, step):
    assert found_inside[step] == INSIDE[step][1]


@pytest.mark.parametrize("step", STEPS | SEPARATE)
def test_a_server_of_its_own(found_apart, step):
    assert found_apart[step] == (STEPS | SEPARATE)[step][1]
