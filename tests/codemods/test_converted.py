"""Readers of datasets that were converted: the command's option, and that streaming gives the same rows."""

import numpy as np
import pytest
from far_store import far_store, no_store_because
from guide import named
from stored import spark, write_stored
from typer.testing import CliRunner

from petastorm_bridge.cli import app
from petastorm_bridge.codecs import NdarrayCodec, ScalarCodec
from petastorm_bridge.unischema import Unischema, UnischemaField

pytestmark = pytest.mark.modern

URL = "file:///data/digits"
LOADER = f"""from petastorm import make_reader
from petastorm.pytorch import DataLoader

with DataLoader(make_reader("{URL}"), batch_size=4) as loader:
    for batch in loader:
        step(batch)
"""
PROGRAM = """from petastorm import make_reader
from petastorm.pytorch import DataLoader

URL = "{url}"

with DataLoader(make_reader(URL, shuffle_row_groups=False, num_epochs=1), batch_size=8) as loader:
    for batch in loader:
        record("in order", batch)
with make_reader(URL, num_epochs=2, seed=3, workers_count=1) as reader:
    loader = DataLoader(reader, 5, shuffling_queue_capacity=10)
    for batch in loader:
        record("shuffled", batch)
with make_reader(URL, shuffle_row_groups=False) as reader:
    for number, row in enumerate(reader):
        assert number == row.id, f"row {{row.id}}"
        record("rows", {{"id": row.id, "x": row.x, "small": row.small, "flag": row.flag, "name": row.name}})
with make_reader(URL) as reader:
    names = sorted(row.name for row in reader)
record("names", {{"name": names}})
"""
SCHEMA = Unischema(
    "Digits",
    [
        UnischemaField("id", np.int64, (), None, False),
        UnischemaField("x", np.float32, (2, 3), NdarrayCodec(), False),
        UnischemaField("small", np.uint8, (), ScalarCodec(spark("ShortType")), False),
        UnischemaField("flag", np.bool_, (), ScalarCodec(spark("BooleanType")), False),
        UnischemaField("name", np.str_, (), ScalarCodec(spark("StringType")), False),
    ],
)


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *given: CliRunner().invoke(app, ["codemod", "--to", "streaming", *given])


def digit(i):
    return {
        "id": np.int64(i),
        "x": np.full((2, 3), i / 2, np.float32),
        "small": np.uint8(250 + i % 6),
        "flag": np.bool_(i % 3 == 0),
        "name": f"digit {i}",
    }


def run(path):
    """Run a program and return what it records, as NumPy's arrays or lists of texts, by sort."""
    found = {}

    def record(sort, batch):
        own = {
            name: getattr(value, "numpy", lambda value=value: value)()
            for name, value in batch.items()
        }
        found.setdefault(sort, []).append(own)

    exec(compile(path.read_text(), str(path), "exec"), {"record": record})
    return found


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, str):
            # Petastorm's rows have booleans, its batches numbers; streaming has numbers in both.
            known = value.astype(np.uint8) if value.dtype == bool else value
            assert known.dtype == other[name].dtype, name
            np.testing.assert_array_equal(known, other[name])
        else:
            assert value == other[name]


@pytest.mark.slow
# Streaming hands out read-only arrays, which torch says once; batches are copies.
@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_streaming_gives_the_rows_of_petastorm(call, tmp_path):
    from petastorm_bridge.convert import convert_dataset

    rows = [digit(i) for i in range(37)]
    url = write_stored(tmp_path / "digits", SCHEMA, rows)
    convert_dataset(url, tmp_path / "digits-mds", workers=1)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(url=url))
    assert call("program.py", "--write").exit_code == 0
    before = run(program)
    option = f"--converted={url}={tmp_path / 'digits-mds'}"
    assert call("program.py", option, "--write").exit_code == 0
    rest = program.read_text().replace(str(tmp_path), "")
    assert "petastorm" not in rest.replace("from petastorm_bridge.native import Epochs\n", "")
    after = run(program)
    assert before.keys() == after.keys()
    for sort in ("in order", "rows", "names"):
        assert len(before[sort]) == len(after[sort]) > 0
        for one, other in zip(before[sort], after[sort], strict=True):
            assert_same(one, other)
    ids = [sorted(i for b in found["shuffled"] for i in b["id"]) for found in (before, after)]
    assert ids[0] == ids[1] == sorted([*range(37), *range(37)])
    assert all(len(batch["id"]) <= 5 for batch in after["shuffled"])


