"""Dictionaries of a loader's arguments: followed where nothing that the project has may change them before."""

import re

import pytest

from petastorm_codemods._model import Rewritten
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings

CHANGING = """\
def override(options, epochs=3):
    options["num_epochs"] = epochs
"""
READING = """\
def show(options):
    print(options["num_epochs"], options.get("batch_size"))
"""
JOB = """\
class Job:
    def __init__(self, given):
        self.given = given
    def shorten(self, name):
        self.given[name] = 1
"""
OPTIONS = 'OPTIONS = {"batch_size": 8, "num_epochs": 1}\n'
OPENING = """\
from petastorm.spark import make_spark_converter
conv = make_spark_converter(df)
with conv.make_torch_dataloader(**OPTIONS) as loader:
    fit(loader)
"""


@pytest.fixture
def rewritten(tmp_path):
    """A function that returns a program as the codemod writes it, which is beside a module ``ours``."""

    def rewritten(text):
        (tmp_path / "ours.py").write_text(CHANGING + READING)
        (tmp_path / "job.py").write_text(text)
        (found,) = (
            each
            for each in run([str(tmp_path)], Settings()).outcomes
            if isinstance(each, Rewritten) and each.path.endswith("job.py")
        )
        return found.after.decode()

    return rewritten


@pytest.mark.parametrize(
    "before",
    [
        f"{CHANGING}override(OPTIONS)\n",
        f"{CHANGING}override(options=OPTIONS)\n",
        f"{CHANGING}def twice(given):\n    override(given)\ntwice(OPTIONS)\n",
        "def outer(given):\n    mine = given\n    mine.update(more)\nouter(OPTIONS)\n",
        "mine = OPTIONS\nmine.pop('num_epochs')\n",
        "all_of_them['train'] = OPTIONS\n",
        "from ours import override\noverride(OPTIONS)\n",
        "import ours\nours.override(OPTIONS)\n",
        f"{JOB}Job(OPTIONS).shorten(name)\n",
    ],
)
def test_what_may_be_changed_stays(rewritten, before):
    after = rewritten(OPTIONS + before + OPENING)
    assert "make_torch_dataloader(**OPTIONS)" in after
    assert "StreamingDataset" not in after


@pytest.mark.parametrize(
    "before",
    [
        f"{READING}show(OPTIONS)\n",
        "print(OPTIONS)\nimport mlflow\nmlflow.log_params(OPTIONS)\n",
        "mine = OPTIONS\nprint(mine['num_epochs'])\n",
        f"{CHANGING}override(OTHERS)\n",
        f"{CHANGING}override(dict(OPTIONS))\n",
        "def recurses(given):\n    recurses(given)\nrecurses(OPTIONS)\n",
    ],
)
def test_what_is_read_only_is_followed(rewritten, before):
    after = rewritten(OPTIONS + before + OPENING)
    assert 'batch_size=OPTIONS["batch_size"]' in after
    assert "make_torch_dataloader" not in after


def test_a_function_that_opens_the_loader_may_get_it(rewritten):
    opening = OPENING.replace("OPTIONS", "options").splitlines(keepends=True)
    body = "".join(f"    {line}" for line in opening[1:])
    after = rewritten(f"{opening[0]}{OPTIONS}def train(options):\n{body}train(OPTIONS)\n")
    assert 'batch_size=options["batch_size"]' in after


@pytest.mark.parametrize(
    "before",
    [
        "mine = OPTIONS\nOPTIONS[name] = 3\nOPTIONS = mine\n",
        "OPTIONS['num_epochs'] += 3\n",
        "OPTIONS[name] = 3\n",
        "OPTIONS['seed'], OPTIONS['num_epochs'] = 3, 4\n",
        "OPTIONS.update({name: 3})\n",
        "OPTIONS.update(**others)\n",
        "OPTIONS.setdefault(name, 3)\n",
        "OPTIONS['schema_fields'] = ['x']\n",
        "if both:\n    OPTIONS['cur_shard'], OPTIONS['shard_count'] = 0, 2\n",
        "if both:\n    OPTIONS.update(cur_shard=0, shard_count=2)\n",
        "if large:\n    OPTIONS = other\n",
        "del OPTIONS['batch_size']\n",
        "globals()['OPTIONS']['num_epochs'] = 3\n",
    ],
)
def test_items_that_say_what_is_read_have_to_stay(rewritten, before):
    after = rewritten(OPTIONS + before + OPENING)
    assert "make_torch_dataloader(**OPTIONS)" in after
    assert not re.search(r"counterpart of\s*$", after, re.MULTILINE)  # the keys are unknown


