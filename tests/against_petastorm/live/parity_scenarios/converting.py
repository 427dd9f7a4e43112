"""make_spark_converter: its arguments, the cache, paths, deletion, pickling and Spark tasks."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urlparse

from parity_harness.original import repeatable
from parity_harness.session import Session

from parity_scenarios import Scenarios

SCENARIOS = Scenarios()
add, load, define = SCENARIOS.add, SCENARIOS.load, SCENARIOS.define


@contextlib.contextmanager
def _parent(session: Session, url: str | None) -> Iterator[None]:
    """Set the parent directory of the caches, or none."""
    before = session.cache_url
    session.cache_url = url  # type: ignore[assignment]
    try:
        yield
    finally:
        session.cache_url = before


def _seven(session: Session) -> Any:
    return session.spark.range(0, 7, 1, 1)


@contextlib.contextmanager
def _folder(name: str = "cache") -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        yield os.path.join(directory, name)


def _path(url: str) -> str:
    """The local path of a url, however many characters of it are escaped."""
    path = urlparse(url).path
    return path if os.path.exists(path) else unquote(path)


# --- the parent directory ----------------------------------------------------------------------


@define("conf missing")
def _conf_missing(session: Session) -> object:
    with _parent(session, None):
        return len(session.convert(_seven(session)))


def _parent_scenario(name: str, url: str, folder: str = "cache") -> None:
    def run(session: Session) -> object:
        with _folder(folder) as directory, _parent(session, url.format(directory)):
            converter = session.convert(_seven(session))
            made = os.listdir(directory)
            return [len(converter), len(made), session.load(converter)]

    add(name, run)


_parent_scenario("parent dir '<dir>/cache6'", "{}")
_parent_scenario("parent dir 'tmp/x'", "tmp/x")
_parent_scenario("parent dir ''", "")
_parent_scenario("parent dir 'foo://bar/x'", "foo://bar/x")
_parent_scenario("parent dir 'file:<dir>/cache6a'", "file:{}")
_parent_scenario("parent dir 'file://<dir>/cache6b'", "file://{}")
_parent_scenario("parent dir 'file://<dir>/cache6c/'", "file://{}/")
_parent_scenario("parent dir 'file://<dir>/cache6d//'", "file://{}//")
_parent_scenario("parent dir 'file://localhost<dir>/cache6e'", "file://localhost{}")
_parent_scenario("parent dir 'FILE://<dir>/cache6f'", "FILE://{}")
_parent_scenario("parent dir with space", "file://{}", "cache 6g")
_parent_scenario("parent dir with unicode/%", "file://{}", "cache%206h")
_parent_scenario("parent dir with =", "file://{}", "cache_a=1")

# --- arguments ---------------------------------------------------------------------------------


def _argument(name: str, **options: Any) -> None:
    def run(session: Session) -> object:
        converter = session.convert(session.frame("seven_floats"), **options)
        return [len(converter), session.load(converter)]

    add(name, run)


for _codec in (None, "uncompressed", "snappy", "SNAPPY", "gzip", "lz4", "bzip2", "deflate"):
    _argument(f"codec {_codec!r}" if _codec else "codec None", compression_codec=_codec)
for _codec in ("zstd", "brotli", "none", "foo", 5, ""):
    _argument(f"codec {_codec!r}", compression_codec=_codec)
for _dtype in ("float32", "float64", None, "float16", "FLOAT32", "int", float):
    _argument(f"dtype {_dtype!r}", dtype=_dtype)


@define("dtype <class 'numpy.float32'>")
def _dtype_numpy(session: Session) -> object:
    import numpy as np

    return len(session.convert(_seven(session), dtype=np.float32))


@define("dtype torch.float32")
def _dtype_torch(session: Session) -> object:
    import torch

    return len(session.convert(_seven(session), dtype=torch.float32))


for _size in (0, -1, "abc", "1024", None, 1024.5, True):
    _argument(f"parquet_row_group_size_bytes {_size!r}", parquet_row_group_size_bytes=_size)
for _kind, _value in (
    ("NoneType", None),
    ("int", 5),
    ("list", [1]),
    ("bytes", b"/tmp"),
):
    add(f"df={_kind}", lambda session, value=_value: len(session.convert(value)))


@define("df=DataFrame")
def _pandas(session: Session) -> object:
    import pandas as pd

    return len(session.convert(pd.DataFrame({"id": [1]})))


@define("streaming df")
def _streaming(session: Session) -> object:
    return len(session.convert(session.spark.readStream.format("rate").load()))


@define("double overflow to float32")
def _overflow(session: Session) -> object:
    frame = session.spark.sql(
        "select cast(1e300 as double) x, cast(16777217 as double) y, cast(-1e300 as double) z"
    )
    return session.load(session.convert(frame))


@define("large long/uint?")
def _large(session: Session) -> object:
    frame = session.spark.sql("select 9223372036854775807 x, -9223372036854775807 - 1 y")
    return session.load(session.convert(frame))


@define("null array rows of length-1 arrays")
def _null_arrays(session: Session) -> object:
    frame = session.spark.sql("select if(id = 1, null, array(id)) a from range(0, 3, 1, 1)")
    return session.load(session.convert(frame))


# --- the converter -----------------------------------------------------------------------------


@define("repr/str/attrs")
def _attributes(session: Session) -> object:
    converter = session.converter("ten2")
    return {
        "class": type(converter).__name__,
        "size": converter.dataset_size,
        "length": len(converter),
        "directory is a url": converter.cache_dir_url.startswith("file:///"),
        "files are urls in it": all(
            url.startswith(converter.cache_dir_url) for url in converter.file_urls
        ),
        "files exist": all(os.path.exists(urlparse(url).path) for url in converter.file_urls),
        "many files": len(converter.file_urls),
    }


@define("public attrs of converter")
def _public(session: Session) -> object:
    return [name for name in dir(session.converter("ten2")) if not name.startswith("_")]


# --- reuse -------------------------------------------------------------------------------------


def _reused(session: Session, make: Callable[[], Any], other: Any = None, **second: Any) -> bool:
    """Whether the second conversion gives the directory of the first."""
    one = session.convert(make())
    two = session.convert((other or make)(), **second)
    return bool(one.cache_dir_url == two.cache_dir_url)


@define("reuse: same df object")
def _reuse_same(session: Session) -> object:
    frame = session.spark.range(3)
    return _reused(session, lambda: frame)


@define("reuse: range twice")
def _reuse_range(session: Session) -> object:
    return _reused(session, lambda: session.spark.range(4))


@define("reuse: is same converter object")
def _reuse_object(session: Session) -> object:
    frame = session.spark.range(4)
    return session.convert(frame) is session.convert(frame)


for _row, _second in (
    ("codec None vs uncompressed", {"compression_codec": "uncompressed"}),
    ("dtype differs", {"dtype": "float64"}),
    ("row group differs", {"parquet_row_group_size_bytes": 1024}),
):
    add(
        f"reuse: {_row}",
        lambda session, second=_second: _reused(
            session, lambda: session.spark.range(5), None, **second
        ),
    )


@define("reuse: codec snappy vs SNAPPY")
def _reuse_case(session: Session) -> object:
    one = session.convert(session.spark.range(6), compression_codec="snappy")
    two = session.convert(session.spark.range(6), compression_codec="SNAPPY")
    return one.cache_dir_url == two.cache_dir_url


@define("reuse: column alias differs")
def _reuse_alias(session: Session) -> object:
    spark = session.spark
    return _reused(
        session,
        lambda: spark.range(7).selectExpr("id as a"),
        lambda: spark.range(7).selectExpr("id as b"),
    )


def _columns(session: Session, first: int, *selections: str) -> list[object]:
    """Load several selections of one table, which no other scenario has (`first` tells it apart)."""
    found = []
    for selection in selections:
        frame = session.spark.range(first, first + 3, 1, 1).selectExpr(*selection.split(","))
        found.append(session.load(session.convert(frame)))
    return found


add(
    "names when alias differs",
    lambda session: _columns(session, 20, "id as a", "id as b"),
)
add("alias bug: id->p then id->q", lambda session: _columns(session, 30, "id as p", "id as q"))
add(
    "alias bug: swap names",
    lambda session: _columns(
        session, 40, "id as feature,id * 2 as label", "id as label,id * 2 as feature"
    ),
)


@define("alias bug: withColumnRenamed")
def _renamed(session: Session) -> object:
    frame = session.spark.range(50, 53, 1, 1).selectExpr("id as label")
    session.convert(frame)
    return session.load(session.convert(frame.withColumnRenamed("label", "target")))


@define("reuse: select order differs")
def _reuse_order(session: Session) -> object:
    frame = session.spark.range(8).selectExpr("id", "id * 3 as x")
    return _reused(session, lambda: frame.select("id", "x"), lambda: frame.select("x", "id"))


@define("reuse: createDataFrame(pandas) twice")
def _reuse_pandas(session: Session) -> object:
    import pandas as pd

    return _reused(session, lambda: session.spark.createDataFrame(pd.DataFrame({"id": [1, 2]})))


@define("reuse: createDataFrame(list) twice")
def _reuse_list(session: Session) -> object:
    return _reused(session, lambda: session.spark.createDataFrame([(1,), (2,)], "id bigint"))


@define("reuse: rand() no seed same df")
def _reuse_rand(session: Session) -> object:
    frame = session.spark.range(9).selectExpr("id", "rand() as r")
    return _reused(session, lambda: frame)


@define("reuse: parent dir changes")
def _reuse_parent(session: Session) -> object:
    frame = session.spark.range(10)
    one = session.convert(frame)
    with _folder() as directory, _parent(session, f"file://{directory}"):
        two = session.convert(frame)
        return [one.cache_dir_url == two.cache_dir_url, directory in two.cache_dir_url]


@define("reuse: parent dir trailing slash")
def _reuse_slash(session: Session) -> object:
    frame = session.spark.range(11)
    one = session.convert(frame)
    with _parent(session, session.cache_url + "/"):
        return one.cache_dir_url == session.convert(frame).cache_dir_url


@define("reuse: source parquet OVERWRITTEN between two make_spark_converter calls")
def _reuse_overwritten(session: Session) -> object:
    with _folder("table") as path:
        session.spark.range(0, 5, 1, 1).write.parquet(path)
        one = session.convert(session.spark.read.parquet(path))
        session.spark.range(10, 13, 1, 1).write.mode("overwrite").parquet(path)
        session.spark.catalog.clearCache()
        two = session.convert(session.spark.read.parquet(path))
        return [one.cache_dir_url == two.cache_dir_url, session.load(two)]


@define("reuse: temp view replaced")
def _reuse_view(session: Session) -> object:
    session.spark.range(12).createOrReplaceTempView("parity_view")
    one = session.convert(session.spark.sql("select * from parity_view"))
    session.spark.range(3).createOrReplaceTempView("parity_view")
    two = session.convert(session.spark.sql("select * from parity_view"))
    return [one.cache_dir_url == two.cache_dir_url, len(two)]


@define("concurrent make_spark_converter same df from 4 threads")
def _concurrent(session: Session) -> object:
    frame = session.spark.range(13)
    found = set()
    session.convert(session.spark.range(14))  # sets the conf

    def convert() -> None:
        found.add(session.module("spark").make_spark_converter(frame).cache_dir_url)

    threads = [threading.Thread(target=convert) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(found)


# --- deletion ----------------------------------------------------------------------------------


@define("delete then use (wait timeout monkeypatched 30->3s)")
def _delete_use(session: Session) -> object:
    converter = session.convert(session.spark.range(15))
    converter.delete()
    converter.delete()
    if os.path.exists(_path(converter.cache_dir_url)):
        return "still there"
    return session.load(converter)


@define("delete, use with tf")
def _delete_use_tf(session: Session) -> object:
    converter = session.convert(session.spark.range(15))
    converter.delete()
    return session.load(converter, "tf")


@define("delete one of two converters sharing cache")
def _delete_shared(session: Session) -> object:
    frame = session.spark.range(16)
    one, two = session.convert(frame), session.convert(frame)
    one.delete()
    return session.load(two)


@define("delete, convert again")
def _delete_again(session: Session) -> object:
    frame = session.spark.range(0, 5, 1, 1)
    session.convert(frame).delete()
    return session.load(session.convert(frame))


@define("delete while iterating")
def _delete_iterating(session: Session) -> object:
    frame = session.spark.range(0, 6000, 1, 60)
    converter = session.convert(frame)
    count = 0
    with session.open(converter, workers_count=1, batch_size=100) as batches:
        for _ in batches:
            converter.delete()
            count += 1
    return count


@define("register_delete_dir_handler")
def _delete_handler(session: Session) -> object:
    register = session.module("spark.spark_dataset_converter").register_delete_dir_handler
    calls: list[str] = []
    converter = session.convert(session.spark.range(17))
    register(calls.append)
    try:
        converter.delete()
    finally:
        register(None)
    exists = os.path.exists(_path(converter.cache_dir_url))
    return [calls == [converter.cache_dir_url], exists]


@define("cache dir removed externally, make again same plan")
def _removed(session: Session) -> object:
    frame = session.spark.range(0, 18, 1, 1)
    shutil.rmtree(_path(session.convert(frame).cache_dir_url))
    return session.load(session.convert(frame))


# --- pickling, tasks ---------------------------------------------------------------------------


@define("pickle roundtrip")
def _pickled(session: Session) -> object:
    converter = session.converter("ten2")
    copy = pickle.loads(pickle.dumps(converter))
    return [len(copy), copy.cache_dir_url == converter.cache_dir_url, session.load(copy)]


@define("pickle the ctx manager")
def _pickled_manager(session: Session) -> object:
    with pickle.loads(pickle.dumps(session.manager("ten2"))) as batches:
        return session.ids(batches)


@define("use in Spark task (closure, cloudpickle)")
def _task(session: Session) -> object:
    converter = session.converter("ten2")
    # The executor is another process, where the original loses rows like anywhere.
    without_losses = repeatable if session.original else contextlib.nullcontext

    def read(index: int) -> Any:
        with (
            without_losses(),
            converter.make_torch_dataloader(
                num_epochs=1, batch_size=100, cur_shard=index, shard_count=2, workers_count=1
            ) as batches,
        ):
            return [batch["id"].tolist() for batch in batches]

    return session.spark.sparkContext.parallelize([0, 1], 2).map(read).collect()


@define("make_spark_converter inside task")
def _task_make(session: Session) -> object:
    package = session.package

    def make(_: int) -> str:
        import importlib

        try:
            importlib.import_module(f"{package}.spark").make_spark_converter("file:///x")
        except Exception as error:  # noqa: BLE001 - its type is the result
            return type(error).__name__
        return "made"

    return session.spark.sparkContext.parallelize([0], 1).map(make).collect()


@define("delete inside task")
def _task_delete(session: Session) -> object:
    converter = session.convert(session.spark.range(0, 19, 1, 1))
    session.spark.sparkContext.parallelize([0], 1).foreach(lambda _: converter.delete())
    return os.path.exists(_path(converter.cache_dir_url))


# --- paths -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _table(session: Session, partition: bool = False) -> Iterator[str]:
    """A user's Parquet table of six rows in two files."""
    with _folder("table") as path:
        writer = session.spark.range(0, 6, 1, 2).selectExpr(
            "id", "cast(id as double) as d", "id % 2 as p"
        )
        if partition:
            writer.write.partitionBy("p").parquet(path)
        else:
            writer.drop("p").write.parquet(path)
        yield path


