"""From the README to a migrated, verified repository, for four people who have never seen the project.

The fifth adds a rule: `test_adding.py`.

Each test makes a repository as they have it, does what the pages say, with the pages' own commands, and asks
whether the rows are those of before: with the real Petastorm where it is installed, elsewhere with the bridge
under an import that was changed by hand.
"""

import contextlib
import importlib
import importlib.util
import sys
import textwrap
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import warm
from guide import ROOT, bridge, follow, named

from petastorm_bridge import __version__, parity

ROWS = 230
README, GUIDE = "README.md", "migration_guide/{}.md".format
HAS_PETASTORM = importlib.util.find_spec("petastorm") is not None

pytestmark = pytest.mark.slow


HARNESS = str(ROOT / "tests" / "against_petastorm" / "live")


@contextlib.contextmanager
def original():
    """Petastorm with its race at the end of an epoch taken out, so that it loses no row."""
    if not HAS_PETASTORM:
        yield
        return
    sys.path.insert(0, HARNESS)
    try:
        from parity_harness.original import repeatable

        with repeatable():
            yield
    finally:
        sys.path.remove(HARNESS)


def as_it_was(text):
    """The program as it ran before: where Petastorm cannot be installed, with the import changed."""
    return text if HAS_PETASTORM else text.replace("petastorm.", "petastorm_bridge.")


def table(seed):
    """Rows with a key, a number, a label and an age that is unknown for some."""
    random = np.random.default_rng(seed)
    ages = [None if age < 20 else int(age) for age in random.integers(0, 90, ROWS)]
    return pa.table(
        {
            "id": np.arange(ROWS),
            "x": random.normal(size=ROWS).astype(np.float32),
            "label": random.integers(0, 2, ROWS).astype(np.int32),
            "age": pa.array(ages, pa.int32()),
        }
    )


def repository(folder, files):
    """A repository of Git's with these files, on a branch for the migration."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text).lstrip())
    bridge(
        "git init -q -b main && git config user.email a@example.com && git config user.name A"
        " && git add . && git commit -qm 'Train on Petastorm'",
        folder,
    )
    follow(README, "git switch -c off-petastorm", folder)
    return folder


def rows(batches):
    """The rows of batches of torch's, as a sorted list; NaN, which equals nothing, as None."""
    found = []
    for batch in batches:
        names = sorted(batch)
        columns = [np.asarray(batch[name]).astype(np.float64).tolist() for name in names]
        found += [
            tuple(None if np.isnan(value) else value for value in row)
            for row in zip(*columns, strict=True)
        ]
    return sorted(found, key=lambda row: row[names.index("id")])


NOTEBOOK = """
# Databricks notebook source
# MAGIC %md
# MAGIC # Who comes back?

# COMMAND ----------

# MAGIC %pip install petastorm==0.12.1

# COMMAND ----------

dbutils.library.restartPython()

# COMMAND ----------

from petastorm.spark import SparkDatasetConverter, make_spark_converter

spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, dbutils.widgets.get("cache"))

# COMMAND ----------

events = spark.read.parquet(dbutils.widgets.get("events"))
converter = make_spark_converter(events)

# COMMAND ----------

with converter.make_torch_dataloader(batch_size=32, num_epochs=1) as loader:
    for batch in loader:
        display(batch)

# COMMAND ----------

converter.delete()
"""


