"""Every call of streaming's in rewritten code is streaming's own, with arguments that it has.

Over all cases, programs and repositories, for every destination and flag: what carries a name of
streaming's is imported from streaming, nothing is used that nothing defines, and no import is left over.
"""

import ast
import dataclasses
import functools
import inspect
import pathlib

import pytest

from petastorm_codemods._engine import process
from petastorm_codemods._meaning.other_files import Project
from petastorm_codemods._model import Destination, NeedsHuman, Success, Target
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings
from petastorm_codemods._text.sources import read_source
from petastorm_codemods._text.verify import undefined_names

from .conftest import CONVERTED, read_cases

HERE = pathlib.Path(__file__).parent
FORMS = {
    "bridge": Settings(Destination.BRIDGE),
    "streaming": Settings(target=Target(converted=CONVERTED)),
    "fast": Settings(target=Target(fast=True, converted=CONVERTED)),
    "vendored": Settings(vendor=True),
}
COLUMNAR = "petastorm_bridge.streaming.ColumnarStreamingDataset"
# What a name has to be, and what says which arguments it has.
OWN = {
    "StreamingDataset": "streaming.StreamingDataset",
    "StreamingDataLoader": "streaming.StreamingDataLoader",
    "Stream": "streaming.Stream",
    "dataframe_to_mds": "streaming.base.converters.dataframe_to_mds",
    "ColumnarStreamingDataset": COLUMNAR,
}


@functools.cache
def arguments_of(path):
    """The names of the arguments that a function or class of streaming's has."""
    import streaming
    import torch.utils.data
    from streaming.base import converters

    from petastorm_bridge.streaming import ColumnarStreamingDataset

    documented = {
        # Streaming's loader hands on what it is given.
        "streaming.StreamingDataLoader": [torch.utils.data.DataLoader],
        "streaming.StreamingDataset": [streaming.StreamingDataset],
        "streaming.Stream": [streaming.Stream],
        "streaming.base.converters.dataframe_to_mds": [converters.dataframe_to_mds],
        COLUMNAR: [ColumnarStreamingDataset, streaming.StreamingDataset],
    }[path]
    kinds = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    return {
        parameter.name
        for each in documented
        for parameter in inspect.signature(each).parameters.values()
        if parameter.kind not in kinds
    }


def imported(tree):
    """The dotted paths of what a module imports, by the local names."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {(each.asname or each.name).split(".")[0]: each.name for each in node.names}
    return found


def unused_imports(text):
    tree = ast.parse(text)
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    # Names, and paths in annotations in quotes.
    words |= {each.partition(".")[0] for each in strings if isinstance(each, str)}
    return set(imported(tree)) - words


def check_calls(before, after):
    """Check the calls in a rewritten text that were not in it before; return how many there are."""
    known = {ast.dump(node) for node in ast.walk(ast.parse(before)) if isinstance(node, ast.Call)}
    tree = ast.parse(after)
    names, count = imported(tree), 0
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        path = names.get(node.func.id, node.func.id)
        name = path.rpartition(".")[2]
        if name in OWN and ast.dump(node) not in known:
            assert path == OWN[name], ast.unparse(node)
            given = {each.arg for each in node.keywords}
            assert given <= arguments_of(path), ast.unparse(node)
            assert len(node.args) <= (name in {"StreamingDataLoader", "dataframe_to_mds"})
            count += 1
    return count


def check(path, before, after):
    """Check a rewritten file; return how many calls of streaming's it has got."""
    texts = [read_source(path, data).masked for data in (before, after)]
    try:
        ast.parse(texts[0])
    except SyntaxError:
        return 0  # a notebook with a cell that does not parse
    assert undefined_names(texts[1]) <= undefined_names(texts[0])
    if not path.endswith("__init__.py"):
        # What was unused before is so under its new name as well.
        unused = [unused_imports(text) for text in texts]
        assert len(unused[1]) <= len(unused[0]), unused
    return check_calls(*texts)


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    """Programs and whole repositories as files."""
    pytest.importorskip("streaming", reason="its signatures are the judge")
    folder = tmp_path_factory.mktemp("repositories")
    for path in HERE.rglob("*.txt"):
        place = folder / path.relative_to(HERE).with_suffix("")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    return folder


