"""Which conversions share a directory, and which never may."""

import os
import random
import select
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from datasets import read_table
from pyspark.sql import functions as sf

from petastorm_bridge.fs_utils import local_path
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.spark import make_spark_converter, spark_dataset_converter
from petastorm_bridge.spark._directory import conversions

pytestmark = pytest.mark.spark

CONF = "petastorm.spark.converter.parentCacheDirUrl"


def rows_of(converter):
    return read_table(open_dataset(local_path(converter.cache_dir_url))).to_pylist()


def url_of(df, *args, **kwargs):
    return make_spark_converter(df, *args, **kwargs).cache_dir_url


@pytest.mark.smoke
def test_equal_plans_share_a_directory(spark, cache_dir):
    df = spark.range(10)
    first = make_spark_converter(df)
    assert url_of(df) == first.cache_dir_url
    assert url_of(spark.range(10)) == first.cache_dir_url
    assert make_spark_converter(df) is not first
    assert url_of(spark.range(11)) != first.cache_dir_url
    assert len(list(cache_dir.iterdir())) == 2


def test_options_belong_to_the_identity(spark, cache_dir):
    df = spark.range(10).selectExpr("id", "CAST(id AS DOUBLE) AS x")
    urls = {
        url_of(df),
        url_of(df, 1 << 20),
        url_of(df, compression_codec="snappy"),
        url_of(df, dtype="float64"),
        url_of(df, dtype=None),
    }
    assert len(urls) == 5
    assert url_of(df, str(1 << 20)) in urls
    assert url_of(df, compression_codec="uncompressed") in urls
    assert url_of(df, compression_codec="SNAPPY") in urls


def test_the_parent_directory_belongs_to_the_identity(spark, cache_dir):
    df = spark.range(10)
    first = url_of(df)
    spark.conf.set(CONF, f"file:{cache_dir}//")
    assert url_of(df) == first
    spark.conf.set(CONF, f"file://localhost{cache_dir}/")
    assert url_of(df) == first
    (cache_dir / "other").mkdir()
    spark.conf.set(CONF, f"file://{cache_dir}/other")
    assert url_of(df).startswith(f"file://{cache_dir}/other/")


@pytest.mark.smoke
@pytest.mark.difference("reuse-includes-names")
def test_exchanged_column_names_are_another_dataset(spark, cache_dir):
    base = spark.range(3)
    one = base.select(sf.col("id").alias("feature"), (sf.col("id") * 2).alias("label"))
    other = base.select(sf.col("id").alias("label"), (sf.col("id") * 2).alias("feature"))
    renamed = one.withColumnRenamed("label", "target")
    assert rows_of(make_spark_converter(one))[1] == {"feature": 1, "label": 2}
    assert rows_of(make_spark_converter(other))[1] == {"label": 1, "feature": 2}
    assert rows_of(make_spark_converter(renamed))[1] == {"feature": 1, "target": 2}


def test_a_changed_type_is_another_dataset(spark, cache_dir):
    narrow = spark.range(3).selectExpr("CAST(id AS INT) AS x")
    wide = spark.range(3).selectExpr("CAST(id AS SHORT) AS x")
    assert url_of(narrow) != url_of(wide)


@pytest.mark.difference("reuse-sees-new-source")
def test_a_source_that_was_overwritten_and_read_anew_is_converted_anew(spark, cache_dir, tmp_path):
    source = str(tmp_path / "my source")
    spark.range(5).write.parquet(source)
    old = make_spark_converter(spark.read.parquet(source))
    assert url_of(spark.read.parquet(source)) == old.cache_dir_url
    spark.range(3).write.mode("overwrite").parquet(source)
    assert len(make_spark_converter(spark.read.parquet(source))) == 3
    spark.range(4).write.mode("append").parquet(source)
    assert len(make_spark_converter(spark.read.parquet(source))) == 7
    assert len(old) == 5


