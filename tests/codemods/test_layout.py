"""Rewritten statements keep to their file's layout."""

import ast

import pytest
from growth import assert_grows_linearly

from petastorm_codemods._engine import process
from petastorm_codemods._meaning.other_files import Project
from petastorm_codemods._model import Destination
from petastorm_codemods._settings import Settings
from petastorm_codemods._text.tokens import tokens_of

IMPORT = "from petastorm.spark import make_spark_converter\n"


def rewritten(text, destination="streaming"):
    settings = Settings(Destination(destination), project=Project(converters=True))
    return process("module.py", text.encode(), settings).after.decode()


def longest(text):
    return max(map(len, text.splitlines()))


CALL = "with conv.make_torch_dataloader({}) as loader:\n    pass\n"


@pytest.mark.parametrize(
    "arguments",
    [
        "num_epochs=1",
        "batch_size=64, num_epochs=1, cur_shard=hvd.rank(), shard_count=hvd.size()",
        "batch_size=a_long_name_of_a_batch_size, transform_spec=make_spec(a, [b, c], d={1: 2})",
        "num_epochs=1, transform_spec=TransformSpec(f, selected_fields=['one', 'two', 'three'])",
    ],
)
def test_no_rewritten_line_is_longer_than_the_file_allows(arguments):
    before = IMPORT + "conv = make_spark_converter(df)\n" + CALL.format(arguments)
    after = rewritten(before)
    limit = next((limit for limit in (88, 100) if longest(before) <= limit), 120)
    assert longest(after) <= max(limit, longest(before))
    ast.parse(after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "from petastorm.spark import (SparkDatasetConverter,\n"
            "                             make_spark_converter)\n",
            "from petastorm_bridge.spark import (SparkDatasetConverter,\n"
            "                             make_spark_converter)\n",
            id="lines of an import keep their indentation",
        ),
        pytest.param(
            "from petastorm.spark.spark_dataset_converter import SparkDatasetConverter, "
            "make_spark_converter\n",
            "from petastorm_bridge.spark.spark_dataset_converter import (\n"
            "    SparkDatasetConverter,\n    make_spark_converter,\n)\n",
            id="a long import goes to several lines",
        ),
        pytest.param(
            "if x:\n\tfrom petastorm.spark import (\n\t\tmake_spark_converter as make,  # here\n\t)\n",
            "if x:\n\tfrom petastorm_bridge.spark import (\n"
            "\t\tmake_spark_converter as make,  # here\n\t)\n",
            id="comments and tabs stay",
        ),
    ],
)
def test_imports(before, after):
    assert rewritten(before, "bridge") == after


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        pytest.param(
            "import logging\nimport time\n\nimport numpy as np\nimport torch\n",
            "import torch\nfrom streaming import",
            id="behind the first imports",
        ),
        pytest.param(
            "x = 1\nfrom petastorm import TransformSpec\nimport ours\nTransformSpec(f)\n",
            "import PandasCollate\nfrom streaming import StreamingDataLoader, StreamingDataset\n"
            "import ours\n",
            id="behind Petastorm's",
        ),
        pytest.param(
            "import warnings\nwith warnings.catch_warnings():\n    import petastorm.predicates\n",
            "    import petastorm_bridge.predicates\n    from streaming import",
            id="beside Petastorm's, in its block",
        ),
    ],
)
def test_a_new_import_goes_where_it_belongs(head, expected):
    settings = Settings(
        Destination.STREAMING, project=Project(converters=True, modules=frozenset({"ours"}))
    )
    text = head + "\n" + CALL.format("num_epochs=1")
    assert expected in process("module.py", text.encode(), settings).after.decode()


def test_a_module_is_imported_from_once():
    after = rewritten(
        "from petastorm import TransformSpec\n"
        "from petastorm.spark import make_spark_converter\n"
        "conv = make_spark_converter(df)\n" + CALL.format("transform_spec=TransformSpec(f)")
    )
    assert after.count("from petastorm_bridge.native import") == 1


def test_cells_of_a_databricks_notebook_keep_their_own_imports():
    cell = "# COMMAND ----------\n" + IMPORT + "make_spark_converter(df)\n"
    after = rewritten("# Databricks notebook source\n" + 2 * cell)
    assert after.count("from petastorm_bridge.native import write_mds") == 2