@pytest.mark.parametrize(
    ("before", "written"),
    [
        ("OPTIONS['num_epochs'] = 3\n", 'OPTIONS["num_epochs"],\n)'),
        ("OPTIONS['num_epochs'] = None\n", 'drop_last=OPTIONS["num_epochs"] is None'),
        ("OPTIONS.update(num_epochs=3)\n", 'OPTIONS["num_epochs"],\n)'),
        ("OPTIONS.update({'num_epochs': 3})\n", 'OPTIONS["num_epochs"],\n)'),
        ("if x:\n    OPTIONS = {'batch_size': 4}\n", 'drop_last=OPTIONS.get("num_epochs") is None'),
        ("if x:\n    OPTIONS = {'num_epochs': 1}\n", 'batch_size=OPTIONS.get("batch_size", 32)'),
        ("OPTIONS['shuffle_row_groups'] = x\n", 'OPTIONS.get("shuffle_row_groups", True)'),
        ("OPTIONS['seed'] = 5\n", 'if OPTIONS.get("seed") is None'),
        ("OPTIONS.setdefault('transform_spec', f)\n", 'collate_fn=OPTIONS.get("transform_spec")'),
        (
            "OPTIONS['cur_shard'] = dist.get_rank()\nOPTIONS['shard_count'] = dist.get_world_size()\n",
            'batch_size=OPTIONS["batch_size"]',
        ),
    ],
)
def test_items_are_read_where_the_loader_is_made(rewritten, before, written):
    after = rewritten(f"import torch.distributed as dist\n{OPTIONS}{before}{OPENING}")
    assert written in after
    assert "make_torch_dataloader" not in after


def test_a_dictionary_that_is_changed_by_its_other_name(rewritten):
    opening = OPENING.replace("OPTIONS", "mine")
    after = rewritten(f"{OPTIONS}mine = OPTIONS\nOPTIONS['num_epochs'] = 3\n{opening}")
    assert '    mine["num_epochs"],\n)' in after


@pytest.mark.parametrize(
    "before",
    ["OPTIONS['batch_size'] = 16\n", "if fast:\n    OPTIONS['workers_count'] = 4\n"],
)
def test_items_that_do_not_may_change(rewritten, before):
    after = rewritten(OPTIONS + before + OPENING)
    assert 'batch_size=OPTIONS["batch_size"]' in after
    assert "make_torch_dataloader" not in after


HELPER = """\
from petastorm.spark import make_spark_converter
def read(converter, batch_size=8, **kwargs):
    with converter.make_torch_dataloader(batch_size=batch_size, **kwargs) as loader:
        fit(loader)
conv = make_spark_converter(df)
read(conv, 4)
"""


@pytest.mark.parametrize("call", ["read(conv, num_epochs=1)\n", "read(conv, 8, num_epochs=None)\n"])
def test_what_a_function_gets_by_other_names(rewritten, call):
    """Any of it, as other calls may: the function is not written for the calls that there are."""
    after = rewritten(HELPER + call)
    assert 'drop_last=kwargs.get("num_epochs") is None' in after
    assert 'kwargs.get("num_epochs"),\n    )' in after


@pytest.mark.parametrize(
    "more",
    [
        "read(conv, **others)\n",
        "each(read)\n",
        "read(conv, schema_fields=['x'])\n",
        "read(conv, cur_shard=0, shard_count=2)\n",
    ],
)
def test_what_may_be_anything_stays(rewritten, more):
    assert "StreamingDataset" not in rewritten(HELPER + more)


def test_what_a_function_has_a_name_for_is_not_among_them(rewritten):
    after = rewritten(HELPER + "read(conv, batch_size=16, num_epochs=1)\n")
    assert "batch_size=batch_size" in after
    assert 'kwargs.get("num_epochs")' in after


def test_a_decorator_may_give_more(rewritten):
    decorated = HELPER.replace("def read", "@with_defaults\ndef read")
    assert "make_torch_dataloader" in rewritten(decorated)


def test_a_function_that_nobody_calls_here_may_get_anything(rewritten):
    after = rewritten(HELPER.replace("read(conv, 4)\n", ""))
    assert "make_torch_dataloader" in after


@pytest.mark.parametrize(
    "written",
    [
        "{**OPTIONS, 'batch_size': size}",
        "dict(OPTIONS, batch_size=size)",
        "(OPTIONS | {'batch_size': size})",
    ],
)
def test_a_dictionary_that_is_written_where_it_is_needed_stays(rewritten, written):
    assert "make_torch_dataloader" in rewritten(OPTIONS + OPENING.replace("OPTIONS", written))