@pytest.mark.difference("reuse-sees-new-source")
def test_a_file_rewritten_under_its_name_is_converted_anew(spark, cache_dir, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = tmp_path / "a b.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), source)
    old = url_of(spark.read.parquet(f"file://{source}"))
    assert url_of(spark.read.parquet(f"file://{source}")) == old
    pq.write_table(pa.table({"id": [3, 4]}), source)
    os.utime(source, ns=(1, 1))
    spark.catalog.clearCache()
    assert [r["id"] for r in rows_of(make_spark_converter(spark.read.parquet(f"file://{source}")))]
    assert url_of(spark.read.parquet(f"file://{source}")) != old


def test_a_frame_whose_source_is_gone_keeps_its_conversion(spark, cache_dir, tmp_path):
    source = tmp_path / "source"
    spark.range(5).write.parquet(str(source))
    df = spark.read.parquet(str(source))
    converter = make_spark_converter(df)
    shutil.rmtree(source)
    assert url_of(df) == converter.cache_dir_url


def test_a_replaced_view_is_another_dataset(spark, cache_dir):
    spark.range(3).createOrReplaceTempView("rows_to_convert")
    assert len(make_spark_converter(spark.table("rows_to_convert"))) == 3
    spark.range(4).createOrReplaceTempView("rows_to_convert")
    assert len(make_spark_converter(spark.table("rows_to_convert"))) == 4


def test_local_data_and_column_order_make_another_dataset(spark, cache_dir):
    def local():
        return spark.createDataFrame([(1, 2)], ["a", "b"])

    df = local()
    assert url_of(df) == url_of(df)
    assert url_of(df.select("a", "b")) != url_of(df.select("b", "a"))
    import pandas as pd

    frame = pd.DataFrame({"a": [1, 2]})
    one, two = spark.createDataFrame(frame), spark.createDataFrame(frame)
    assert rows_of(make_spark_converter(one)) == rows_of(make_spark_converter(two))


def test_random_columns_are_drawn_once_per_frame(spark, cache_dir):
    df = spark.range(3).select(sf.rand().alias("x"))
    assert url_of(df) == url_of(df)
    assert url_of(df) != url_of(spark.range(3).select(sf.rand().alias("x")))


@pytest.mark.difference("written-again-when-removed")
def test_a_directory_removed_from_outside_is_written_again(spark, cache_dir):
    df = spark.range(10)
    first = make_spark_converter(df)
    shutil.rmtree(local_path(first.cache_dir_url))
    second = make_spark_converter(df)
    assert second.cache_dir_url != first.cache_dir_url
    assert len(rows_of(second)) == 10


def test_deleted_conversions_are_forgotten(spark, cache_dir):
    df = spark.range(10)
    first, other = make_spark_converter(df), make_spark_converter(spark.range(20))
    first.delete()
    urls = {entry.cache_dir_url for entry in spark_dataset_converter._cache_df_meta_list}
    assert first.cache_dir_url not in urls
    assert other.cache_dir_url in urls
    assert url_of(df) != first.cache_dir_url


def test_threads_that_convert_the_same_frame_share_one_conversion(spark, cache_dir):
    df = spark.range(100)
    urls = []
    threads = [threading.Thread(target=lambda: urls.append(url_of(df))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(urls) == 4
    assert len(set(urls)) == 1
    assert len(list(cache_dir.iterdir())) == 1


def identity(name, options="options"):
    """An identity that needs no Spark; equal names mean equal plans."""
    return conversions.Identity(_Frame(name), options, (("id", "bigint"),), 7, "", ())


class _Frame:
    def __init__(self, name):
        self.name = name

    def sameSemantics(self, other):  # noqa: N802 - Spark's name
        if self.name == "dead":
            raise RuntimeError("the session was stopped")
        return self.name == other.name


def test_a_failed_conversion_lets_the_next_one_waiting_try(tmp_path):
    entries = []
    cache = conversions.ConversionCache(entries)
    started, waiting = threading.Event(), threading.Event()
    results = []

    def fail():
        started.set()
        waiting.wait(10)
        raise ValueError("disk full")

    def succeed():
        directory = tmp_path / "made"
        directory.mkdir()
        (directory / "index.json").write_text("{}")
        return f"file://{directory}"

    def first():
        with pytest.raises(ValueError, match="disk full"):
            cache.get_or_create(identity("a"), fail)
        results.append("failed")

    def second():
        started.wait(10)
        waiting.set()
        results.append(cache.get_or_create(identity("a"), succeed))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert set(results) == {"failed", f"file://{tmp_path}/made"}
    assert [entry.cache_dir_url for entry in entries] == [f"file://{tmp_path}/made"]


def test_different_conversions_do_not_wait_for_each_other(tmp_path):
    cache = conversions.ConversionCache([])
    other_ran = threading.Event()

    def slow():
        assert other_ran.wait(10)
        return f"file://{tmp_path}/slow"

    def quick():
        other_ran.set()
        return f"file://{tmp_path}/quick"

    thread = threading.Thread(target=cache.get_or_create, args=(identity("slow"), slow))
    thread.start()
    assert cache.get_or_create(identity("quick"), quick).endswith("/quick")
    thread.join(10)
    assert not thread.is_alive()


def made(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "index.json").write_text("{}")
    return f"file://{tmp_path}/{name}"


@pytest.mark.parametrize("slow", ["Spark", "the store"])
def test_slow_answers_hold_up_nobody_else(tmp_path, monkeypatch, slow):
    cache = conversions.ConversionCache([])
    first = cache.get_or_create(identity("a"), lambda: made(tmp_path, "a"))
    asked, answer = threading.Event(), threading.Event()

    def late(*_):
        asked.set()
        assert answer.wait(20)
        return True

    owner, name = (
        (_Frame, "sameSemantics") if slow == "Spark" else (conversions.CacheEntry, "is_there")
    )
    monkeypatch.setattr(owner, name, late)
    again = []
    waiting = threading.Thread(
        target=lambda: again.append(cache.get_or_create(identity("a"), lambda: "another"))
    )
    waiting.start()
    assert asked.wait(20)
    monkeypatch.undo()
    other = identity("b", "other options")
    assert cache.get_or_create(other, lambda: made(tmp_path, "b")).endswith("/b")
    cache.forget("file:///anything")
    answer.set()
    waiting.join(20)
    assert again == [first]


@pytest.mark.parametrize("removed", [False, True])
def test_equal_conversions_happen_once_whatever_the_answers_take(tmp_path, removed):
    class Late(_Frame):
        def sameSemantics(self, other):  # noqa: N802
            time.sleep(random.uniform(0, 0.02))
            return super().sameSemantics(other)

    cache, calls = conversions.ConversionCache([]), []
    names = ["a", "b", "a", "c", "b", "a"] * 3
    if removed:
        for name in "abc":
            cache.get_or_create(identity(name), lambda: f"file://{tmp_path}/gone")

    def convert(name):
        def create():
            calls.append(name)
            time.sleep(0.01)
            return made(tmp_path, f"{name}{len(calls)}")

        assert name in cache.get_or_create(replace(identity(name), df=Late(name)), create)

    threads = [threading.Thread(target=convert, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(calls) == ["a", "b", "c"]


def test_a_fork_during_a_conversion_waits_for_nothing(tmp_path):
    cache = conversions.ConversionCache([])
    read, write = os.pipe()
    answers = select.poll()  # `select` itself refuses descriptors from 1,024 on
    answers.register(read, select.POLLIN)

    def create():
        cache._lock.acquire()  # as if a thread were looking at that moment
        child = os.fork()
        if child == 0:
            os.write(write, cache.get_or_create(identity("a"), lambda: "file:///own").encode())
            os._exit(0)
        cache._lock.release()
        told = answers.poll(20_000)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert told
        return made(tmp_path, "a")

    cache.get_or_create(identity("a"), create)
    assert os.read(read, 100) == b"file:///own"
    os.close(read)
    os.close(write)


def test_frames_that_cannot_be_compared_are_different(tmp_path):
    assert not identity("dead").matches(identity("dead"))
    one = identity("a")
    assert one.matches(one)
    assert one.matches(identity("a"))
    assert not one.matches(identity("b"))
    assert not one.matches(identity("a", "other options"))


def test_many_source_files_are_compared_by_name_only(monkeypatch, tmp_path):
    monkeypatch.setattr(conversions, "_MAX_FILES_LOOKED_AT", 1)
    names = [f"file://{tmp_path}/{i}" for i in range(2)]
    for name in names:
        Path(local_path(name)).write_text("x")

    class Many(_Frame):
        schema = type("Schema", (), {"fields": ()})

        def inputFiles(self):  # noqa: N802
            return names

        def semanticHash(self):  # noqa: N802
            return 1

    assert conversions.identity_of(Many("a"), "o").files == ()
    monkeypatch.setattr(conversions, "_MAX_FILES_LOOKED_AT", 2)
    assert [size for size, _ in conversions.identity_of(Many("a"), "o").files] == [1, 1]
    names[:] = ["s3://bucket/x"]
    assert conversions.identity_of(Many("a"), "o").files == (None,)


def test_a_plan_whose_files_cannot_be_listed_is_compared_by_its_plan():
    class Opaque(_Frame):
        schema = type("Schema", (), {"fields": ()})

        def inputFiles(self):  # noqa: N802
            raise NotImplementedError

        def semanticHash(self):  # noqa: N802
            return 1

    assert conversions.identity_of(Opaque("a"), "o").matches(
        conversions.identity_of(Opaque("a"), "o")
    )