def test_nothing_is_marked_in_a_file_in_which_nothing_moves():
    text = "from petastorm import local_disk_cache\n"
    outcome = process("module.py", text.encode(), Settings(Destination.BRIDGE))
    assert outcome.after == outcome.before
    assert [site.code for site in outcome.sites] == ["PM003"]


@pytest.mark.parametrize("shape", ["calls", "imports"])
def test_growth(shape):
    def prepare(size):
        lines = {"calls": CALL.format("num_epochs=1"), "imports": IMPORT}[shape] * size
        text = (IMPORT + "conv = make_spark_converter(df)\n" + lines).encode()
        settings = Settings(Destination.STREAMING, project=Project(converters=True))
        return lambda: process("module.py", text, settings)

    assert_grows_linearly(prepare, 16)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("odd", ["\x0c", "\x1c", "\u2028"])
def test_odd_characters_and_newlines_end_no_line_of_a_statement(newline, odd):
    arguments = f"num_epochs=1, transform_spec=make('{odd}', f'{{a}}{odd}', one, two, three, four)"
    text = IMPORT + "conv = make_spark_converter(df)\n" + CALL.format(arguments)
    after = rewritten(text.replace("\n", newline))
    assert f"'{odd}', f'{{a}}{odd}'" in after
    assert after.count(newline) > text.count("\n")


def test_lines_are_indented_as_blocks_are():
    """Not as other lines that go on, which people align with all sorts of things."""
    lines = IMPORT + "conv = make_spark_converter(df)\nspec = f(\n  a,\n  b\n)\n"
    call = "with conv.make_torch_dataloader(num_epochs=1) as l:\n{}for batch in l: f(batch)\n"
    deeper = "\n    StreamingDataset("
    assert deeper in rewritten(lines + call.format(" " * 4))
    assert deeper.replace("    ", "  ") in rewritten(lines + call.format(" " * 2))


@pytest.mark.parametrize("seed", ["options.get('seed')", "self.a_long_name_of_the_options.seed"])
def test_a_long_choice_has_a_line_for_each_part(seed):
    before = (
        IMPORT
        + "def fit(train_converter, self, options):\n"
        + f"    with train_converter.make_torch_dataloader(num_epochs=1, seed={seed}) as loader:\n"
        + "        run(loader)\n"
    )
    after = rewritten(before)
    indent = " " * 12
    assert (
        f"{indent}shuffle_seed=(\n"
        f"{indent}    train_converter.next_seed()\n"
        f"{indent}    if {seed} is None\n"
        f"{indent}    else {seed}\n"
        f"{indent}),\n"
    ) in after
    short = rewritten(before.replace(seed, "seed"))
    assert f"{indent}shuffle_seed=train_converter.next_seed() if seed is None else seed,\n" in short


def test_a_long_line_of_several_statements():
    """Brackets around what an import names must not take in what follows it."""
    names = "from petastorm import make_batch_reader;from ours import one, two, three, four"
    after = rewritten(f"{names};data = make_batch_reader(url);fit(data);\n")
    ast.parse(after)
    assert "from petastorm_bridge import make_batch_reader;" in after


@pytest.mark.parametrize("more", [0, 1])
def test_a_first_line_that_grows_is_broken_where_it_would_be_too_long(more):
    name = "a" * (25 + more)
    text = IMPORT + f"{name} = make_spark_converter(df)\nfit(\n    {name}.make_torch_dataloader(\n"
    text += "        num_epochs=1,\n    )\n)\n" + CALL.format("num_epochs=1")
    after = rewritten(text)
    assert max(map(len, (line for line in after.splitlines() if "#" not in line))) <= 88
    whole = f"    make_spark_converter({name}.cache_dir_url).make_torch_dataloader(\n"
    broken = (
        f"    make_spark_converter(\n        {name}.cache_dir_url\n    ).make_torch_dataloader(\n"
    )
    assert (broken if more else whole) in after


def test_tokens_have_nothing_of_what_is_in_strings():
    text = "fit(f'({a}[{b!r:>{c}}#', '{', f\"{f'({d}'}(\")  # done"
    brackets = [each.string for each in tokens_of(text) if each.string in set("()[]{}")]
    comments = [each.string for each in tokens_of(text) if each.string.startswith("#")]
    assert (brackets, comments) == (["(", ")"], ["# done"])
