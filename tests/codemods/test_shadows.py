"""Modules of a repository that have the name of a library which the rewritten code would import."""

import pytest

from petastorm_codemods._model import Destination, NeedsHuman, Success, Unchanged
from petastorm_codemods._project.distribution import bridge
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings

TRAIN = """from petastorm.spark import make_spark_converter

conv = make_spark_converter(df)
with conv.make_torch_dataloader(batch_size=8, num_epochs=1) as loader:
    train(loader)
"""
OPEN = """def read(conv):
    with conv.make_tf_dataset(batch_size=8) as dataset:
        return fit(dataset)
"""


def written(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def outcomes(folder, *, vendor=False, destination=Destination.STREAMING):
    result = run([str(folder)], Settings(destination, vendor=vendor))
    return {outcome.path.removeprefix(f"{folder}/"): outcome for outcome in result.outcomes}


@pytest.mark.parametrize("vendor", [False, True])
@pytest.mark.parametrize(
    "module",
    ["jobs/streaming.py", "streaming.py", "streaming/__init__.py", "src/streaming/__init__.py"],
)
def test_a_streaming_module_of_their_own_keeps_its_neighbours_on_the_bridge(
    tmp_path, module, vendor
):
    files = {"jobs/train.py": TRAIN, "jobs/read.py": OPEN, module: "import pyspark.streaming\n"}
    written(tmp_path, {**files, "requirements.txt": "petastorm\npyspark\n"})
    found = outcomes(tmp_path, vendor=vendor)
    train = found["jobs/train.py"]
    assert isinstance(train, Success)
    assert train.after.decode() == TRAIN.replace("petastorm", "petastorm_bridge")
    told = [(site.line, site.message) for site in train.sites if site.told]
    assert [line for line, _ in told] == [3, 4]
    assert all("is imported in place of mosaicml-streaming" in message for _, message in told)
    read = found["jobs/read.py"]
    assert isinstance(read, Unchanged)
    assert [site.code for site in read.sites] == ["PM103"]
    assert found["requirements.txt"].after == f"{bridge()}\npyspark\n".encode()
    assert not any("mds_support" in path for path in found)


def test_the_second_run_leaves_it_so(tmp_path):
    after = TRAIN.replace("petastorm", "petastorm_bridge")
    written(tmp_path, {"train.py": after, "streaming.py": ""})
    assert isinstance(outcomes(tmp_path)["train.py"], Unchanged)


@pytest.mark.parametrize(
    "module", ["jobs/streaming/kafka.py", "other/streaming.py", "streaming.ipynb", "streaming.sh"]
)
def test_what_is_not_imported_hides_nothing(tmp_path, module):
    """A folder without ``__init__.py`` comes after a library; and others' folders are not searched."""
    written(tmp_path, {"jobs/train.py": TRAIN, module: "{}"})
    assert b"from streaming import" in outcomes(tmp_path)["jobs/train.py"].after


@pytest.mark.parametrize("destination", Destination)
def test_an_own_package_of_petastorms_name_is_left_alone(tmp_path, destination):
    maker = "def make_spark_converter(df):\n    return df\n"
    files = {"petastorm/__init__.py": "", "petastorm/spark.py": maker, "app/train.py": TRAIN}
    written(tmp_path, files)
    (only,) = outcomes(tmp_path, destination=destination).values()
    assert isinstance(only, Unchanged)
    assert "this repository's own package" in only.sites[0].message


def test_a_copy_of_petastorm_is_petastorm(tmp_path):
    maker = "def make_spark_converter(df):\n    return df\n"
    files = {"petastorm/__init__.py": "", "petastorm/unischema.py": "", "petastorm/spark.py": maker}
    written(tmp_path, {**files, "train.py": TRAIN})
    found = outcomes(tmp_path)
    assert b"write_mds" in found["train.py"].after
    assert any(isinstance(each, NeedsHuman) for each in found.values())
