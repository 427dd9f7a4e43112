"""Loaders follow the decision about what made their converters, also where that is in another file."""

import pathlib

import pytest

from petastorm_bridge import mds_support as support
from petastorm_codemods._model import NeedsHuman, Success
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings

HOROVOD = (
    "import horovod.torch as hvd\n"
    "from petastorm import TransformSpec\n"
    "from petastorm.spark import make_spark_converter\n"
    "spec = TransformSpec(f)\n"
    "conv = make_spark_converter(df)\n"
    "def train():\n"
    "    with conv.make_torch_dataloader(\n"
    "        cur_shard=hvd.rank(), shard_count=hvd.size(), transform_spec=spec\n"
    "    ) as loader:\n"
    "        fit(loader)\n"
)
NATIVE = (
    "from petastorm.spark import make_spark_converter\n"
    "conv = make_spark_converter(df)\n"
    "with conv.make_torch_dataloader(num_epochs=1) as loader:\n"
    "    fit(loader)\n"
)
BORROWER = (
    "def train(conv):\n"
    "    with conv.make_torch_dataloader(num_epochs=1) as loader:\n"
    "        fit(loader)\n"
)


@pytest.fixture
def outcomes(tmp_path):
    """A function that gives what becomes of files, and the second time of what became of them."""

    def outcomes(files):
        for old in tmp_path.iterdir():
            old.unlink()
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        found = {}
        for outcome in run([str(tmp_path)], Settings()).outcomes:
            name = outcome.path.rpartition("/")[2]
            after = getattr(outcome, "after", files[name].encode()).decode()
            found[name] = type(outcome), after
            (tmp_path / name).write_text(after)
        for outcome in run([str(tmp_path)], Settings()).outcomes:
            name = outcome.path.rpartition("/")[2]
            assert getattr(outcome, "after", found[name][1].encode()).decode() == found[name][1]
        return found

    return outcomes


@pytest.mark.parametrize(
    "given", ["64, 1", "64, num_epochs=1", "size, cur_shard=rank, shard_count=count"]
)
def test_a_borrower_may_give_arguments_by_place(outcomes, given):
    ranks = "import os\nrank, count = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
    borrower = ranks + BORROWER.replace("num_epochs=1", given)
    found = outcomes({"job.py": NATIVE, "helper.py": borrower})
    assert "write_mds(df)" in found["job.py"][1]
    assert "make_torch_dataloader" not in found["helper.py"][1]
    assert "remote=conv.remote" in found["helper.py"][1]


def test_a_protocol_that_asks_for_the_method_makes_no_loader_another_class_s(outcomes):
    protocol = (
        "from typing import Protocol\n"
        "class Source(Protocol):\n"
        "    def make_torch_dataloader(self, num_epochs: int): ...\n"
    )
    borrower = "from sources import Source\n" + BORROWER.replace("conv)", "conv: Source)")
    found = outcomes({"job.py": NATIVE, "sources.py": protocol, "helper.py": borrower})
    assert "write_mds(df)" in found["job.py"][1]
    assert "make_torch_dataloader" not in found["helper.py"][1]
    assert found["sources.py"][0] is NeedsHuman


def test_a_trainer_with_the_name_of_rays_is_on_no_ranks(outcomes):
    trainer = BORROWER.replace("def train(conv", "class TorchTrainer:\n  def fit(self, conv")
    program = "from trainer import TorchTrainer\nTorchTrainer().fit(conv)\n"
    found = outcomes({"job.py": NATIVE + program, "trainer.py": trainer})
    assert "write_mds(df)" in found["job.py"][1]
    assert "remote=conv.remote" in found["trainer.py"][1]


def test_a_file_whose_loaders_all_stay_keeps_the_names(outcomes):
    found = outcomes({"hvd_train.py": HOROVOD, "other.py": NATIVE})
    assert found["hvd_train.py"] == (
        Success,
        HOROVOD.replace("from petastorm", "from petastorm_bridge"),
    )
    assert "write_mds" in found["other.py"][1]


def handed_over(imported=""):
    """A file as Databricks notebooks are: its function is given the converters that the file makes."""
    return f"{imported}{HOROVOD}".replace("train()", "train(conv)") + "runner.run(train, conv)\n"


def test_no_converter_comes_to_a_file_on_its_own_from_another(outcomes):
    text = handed_over()
    found = outcomes({"hvd_train.py": text, "other.py": NATIVE})
    assert found["hvd_train.py"] == (
        Success,
        text.replace("from petastorm", "from petastorm_bridge"),
    )