@pytest.mark.spark
def test_a_databricks_notebook(spark, cache_dir, tmp_path):
    """The import, then streaming's own classes, compared with recordings; and all the way back."""
    pytest.importorskip("streaming", reason="needs the extra [streaming]")
    events = tmp_path / "events"
    events.mkdir()
    pq.write_table(table(1), events / "part.parquet")
    (tmp_path / "repository").mkdir()
    folder = repository(tmp_path / "repository", {"train.py": NOTEBOOK})
    widgets = {"cache": cache_dir.as_uri(), "events": events.as_uri()}

    def run(text):
        seen = []
        library = types.SimpleNamespace(restartPython=lambda: None)
        dbutils = types.SimpleNamespace(
            library=library, widgets=types.SimpleNamespace(get=widgets.__getitem__)
        )
        exec(
            compile(text, "train.py", "exec"),
            {"spark": spark, "dbutils": dbutils, "display": seen.append},
        )
        return seen

    notebook = folder / "train.py"
    with original():
        before = run(as_it_was(notebook.read_text()))
    assert len(rows(before)) == ROWS
    parity.record(before, tmp_path / "golden")

    follow(README, "petastorm-bridge doctor", folder, said="Next: petastorm-bridge codemod .")
    follow(
        README,
        "petastorm-bridge codemod . --to bridge",
        folder,
        codes=(1,),
        said="+from petastorm_bridge",
    )
    follow(README, "petastorm-bridge codemod . --to bridge --write", folder)
    install = f"# MAGIC %pip install petastorm-bridge=={__version__}\n"
    assert install in notebook.read_text().replace('"', "")
    after = run(notebook.read_text())
    assert rows(after) == rows(before)
    parity.record(after, tmp_path / "candidate")
    same = "petastorm-bridge parity compare golden candidate --order shuffled --key id"
    follow(GUIDE("parity"), same, tmp_path)
    follow(README, "petastorm-bridge codemod . --to bridge --check", folder)
    on_bridge = notebook.read_text()
    follow(README, 'git commit -am "Read with petastorm_bridge"', folder)

    follow(README, "petastorm-bridge codemod . --to streaming --write", folder)
    assert "StreamingDataLoader(" in notebook.read_text()
    assert rows(run(notebook.read_text())) == rows(before)
    follow(README, "git restore .", folder)
    assert notebook.read_text() == on_bridge
    assert not list(cache_dir.rglob("*.mds"))


MONOREPO = {
    "libs/common/src/common/__init__.py": "",
    "libs/common/src/common/readers.py": """
        from petastorm import make_batch_reader
        from petastorm.pytorch import DataLoader

        def training(url, columns):
            reader = make_batch_reader(url, schema_fields=columns, num_epochs=1)
            return DataLoader(reader, batch_size=32)
    """,
    "services/rank/src/rank/__init__.py": "",
    "services/rank/src/rank/train.py": """
        from common.readers import training

        def run(url):
            with training(url, ["id", "x", "label"]) as loader:
                return list(loader)
    """,
    "services/rank/requirements.txt": "petastorm==0.12.1\ntorch\n",
    "services/price/src/price/__init__.py": "",
    "services/price/src/price/train.py": """
        import petastorm
        from petastorm.pytorch import BatchedDataLoader

        def run(url):
            reader = petastorm.make_batch_reader(url, num_epochs=1, shuffle_row_groups=False)
            with BatchedDataLoader(reader, batch_size=50) as loader:
                return list(loader)
    """,
    "services/price/pyproject.toml": """
        [project]
        name = "price"
        version = "1"
        dependencies = ["petastorm>=0.12"]
    """,
    "services/web/src/web/app.py": "print('knows nothing of it')\n",
}
RUN_SERVICE = """
import contextlib, sys, warnings
warnings.simplefilter("ignore")
name, url, recording, harness, *roots = sys.argv[1:]
sys.path[:0] = roots
from importlib import import_module
from petastorm_bridge import parity
with contextlib.ExitStack() as stack:
    if harness:
        sys.path.append(harness)
        from parity_harness.original import repeatable
        stack.enter_context(repeatable())
    batches = import_module(name).run(url)
parity.record(batches, recording)
print(sum(len(batch["id"]) for batch in batches), flush=True)
"""


