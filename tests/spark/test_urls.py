"""URLs of directories and files: what they mean, without Spark."""

import pickle
from urllib.parse import urlparse

import pytest

from petastorm_bridge import fs_utils
from petastorm_bridge.spark._directory import urls


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("FILE:///a/b", "/a/b"),
        ("file://localhost/a/b", "/a/b"),
        ("file:///a b/50%25#?;x", "/a b/50%25#?;x"),
        ("dbfs:/a/b", "/dbfs/a/b"),
        ("dbfs:///a/b", "/dbfs/a/b"),
        ("dbfs:/Volumes/main/x", "/Volumes/main/x"),
        ("s3://bucket/a", None),
        ("/a/b", None),
    ],
)
def test_local_path_of_a_url_is_literal(url, path):
    assert fs_utils.local_path(url) == path


@pytest.mark.parametrize("url", ["file://tmp/x", "dbfs://tmp/x", "dbfs://localhost/x", "file:x"])
def test_a_url_that_means_no_local_path_says_what_to_write(url):
    with pytest.raises(ValueError, match="///"):
        fs_utils.local_path(url)


def test_a_percent_encoded_path_is_decoded_only_where_that_exists(tmp_path):
    (tmp_path / "a b").mkdir()
    (tmp_path / "c%20d").mkdir()
    assert fs_utils.existing_local_path(f"file://{tmp_path}/a%20b") == f"{tmp_path}/a b"
    assert fs_utils.existing_local_path(f"file://{tmp_path}/c%20d") == f"{tmp_path}/c%20d"
    assert fs_utils.existing_local_path(f"file://{tmp_path}/no%20ne") == f"{tmp_path}/no%20ne"


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("file:///a/", "file:///a"),
        ("file:///a//", "file:///a"),
        (" file:///a ", "file:///a"),
        ("file:///", "file:///"),
        ("hdfs://nn:9000/a/", "hdfs://nn:9000/a"),
    ],
)
def test_normalize_dir_url_drops_trailing_slashes(url, normal):
    assert fs_utils.normalize_dir_url(url) == normal


def test_normalize_dir_url_refuses_what_is_no_url():
    with pytest.raises(ValueError, match="empty"):
        fs_utils.normalize_dir_url("")
    with pytest.raises(ValueError, match="must be a string"):
        fs_utils.normalize_dir_url(None)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("file:///a/b", "file:///a/b/c"),
        ("file:/a/b", "file:///a/b/c"),
        ("FILE:///a", "file:///a/c"),
        ("file:///", "file:///c"),
        ("hdfs:/a/b", "hdfs:/a/b/c"),
        ("hdfs://nn1:9000/a/b", "hdfs://nn1:9000/a/b/c"),
        ("file:///a b/50%#?", "file:///a b/50%#?/c"),
    ],
)
def test_sub_url_adds_a_name_and_decodes_nothing(url, expected):
    assert urls.sub_url(url, "c") == expected


def test_urls_of_databricks_are_mounted_paths():
    assert urls.canonical_url("dbfs:/tmp/x") == "file:///dbfs/tmp/x"
    assert urls.canonical_url("dbfs:/Volumes/x") == "file:///Volumes/x"
    assert urls.canonical_url("file:/tmp/x") == "file:///tmp/x"
    assert urls.canonical_url("s3://bucket/x") == "s3://bucket/x"
    assert urls.is_volume("/Volumes/x")
    assert urls.is_volume("dbfs:/Volumes/x")
    assert not urls.is_volume("/Volumes/../x")
    assert not urls.is_volume("s3://Volumes/x")


def test_filesystem_resolver_offers_what_petastorms_users_call(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    resolver = fs_utils.FilesystemResolver(tmp_path.as_uri())
    filesystem = resolver.filesystem()
    assert resolver.get_dataset_path() == str(tmp_path)
    assert resolver.parsed_dataset_url() == urlparse(tmp_path.as_uri())
    assert filesystem.exists(f"{tmp_path}/f")
    assert filesystem.find(str(tmp_path)) == filesystem.ls(str(tmp_path)) == [f"{tmp_path}/f"]
    assert filesystem.size(f"{tmp_path}/f") == 3
    with filesystem.open(f"{tmp_path}/f") as file:
        assert file.read() == b"abc"
    filesystem.mkdir(f"{tmp_path}/d/e")
    filesystem.delete(f"{tmp_path}/d", recursive=True)
    filesystem.delete(f"{tmp_path}/f")
    assert resolver.filesystem_factory()().ls(str(tmp_path)) == []
    with pytest.raises(RuntimeError, match="Pickling FilesystemResolver"):
        pickle.dumps(resolver)


def test_filesystem_resolver_takes_other_stores_from_fsspec():
    fsspec = pytest.importorskip("fsspec", reason="other stores than the local one need fsspec")
    filesystem, paths = fs_utils.get_filesystem_and_path_or_paths(
        ["memory://bucket/a", "memory://bucket/b"]
    )
    assert isinstance(filesystem, fsspec.get_filesystem_class("memory"))
    assert paths == ["/bucket/a", "/bucket/b"]
    with pytest.raises(
        ValueError, match=r"reads nope:// urls\. Write file:///path .* gs, hf, .* fsspec"
    ):
        fs_utils.FilesystemResolver("nope://bucket/x")
    with pytest.raises(ValueError, match="URLs must be of the form s3://bucket/path"):
        fs_utils.FilesystemResolver("s3:///x")


def test_urls_without_scheme_or_of_different_stores_are_refused():
    with pytest.raises(ValueError, match="scheme-less"):
        fs_utils.FilesystemResolver("/a/b")
    with pytest.raises(ValueError, match="same scheme and netloc"):
        fs_utils.get_filesystem_and_path_or_paths(["file:///a", "s3://b/c"])