@pytest.mark.parametrize(
    ("imported", "third"),
    [
        ("from other import other_conv\n", ""),
        ("", "from other import other_conv\nfrom hvd_train import train\ntrain(other_conv)\n"),
        ("", "import other as o, hvd_train\nhvd_train.train(o.other_conv)\n"),
        ("", "# MAGIC %run ./hvd_train\n"),
    ],
    ids=["imports", "imported", "imported with others", "run"],
)
def test_converters_may_come_to_files_that_import_each_other(outcomes, imported, third):
    maker = (
        "from petastorm.spark import make_spark_converter\n"
        "other_conv = make_spark_converter(other_df)\n"
        "with other_conv.make_torch_dataloader(num_epochs=1) as loader:\n"
        "    fit(loader)\n"
    )
    found = outcomes({"hvd_train.py": handed_over(imported), "other.py": maker, "main.py": third})
    kind, after = found["hvd_train.py"]
    assert kind is Success
    assert "with make_spark_converter(conv.cache_dir_url).make_torch_dataloader(" in after
    assert after.count("import make_spark_converter") == 1


@pytest.mark.parametrize(
    "other",
    [BORROWER, f"from hvd_train import spec\n{NATIVE}", f"from hvd_train import conv\n{BORROWER}"],
    ids=["borrowed", "spec", "converter"],
)
def test_other_files_may_need_its_directory(outcomes, other):
    found = outcomes({"hvd_train.py": HOROVOD, "other.py": other})
    assert found["hvd_train.py"][0] is Success
    assert "conv = write_mds(df)\n" in found["hvd_train.py"][1]
    assert "make_spark_converter(conv.cache_dir_url)" in found["hvd_train.py"][1]
    assert "remote=conv.remote" in found["other.py"][1]


@pytest.mark.parametrize(
    "maker",
    [
        "from petastorm.spark import *\nconv = make_spark_converter(df)\n",
        "from petastorm.spark.spark_dataset_converter import *\nconv = make_spark_converter(df)\n",
        (
            "try:\n    from petastorm.spark import make_spark_converter\n"
            "except ImportError:\n    from ours import make_spark_converter\n"
            "conv = make_spark_converter(df)\n"
        ),
        (
            "from petastorm.spark import make_spark_converter\n"
            "def write_mds(): ...\nconv = make_spark_converter(df)\n"
        ),
    ],
    ids=["star", "star of the module", "two sources", "taken name"],
)
def test_loaders_of_makers_that_stay_stay_in_other_files(outcomes, maker):
    spec = "from petastorm import TransformSpec\nspec = TransformSpec(f)\n"
    files = {"data.py": maker, "train.py": spec + BORROWER}
    found = outcomes(files)
    assert found["train.py"] == (NeedsHuman, files["train.py"])
    assert found["data.py"][1] == maker
    # Where the converter is certain it is another one.
    sure = outcomes({"data.py": maker, "own.py": NATIVE})["own.py"]
    assert sure[0] is Success
    assert "write_mds" in sure[1]


PREPARED = "from petastorm.spark import make_spark_converter\nconv = make_spark_converter(df)\n"
STAR = f"from petastorm.spark import *\nconv = make_spark_converter(df)\n{BORROWER}"
UNSURE = f"{NATIVE}with space.val.make_torch_dataloader(num_epochs=1) as loader:\n    fit(loader)\n"


def test_readers_move_beside_makers_that_stay(outcomes):
    reader = (
        "from petastorm import TransformSpec, make_reader\nmake_reader(url, TransformSpec(f))\n"
    )
    after = reader.replace("petastorm", "petastorm_bridge")
    assert outcomes({"star.py": STAR, "reader.py": reader})["reader.py"] == (Success, after)


def test_a_file_of_its_own_is_rewritten_beside_makers_that_stay(outcomes):
    kind, after = outcomes({"star.py": STAR, "own.py": UNSURE})["own.py"]
    assert kind is Success
    assert "conv = write_mds(df)" in after
    assert after.count("StreamingDataLoader(\n") == 2


@pytest.mark.parametrize(
    "files",
    [
        {"own.py": f"from star import conv as star_conv\n{UNSURE}"},
        {
            "util.py": PREPARED,
            "main.py": f"from util import conv\n{BORROWER}",
        },
        {"train.py": BORROWER, "main.py": f"from train import train\n{PREPARED}train(conv)\n"},
        {"own.py": NATIVE, "main.py": f"from own import conv\n{BORROWER}"},
    ],
    ids=["imports it", "made for others", "handed to others", "lent to others"],
)
def test_converters_that_are_shared_stay_together(outcomes, files):
    found = outcomes({"star.py": STAR, **files})
    assert found == {name: (NeedsHuman, text) for name, text in ({"star.py": STAR} | files).items()}


