"""Files that have the names of converters from each other: by ``%run``, ``*``, imports and strings."""

import pytest

from petastorm_codemods._engine import process
from petastorm_codemods._meaning.other_files import Project, reexported_names
from petastorm_codemods._model import Destination, Failed, Success, pending
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings

HOLDER = "from petastorm.spark import SparkDatasetConverter, make_spark_converter\n"
PLAIN = "from petastorm_bridge.native import MdsDirectory, write_mds\n"
ALIASED = "from petastorm_bridge.native import MdsDirectory, write_mds as make_spark_converter\n"
NOTEBOOK = "# Databricks notebook source\n"


@pytest.fixture
def rewrite(tmp_path, monkeypatch):
    """Run over a tree of texts and return the texts that it becomes, the same after a second run."""
    monkeypatch.chdir(tmp_path)

    def work(tree, **options):
        for path, text in tree.items():
            place = tmp_path / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        for number in range(2):
            for outcome in run(["."], Settings(**options)).outcomes:
                assert not isinstance(outcome, Failed), outcome.reason
                if pending(outcome):
                    assert number == 0, f"{outcome.path} changes in a second run"
                    (tmp_path / outcome.path).write_bytes(outcome.after)
        return {path: (tmp_path / path).read_text(encoding="utf-8") for path in tree}

    return work


def test_notebooks_that_are_run(rewrite):
    after = rewrite(
        {
            "setup/imports.py": f"{NOTEBOOK}{HOLDER}",
            "train.py": (
                f"{NOTEBOOK}# MAGIC %run ./setup/imports\n\n# COMMAND ----------\n\n"
                "spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, url)\n"
                "conv = make_spark_converter(df, parquet_row_group_size_bytes=size)\n"
                "maker = make_spark_converter\n"
            ),
        }
    )
    assert after["setup/imports.py"] == NOTEBOOK + PLAIN
    assert after["train.py"] == (
        f"{NOTEBOOK}# MAGIC %run ./setup/imports\n\n# COMMAND ----------\n\n"
        "from petastorm_bridge.native import MdsDirectory, write_mds\n\n"
        "spark.conf.set(MdsDirectory.PARENT_CACHE_DIR_URL_CONF, url)\n"
        "conv = write_mds(df, size_limit=size)\n"
        "maker = write_mds\n"
    )


def test_methods_that_are_passed_on_beside_names_that_come_unseen(rewrite):
    after = rewrite(
        {
            "names.py": HOLDER,
            "train.py": (
                "from names import *\n\n"
                "with make_spark_converter(df).make_torch_dataloader(num_epochs=1) as loader:\n"
                "    fit(loader)\n"
                "judge(found.make_torch_dataloader)\n"
            ),
        }
    )
    assert after["names.py"] == PLAIN
    assert "converter = write_mds(df)\n" in after["train.py"]
    assert after["train.py"].endswith(
        "# petastorm-bridge rule PM102: stays on the bridge: make_torch_dataloader is passed on\n"
        "judge(open_mds_on_bridge(found.cache_dir_url).make_torch_dataloader)\n"
    )


@pytest.mark.parametrize(
    "package",
    [
        {"pkg/__init__.py": "from .data import *\n", "pkg/data.py": HOLDER},
        {"pkg/__init__.py": "from .data import make_spark_converter\n", "pkg/data.py": HOLDER},
        {
            "pkg/__init__.py": "from .sub import *\n",
            "pkg/sub/__init__.py": "from . import other\nfrom .data import *\nfrom pkg import *\n",
            "pkg/sub/data.py": HOLDER,
        },
        {"pkg/__init__.py": HOLDER},
    ],
)
def test_packages_that_pass_names_on(rewrite, package):
    """Whoever imports from the package finds the old name, and knows what it is."""
    train = "from pkg import make_spark_converter\nc = make_spark_converter(df, dtype=None, {})\n"
    after = rewrite({**package, "train.py": train.format("parquet_row_group_size_bytes=9")})
    assert after["train.py"] == train.format("size_limit=9")
    changed = {path for path in package if after[path] != package[path]}
    assert len(changed) == 1
    assert "write_mds as make_spark_converter" in after[changed.pop()]


def test_many_modules_that_pass_everything_on():
    """There are far more ways through them than anyone can walk."""
    modules = [f"m{number}" for number in range(60)]
    passed = frozenset((a, b) for a in modules for b in modules)
    name = "make_spark_converter"
    holders = frozenset({("m7", name), ("elsewhere", name)})
    found = reexported_names(frozenset({("m3", name), ("foreign", name)}), holders, passed)
    assert found == {(module, name) for module in modules}


def test_transforms_that_come_from_other_files(rewrite):
    transform = "from petastorm import TransformSpec\n"
    loader = (
        "from petastorm.spark import make_spark_converter\n"
        "conv = make_spark_converter(df)\n"
        "with conv.make_torch_dataloader(num_epochs=1, transform_spec=TransformSpec(f)) as loader:\n"
        "    fit(loader)\n"
    )
    after = rewrite(
        {
            "spec.py": transform,
            "named.py": f"from spec import TransformSpec\n{loader}",
            "setup/imports.py": f"{NOTEBOOK}{transform}",
            "run.py": f"{NOTEBOOK}# MAGIC %run ./setup/imports\n\n# COMMAND ----------\n\n{loader}",
        }
    )
    native = "from petastorm_bridge.native import PandasCollate"
    assert after["spec.py"] == f"{native} as TransformSpec\n"
    assert "from spec import TransformSpec\n" in after["named.py"]
    assert "collate_fn=TransformSpec(f)" in after["named.py"]
    assert after["setup/imports.py"] == f"{NOTEBOOK}{native}\n"
    assert f"{native}, write_mds\n" in after["run.py"]
    assert "collate_fn=PandasCollate(f)" in after["run.py"]


