"""The Spark conf that names the parent cache directory."""

import logging
import os

import pytest

from petastorm_bridge.fs_utils import local_path
from petastorm_bridge.spark import make_spark_converter, spark_dataset_converter

pytestmark = pytest.mark.spark

CONF = "petastorm.spark.converter.parentCacheDirUrl"
VARIABLE = "PETASTORM_BRIDGE_PARENT_CACHE_DIR_URL"


def ids_read_back(converter):
    with converter.make_torch_dataloader(num_epochs=1, batch_size=10) as loader:
        return [i for batch in loader for i in batch["id"].tolist()]


def test_a_missing_conf_is_named(spark, cache_dir):
    spark.conf.unset(CONF)
    with pytest.raises(ValueError, match=f"Please set the spark config {CONF}\\."):
        make_spark_converter(spark.range(1))


def test_the_argument_comes_before_the_conf_and_the_conf_before_the_environment(
    spark, cache_dir, tmp_path, monkeypatch
):
    named = {name: (tmp_path / name).as_uri() for name in ("argument", "conf", "environment")}

    def parent_of(**arguments):
        converter = make_spark_converter(spark.range(3), **arguments)
        assert sorted(ids_read_back(converter)) == [0, 1, 2]
        return converter.cache_dir_url.rpartition("/")[0]

    monkeypatch.setenv(VARIABLE, named["environment"])
    spark.conf.set(CONF, named["conf"])
    assert parent_of(parent_cache_dir_url=named["argument"]) == named["argument"]
    assert parent_of() == named["conf"]
    spark.conf.unset(CONF)
    assert parent_of() == named["environment"]
    monkeypatch.setenv(VARIABLE, "no/scheme")
    with pytest.raises(ValueError, match="A scheme-less directory url \\(no/scheme\\)"):
        parent_of()


def test_a_missing_conf_names_every_way_to_set_it(spark, cache_dir):
    spark.conf.unset(CONF)
    with pytest.raises(ValueError, match=f"{VARIABLE} or pass parent_cache_dir_url="):
        make_spark_converter(spark.range(1))


@pytest.mark.parametrize("url", ["/tmp/x", "tmp/x", "/"])
def test_a_url_without_scheme_is_refused_with_petastorms_text(spark, cache_dir, url):
    spark.conf.set(CONF, url)
    with pytest.raises(ValueError, match=r"^ERROR! A scheme-less directory url .* no longer supp"):
        make_spark_converter(spark.range(1))


@pytest.mark.difference("cache-url-errors")
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "directory url is empty"),
        ("file://tmp/x", "did you mean 'file:///tmp/x'"),
        ("file:rel/x", "holds no absolute path"),
        ("file:///tmp/a\nb", r"holds '\\n', which urls cannot hold"),
        ("file:///tmp/a\tb", r"holds '\\t', which urls cannot hold"),
        ("file:///tmp/a\0b", r"holds '\\x00', which urls cannot hold"),
    ],
)
def test_unusable_urls_say_what_to_write(spark, cache_dir, url, message):
    spark.conf.set(CONF, url)
    with pytest.raises(ValueError, match=message):
        make_spark_converter(spark.range(1))


@pytest.mark.parametrize(
    "pattern", ["file:{}", "file://{}", "file://{}/", "FILE://{}//", " file:{}"]
)
def test_every_way_of_writing_a_local_directory_works(spark, cache_dir, pattern):
    spark.conf.set(CONF, pattern.format(cache_dir))
    converter = make_spark_converter(spark.range(3, numPartitions=1))
    assert converter.cache_dir_url.startswith(f"file://{cache_dir}/")
    assert converter.file_urls[0].startswith(converter.cache_dir_url + "/")
    assert ids_read_back(converter) == [0, 1, 2]


