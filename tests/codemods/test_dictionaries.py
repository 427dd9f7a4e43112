"""Dictionaries of a loader's arguments: followed where nothing that the project has may change them before."""

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
    def shorten(self):
        self.given["num_epochs"] = 1
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
        "def outer(given):\n    mine = given\n    mine.update(num_epochs=3)\nouter(OPTIONS)\n",
        "mine = OPTIONS\nmine['num_epochs'] = 3\n",
        "all_of_them['train'] = OPTIONS\n",
        "from ours import override\noverride(OPTIONS)\n",
        "import ours\nours.override(OPTIONS)\n",
        f"{JOB}Job(OPTIONS).shorten()\n",
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
