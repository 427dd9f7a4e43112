"""Writing a DataFrame: order, completeness, and what is left after good and bad ends."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import pytest
from datasets import IMPORTABLE, read_table
from pyspark.sql import functions as sf

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge.fs_utils import local_path
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.spark import make_spark_converter
from petastorm_bridge.spark._directory.mounted import MountedStore
from petastorm_bridge.spark._directory.store import store_at
from petastorm_bridge.spark._session import MaterializationError
from petastorm_bridge.spark._writing import jobs as _jobs
from petastorm_bridge.spark._writing import materialize

pytestmark = pytest.mark.spark


def directory_of(converter):
    return Path(local_path(converter.cache_dir_url))


def rows_of(converter):
    return read_table(open_dataset(str(directory_of(converter)))).to_pylist()


def ids_of(converter):
    return [row["id"] for row in rows_of(converter)]


@pytest.mark.smoke
@pytest.mark.difference("partition-order")
def test_rows_keep_the_partition_order(spark, cache_dir):
    ordered = spark.range(1000, numPartitions=7)
    assert ids_of(make_spark_converter(ordered)) == list(range(1000))
    backwards = spark.range(200).orderBy(sf.desc("id"))
    assert ids_of(make_spark_converter(backwards)) == list(reversed(range(200)))


def test_files_are_listed_in_row_order_and_exist(spark, cache_dir):
    converter = make_spark_converter(spark.range(3000, numPartitions=3), 4000)
    names = [url.rpartition("/")[2] for url in converter.file_urls]
    assert len(names) > 3
    assert names == sorted(names)
    assert names == [e.basenames[0] for e in open_dataset(str(directory_of(converter))).shards]
    assert all(os.path.exists(local_path(url)) for url in converter.file_urls)
    assert len(converter) == converter.dataset_size == 3000


def test_the_directory_name_tells_time_and_application(spark, cache_dir):
    converter = make_spark_converter(spark.range(1))
    name = directory_of(converter).name
    assert name[:14].isdigit()
    assert name[14:].startswith(f"-appid-{spark.sparkContext.applicationId}-")
    assert directory_of(converter).parent == cache_dir


@pytest.mark.parametrize(
    ("size", "rows_per_shard"), [(0, 100), (-1, 100), ("1024", 100), (12 * 400, 400), (None, 1000)]
)
def test_shards_are_cut_where_petastorm_cuts_row_groups(spark, cache_dir, size, rows_per_shard):
    # A row is 8 bytes and a 4-byte offset; Parquet looks at the size every 100 rows.
    converter = make_spark_converter(spark.range(1000, numPartitions=1), size)
    samples = [shard.samples for shard in open_dataset(str(directory_of(converter))).shards]
    assert samples == [rows_per_shard] * (1000 // rows_per_shard) + (
        [1000 % rows_per_shard] if 1000 % rows_per_shard else []
    )


@pytest.mark.difference("max-records-per-file")
def test_the_size_of_sparks_files_is_not_that_of_shards(spark, cache_dir):
    key = "spark.sql.files.maxRecordsPerFile"
    spark.conf.set(key, "7")
    try:
        converter = make_spark_converter(spark.range(30, numPartitions=1))
    finally:
        spark.conf.unset(key)
    assert [shard.samples for shard in open_dataset(str(directory_of(converter))).shards] == [30]


@pytest.mark.difference("timestamps-are-nanoseconds")
def test_the_timestamps_of_sparks_files_are_not_those_of_shards(spark, cache_dir):
    key = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(key, "TIMESTAMP_MICROS")
    try:
        converter = make_spark_converter(spark.sql("SELECT timestamp'2020-01-01 00:00:00Z' AS t"))
    finally:
        spark.conf.unset(key)
    seen = []

    def note(frame):
        seen.append(str(frame.t.dtype))
        return frame

    with make_batch_reader(converter.cache_dir_url) as reader:
        (batch,) = reader
    assert batch.t.dtype == "datetime64[ns]"
    with make_batch_reader(converter.cache_dir_url, transform_spec=TransformSpec(note)) as reader:
        list(reader)
    assert seen == ["datetime64[ns]"]


@pytest.mark.difference("nullable-tells-of-nulls")
def test_a_field_is_nullable_if_nulls_were_written(spark, cache_dir):
    for limit, found in ((1, True), (9, False)):
        frame = spark.range(3).selectExpr("id", f"if(id > {limit}, NULL, id) AS v")
        assert frame.schema["v"].nullable
        with make_batch_reader(make_spark_converter(frame).cache_dir_url) as reader:
            fields = reader.schema.fields
        assert (fields["id"].nullable, fields["v"].nullable) == (False, found)


@pytest.mark.difference("unsupported-texts")
def test_warnings_of_unsupported_columns_name_arrow_types(spark, cache_dir):
    frame = spark.range(1).selectExpr(
        "id", "named_struct('a', id) AS s", "map(id, 'x') AS m", "array(array(id)) AS l"
    )
    converter = make_spark_converter(frame)
    lists = "list<element: list<element: int64>>"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with make_batch_reader(converter.cache_dir_url):
            pass
    assert [str(one.message) for one in caught if "gnoring" in str(one.message)] == [
        "Column 's' has an unsupported field struct<a: int64>. Ignoring...",
        "Column 'm' has an unsupported field map<int64, string>. Ignoring...",
        f"[ARROW-1644] Ignoring unsupported structure {lists} for field 'l'",
    ]


@pytest.mark.difference("files-are-mds")
def test_the_files_are_no_parquet(spark, cache_dir):
    import pyarrow as pa
    import pyarrow.parquet as pq

    converter = make_spark_converter(spark.range(3))
    with pytest.raises(pa.ArrowInvalid, match="not a parquet file"):
        pq.read_table(local_path(converter.file_urls[0]))
    with pytest.raises(Exception, match=r"CANNOT_READ_FILE_FOOTER|is not a Parquet file"):
        spark.read.parquet(converter.cache_dir_url)
    with make_batch_reader(converter.cache_dir_url, num_epochs=1) as reader:
        assert sorted(i for batch in reader for i in batch.id.tolist()) == [0, 1, 2]


@pytest.mark.difference("all-codecs-work")
@pytest.mark.parametrize(
    ("codec", "extension"),
    [
        (None, ".mds"),
        ("Snappy", ".snappy"),
        ("gzip", ".gz"),
        ("lz4", ".zstd"),
        ("bzip2", ".bz2"),
        ("deflate", ".gz"),
    ],
)
def test_compressed_shards_are_written_and_read(spark, cache_dir, codec, extension):
    converter = make_spark_converter(spark.range(500), compression_codec=codec)
    assert all(url.endswith(extension) for url in converter.file_urls)
    assert ids_of(converter) == list(range(500))


@pytest.mark.parametrize("partitions", [1, 4])
def test_empty_frames_are_datasets_without_shards(spark, cache_dir, partitions):
    converter = make_spark_converter(spark.range(0, numPartitions=partitions))
    assert len(converter) == 0
    assert converter.file_urls == [f"{converter.cache_dir_url}/index.json"]
    assert rows_of(converter) == []


def test_empty_partitions_write_nothing(spark, cache_dir):
    converter = make_spark_converter(spark.range(0, 80, 1, 8).where("id >= 70"))
    assert len(converter.file_urls) == 1
    assert ids_of(converter) == list(range(70, 80))


def test_nulls_in_some_partitions_are_marked_in_all_shards(spark, cache_dir):
    df = spark.range(0, 300, 1, 3).selectExpr("id", "IF(id > 250, NULL, id) AS n", "'x' AS s")
    converter = make_spark_converter(df)
    dataset = open_dataset(str(directory_of(converter)))
    assert len({shard.layout.names for shard in dataset.shards}) == 1
    assert [r["n"] for r in rows_of(converter)] == [*range(251), *[None] * 49]
    # The shards without flags, which were written first, are gone.
    listed = {name for shard in dataset.shards for name in shard.basenames}
    assert {p.name for p in directory_of(converter).glob("*.mds")} == listed


def test_the_frame_is_evaluated_once(spark, cache_dir):
    counter = spark.sparkContext.accumulator(0)

    def count(value):
        counter.add(1)
        return value

    df = spark.range(100).select(sf.udf(count, "long")("id").alias("id"))
    make_spark_converter(df)
    assert counter.value == 100


def test_only_metadata_comes_to_the_driver(spark, cache_dir, monkeypatch):
    collected = []
    run = materialize._run

    def spy(*args):
        result = run(*args)
        collected.append(json.dumps(result[1]))
        return result

    monkeypatch.setattr(materialize, "_run", spy)
    df = spark.range(2000, numPartitions=2).selectExpr("id", "repeat('secret', 50) AS s")
    make_spark_converter(df)
    assert "secret" not in collected[0]
    assert len(collected[0]) < 5000


def test_nothing_is_visible_before_the_last_moment(spark, cache_dir, monkeypatch):
    seen = []
    commit = materialize.commit_dataset

    def spy(directory, *args, **kwargs):
        seen.append(os.path.exists(os.path.join(directory, "index.json")))
        return commit(directory, *args, **kwargs)

    monkeypatch.setattr(materialize, "commit_dataset", spy)
    converter = make_spark_converter(spark.range(5))
    assert seen == [False]
    assert (directory_of(converter) / "index.json").exists()


@pytest.mark.smoke
@pytest.mark.difference("conversion-errors")
def test_a_failing_task_leaves_nothing_and_one_sentence(spark, cache_dir):
    df = spark.range(1000, numPartitions=2).select(
        sf.udf(lambda x: 1 // (x - 900), "long")("id").alias("id")
    )
    with pytest.raises(MaterializationError) as caught:
        make_spark_converter(df)
    text = str(caught.value)
    assert text.startswith(f"Cannot convert the DataFrame to MDS in file://{cache_dir}/")
    assert "ZeroDivisionError: integer division or modulo by zero. Nothing was left there." in text
    assert "\n" not in text
    assert caught.value.__cause__ is not None
    assert list(cache_dir.iterdir()) == []


@pytest.mark.difference("conversion-errors")
def test_failures_inside_java_are_told_in_a_sentence_too(spark, cache_dir):
    df = spark.range(2).selectExpr("IF(id > 5, 0, raise_error('boom')) AS x")
    with pytest.raises(MaterializationError, match=r"boom.*Nothing was left there\.$"):
        make_spark_converter(df.selectExpr("CAST(x AS INT) AS x"))
    from pyspark.ml.linalg import Vectors

    df = spark.createDataFrame([(1, Vectors.dense([1.0])), (2, None)], ["id", "v"])
    with pytest.raises(MaterializationError, match="vector_to_array requires a non-null input"):
        make_spark_converter(df)
    assert list(cache_dir.iterdir()) == []


@pytest.mark.difference("conversion-errors")
def test_a_directory_that_cannot_be_made_is_named(spark, cache_dir):
    (cache_dir / "file").write_text("")
    key = "petastorm.spark.converter.parentCacheDirUrl"
    spark.conf.set(key, f"file://{cache_dir}/file/sub")
    with pytest.raises(MaterializationError, match=f"Not a directory: {cache_dir}/file.*Point the"):
        make_spark_converter(spark.range(1))
    spark.conf.set(key, "file:///proc/nothing")
    with pytest.raises(MaterializationError, match=r"/proc/nothing.*Point the Spark conf"):
        make_spark_converter(spark.range(1))


def test_a_directory_the_workers_do_not_see_is_explained(spark, cache_dir, monkeypatch):
    class Elsewhere(materialize.WriteTask):
        def __init__(self, **values):
            super().__init__(**{**values, "store": store_at("file:///not/mounted/there")})

    monkeypatch.setattr(materialize, "WriteTask", Elsewhere)
    with pytest.raises(MaterializationError, match="every machine of the cluster mounts"):
        make_spark_converter(spark.range(1))
    assert list(cache_dir.iterdir()) == []


@pytest.mark.parametrize("change", ["delete", "rename"])
def test_a_parent_directory_that_goes_meanwhile_is_blamed(spark, cache_dir, change):
    def go(batches):
        for batch in batches:
            if change == "rename":
                os.rename(cache_dir, f"{cache_dir} renamed")
            else:
                shutil.rmtree(cache_dir)
            yield batch

    df = spark.range(2, numPartitions=1)
    with pytest.raises(MaterializationError, match=r"was deleted or moved, or the one above") as e:
        make_spark_converter(df.mapInArrow(go, df.schema))
    assert "every machine" not in str(e.value)
    assert not cache_dir.exists()


def held_up(spark, folder):
    """A frame whose tasks say that they have begun, and wait until they are killed."""

    def wait(batches):
        for batch in batches:
            Path(folder, "began").touch()
            time.sleep(0.1 if Path(folder, "go on").exists() else 30)
            yield batch

    df = spark.range(4, numPartitions=2)
    return df.mapInArrow(wait, df.schema)


def when_begun(folder, action):
    """Start a thread that acts when a task of a :func:`held_up` frame runs."""

    def act():
        while not Path(folder, "began").exists():
            time.sleep(0.05)
        action()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def active_jobs(spark):
    """The jobs that Spark runs, once they have had time to end."""
    deadline = time.monotonic() + 20
    tracker = spark.sparkContext.statusTracker()
    while (jobs := list(tracker.getActiveJobsIds())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return jobs


@pytest.mark.difference("interrupt-stays-an-interrupt")
def test_an_interrupt_ends_the_job_and_leaves_nothing(spark, cache_dir, tmp_path):
    frame, before = held_up(spark, tmp_path), set(threading.enumerate())
    thread = when_begun(tmp_path, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        make_spark_converter(frame)
    thread.join()
    assert set(threading.enumerate()) <= before
    assert active_jobs(spark) == []
    assert list(cache_dir.iterdir()) == []
    assert ids_of(make_spark_converter(spark.range(3))) == [0, 1, 2]


def test_an_interrupt_ends_no_other_job(spark, cache_dir, tmp_path):
    """With Python's own handler; pyspark's cancels every job of the session."""
    frame = held_up(spark, tmp_path).coalesce(1)

    def slowly(batches):
        for batch in batches:
            deadline = time.monotonic() + 60
            while not Path(tmp_path, "interrupted").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            yield batch

    counted = []
    other = spark.range(2, numPartitions=1)
    slow = other.mapInArrow(slowly, other.schema)
    counting = threading.Thread(target=lambda: counted.append(slow.count()))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        counting.start()
        thread = when_begun(tmp_path, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            make_spark_converter(frame)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
        (tmp_path / "interrupted").touch()
        counting.join(60)
    assert counted == [2]
    assert active_jobs(spark) == []
    assert list(cache_dir.iterdir()) == []


@pytest.mark.difference("conversion-errors")
def test_a_cancelled_job_is_called_so(spark, cache_dir, tmp_path):
    frame = held_up(spark, tmp_path)
    thread = when_begun(tmp_path, spark.sparkContext.cancelAllJobs)
    with pytest.raises(MaterializationError, match=r"Spark cancelled the job: Job \d+ cancelled"):
        make_spark_converter(frame)
    thread.join()
    assert list(cache_dir.iterdir()) == []


def test_a_stopped_context_is_told_by_spark_itself(spark, monkeypatch):
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    assert _jobs.run_job(spark, lambda: "ran") == "ran"


def test_jobs_leave_no_thread_and_no_connection(spark):
    def open_files():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    _jobs.run_job(spark, spark.range(1).collect)
    threads, files = threading.active_count(), open_files()
    for _ in range(20):
        _jobs.run_job(spark, spark.range(1).schema.json)
    assert threading.active_count() == threads
    assert open_files() < files + 10


def test_the_callers_job_group_is_kept(spark, cache_dir, tmp_path):
    (tmp_path / "go on").touch()
    context = spark.sparkContext
    context.setJobGroup("the caller's", "a description")
    try:
        make_spark_converter(held_up(spark, tmp_path))
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)
    assert len(context.statusTracker().getJobIdsForGroup("the caller's")) == 1


def test_shards_that_do_not_become_visible_are_reported(spark, cache_dir, monkeypatch):
    monkeypatch.setattr(materialize, "_VISIBLE_WITHIN_SECONDS", 0.3)
    monkeypatch.setattr(MountedStore, "sizes", lambda self: {})
    with pytest.raises(MaterializationError, match="2 shards written by the executors"):
        make_spark_converter(spark.range(2, numPartitions=2))
    assert list(cache_dir.iterdir()) == []


def test_an_interrupt_is_passed_on_and_leaves_nothing(spark, cache_dir, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(materialize, "_wait_until_visible", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_spark_converter(spark.range(2))
    assert list(cache_dir.iterdir()) == []


def test_frames_with_large_values_get_small_batches_and_the_setting_comes_back(spark, cache_dir):
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    sizes = spark.sparkContext.accumulator(0)

    def measure(batches):
        for batch in batches:
            sizes.add(1)
            yield batch

    before = spark.conf.get(key)
    fixed = spark.range(1000, numPartitions=1)
    make_spark_converter(fixed.mapInArrow(measure, fixed.schema))
    assert sizes.value == 1
    wide = [spark.range(n, numPartitions=1).selectExpr("array(id) AS a") for n in (1000, 1001)]
    threads = [
        threading.Thread(target=make_spark_converter, args=(df.mapInArrow(measure, df.schema),))
        for df in wide
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes.value == 1 + 2 * 4
    assert spark.conf.get(key) == before
    spark.conf.set(key, "100")
    try:
        make_spark_converter(wide[0].mapInArrow(measure, wide[0].schema), dtype=None)
        assert spark.conf.get(key) == "100"
    finally:
        spark.conf.unset(key)
    assert sizes.value == 1 + 2 * 4 + 10


def test_a_session_that_refuses_the_setting_still_converts(spark):
    import pyarrow as pa

    from petastorm_bridge.spark._writing.jobs import small_arrow_batches

    class Refusing:
        """Stands for serverless compute, where most settings cannot be changed."""

        conf = None

    with small_arrow_batches(Refusing(), pa.schema([("s", pa.string())])):
        reached = True
    assert reached


def run_script(body, tmp_path, prelude="", **environment):
    script = tmp_path / "script.py"
    script.write_text(IMPORTABLE + prelude + textwrap.dedent(body), "utf-8")
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
    )


SESSION = """
import json, os, sys
from pyspark.sql import SparkSession, functions as sf
spark = (
    SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("petastorm.spark.converter.parentCacheDirUrl", "file:" + os.getcwd() + "/cache")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
from petastorm_bridge.spark import make_spark_converter
"""


@pytest.mark.modern
@pytest.mark.slow
def test_attempts_that_fail_leave_no_rows_and_no_files(tmp_path):
    finished = run_script(
        """
        from datasets import read_table
        from petastorm_bridge.mds.dataset import open_dataset

        def stumble(batches):
            from pyspark import TaskContext
            rows = 0
            for batch in batches:
                rows += batch.num_rows
                yield batch
            if TaskContext.get().attemptNumber() < 2:
                raise OSError("the machine went away")

        df = spark.range(1000, numPartitions=2)
        converter = make_spark_converter(df.mapInArrow(stumble, df.schema), 1000)
        directory = converter.cache_dir_url[7:]
        dataset = open_dataset(directory)
        listed = {n for shard in dataset.shards for n in shard.basenames}
        print(json.dumps({
            "ids": read_table(dataset).column("id").to_pylist() == list(range(1000)),
            "attempts": sorted({name.split(".")[2] for name in listed}),
            "unlisted": sorted(n for n in os.listdir(directory) if ".mds" in n and n not in listed),
        }))
        """,
        tmp_path,
        SESSION,
    )
    result = json.loads(finished.stdout.splitlines()[-1])
    assert result["ids"], finished.stderr[-2000:]
    assert result["unlisted"] == []
    # Two tasks, each won by its third attempt: never attempts 0 to 3.
    assert set(result["attempts"]) & {"a0", "a1", "a2", "a3"} == set()


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.difference("conversion-errors")
def test_a_full_disk_is_told_in_a_sentence_and_leaves_nothing(tmp_path):
    finished = run_script(
        """
        df = spark.range(2_000_000, numPartitions=1)
        try:
            make_spark_converter(df)
        except Exception as error:
            print(json.dumps([type(error).__name__, str(error), os.listdir("cache")]))
        """,
        tmp_path,
        # A limit on file sizes stands for a full disk; Python sees OSError as it would there.
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))" + SESSION,
    )
    name, text, left = json.loads(finished.stdout.splitlines()[-1])
    assert name == "MaterializationError"
    assert "cannot write partition 0 to " in text
    assert "File too large" in text
    assert "\n" not in text
    assert left == []


@pytest.mark.modern
@pytest.mark.slow
def test_workers_import_neither_frameworks_nor_the_session(tmp_path):
    finished = run_script(
        """
        def report(batches):
            list(batches)
            import pyarrow as pa
            names = ["torch", "tensorflow", "streaming", "petastorm", "pyarrow.parquet", "libcst"]
            found = [n for n in names if n in sys.modules]
            yield pa.RecordBatch.from_pydict({"name": found})

        from petastorm_bridge.spark._directory.store import store_at
        from petastorm_bridge.spark._writing.executor import RESULT_SCHEMA, WriteTask, write_partition
        import pyarrow as pa
        os.mkdir("out")
        df = spark.range(10, numPartitions=1)
        schema = pa.schema([("id", pa.int64())]).serialize().to_pybytes()
        url = "file:" + os.path.abspath("out")
        task = WriteTask(store_at(url), url, schema, 1000, None)
        written = df.mapInArrow(lambda batches: write_partition(task, batches), RESULT_SCHEMA)
        # One worker process serves both steps of the only partition one after the other.
        assert written.collect()[0]["num_rows"] == 10
        print(json.dumps([row["name"] for row in df.mapInArrow(report, "name string").collect()]))
        """,
        tmp_path,
        SESSION.replace("local[2,4]", "local[1]"),
    )
    assert json.loads(finished.stdout.splitlines()[-1]) == [], finished.stderr[-2000:]