PREPARE = (
    "from petastorm.spark import make_spark_converter\n"
    "def prepare(df):\n"
    "    return make_spark_converter(df)\n"
)
SPECS = "from petastorm import TransformSpec\nSPEC = TransformSpec(f)\n"
ALL_HOROVOD = (
    "import horovod.torch as hvd\n"
    "from prepare import prepare\n"
    "from specs import SPEC\n"
    "def train(conv):\n"
    "    with conv.make_torch_dataloader(\n"
    "        cur_shard=hvd.rank(), shard_count=hvd.size(), transform_spec=SPEC\n"
    "    ) as loader:\n"
    "        fit(loader)\n"
    "train(prepare(df))\n"
)


def test_files_without_loaders_keep_the_names_if_all_loaders_stay(outcomes):
    files = {"prepare.py": PREPARE, "specs.py": SPECS, "train.py": ALL_HOROVOD}
    found = {name: after for name, (_, after) in outcomes(files).items()}
    moved = [text.replace("from petastorm", "from petastorm_bridge") for text in (PREPARE, SPECS)]
    assert found == {"prepare.py": moved[0], "specs.py": moved[1], "train.py": ALL_HOROVOD}

    # One that can be native takes the rest to streaming, on a later day as well.
    later = outcomes({**found, "other.py": BORROWER})
    assert "write_mds(df)" in later["prepare.py"][1]
    assert "PandasCollate(f)" in later["specs.py"][1]
    assert "make_spark_converter(conv.cache_dir_url).make_torch" in later["train.py"][1]


@pytest.mark.parametrize("module", ["petastorm_bridge.native", "mds_support"])
def test_what_an_earlier_run_has_written_stays_native(outcomes, module):
    other = f"from {module} import write_mds\nother = write_mds(df)\n"
    files = {"prepare.py": PREPARE, "train.py": ALL_HOROVOD, "other.py": other}
    if module == "mds_support":
        files["mds_support.py"] = pathlib.Path(support.__file__).read_text()
    found = outcomes(files)
    assert "write_mds(df)" in found["prepare.py"][1]
    assert "make_spark_converter(conv.cache_dir_url).make_torch" in found["train.py"][1]


TAKING = "from compat import make_spark_converter\n" + NATIVE.partition("\n")[2]
GUARDED = "try:\n    from petastorm.spark import {}\nexcept ImportError:\n    {}\n"


@pytest.mark.parametrize(
    ("names", "fallback"),
    [
        ("make_spark_converter", "from other import make_spark_converter"),
        ("make_spark_converter", "from .other import make_spark_converter"),
        (
            "SparkDatasetConverter, make_spark_converter",
            "from other import SparkDatasetConverter",
        ),
    ],
)
def test_loaders_stay_of_makers_that_may_be_others(outcomes, names, fallback):
    """What a file imports where Petastorm is missing keeps all of its statement, and so the loaders of other files."""
    compat = GUARDED.format(names, fallback)
    found = outcomes({"compat.py": compat, "train.py": TAKING})
    assert found["compat.py"][1] == compat
    assert found["train.py"][0] is NeedsHuman
    assert "StreamingDataset" not in found["train.py"][1]


@pytest.mark.parametrize("name", ["make_spark_converter as convert", "make_spark_converter"])
def test_makers_of_two_files_in_one_are_no_alternatives(outcomes, name):
    look = f"def look(df):\n    from petastorm.spark import {name}\n"
    compat = GUARDED.format("make_spark_converter", "make_spark_converter = None")
    found = outcomes({"compat.py": compat, "train.py": TAKING + look})
    assert "write_mds as make_spark_converter" in found["compat.py"][1]
    assert [each for each, _ in found.values()] == [Success, Success]
    assert "StreamingDataset(" in found["train.py"][1]


@pytest.mark.parametrize(
    "module",
    [
        'importlib.import_module("petastorm.spark")',
        "module_of_petastorm()",
        "self.module",
        "petastorm_spark",
    ],
)
def test_loaders_stay_of_makers_that_a_module_gives_at_run_time(outcomes, module):
    """The module becomes the bridge's, and so do the converters that it makes."""
    found = outcomes(
        {
            "compat.py": "from petastorm import spark as petastorm_spark\n",
            "convert.py": "import importlib\nfrom compat import petastorm_spark\n"
            f"def convert(self, df):\n    return {module}.make_spark_converter(df)\n",
            "train.py": BORROWER,
            "other.py": NATIVE,
        }
    )
    assert "write_mds" not in str(found)
    assert "from petastorm_bridge.spark import make_spark_converter" in found["other.py"][1]
    assert found["train.py"][1] == BORROWER


