"""Programs whose cache directory lies where users have it: on a mount of an object store, and in a bucket."""

import importlib.util
import os

import far_mount
import programs
import pytest

from petastorm_bridge import parity

# Of the programs those that read otherwise: endless ones with counted steps, by torch, TensorFlow and Spark's tasks.
NAMES = ["tf_steps_counted", "torch_steps_counted", "tuning_in_spark_tasks"]
SECONDS = 0.003  # until the mount answers
REFERENCE = "original" if importlib.util.find_spec("petastorm") else "bridge"
BUCKET = "training"

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def near(tmp_path_factory):
    """Where Petastorm's recordings are, and what came of the programs, with a directory on the disk.

    Petastorm cannot write into a bucket with pyarrow 14; what it gives does not depend on the place. Where it
    cannot be installed, the bridge gives the same, which other tests show.
    """
    return run(tmp_path_factory.mktemp("near"), REFERENCE)


def run(place, form, **options):
    programs.write_form(place / form, "programs", form)
    return place / "results", programs.run(place / "results", place / form, NAMES, **options)


def assert_same(near, far):
    """The same rows, as many steps, and the same lines printed."""
    (there, originals), (here, found) = near, far
    for name in NAMES:
        assert "error" not in originals[name], originals[name]["error"]
        assert "error" not in found[name], found[name]["error"]
        assert found[name]["printed"] == originals[name]["printed"]
        rules = parity.Rules(order="shuffled", batches="any")
        for columns in originals[name]["recordings"]:
            parity.assert_same_batches(there / name / columns, here / name / columns, rules)


@pytest.mark.skipif(bool(far_mount.no_mount_because()), reason=str(far_mount.no_mount_because()))
@pytest.mark.parametrize("form", programs.FORMS)
def test_on_a_mount(near, tmp_path, form):
    (tmp_path / "behind").mkdir()
    with far_mount.far_mount(tmp_path / "behind", tmp_path / "mnt", seconds=SECONDS) as mount:
        mount.start_counting()
        far = run(tmp_path, form, cache=mount.path.as_uri())
        asked = mount.counts()
    assert_same(near, far)
    assert asked["bytes_written"] > 0
    assert asked["bytes_read"] > 0
    assert not list((tmp_path / "behind").glob("*/*"))  # each deleted what it wrote


@pytest.fixture(scope="module")
def store():
    """The URL of an S3 server, and a client of it."""
    boto3 = pytest.importorskip("boto3", reason="talks to the store")
    moto_server = pytest.importorskip("moto.server", reason="is the store")
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


@pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore.*")
@pytest.mark.parametrize("form", [form for form in programs.FORMS if form != "vendored"])
def test_in_a_bucket(near, store, tmp_path, form):
    """The support module's own writer is tried in one by its tests."""
    endpoint, client = store
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "S3_"))}
    environment |= {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_ENDPOINT_URL": endpoint,
        "S3_ENDPOINT_URL": endpoint,
    }
    assert_same(near, run(tmp_path, form, cache=f"s3://{BUCKET}/{form}", environment=environment))
    left = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{form}/").get("Contents", ())
    # Arrow leaves parents, which it marks with empty objects.
    assert not [each["Key"] for each in left if each["Size"]]
