"""Programs whose cache directory lies where users have it: on a mount of an object store, and in a bucket."""

import contextlib
import importlib.util
import os

import far_mount
import far_store
import programs
import pytest

from petastorm_bridge import parity

# Of the programs those that read otherwise: endless ones with counted steps, by torch, TensorFlow and Spark's tasks.
NAMES = ["tf_steps_counted", "torch_steps_counted", "tuning_in_spark_tasks"]
SECONDS = 0.003  # until the mount answers
REFERENCE = "original" if importlib.util.find_spec("petastorm") else "bridge"

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
    with far_store.far_store(seconds=SECONDS) as store:
        yield store


@pytest.mark.skipif(bool(far_store.no_store_because()), reason=str(far_store.no_store_because()))
@pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore.*")
@pytest.mark.parametrize("form", [form for form in programs.FORMS if form != "vendored"])
def test_in_a_bucket(near, store, tmp_path, form):
    """The support module's own writer is tried in one by its tests."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "S3_"))}
    cache = f"s3://{store.bucket}/{form}"
    assert_same(near, run(tmp_path, form, cache=cache, environment=environment | store.environment))
    with contextlib.closing(store.client()) as client:
        left = client.list_objects_v2(Bucket=store.bucket, Prefix=f"{form}/").get("Contents", ())
    # Arrow leaves parents, which it marks with empty objects.
    assert not [each["Key"] for each in left if each["Size"]]