LAZY_NAMES = (
    "NAMES = {'make_spark_converter': 'petastorm.spark'}\n"
    "def __getattr__(name):\n"
    "    return getattr(importlib.import_module(NAMES[name]), name)\n"
)
LAZY_MODULE = (
    "def maker():\n"
    "    module = importlib.import_module('petastorm.spark.spark_dataset_converter')\n"
    "    return getattr(module, 'make_spark_converter')\n"
)


@pytest.mark.parametrize("lazy", [LAZY_NAMES, LAZY_MODULE])
def test_loaders_stay_of_makers_that_strings_name(outcomes, lazy):
    found = outcomes({"lazy.py": f"import importlib\n{lazy}", "train.py": BORROWER, "o.py": NATIVE})
    assert "petastorm_bridge.spark" in found["lazy.py"][1]
    assert "from petastorm_bridge.spark import make_spark_converter" in found["o.py"][1]
    assert found["train.py"][1] == BORROWER


@pytest.mark.parametrize(
    "made", ["self.make_spark_converter(df)", "spark.make_spark_converter(df)"]
)
def test_makers_of_modules_and_methods_are_followed(outcomes, made):
    """A method of that name is the program's own, also in other files."""
    text = (
        "from petastorm import spark\n"
        "class Maker:\n"
        "    def make_spark_converter(self, df):\n"
        "        return spark.make_spark_converter(df)\n"
        "    def train(self, df):\n"
        f"        conv = {made}\n"
        "        with conv.make_torch_dataloader(num_epochs=1) as loader:\n"
        "            fit(loader)\n"
    )
    other = BORROWER + "from maker import Maker\ntrain(Maker().make_spark_converter(df))\n"
    found = outcomes({"maker.py": text, "other.py": other})
    assert all("StreamingDataset(" in after for _, after in found.values())


@pytest.mark.parametrize("made", ["Maker().convert(df)", "Maker(df).of(1).convert()"])
def test_methods_of_objects_that_are_made_in_place_may_give_converters(outcomes, made):
    maker = (
        "from petastorm.spark import make_spark_converter\n"
        "class Maker:\n"
        "    def convert(self, df):\n"
        "        return make_spark_converter(df)\n"
    )
    train = (
        "from maker import Maker\n"
        f"with {made}.make_torch_dataloader(num_epochs=1) as loader:\n"
        "    fit(loader)\n"
    )
    found = outcomes({"maker.py": maker, "train.py": train})
    assert "StreamingDataset(" in found["train.py"][1]


def test_files_of_one_name_stay_together_with_makers_that_stay(tmp_path):
    """One of them is kept, and what the other one makes is read in a third."""
    maker = (
        "from petastorm.spark import {}\ndef convert(df):\n    return make_spark_converter(df)\n"
    )
    files = {
        "one/convert.py": maker.format("*"),
        "two/convert.py": maker.format("make_spark_converter"),
        "two/train.py": f"from convert import convert\n{BORROWER}train(convert(df))\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    outcomes = run([str(tmp_path)], Settings()).outcomes
    assert [type(each) for each in outcomes] == [NeedsHuman] * len(files)
    assert not any(b"write_mds" in each.after for each in outcomes)


def test_converters_stay_the_bridges_where_a_human_has_to_say_what_their_loaders_are(outcomes):
    reading = (
        "from petastorm import TransformSpec\n"
        "def read(conv, transform):\n"
        "    # petastorm-bridge rule PM103: make_tf_dataset may be another class's\n"
        "    with conv.make_tf_dataset(depth=3, transform_spec=TransformSpec(transform)) as rows:\n"
        "        return list(rows)\n"
    )
    made = NATIVE.partition("with ")[0]
    mark = reading.splitlines(keepends=True)[2]
    found = outcomes({"make.py": made, "read.py": reading.replace(mark, "")})
    assert found["make.py"] == (Success, made.replace("petastorm.", "petastorm_bridge."))
    assert found["read.py"] == (
        NeedsHuman,
        reading.replace("petastorm import", "petastorm_bridge import"),
    )
    found = outcomes({"make.py": NATIVE, "read.py": reading.replace(mark, "")})
    assert "write_mds" in found["make.py"][1]  # where another loader is native


def test_converters_stay_the_bridges_where_a_class_of_the_project_may_stand_in_for_them(outcomes):
    twin = (
        "class LocalConverter:\n"
        "    def make_torch_dataloader(self, num_epochs):\n"
        "        return contextlib.nullcontext([self.rows] * num_epochs)\n"
    )
    made = NATIVE.partition("with ")[0]
    found = outcomes({"make.py": made, "twin.py": twin, "train.py": BORROWER})
    assert found["make.py"] == (Success, made.replace("petastorm.", "petastorm_bridge."))
    assert found["train.py"][0] is NeedsHuman
    assert "with conv.make_torch_dataloader(num_epochs=1) as loader:" in found["train.py"][1]
