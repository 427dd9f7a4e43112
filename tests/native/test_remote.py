"""Directories in a remote store: an S3 server on the loopback interface."""

import contextlib
import json
import os
import subprocess
import sys

import pytest
from far_store import far_store, no_store_because
from prefixes import reserve

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(bool(no_store_because()), reason=str(no_store_because())),
]

# Spark's workers get their environment when its Java starts: a process of its own.
SCRIPT = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
from streaming import StreamingDataLoader, StreamingDataset

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
spark.conf.set("petastorm.spark.converter.parentCacheDirUrl", "s3a://far/cache/")
frame = spark.range(40, numPartitions=2).selectExpr("id", "if(id = 3, null, id) as holes")


def ids(directory, **arguments):
    dataset = StreamingDataset(
        remote=directory.remote, local=directory.local, batch_size=7, **arguments
    )
    loader = StreamingDataLoader(dataset, batch_size=7)
    return [i for batch in loader for i in batch["id"].tolist()]


def run(module):
    conv = module.write_mds(frame)
    out = f"s3://far/kept/{module.__name__}"
    kept = module.write_mds(frame, out, compression="zstd")
    exiting = module.write_mds(frame)
    found = {"url": conv.cache_dir_url, "files": sorted(conv.file_urls), "rows": len(conv)}
    found["kept"] = len(kept.file_urls)
    found["ordered"] = ids(conv)
    found["shuffled"] = ids(kept, shuffle=True)
    try:
        module.write_mds(frame, out)
    except FileExistsError:
        found["refused"] = True
    try:
        module.write_mds(frame.selectExpr("string(holes) as s"), "s3://far/refused")
    except ValueError as error:
        found["nulls"] = "s: of type string, with nulls" in str(error)
    conv.delete()
    conv.delete()
    return found


print("found:" + json.dumps([run(importlib.import_module(name)) for name in sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def store():
    with far_store(seconds=0.0) as store:
        yield store


@pytest.fixture(scope="module")
def results(store, copies, tmp_path_factory, prefixes):
    """What the script found by each form of the writer, and the keys left after it."""
    folder = tmp_path_factory.mktemp("remote")
    (folder / "script.py").write_text(SCRIPT)
    (folder / "tmp").mkdir()
    reserve(folder / "tmp", prefixes)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "S3_"))}
    environment |= store.environment | {
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": os.pathsep.join([str(folder), str(copies), *sys.path]),
    }
    names = ["petastorm_bridge.native", "mds_support"]
    done = subprocess.run(
        [sys.executable, str(folder / "script.py"), *names],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("found:")]
    assert lines, done.stderr[-4000:]
    found = json.loads(lines[0].removeprefix("found:"))
    with contextlib.closing(store.client()) as client:
        contents = client.list_objects_v2(Bucket=store.bucket).get("Contents", ())
    return dict(zip(("installed", "copied"), found, strict=True)), [
        each["Key"] for each in contents
    ]


@pytest.mark.parametrize("form", ["installed", "copied"])
def test_written_and_read(results, form):
    found = results[0][form]
    assert found["url"].startswith("s3://far/cache/")
    assert found["rows"] == 40
    assert len(found["files"]) == found["kept"] == 2
    assert all(url.startswith(found["url"]) and ".mds" in url for url in found["files"])
    assert found["ordered"] == list(range(40))
    assert sorted(found["shuffled"]) == list(range(40))
    assert found["shuffled"] != found["ordered"]
    assert found["refused"]
    assert found["nulls"]


def test_what_has_no_place_of_its_own_is_deleted(results):
    # Arrow leaves the parent, which it marks with an empty object.
    assert [key for key in results[1] if not key.startswith("kept/")] in ([], ["cache/"])
    assert sum(key.endswith("/index.json") for key in results[1]) >= 2