@pytest.mark.slow
@pytest.mark.skipif(no_store_because() is not None, reason=str(no_store_because()))
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_a_directory_in_a_store_is_read_by_every_run(call, tmp_path, monkeypatch):
    """Streaming's own place for copies has to be empty: a second run would end with ``FileExistsError``."""
    from petastorm_bridge.convert import convert_dataset

    url = write_stored(tmp_path / "digits", SCHEMA, [digit(i) for i in range(37)])
    convert_dataset(url, tmp_path / "mds", workers=1)
    monkeypatch.setenv("PETASTORM_BRIDGE_LOCAL_CACHE", str(tmp_path / "copies"))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(url=url))
    with far_store(seconds=0.01) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        option = f"--converted={url}={store.put(tmp_path / 'mds', 'digits')}"
        assert call("program.py", option, "--write").exit_code == 0
        first, second = run(program), run(program)
    for found in (first, second):
        assert [i for batch in found["in order"] for i in batch["id"]] == list(range(37))
        assert sorted(i for b in found["shuffled"] for i in b["id"]) == sorted([*range(37)] * 2)


@pytest.mark.parametrize(
    ("directory", "written"),
    [
        ("file:///data/mds", 'StreamingDataset(local="/data/mds", '),
        ("dbfs:/data/mds", 'remote="/dbfs/data/mds",'),
        ("/Volumes/a/b/mds", 'local=MdsDirectory("/Volumes/a/b/mds").local,'),
        ("gs://bucket/mds", 'local=MdsDirectory("gs://bucket/mds").local,'),
    ],
)
def test_where_a_directory_is(call, tmp_path, directory, written):
    (tmp_path / "a.py").write_text(LOADER)
    assert call(".", "--converted", f"{URL}={directory}", "--write").exit_code == 0
    assert written in (tmp_path / "a.py").read_text()


def test_a_store_that_streaming_does_not_read(call, tmp_path):
    (tmp_path / "a.py").write_text(LOADER)
    answer = call(".", "--converted", f"{URL}=abfss://box@account/mds")
    assert "streaming reads paths, gs:// and s3://, and no abfss:// urls" in answer.output


def test_the_option_names_a_url_and_a_directory(call, tmp_path):
    (tmp_path / "a.py").write_text(LOADER)
    for value in ("foo", f"{URL}=", "=/data/mds", ""):
        answer = call(".", "--converted", value)
        assert answer.exit_code == 2
        assert "--converted takes URL=DIR" in answer.output
    answer = call(".", "--converted", f"{URL}=/one", "--converted", f"{URL}/=/two")
    assert answer.exit_code == 2
    assert f"two directories for {URL}: /one and /two" in answer.output
    answer = call(".", "--to", "bridge", "--converted", f"{URL}=/one")
    assert answer.exit_code == 2
    assert "--converted is for --to streaming" in answer.output
    assert (tmp_path / "a.py").read_text() == LOADER


def test_a_directory_elsewhere_is_noted(call, tmp_path):
    (tmp_path / "a.py").write_text(LOADER)
    answer = call(".", "--converted", f"{URL}=/nowhere/digits-mds")
    assert answer.exit_code == 1
    assert "/nowhere/digits-mds is not here: look at images" in answer.output
    assert f"--converted {URL}=/nowhere/digits-mds" in answer.output  # of the next command
    assert call(".", "--converted", f"{URL}=/nowhere/digits-mds", "--write").exit_code == 0
    assert 'StreamingDataset(local="/nowhere/digits-mds"' in (tmp_path / "a.py").read_text()
    assert call(".", "--converted", f"{URL}=/nowhere/digits-mds", "--check").exit_code == 0


def test_the_guide_shows_what_is_done(call, tmp_path):
    page = named("migration_guide/petastorm-datasets.md")
    lines = page["codemod"].splitlines()
    before, after = ("\n".join(x[1:] for x in lines if x[0] in f" {sign}") for sign in "-+")
    (tmp_path / "a.py").write_text(before + "\n")
    assert call(*page["option"].split()[2:], "--write").exit_code == 0
    assert (tmp_path / "a.py").read_text() == after + "\n"


@pytest.mark.parametrize(
    "index", ['{"shards": [{"column_names": ["x"], "column_encodings": ["png"]}]}', "{"]
)
def test_the_index_says_what_there_is(call, tmp_path, index):
    (tmp_path / "a.py").write_text(LOADER)
    (tmp_path / "mds").mkdir()
    (tmp_path / "mds" / "index.json").write_text(index)
    table = f'[tool.petastorm-bridge]\nto = "streaming"\nconverted = ["{URL}={tmp_path / "mds"}"]\n'
    (tmp_path / "pyproject.toml").write_text(table)
    answer = call(".", "--write")
    seen = index != "{"
    assert answer.exit_code == int(seen)
    assert ("needs a collate_fn for x (png)" in answer.output) == seen
    assert (f"{tmp_path / 'mds'} is not here" in answer.output) != seen