def outcomes_of_cases(settings):
    for case in read_cases():
        if case.path.endswith((".py", ".ipynb")) and "failed" not in case.flags:
            project = Project("alone" not in case.flags, modules=frozenset({"ours"}))
            own = dataclasses.replace(settings, project=project)
            yield case.path, process(case.path, case.before.encode(), own)


def outcomes_of_repositories(folder, settings):
    for part in [*folder.glob("repositories*/*"), folder / "programs"]:
        for outcome in run([str(part)], settings).outcomes:
            if outcome.path.endswith((".py", ".ipynb")):
                yield outcome.path, outcome


@pytest.mark.slow
@pytest.mark.modern
@pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=pytest.mark.smoke if form == "streaming" else ()) for form in FORMS],
)
def test_rewritten_calls(repositories, form):
    settings = FORMS[form]
    target = Target("ours.mds_support") if settings.vendor else settings.target
    found = [
        *outcomes_of_cases(dataclasses.replace(settings, target=target)),
        *outcomes_of_repositories(repositories, settings),
    ]
    count = 0
    for path, outcome in found:
        if not isinstance(outcome, Success | NeedsHuman):
            continue
        if path.endswith("mds_support.py"):
            check_calls("", outcome.after.decode())
        else:
            count += check(path, outcome.before, outcome.after)
    assert (count > 100) == (form != "bridge"), count


@pytest.mark.parametrize(
    "text",
    [
        "from ours import StreamingDataset\nStreamingDataset(local=path)\n",
        "from streaming import StreamingDataset\nStreamingDataset(local=path, num_epochs=1)\n",
        "from streaming import StreamingDataLoader\nStreamingDataLoader(data, cur_shard=1)\n",
        "from streaming import StreamingDataLoader\nStreamingDataLoader(data, 8)\n",
        "StreamingDataset(local=path)\n",
    ],
)
def test_the_check_sees_what_is_wrong(text):
    pytest.importorskip("streaming", reason="its signatures are the judge")
    with pytest.raises(AssertionError):
        check_calls("", text)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("workers_count=4", "one by one in one process, --fast"),
        ("cur_shard=hvd.rank(), shard_count=hvd.size()", "TorchDistributor"),
        (
            "data_loader_fn=BatchedDataLoader, workers_count=4, transform_spec=spec if augmented else None",
            "one by one, as its transform_spec may be None",  # by workers
        ),
    ],
)
def test_what_a_rewrite_changes_is_told(body, said):
    text = (
        "from petastorm.pytorch import BatchedDataLoader\n"
        f"with conv.make_torch_dataloader({body}) as loader:\n"
        "    x, y = next(iter(loader)).values()\n"
    )
    outcome = process("a.py", text.encode(), Settings(project=Project(converters=True)))
    (site,) = (each for each in outcome.sites if each.code == "PM102")
    assert said in site.message
    assert site.told


LOOP = """
from petastorm.spark import make_spark_converter
conv = make_spark_converter(df)
def one_epoch(model):
    with conv.make_torch_dataloader(num_epochs=1) as loader:
        fit(model, loader)
"""
MADE_ANEW = {
    "called in a loop over epochs": f"{LOOP}for epoch in range(9):\n    one_epoch(model)\n",
    "called in another loop": f"{LOOP}for model in models:\n    one_epoch(model)\n",
    "while": """
while epoch < last:
    with conv.make_torch_dataloader(num_epochs=1) as loader:
        fit(loader)
""",
    "Lightning": """
trainer = Trainer(reload_dataloaders_every_n_epochs=1)
class Images(LightningDataModule):
    def train_dataloader(self):
        self.context = self.conv.make_torch_dataloader(num_epochs=1)
        return self.context.__enter__()
""",
    "Lightning that asks once": """
class Images(LightningDataModule):
    def train_dataloader(self):
        self.context = self.conv.make_torch_dataloader(num_epochs=1)
        return self.context.__enter__()
""",
}


@pytest.mark.parametrize("name", MADE_ANEW)
def test_loaders_that_are_made_anew_get_another_seed_each_time(name):
    """Streaming shuffles the first epoch of every dataset alike."""
    settings = Settings(project=Project(converters=True))
    outcome = process("train.py", MADE_ANEW[name].encode(), settings)
    assert b"shuffle_seed=conv.next_seed()" in outcome.after.replace(b"self.conv", b"conv")
    assert not any(site.told for site in outcome.sites)
