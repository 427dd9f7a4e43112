"""Passwords, keys and signatures in URLs are shown nowhere."""

import logging
import time
import traceback

import pytest

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources._far.errors import explain
from petastorm_bridge._sources._far.limits import ATTEMPTS_VARIABLE
from petastorm_bridge._sources.parquet_files import unfinished_text
from petastorm_bridge.fs_utils import masked, without_secrets
from petastorm_bridge.spark import SparkDatasetConverter
from petastorm_bridge.spark._directory import dataset, deletion, urls


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:TOPSECRET@host/data", "http://***@host/data"),
        ("https://TOKEN@host:8080/data", "https://***@host:8080/data"),
        ("s3://KEY:TOPSECRET@bucket/data", "s3://***@bucket/data"),
        ("s3://KEY:ab/cd+ef@bucket/data", "s3://***@bucket/data"),
        ("s3://KEY:a@b@bucket/data", "s3://***@bucket/data"),
        ("sftp://me:pw@host/x", "sftp://***@host/x"),
        ("https://h/d?X-Amz-Signature=abc&sv=2#f", "https://h/d?X-Amz-Signature=***&sv=***#f"),
        ("https://h/d?sig=a%2Bb%3D", "https://h/d?sig=***"),
        ("404, url='http://u:p@h/x' (s3://k:s@b/y)", "404, url='http://***@h/x' (s3://***@b/y)"),
        # Nothing secret:
        ("abfss://container@account.dfs.core.windows.net/p",) * 2,
        ("hdfs://user@host:8020/p",) * 2,
        ("s3://bucket/path@v1/x=1/part.mds",) * 2,
        ("http://host:8080/a@b/c",) * 2,
        ("http://host:/a@b/c",) * 2,
        ("file:///a?b=c/user:x@y",) * 2,
        ("file:///tmp/a:b@c",) * 2,
        ("a sentence, http://host/x. And more: user@host",) * 2,
    ],
)
def test_what_is_masked(text, shown):
    assert masked(text) == shown
    assert masked(shown) == shown


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "http://h/" + "?" * 100_000, "http://h/" + "?a" * 50_000]
)
def test_long_texts_are_searched_in_linear_time(text):
    """Quadratic search takes a minute of them."""
    began = time.thread_time()
    assert masked(text) == text
    assert time.thread_time() - began < 5


def test_secrets_are_masked_without_their_url():
    text = 'Invalid bucket name "KEY:TOPSECRET@bucket", TOPSECRET, a+b/c=dddd'
    found = masked(text, "s3://KEY:TOPSECRET@bucket/x?sig=a%2Bb%2Fc%3Ddddd")
    assert found == 'Invalid bucket name "***@bucket", ***, ***'


def test_a_cause_that_tells_the_secret_is_not_shown():
    url = "http://user:TOPSECRET@host/data"
    inner = ValueError(f"no answer from {url}")
    outer = OSError("no connection")
    outer.__cause__ = inner
    assert without_secrets(outer, url) is None
    assert without_secrets(OSError("no connection"), url) is not None
    explained = explain(outer, url)
    assert "***@host" in str(explained)


def test_what_a_converter_and_its_directories_say(monkeypatch, caplog):
    url = "http://user:TOPSECRET@127.0.0.1:9/data"

    class Empty:
        def exists(self, path):
            return False

        def invalidate_cache(self):
            pass

    where = "petastorm_bridge.spark._directory.dataset.get_filesystem_and_path_or_paths"
    monkeypatch.setattr(where, lambda urls: (Empty(), ["/x" for _ in urls]))
    deletion.note_deleted(url)
    with caplog.at_level(logging.DEBUG, "petastorm_bridge"):
        with pytest.raises(RuntimeError) as deleted:
            dataset.wait_for_files([f"{url}/x.mds"], 0)
        with pytest.raises(ValueError, match="cannot hold") as refused:
            urls.check_writable_place(f"{url}\n/x")
        deletion.warn_of_left(url, ["model.pt"])
        dataset._warn_of_partitions(["/d/k=1/f"], "/d", url)
    converter = SparkDatasetConverter(url, [f"{url}/x.mds"], 1)
    texts = [repr(converter), repr(converter.make_torch_dataloader()), unfinished_text(url)]
    texts += [str(deleted.value), str(refused.value), *caplog.messages]
    assert len(texts) == 7
    assert [text for text in texts if "TOPSECRET" in text or "***@127" not in text] == []


@pytest.mark.parametrize(
    "url",
    [
        "http://user:TOPSECRET@127.0.0.1:9/data",
        "http://127.0.0.1:9/data?X-Amz-Signature=TOPSECRET",
        ["http://user:TOPSECRET@127.0.0.1:9/data/x.mds"],
        ["http://user:TOPSECRET@127.0.0.1:9/data/x.parquet"],
        "unknown://user:TOPSECRET@host/data",
        ["s3://KEY:TOPSECRET@b/a/x.mds", "s3://KEY:TOPSECRET@b/c/x.mds"],
    ],
)
def test_a_reader_that_cannot_be_opened(url, monkeypatch, caplog):
    pytest.importorskip("aiohttp", reason="opens the urls")
    monkeypatch.setattr("petastorm_bridge._sources._far.errors._FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv(ATTEMPTS_VARIABLE, "2")
    with caplog.at_level(logging.DEBUG, "petastorm_bridge"), pytest.raises(Exception) as caught:  # noqa: PT011
        make_batch_reader(url)
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    told = [line for line in shown.splitlines() if "TOPSECRET" in line]
    assert told == []