def _from_path(name: str, pattern: str, *, partition: bool = False, **options: Any) -> None:
    def run(session: Session) -> object:
        with _table(session, partition) as path:
            converter = session.convert(pattern.format(path), **options)
            return [len(converter), len(converter.file_urls), session.load(converter)]

    add(name, run, order=not partition)


_from_path("path string file:// dtype kept?", "file://{}")
_from_path("path string scheme-less", "{}")
_from_path("path string trailing slash", "file://{}/")
_from_path("path string nonexistent", "file:///no/such/table")
_from_path("path string bad dtype ignored", "file://{}", dtype="nonsense")
_from_path("path string bad codec ignored", "file://{}", compression_codec="nonsense")
_from_path("path string partitioned dataset: partition column", "file://{}", partition=True)
_from_path("path string empty", "")


@define("path string single file")
def _single_file(session: Session) -> object:
    with _table(session) as path:
        first = sorted(name for name in os.listdir(path) if name.endswith(".parquet"))[0]
        return session.load(session.convert(f"file://{path}/{first}"))


@define("path string: delete() -> does user data still exist?")
def _delete_table(session: Session) -> object:
    with _table(session) as path:
        session.convert(f"file://{path}").delete()
        return os.path.exists(path)


@define("path string needs conf? (unset)")
def _path_conf(session: Session) -> object:
    with _table(session) as path, _parent(session, None):
        return len(session.convert(f"file://{path}"))


@define("path string dir w/o parquet")
def _no_parquet(session: Session) -> object:
    with _folder("texts") as path:
        os.makedirs(path)
        with open(os.path.join(path, "a.txt"), "w", encoding="utf-8") as file:
            file.write("no parquet")
        return len(session.convert(f"file://{path}"))


@define("filters on partition column of path dataset")
def _partition_filter(session: Session) -> object:
    with _table(session, partition=True) as path:
        converter = session.convert(f"file://{path}")
        return session.load(converter, filters=[("p", "=", 1)])


@define("path string, tf, transform, shards")
def _path_options(session: Session) -> object:
    with _table(session) as path:
        converter = session.convert(f"file://{path}")
        spec = session.transform_spec(lambda rows: rows.assign(d=rows["d"] + 1))
        return [
            session.load(converter, "tf", transform_spec=spec),
            session.load(converter, cur_shard=1, shard_count=2),
        ]


@define("dbfs urls on Databricks")
def _dbfs(session: Session) -> object:
    from unittest import mock

    with mock.patch.dict(os.environ, {"DATABRICKS_RUNTIME_VERSION": "7.0"}):
        return len(session.convert("file:///home/table"))
