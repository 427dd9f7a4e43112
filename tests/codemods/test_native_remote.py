"""Converters of rewritten code in a remote store: an S3 server on the loopback interface."""

import json
import os
import subprocess
import sys

import pytest

from petastorm_codemods._project.vendor import vendored

boto3 = pytest.importorskip("boto3", reason="talks to the store")
moto_server = pytest.importorskip("moto.server", reason="is the store")
pytest.importorskip("streaming", reason="copies the shards")

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BUCKET = "training"
# Spark's workers get their environment when its Java starts: a process of its own.
SCRIPT = """
import importlib, json, os, sys, tempfile, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
spark.conf.set("petastorm.spark.converter.parentCacheDirUrl", "s3a://training/cache/")
frame = spark.range(40, numPartitions=2).selectExpr("id", "if(id = 3, null, string(id)) as name")


def run(module):
    before = set(os.listdir(tempfile.gettempdir()))
    conv = module.dataframe_to_mds(frame)
    kept = module.dataframe_to_mds(frame, out=f"s3://training/kept/{module.__name__}", compression="zstd")
    exiting = module.dataframe_to_mds(frame)
    found = {"url": conv.cache_dir_url, "files": sorted(conv.file_urls), "rows": len(conv)}
    found["kept"] = len(kept.file_urls)
    for name, place, arguments in (
        ("ordered", conv, {}),
        ("shuffled", kept, {"shuffle": True, "num_epochs": 2}),
        ("shard", conv, {"cur_shard": 1, "shard_count": 2}),
    ):
        with module.StreamingDataLoader(
            module.StreamingDataset(local=place.path, batch_size=7, **arguments)
        ) as loader:
            batches = list(loader)
        found[name] = [i for batch in batches for i in batch["id"].tolist()]
        if name == "ordered":
            found["names"] = batches[0]["name"][2:5]
    conv.delete()
    conv.delete()
    del loader, batches
    found["left"] = sorted(
        name for name in set(os.listdir(tempfile.gettempdir())) - before
        if os.path.isdir(os.path.join(tempfile.gettempdir(), name))
    )
    return found


print("found:" + json.dumps([run(importlib.import_module(name)) for name in sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def store():
    """Endpoint URL of an S3 server, and a client of it, which has made an empty bucket."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    client.create_bucket(Bucket=BUCKET)
    yield endpoint, client
    client.close()
    server.stop()


@pytest.fixture(scope="module")
def results(store, tmp_path_factory):
    """What the script found by the module and by its vendored copy, and the keys left after it."""
    endpoint, client = store
    folder = tmp_path_factory.mktemp("remote")
    (folder / "script.py").write_text(SCRIPT)
    names = ["dataframe_to_mds", "StreamingDataset", "StreamingDataLoader", "MdsDirectory"]
    (folder / "mds_support.py").write_text(vendored([*names, "file_urls", "cache_dir_url"]))
    (folder / "tmp").mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "S3_"))}
    environment |= {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(folder / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
        "S3_ENDPOINT_URL": endpoint,
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, str(folder / "script.py"), "petastorm_bridge.native", "mds_support"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("found:")]
    assert lines, done.stderr[-4000:]
    contents = client.list_objects_v2(Bucket=BUCKET).get("Contents", ())
    found = json.loads(lines[0].removeprefix("found:"))
    return dict(zip(("module", "vendored"), found, strict=True)), [each["Key"] for each in contents]


@pytest.mark.parametrize("form", ["module", "vendored"])
def test_written_and_read(results, form):
    found = results[0][form]
    assert found["url"].startswith("s3://training/cache/")
    assert found["rows"] == 40
    assert len(found["files"]) == 2
    assert found["kept"] == 2
    assert all(url.startswith(found["url"]) and ".mds" in url for url in found["files"])
    assert found["ordered"] == list(range(40))
    assert found["names"] == ["2", None, "4"]
    assert sorted(found["shuffled"]) == sorted([*range(40)] * 2)
    assert found["shuffled"][:40] != found["ordered"]
    assert found["shard"] == list(range(1, 40, 2))


@pytest.mark.parametrize("form", ["module", "vendored"])
def test_copies_on_local_disk_go(results, form):
    assert not [name for name in results[0][form]["left"] if name.startswith("tmp")]


def test_what_has_no_place_of_its_own_is_deleted(results):
    # Arrow leaves the parent, which it marks with an empty object.
    assert [key for key in results[1] if not key.startswith("kept/")] == ["cache/"]
    assert any(key.endswith("index.json") for key in results[1])
