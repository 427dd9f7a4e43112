"""Converting on executors that are processes of their own, and that die, stumble or are slow.

A program with one Spark session goes through steps, each judged by the rows of its dataset and by
what lies in the directory: on a `local-cluster`, and on a standalone master whose two workers this
test starts and stops.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest
from datasets import IMPORTABLE

pytestmark = [pytest.mark.spark, pytest.mark.slow]


SCRIPT = r"""
import json, os, signal, sys, time
from pyspark.sql import SparkSession, functions as sf
from datasets import read_table
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.spark import make_spark_converter

master, steps = sys.argv[1], sys.argv[2:]
settings = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
    "spark.log.level": "OFF",
    "spark.speculation": "true",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.multiplier": "2",
    "spark.speculation.quantile": "0.5",
    "petastorm.spark.converter.parentCacheDirUrl": "file:" + os.getcwd() + "/cache",
}
builder = SparkSession.builder.master(master)
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
HERE = os.getcwd()


def once(name):
    'True for the first of all processes that asks.'
    try:
        os.close(os.open(f"{HERE}/{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def disturbed(frame, what):
    'The frame, with `what(partition, number of the batch)` called between its batches.'
    def run(batches):
        from pyspark import TaskContext
        for number, batch in enumerate(batches):
            yield batch
            what(TaskContext.get().partitionId(), number)
    return frame.mapInArrow(run, frame.schema)


def converted(frame, **options):
    converter = make_spark_converter(frame, **options)
    directory = converter.cache_dir_url[len("file://"):]
    dataset = open_dataset(directory)
    shards = [name for shard in dataset.shards for name in shard.basenames]
    there = [name for name in os.listdir(directory) if ".mds" in name]
    assert len(converter) == dataset.num_rows
    return {
        "ids": read_table(dataset).column("id").to_pylist(),
        "unlisted": sorted(set(there) - set(shards)),
        "attempts": len({name.split(".")[2] for name in there}),
        "partitions": len({name.split(".")[1] for name in there}),
    }


def rows(count, partitions):
    return spark.range(0, count, 1, partitions)


def same(found, count, **more):
    expected = {"ids": list(range(count)), "unlisted": [], **more}
    wrong = {name: (found[name], value) for name, value in expected.items() if found[name] != value}
    return str(wrong)[:2000] if wrong else "ok"


def executors_are_processes():
    def report(batches):
        import pyarrow as pa
        list(batches)
        time.sleep(0.5)  # so that both take part
        yield pa.RecordBatch.from_pydict({"jvm": [parent(parent(os.getpid()))]})
    jvms = {row["jvm"] for row in rows(4, 4).mapInArrow(report, "jvm long").collect()}
    return "ok" if len(jvms) == 2 and os.getpid() not in jvms else str(jvms)


def skewed_and_empty_partitions():
    # Hash partitions of three values: most are empty, one has nearly everything.
    frame = rows(30_000, 4).withColumn("key", sf.expr("IF(id < 100, id % 2, 7)"))
    frame = frame.repartition(40, "key").drop("key")
    found = converted(frame, parquet_row_group_size_bytes=8_000)
    found["ids"].sort()
    return same(found, 30_000) if found["partitions"] <= 3 else str(found["partitions"])


def tasks_that_fail_and_are_retried():
    def stumble(partition, number):
        if number == 0 and once(f"stumbled-{partition}"):
            raise OSError("the machine went away")
    return same(converted(disturbed(rows(60_000, 3), stumble)), 60_000, attempts=3)


def an_executor_that_is_killed():
    def kill(partition, number):
        # In the middle of a partition, while its shards are being written.
        if partition == 1 and number == 1 and once("killed"):
            os.kill(parent(parent(os.getpid())), signal.SIGKILL)
            time.sleep(60)
    frame = disturbed(rows(120_000, 4), kill)
    result = same(converted(frame, parquet_row_group_size_bytes=80_000), 120_000)
    return result if os.path.exists("killed") else "nothing was killed"


def a_slow_task_and_its_faster_copy():
    def dawdle(partition, number):
        if partition == 2 and number == 1 and once("slow"):
            time.sleep(120)
    started = time.monotonic()
    found = converted(disturbed(rows(120_000, 4), dawdle))
    if time.monotonic() - started > 100:
        return "the slow attempt was waited for"
    return same(found, 120_000)


def a_job_that_fails_for_good():
    def fail(partition, number):
        if partition == 3:
            raise ValueError("broken row")
    before = sorted(os.listdir("cache"))
    # On a busy machine Spark may see that the Python worker has gone before it reads why.
    for _ in range(3):
        try:
            make_spark_converter(disturbed(rows(40_001, 4), fail))
        except Exception as error:
            failure = error
        else:
            return "no error"
        if "Socket is closed" not in str(failure):
            break
    left = sorted(set(os.listdir("cache")) - set(before))
    ok = type(failure).__name__ == "MaterializationError" and "broken row" in str(failure)
    return "ok" if ok and not left else f"{type(failure).__name__}: {failure}, left {left}"


def hundreds_of_partitions():
    # A Python task costs Spark a twentieth of a second and more, whatever it does.
    count = 300
    return same(converted(rows(4 * count, count)), 4 * count, partitions=count)


def executors_import_neither_torch_nor_streaming():
    # The workers that wrote go on to the next task.
    converter = make_spark_converter(rows(5_000, 2))
    def look(batches):
        import pyarrow as pa
        list(batches)
        heavy = {"torch", "streaming", "tensorflow", "petastorm", "petastorm_bridge.pytorch"}
        wrote = "petastorm_bridge.spark._writing.executor" in sys.modules
        loaded = ",".join(sorted(heavy & set(sys.modules))) or ("none" if wrote else "fresh")
        yield pa.RecordBatch.from_pydict({"heavy": [loaded]})
    found = {row["heavy"] for row in rows(2, 2).mapInArrow(look, "heavy string").collect()}
    return "ok" if found == {"none"} and len(converter) == 5_000 else str(found)


def batches_in_executors():
    'The pickled converter in tasks, each reading one shard of it; once all, judged by the comparer.'
    from petastorm_bridge.parity import assert_same_batches
    import numpy as np, torch
    wanted = [
        {"id": torch.from_numpy(np.arange(start, min(start + 300, 10_000)))}
        for start in range(0, 10_000, 300)
    ]
    with make_spark_converter(rows(10_000, 3)).make_torch_dataloader(
        batch_size=300, num_epochs=1, shuffle_row_groups=False
    ) as loader:
        assert_same_batches(wanted, list(loader))
    converter = make_spark_converter(rows(10_000, 3))
    def read(batches):
        import pyarrow as pa
        shard = [i for batch in batches for i in batch.column(0).to_pylist()]
        for index in shard:
            with converter.make_torch_dataloader(
                batch_size=100, num_epochs=1, cur_shard=index, shard_count=2
            ) as loader:
                ids = [i for batch in loader for i in batch["id"].tolist()]
            yield pa.RecordBatch.from_pydict({"id": ids})
    ids = sorted(row["id"] for row in rows(2, 2).mapInArrow(read, "id long").collect())
    return "ok" if ids == list(range(10_000)) else f"{len(ids)} rows"


for step in steps:
    try:
        result = globals()[step]()
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    print("STEP", json.dumps([step, result]), flush=True)
spark.stop()
"""

IN_SHORT = [
    "executors_are_processes",
    "skewed_and_empty_partitions",
    "executors_import_neither_torch_nor_streaming",
    "an_executor_that_is_killed",
    "batches_in_executors",
]
IN_FULL = [
    *IN_SHORT,
    "tasks_that_fail_and_are_retried",
    "a_slow_task_and_its_faster_copy",
    "a_job_that_fails_for_good",
    "hundreds_of_partitions",
]


def run(master, steps, directory):
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment.pop("SPARK_HOME", None)
    (directory / "script.py").write_text(IMPORTABLE + SCRIPT, "utf-8")
    command = [sys.executable, "-W", "ignore", "script.py", master, *steps]
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    lines = [line[5:] for line in done.stdout.splitlines() if line.startswith("STEP ")]
    assert lines, done.stderr[-4000:]
    return dict(json.loads(line) for line in lines)


@pytest.mark.modern  # the daemons below show the same, and more, beside Petastorm
def test_a_local_cluster(tmp_path):
    assert run("local-cluster[2,1,1024]", IN_SHORT, tmp_path) == dict.fromkeys(IN_SHORT, "ok")


def test_a_standalone_master_with_two_workers(tmp_path):
    with standalone(tmp_path) as master:
        assert run(master, IN_FULL, tmp_path) == dict.fromkeys(IN_FULL, "ok")


@contextlib.contextmanager
def standalone(directory):
    """A master and two workers of one core each, on the loopback interface.

    The workers have addresses of their own: Spark runs no two attempts of a task on one host.
    """
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    worker = ["worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
    worker += ["--work-dir", str(directory / "work")]
    with contextlib.ExitStack() as processes:
        start = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        log = daemon(processes, start, directory / "master.log")
        wait_for(log, "I have been elected leader", 1)
        for number in range(2):
            host = f"127.0.0.{number + 1}"
            arguments = [*worker, "--host", host, master]
            daemon(processes, arguments, directory / f"worker{number}.log", host)
        wait_for(log, "Registering worker", 2)
        yield master


def daemon(processes, arguments, log, host="127.0.0.1"):
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {**os.environ, "SPARK_HOME": str(spark_class.parents[1])}
    environment |= {"SPARK_LOCAL_IP": host, "PYSPARK_PYTHON": sys.executable}
    file = processes.enter_context(log.open("w", encoding="utf-8"))
    command = [str(spark_class), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
    process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    processes.callback(process.wait, 30)
    processes.callback(process.terminate)
    return log


def wait_for(log, text, times):
    deadline = time.monotonic() + 120
    while log.read_text("utf-8").count(text) < times:
        assert time.monotonic() < deadline, log.read_text("utf-8")[-4000:]
        time.sleep(0.2)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