def test_a_platform_team(tmp_path):
    """Many repositories, one report; then the monorepo, service by service beside its shared library."""
    data = tmp_path / "data"
    data.mkdir()
    pq.write_table(table(2).drop_columns("age"), data / "part.parquet")
    checkouts = tmp_path / "checkouts"
    for name, files in {
        "ads": MONOREPO,
        "vision": {"left.py": "from petastorm.workers_pool import thread_pool\nthread_pool\n"},
        "billing": {"app.py": "print('no data here')\n"},
    }.items():
        (checkouts / name).mkdir(parents=True)
        repository(checkouts / name, files)

    page = named(GUIDE("many-repositories"))
    bridge(page["reports"], tmp_path)
    assert len(list((tmp_path / "reports").iterdir())) == 3
    (tmp_path / "summary.py").write_text(page["summary.py"])
    printed = warm.run(
        [sys.executable, "summary.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    lines = {line.split("|")[1].strip(): line for line in printed.splitlines() if "|" in line}
    assert {"ads", "vision", "billing"} <= set(lines)
    assert "| vision | 0 | 1 | 0 |" in printed
    assert "| billing | 0 | 0 | 0 |" in printed

    folder = checkouts / "ads"
    roots = [str(path) for path in sorted(folder.glob("*/*/src"))]

    def run(service, name):
        done = warm.run(
            [sys.executable, "-c", RUN_SERVICE, f"{service}.train", data.as_uri(), name,
             HARNESS if HAS_PETASTORM else "", *roots],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        # Petastorm sometimes aborts after its last row: how many came counts.
        return int(done.stdout or 0), done.stderr

    if not HAS_PETASTORM:
        follow(README, "petastorm-bridge codemod . --to bridge --write", folder)
    for service in ("rank", "price"):
        for attempt in range(5):  # Petastorm sometimes aborts before it
            found, said = run(service, f"golden-{service}-{attempt}")
            if found == ROWS:
                break
        assert found == ROWS, said
        (tmp_path / f"golden-{service}-{attempt}").rename(tmp_path / f"golden-{service}")
    follow(README, "petastorm-bridge codemod . --to bridge --write", folder)
    follow(README, "petastorm-bridge codemod . --to bridge --check", folder)
    changed = bridge("git diff --name-only", folder).split()
    assert set(changed) == {
        "libs/common/src/common/readers.py",
        "services/price/pyproject.toml",
        "services/price/src/price/train.py",
        "services/rank/requirements.txt",
    }
    for service in ("rank", "price"):
        found, said = run(service, f"new-{service}")
        assert found == ROWS, said
        order = "exact" if service == "price" else "shuffled"
        # Petastorm's columns come in an order of their own.
        rules = parity.Rules(order=order, allow=["table-order"])
        parity.assert_same_batches(
            tmp_path / f"golden-{service}", tmp_path / f"new-{service}", rules
        )


KERAS = """
import keras
from petastorm.spark import SparkDatasetConverter, make_spark_converter

spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, CACHE)
converter = make_spark_converter(spark.read.parquet(EVENTS).select("id", "x", "label"))

keras.utils.set_random_seed(7)
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")


def pairs(dataset):
    return dataset.map(lambda batch: (batch.x[:, None], batch.label))


with converter.make_tf_dataset(batch_size=23, shuffle_row_groups=False) as dataset:
    history = model.fit(pairs(dataset), steps_per_epoch=10, epochs=2, shuffle=False, verbose=0)

with converter.make_tf_dataset(batch_size=32, num_epochs=1) as dataset:
    seen = [batch._asdict() for batch in dataset]
converter.delete()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_keras_user(spark, cache_dir, tmp_path):
    """The same losses, step by step, and the same rows; the requirement follows."""
    events = tmp_path / "events"
    events.mkdir()
    pq.write_table(table(3), events / "part.parquet")
    (tmp_path / "repository").mkdir()
    files = {"train.py": KERAS, "requirements.txt": "keras\npetastorm\ntensorflow\n"}
    folder = repository(tmp_path / "repository", files)

    def run(text):
        names = {"spark": spark, "CACHE": cache_dir.as_uri(), "EVENTS": events.as_uri()}
        exec(compile(text, "train.py", "exec"), names)
        return names["history"].history["loss"], rows(names["seen"])

    with original():
        losses, before = run(as_it_was((folder / "train.py").read_text()))
    assert len(before) == ROWS
    follow(README, "petastorm-bridge doctor", folder, said="make_tf_dataset")
    follow(README, "petastorm-bridge codemod . --to bridge --write", folder)
    new_losses, after = run((folder / "train.py").read_text())
    assert after == before
    assert new_losses == pytest.approx(losses, rel=1e-6)
    required = (folder / "requirements.txt").read_text()
    assert required == f"keras\npetastorm-bridge=={__version__}\ntensorflow\n"
    assert follow(README, "git diff", folder).count("\n+") < 8


OWN_FORMAT = {
    "schema.py": """
        import numpy as np
        from petastorm.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
        from petastorm.unischema import Unischema, UnischemaField
        from pyspark.sql.types import IntegerType

        Faces = Unischema(
            "Faces",
            [
                UnischemaField("id", np.int32, (), ScalarCodec(IntegerType()), False),
                UnischemaField("face", np.uint8, (6, 5, 3), CompressedImageCodec("png"), False),
                UnischemaField("marks", np.float32, (None, 2), NdarrayCodec(), False),
            ],
        )
    """,
    "write.py": """
        import numpy as np
        from petastorm.etl.dataset_metadata import materialize_dataset
        from petastorm.unischema import dict_to_spark_row
        from schema import Faces

        def write(spark, url, faces):
            with materialize_dataset(spark, url, Faces, 1):
                found = [dict_to_spark_row(Faces, face) for face in faces]
                frame = spark.createDataFrame(found, Faces.as_spark_schema())
                frame.coalesce(1).write.mode("overwrite").parquet(url)
    """,
    "read.py": """
        from petastorm import make_reader

        def read(url):
            with make_reader(url, num_epochs=1, workers_count=1) as reader:
                return [row._asdict() for row in reader]
    """,
}


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:unclosed file .*mds.zstd:ResourceWarning")  # streaming's
@pytest.mark.filterwarnings(
    "ignore:Exception ignored.*mds.zstd:pytest.PytestUnraisableExceptionWarning"
)
def test_a_team_with_datasets_in_petastorms_format(spark, tmp_path):
    """Writer and readers move on different days; then the dataset is converted, and streaming reads it."""
    streaming = pytest.importorskip("streaming", reason="needs the extra [streaming]")
    random = np.random.default_rng(4)
    faces = [
        {
            "id": np.int32(number),
            "face": random.integers(0, 256, (6, 5, 3), np.uint8),
            "marks": random.normal(size=(number % 4 + 1, 2)).astype(np.float32),
        }
        for number in range(60)
    ]
    (tmp_path / "repository").mkdir()
    folder = repository(tmp_path / "repository", OWN_FORMAT)
    url = (tmp_path / "faces").as_uri()

    def program(*names):
        """The functions of the programs as they are now, each run in a module of its own."""
        for name in ("schema", *names):
            sys.modules.pop(name, None)
        sys.path.insert(0, str(folder))
        try:
            return [getattr(importlib.import_module(name), name) for name in names]
        finally:
            sys.path.remove(str(folder))
            for name in ("schema", *names):
                sys.modules.pop(name, None)

    def judge(found):
        assert sorted(int(row["id"]) for row in found) == list(range(60))
        for row in found:
            wanted = faces[int(row["id"])]
            assert all(np.array_equal(row[name], wanted[name]) for name in ("face", "marks"))

    move = "petastorm-bridge codemod . --to bridge --write"
    if not HAS_PETASTORM:
        follow(README, move, folder)
    write, read = program("write", "read")
    write(spark, url, faces)
    with original():
        judge(read(url))
    follow(README, move, folder)
    new_write, new_read = program("write", "read")
    assert "petastorm_bridge" in (folder / "write.py").read_text()
    judge(new_read(url))  # what the old job wrote
    new_write(spark, url, faces)
    with original():
        judge(read(url))  # who has not moved yet reads what the new job writes

    convert = named(GUIDE("petastorm-datasets"))["convert"].splitlines()[0].removeprefix("$ ")
    convert = convert.replace("file:///tmp/digits ", f"{url} ")
    printed = bridge(convert.replace("/tmp/digits-mds", f"{tmp_path}/mds"), tmp_path)
    assert "60 rows in 1 shard" in printed
    dataset = streaming.StreamingDataset(local=f"{tmp_path}/mds", shuffle=False, batch_size=8)
    judge([{**sample, "face": np.asarray(sample["face"])} for sample in dataset])