@pytest.mark.difference("paths-with-spaces")
@pytest.mark.parametrize("name", ["a b", "50%", "a%20b", "a#b", "a?b", "a;b", "a=1", "é", "a+b&c"])
def test_any_character_may_be_in_the_path(spark, cache_dir, name):
    spark.conf.set(CONF, f"file://{cache_dir}/{name}")
    converter = make_spark_converter(spark.range(3, numPartitions=1))
    assert os.listdir(cache_dir) == [name]
    assert os.path.isdir(local_path(converter.cache_dir_url))
    assert ids_read_back(converter) == [0, 1, 2]
    converter.delete()
    assert list((cache_dir / name).iterdir()) == []


def test_missing_parents_are_made(spark, cache_dir):
    spark.conf.set(CONF, f"file://{cache_dir}/a/b/c")
    assert len(make_spark_converter(spark.range(3))) == 3


@pytest.mark.difference("dbfs-cache-dir")
def test_dbfs_urls_are_mounted_paths(spark, cache_dir, monkeypatch):
    monkeypatch.setattr(os.path, "isdir", lambda path: path in {"/dbfs", "/Volumes"})
    spark.conf.set(CONF, "dbfs:/tmp/x")
    assert spark_dataset_converter._get_parent_cache_dir_url(spark) == "file:///dbfs/tmp/x"
    spark.conf.set(CONF, "dbfs:/Volumes/main/x/")
    assert spark_dataset_converter._get_parent_cache_dir_url(spark) == "file:///Volumes/main/x"


@pytest.mark.difference("dbfs-cache-dir")
@pytest.mark.skipif(os.path.exists("/dbfs"), reason="DBFS is mounted here")
@pytest.mark.parametrize("url", ["dbfs:/tmp/x", "DBFS:///tmp/x", "dbfs:/Volumes/main/x"])
def test_dbfs_urls_are_refused_where_it_is_not_mounted(spark, cache_dir, url):
    with pytest.raises(ValueError, match=r"there is no /(dbfs|Volumes) on this machine.*file:///"):
        make_spark_converter(spark.range(1), parent_cache_dir_url=url)
    assert not os.path.exists("/dbfs")


def test_a_path_is_told_as_the_url_to_write(spark, cache_dir):
    with pytest.raises(ValueError, match="For this directory: 'file:///Volumes/main/x'"):
        make_spark_converter(spark.range(1), parent_cache_dir_url="/Volumes/main/x")


def test_the_conf_is_logged(spark, cache_dir, caplog):
    caplog.set_level(logging.INFO)
    converter = make_spark_converter(spark.range(1))
    assert f"Read {CONF} file://{cache_dir}" in caplog.messages
    assert (
        f"Materialize dataframe to url {converter.cache_dir_url} successfully." in caplog.messages
    )


@pytest.mark.parametrize(
    ("url", "warns"),
    [("file:/dbfs/a", False), ("file:/Volumes/a", False), ("file:/a/b", True)],
)
def test_on_a_databricks_cluster_unshared_paths_are_warned_of(
    spark, cache_dir, caplog, monkeypatch, url, warns
):
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "15.4")
    monkeypatch.setattr(spark_dataset_converter, "_is_spark_local_mode", lambda: False)
    spark_dataset_converter._check_parent_cache_dir_url(url)
    assert ("you should specify a dbfs fuse path" in caplog.text) == warns


def test_local_mode_is_recognised(spark):
    assert spark_dataset_converter._is_spark_local_mode()


def test_a_session_that_refuses_to_look_up_the_conf(spark, cache_dir, tmp_path):
    """Databricks' serverless sessions, of which only the documented error can be had here."""
    from pyspark.errors import AnalysisException

    class Conf:
        error = AnalysisException(f"[CONFIG_NOT_AVAILABLE] Configuration {CONF} is not available.")

        def get(self, key, default):
            raise self.error

    class Session:
        conf = Conf()

    find = spark_dataset_converter._get_parent_cache_dir_url
    assert find(Session(), tmp_path.as_uri()) == tmp_path.as_uri()
    with pytest.raises(ValueError, match="or pass parent_cache_dir_url="):
        find(Session())
    Conf.error = AnalysisException("the session has ended")
    with pytest.raises(AnalysisException, match="the session has ended"):
        find(Session())
