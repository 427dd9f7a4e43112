"""Whole repositories after the look of real ones: what becomes of every call of the converter API."""

import ast
import json
import pathlib
import re
import shutil

import pytest

from petastorm_codemods._model import Destination, Failed, NeedsHuman, Success
from petastorm_codemods._rewriting.markers import MARK
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings
from petastorm_codemods._text.decode import write_atomically
from petastorm_codemods._text.verify import undefined_names

pytestmark = pytest.mark.anystack

HERE = pathlib.Path(__file__).parent / "repositories"
METHODS = {"make_torch_dataloader", "make_tf_dataset"}
# Call sites that are no converter's, by file: they stay as they are.
FOREIGN = {"recorder.py": 3}
# Call sites that run on the bridge over the same directory: with Horovod's ranks, and marked with a reason
# (parameters that are given elsewhere, dictionaries that the file does not show, contexts that are handed on,
# partial, schema_fields).
HOROVOD = {"05_horovod.py": 2, "tuning.py": 2}
MARKED = {"datamodule.py": 2, "loaders.py": 1, "train.py": 3}
ON_BRIDGE = re.compile(
    r"make_spark_converter\(\s*[\w.]+\.cache_dir_url\s*\)\.make_(?:torch|tf)_data"
)


def source_of(path):
    text = path.read_text()
    if path.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    lines = "\n".join("".join(cell["source"]) for cell in cells).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("%", "!")))


def sites(path):
    """The lines of calls and uses of the converter API; none for what does not parse."""
    try:
        tree = ast.parse(source_of(path))
    except SyntaxError:
        return []
    makers = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("petastorm")
        for alias in node.names
        if alias.name == "make_spark_converter"
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            found.append(node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.lineno] if node.func.id in makers else []
    return found


@pytest.fixture
def repositories(tmp_path):
    for path in HERE.rglob("*.txt"):
        place = tmp_path / path.relative_to(HERE).with_suffix("")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    return tmp_path


def migrate(folder, settings):
    outcomes = run([str(folder)], settings).outcomes
    for outcome in outcomes:
        if isinstance(outcome, Success | NeedsHuman):
            write_atomically(outcome.path, outcome.after)
    return outcomes


@pytest.mark.parametrize("repository", sorted(path.name for path in HERE.iterdir()))
@pytest.mark.parametrize("destination", list(Destination), ids=lambda d: d.value)
def test_nothing_breaks(repositories, repository, destination):
    folder = repositories / repository
    before = {path: source_of(path) for path in folder.rglob("*.*") if path.suffix != ".txt"}
    settings = Settings(destination)
    assert not [outcome for outcome in migrate(folder, settings) if isinstance(outcome, Failed)]
    after = {path: path.read_bytes() for path in before}
    for path, text in before.items():
        names = undefined_names(text)
        if names is not None:
            assert undefined_names(source_of(path)) <= names, path
    migrate(folder, settings)
    assert {path: path.read_bytes() for path in before} == after


def test_every_call_is_rewritten_or_marked(repositories):
    counts = {path: len(sites(path)) for path in repositories.rglob("*.*") if path.suffix != ".txt"}
    migrate_all = {folder.name: migrate(folder, Settings()) for folder in repositories.iterdir()}
    assert len(migrate_all) == len(list(HERE.iterdir()))
    for path in counts:
        text = source_of(path)
        calls = re.findall(r"\.make_(?:torch_dataloader|tf_dataset)\b", text)
        bridged = len(ON_BRIDGE.findall(text))
        assert bridged == HOROVOD.get(path.name, 0) + MARKED.get(path.name, 0), path
        assert len(calls) - bridged == FOREIGN.get(path.name, 0), path
        markers = text.count(f"# {MARK} PM102") + text.count(f"# {MARK} PM103")
        assert markers == MARKED.get(path.name, 0), path
    ours = sum(counts.values()) - sum(FOREIGN.values())
    assert ours >= 30
    # A third of what stays are contexts and methods that are handed on, which no stock loader can stand for.
    assert 1 - sum(MARKED.values()) / (ours - sum(HOROVOD.values())) >= 0.75


def test_cells_that_do_not_parse_stop_nothing(repositories):
    folder = repositories / "databricks_course"
    migrate(folder, Settings())
    text = (folder / "solutions_todo.py").read_text()
    assert "converter = FILL IN" in text
    assert "write_mds(train_df)" in text
    assert "remote=converter_train.remote" in text