def test_modules_that_are_imported_as_a_whole(rewrite):
    after = rewrite(
        {
            "names.py": HOLDER,
            "train.py": (
                "from .names import *\n"
                "conv = make_spark_converter(df)\n"
                "with conv.make_tf_dataset() as d:\n"
                "    pass\n"
            ),
        }
    )
    assert after["names.py"] == PLAIN
    assert after["train.py"] == (
        "from .names import *\n"
        "from petastorm_bridge.native import to_tf_dataset, write_mds\n"
        "from streaming import StreamingDataset\n"
        "conv = write_mds(df)\n"
        "d = to_tf_dataset(\n"
        "    StreamingDataset(remote=conv.remote, local=conv.local, shuffle=True, batch_size=32),\n"
        "    epochs=None,\n"
        ")\n"
        "pass\n"
    )


@pytest.mark.parametrize(
    "user",
    [
        "from pkg.names import (\n    make_spark_converter,\n)\nconv = make_spark_converter(df)\n",
        "import pkg.names\nconv = pkg.names.make_spark_converter(df)\n",
        "from unittest import mock\nfake = mock.patch('pkg.names.make_spark_converter')\n",
    ],
)
def test_names_that_others_import_stay(rewrite, user):
    after = rewrite({"pkg/names.py": HOLDER, "user.py": user})
    assert after == {"pkg/names.py": ALIASED, "user.py": user}


@pytest.mark.parametrize(
    "user",
    [
        "import pkg.names\nc = pkg.names.make_spark_converter(df, {})\n",
        "import pkg.names as names\nc = names.make_spark_converter(df, {})\n",
        "from pkg import names as n\nc = n.make_spark_converter(df, {})\n",
        "from pkg.names import make_spark_converter as make\nc = make(df, {})\n",
    ],
)
def test_arguments_of_names_behind_modules_and_aliases(rewrite, user):
    tree = {"pkg/names.py": HOLDER, "user.py": user.format("parquet_row_group_size_bytes=9")}
    assert rewrite(tree) == {"pkg/names.py": ALIASED, "user.py": user.format("size_limit=9")}


def test_arguments_and_keys_of_imported_names(rewrite):
    text = (
        "from names import SparkDatasetConverter, make_spark_converter as make, np\n"
        "from names import make_spark_converter\n"
        "conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, url)\n"
        "conv = make_spark_converter(df, parquet_row_group_size_bytes=size, dtype=None)\n"
        "loader = conv.make_torch_dataloader(batch_size=8).__enter__()\n"
    )
    after = rewrite({"names.py": HOLDER + "import numpy as np\n", "user.py": text})
    assert "write_mds as make_spark_converter" in after["names.py"]
    assert "MdsDirectory as SparkDatasetConverter" in after["names.py"]
    assert "SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF" in after["user.py"]
    assert "make_spark_converter(df, size_limit=size, dtype=None)" in after["user.py"]
    assert "remote=conv.remote," in after["user.py"]


@pytest.mark.parametrize(
    "tree",
    [
        # Their own function, which only has the name of Petastorm's.
        {
            "names.py": "def make_spark_converter(df): ...\n",
            "user.py": "from names import *\nmake_spark_converter(df)\n",
        },
        # Nothing says that the name comes from the other file.
        {"user.py": "make_spark_converter(df)\n"},
        {
            "user.py": "from other import *\nmake_spark_converter(df, parquet_row_group_size_bytes=1)\n"
        },
        {
            "user.py": f"{NOTEBOOK}# MAGIC %md\n# MAGIC %run is a magic\n\nmake_spark_converter = None\nmake_spark_converter(df)\n"
        },
        {
            "user.py": "from other import make_spark_converter\nmake_spark_converter(df, compression_codec='gzip')\n"
        },
    ],
)
def test_names_of_others(rewrite, tree):
    holder = {"holder.py": HOLDER}
    after = rewrite({**holder, **tree})
    assert {path: after[path] for path in tree} == tree
    assert after["holder.py"] == PLAIN


def test_names_stay_for_the_bridge(rewrite):
    tree = {
        "names.py": HOLDER,
        "train.py": "from names import *\nmake_spark_converter(df, parquet_row_group_size_bytes=1)\n",
    }
    after = rewrite(tree, destination=Destination.BRIDGE)
    assert after["names.py"] == HOLDER.replace("petastorm", "petastorm_bridge")
    assert after["train.py"] == tree["train.py"]


def test_a_namesake_of_a_file_that_others_import_from():
    """What the first run imports into it for the bridge is not taken for what they import."""
    taken = frozenset({("data", "make_spark_converter")})
    settings = Settings(Destination.STREAMING, project=Project(converters=True, reexported=taken))
    text = "from petastorm import TransformSpec\nloader = partial(conv.make_torch_dataloader)\n"
    outcome = process("data.py", text.encode(), settings)
    assert isinstance(outcome, Success), outcome
    assert b"partial(make_spark_converter(conv.cache_dir_url).make_torch" in outcome.after
    assert not pending(process("data.py", outcome.after, settings))
