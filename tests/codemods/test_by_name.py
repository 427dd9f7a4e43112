"""What names converters from other files or under other names: nothing of it is passed over in silence."""

import pytest

from petastorm_codemods._model import NeedsHuman, Success
from petastorm_codemods._project.listing import is_dependency_file
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings

IMPORT = "from petastorm.spark import make_spark_converter\n"


def outcomes(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text)
    return {
        outcome.path.rpartition("/")[2]: outcome
        for outcome in run([str(folder)], Settings()).outcomes
    }


@pytest.mark.parametrize("first", ["# Databricks notebook source\n", ""])
def test_a_program_called_setup_is_rewritten_with_those_that_run_it(tmp_path, first):
    caller = "# Databricks notebook source\n# MAGIC %run ./setup\n\n# COMMAND ----------\n\n"
    found = outcomes(
        tmp_path,
        {
            "setup.py": f"{first}{IMPORT}conv = make_spark_converter(df)\n",
            "train.py": f"{caller}with conv.make_torch_dataloader(batch_size=2, num_epochs=1) as dl:\n    train(dl)\n",
        },
    )
    assert b"conv = write_mds(df)" in found["setup.py"].after
    assert b"StreamingDataset(" in found["train.py"].after


def test_what_sets_up_a_package_is_a_list_of_dependencies(tmp_path):
    setup = "from setuptools import setup\nsetup(install_requires=['petastorm'])\n"
    found = outcomes(
        tmp_path, {"setup.py": setup, "train.py": IMPORT + "make_spark_converter(df)\n"}
    )
    assert isinstance(found["setup.py"], Success | NeedsHuman)
    assert b"petastorm-bridge" in found["setup.py"].after


@pytest.mark.parametrize(
    "name", ["Dockerfile_x", "Dockerfile-gpu", "Dockerfile.gpu", "gpu.Dockerfile"]
)
def test_dockerfiles_of_any_name_are_reported(tmp_path, name):
    assert is_dependency_file(name)
    docker = "FROM python:3.10\nRUN pip install petastorm\n"
    found = outcomes(tmp_path, {name: docker, "train.py": IMPORT + "make_spark_converter(df)\n"})
    assert isinstance(found[name], NeedsHuman)
    assert [site.line for site in found[name].sites] == [2]
    assert found[name].before == found[name].after


def test_a_maker_that_is_patched_in_a_module_of_the_project_is_reported(tmp_path):
    test = (
        "from unittest.mock import patch\nimport app\n\n"
        '@patch("app.make_spark_converter")\ndef test_run(maker):\n    app.run()\n'
    )
    app = IMPORT + "def run():\n    return make_spark_converter(df)\n"
    found = outcomes(tmp_path, {"app.py": app, "test_app.py": test})
    (site,) = found["test_app.py"].sites
    assert (site.code, site.line) == ("PM108", 4)
    assert "stands for write_mds now" in site.message
    assert b"write_mds as make_spark_converter" in found["app.py"].after  # it is called as before


@pytest.mark.parametrize(
    "line",
    [
        'patch.object(app, "make_spark_converter", fake)',
        'monkeypatch.setattr(app, "make_spark_converter", fake)',
        "app.make_spark_converter = fake",
    ],
)
def test_a_maker_that_is_replaced_in_a_module_of_the_project_is_reported(tmp_path, line):
    app = IMPORT + "def run():\n    return make_spark_converter(df)\n"
    found = outcomes(tmp_path, {"app.py": app, "test_app.py": f"import app\n{line}\n"})
    assert [(site.code, site.line) for site in found["test_app.py"].sites] == [("PM108", 2)]
    assert b"write_mds as make_spark_converter" in found["app.py"].after


@pytest.mark.parametrize("module", ["petastorm_bridge.native", "mds_support", "pkg.mds_support"])
def test_a_maker_that_is_patched_is_reported_after_the_rewrite_as_well(tmp_path, module):
    app = f"from {module} import write_mds as make_spark_converter\nmake_spark_converter(df)\n"
    test = 'from unittest.mock import patch\npatch("app.make_spark_converter")\n'
    found = outcomes(tmp_path, {"app.py": app, "test_app.py": test})
    assert [(site.code, site.line) for site in found["test_app.py"].sites] == [("PM108", 2)]


def test_tests_of_a_program_whose_loaders_all_stay_do_too(tmp_path):
    """What they patch and stub is called as it was, and the names in their strings are the bridge's."""
    shards = "cur_shard=hvd.rank(), shard_count=hvd.size()"
    app = (
        f"import horovod.torch as hvd\n{IMPORT}def run(df):\n    conv = make_spark_converter(df)\n"
        f"    with conv.make_torch_dataloader({shards}) as loader:\n        fit(loader)\n"
    )
    test = (
        "import petastorm.spark\nfrom unittest.mock import patch\n\n"
        'Converters = list["petastorm.spark.SparkDatasetConverter"]\n\n\n'
        '@patch("app.make_spark_converter")\n'
        'def test_run(maker, other: "petastorm.spark.SparkDatasetConverter"):\n'
        "    maker.return_value.make_torch_dataloader.return_value.__enter__.return_value = []\n"
        "    assert not isinstance(maker, petastorm.spark.SparkDatasetConverter)\n"
    )
    found = outcomes(tmp_path, {"app.py": app, "test_app.py": test})
    assert found["test_app.py"].after.decode() == test.replace("petastorm.", "petastorm_bridge.")
    assert all(isinstance(each, Success) for each in found.values())


def test_a_stub_in_a_file_without_imports_is_reported(tmp_path):
    test = "conv = Mock()\nconv.make_torch_dataloader.return_value.__enter__.return_value = []\n"
    app = IMPORT + "conv = make_spark_converter(df)\n"
    found = outcomes(tmp_path, {"app.py": app, "test_app.py": test})
    assert [(site.code, site.line) for site in found["test_app.py"].sites] == [("PM108", 2)]


def test_a_class_of_tests_that_opens_loaders_stands_in_for_a_converter(tmp_path):
    fake = (
        "class FakeConverter:\n"
        "    def make_torch_dataloader(self, batch_size=32):\n        return []\n"
    )
    train = (
        "def train(conv):\n"
        "    with conv.make_torch_dataloader(batch_size=8, num_epochs=1) as loader:\n"
        "        fit(loader)\n"
    )
    app = f"{IMPORT}conv = make_spark_converter(df)\n"
    files = {"app.py": app, "train.py": train, "tests/fakes.py": fake}
    (tmp_path / "tests").mkdir()
    found = outcomes(tmp_path, files)
    assert b"remote=conv.remote" in found["train.py"].after
    (site,) = found["fakes.py"].sites
    assert (site.code, site.line) == ("PM108", 2)
    # Elsewhere it is the program's own, and may be what is opened.
    assert isinstance(outcomes(tmp_path, {**files, "own.py": fake})["train.py"], NeedsHuman)
