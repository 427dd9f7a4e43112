"""``petastorm-bridge doctor``: what it says of repositories and of the environment."""

import json
import pathlib
import shlex
import shutil
from importlib import metadata

import pytest
from typer.testing import CliRunner

from petastorm_bridge.cli import app

pytestmark = pytest.mark.modern

REPOSITORIES = pathlib.Path(__file__).parent / "repositories_hard"
CONVERTER = """from petastorm.spark import SparkDatasetConverter, make_spark_converter

spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, "file:///dbfs/tmp/cache")
converter = make_spark_converter(df)
with converter.make_torch_dataloader(batch_size=8, num_epochs=1) as loader:
    train(loader)
"""
MOVED = CONVERTER.replace("petastorm.", "petastorm_bridge.")


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *given: CliRunner().invoke(app, list(given))


@pytest.fixture
def report(call, tmp_path):
    """What is found in a directory of the files that are given, which stays as it is."""

    def look(**files):
        for name, text in files.items():
            (tmp_path / name.replace("_dot_", ".")).write_text(text)
        before = snapshot(tmp_path)
        answer = call("doctor", "--json")
        assert answer.exit_code in {0, 1}, answer.output
        assert snapshot(tmp_path) == before
        return json.loads(answer.stdout)

    return look


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("files", "way"),
    [
        ({"a_dot_py": "x = 1\n"}, "none"),
        ({"a_dot_py": CONVERTER}, "bridge"),
        ({"a_dot_py": MOVED}, "streaming"),
        ({"a_dot_py": CONVERTER + "open_in_graph(converter.make_tf_dataset)\n"}, "bridge"),
        ({"a_dot_py": "from petastorm import make_batch_reader\nmake_batch_reader(u)\n"}, "bridge"),
        ({"a_dot_py": "from petastorm import make_reader\nmake_reader(u)\n"}, "bridge"),
        ({"a_dot_py": "from petastorm.workers_pool import thread_pool\nthread_pool\n"}, "stays"),
        ({"a_dot_py": "from petastorm import make_reader\nmake_reader(u\n"}, "stays"),
    ],
)
def test_which_way_fits(report, call, files, way):
    found = report(**files)
    assert found["advice"]["way"] == way, found
    command = shlex.split(found["advice"]["command"])
    if way == "none":
        assert not command
    else:
        assert command[0] == "petastorm-bridge"
        assert call(*command[1:]).exit_code == 1  # something is found, and no option is wrong


@pytest.mark.parametrize("name", ["databricks_course", "image_service", "legacy_reader"])
def test_counts_are_those_of_the_codemod(report, call, tmp_path, name):
    for path in (REPOSITORIES / name).iterdir():
        shutil.copy(path, tmp_path / path.name.removesuffix(".txt"))
    found = report()["repository"]
    for way in ("bridge", "streaming"):
        counts = json.loads(call("codemod", "--to", way, "--report", "json").stdout)["counts"]
        assert found[way]["rewritten"] == counts["sites rewritten"]
        assert found[way]["left"] == counts["sites left"]
        assert sum(kind["places"] for kind in found[way]["kinds"]) == (
            counts["sites rewritten"] + counts["sites left"]
        )


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ('"file:///dbfs/tmp/cache"', "far"),
        ("'/Volumes/main/default/cache'", "far"),
        ('\n    "dbfs:/tmp/cache"', "far"),
        ("'s3://bucket/cache'", "far"),
        ('f"abfss://{container}@lake/cache"', "far"),
        ('"file:///tmp/cache"', "near"),
        ("'/local_disk0/cache'", "near"),
        ("CACHE_URL", ""),
    ],
)
def test_the_kind_of_the_cache_directory(report, value, kind):
    code = CONVERTER.replace('"file:///dbfs/tmp/cache"', value)
    (found,) = report(a_dot_py=code)["repository"]["cache"]
    assert found[2] == kind


def test_the_support_module_sets_no_cache_directory(report, call):
    assert report(a_dot_py=CONVERTER)["repository"]["cache"]
    call("codemod", "--to", "streaming", "--vendor", "--write")
    assert not report()["repository"]["cache"]


def test_what_stops_it_and_where_the_cache_is(report, call):
    pins = "petastorm==0.12.1\npyarrow==10.0.1\n"
    found = report(a_dot_py=CONVERTER, requirements_dot_txt=pins, b_dot_py="petastorm = = 1\n")
    obstacles = dict(found["repository"]["streaming"]["obstacles"])
    assert "pyarrow==10.0.1 contradicts" in obstacles["requirements.txt:2"]
    assert "b.py" in obstacles
    ((place, line, kind),) = found["repository"]["cache"]
    assert (place, "file:///dbfs/tmp/cache" in line, kind) == ("a.py:3", True, "far")
    shown = call("doctor").stdout
    assert len(shown.splitlines()) < 40
    assert "  requirements.txt:2  pyarrow==10.0.1 contradicts" in shown
    assert "  cache directory: a.py:3 (far)  " in shown
    assert "  far: each read there is a request" in shown
    assert "\nFirst the bridge: only imports change, and the batches stay the same" in shown
    assert "torch-loader     1 place (PM102)" in shown
    assert shown.endswith(f"Next: {found['advice']['command']}\n")


def test_a_place_that_is_in_the_way_of_both_ways_is_named_once(call, tmp_path):
    (tmp_path / "a.py").write_text(CONVERTER)
    (tmp_path / "Pipfile").write_text('[packages]\npetastorm = "*"\n')
    printed = call("doctor", ".").stdout
    assert printed.count("Pipfile:2") == 1


def test_the_environment_is_that_of_the_metadata(report):
    found = report()["environment"]
    assert found["version"] == metadata.version("petastorm-bridge")
    extras = {extra["name"]: extra for extra in found["extras"]}
    assert {"spark", "streaming", "tensorflow"} <= set(extras)
    assert f"torch {metadata.version('torch')}" in extras["streaming"]["present"]
    assert not extras["streaming"]["missing"]


def test_a_petastorm_that_cannot_be_imported_is_told_with_its_reason(report, tmp_path, monkeypatch):
    there = tmp_path / "site"
    (there / "petastorm").mkdir(parents=True)
    (there / "petastorm/__init__.py").write_text("import pyarrow.no_such_module\n")
    (there / "petastorm-9.9.dist-info").mkdir()
    text = "Metadata-Version: 2.1\nName: petastorm\nVersion: 9.9\n"
    (there / "petastorm-9.9.dist-info/METADATA").write_text(text)
    monkeypatch.syspath_prepend(there)
    monkeypatch.setenv("PYTHONPATH", str(there))
    found = report()["environment"]
    assert found["petastorm"] == "9.9"
    assert found["petastorm_problem"] == (
        "cannot be imported: ModuleNotFoundError: No module named 'pyarrow.no_such_module'"
    )


def test_what_is_not_there_is_said(report, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert report()["environment"]["java"].endswith("bin/java does not run")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert report()["environment"]["java"] == ""


def test_no_token_is_printed(report, call, monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://me:word@host.example:443/;token=dapi123;user_id=me")
    assert report()["environment"]["spark_remote"] == "sc://host.example:443"
    shown = call("doctor").stdout
    assert "SPARK_REMOTE sc://host.example:443\n" in shown
    assert "dapi123" not in shown


def test_a_path_that_does_not_exist(call):
    answer = call("doctor", "nowhere")
    assert (answer.exit_code, "no such file or directory: nowhere" in answer.output) == (2, True)


def test_each_file_is_read_once(report, monkeypatch):
    """By both ways, and by what else is asked of it."""
    from petastorm_codemods._project import files

    read, found = files._read, []
    monkeypatch.setattr(files, "_read", lambda path: found.append(path) or read(path))
    report(
        a_dot_py=CONVERTER, b_dot_py="converter.make_tf_dataset()\n", requirements_dot_txt="six\n"
    )
    assert sorted(found) == sorted(set(found))
    assert len(found) == 3


TF = "with converter.make_tf_dataset(batch_size=8) as dataset:\n    fit(dataset)\n"


@pytest.mark.parametrize(
    ("decided", "code", "way"),
    [
        ("bridge", CONVERTER, "bridge"),
        ("bridge", MOVED + TF, "none"),
        ("streaming", CONVERTER, "streaming"),
        ("streaming", MOVED + TF, "streaming"),
    ],
)
def test_what_the_repository_has_decided_is_followed(report, call, tmp_path, decided, code, way):
    """The next command then does not say it again; where it is all done, CI is content."""
    (tmp_path / "pyproject.toml").write_text(f'[tool.petastorm-bridge]\nto = "{decided}"\n')
    advice = report(a_dot_py=code)["advice"]
    assert advice["way"] == way
    assert "--to" not in advice["command"]
    assert call("codemod", "--check").exit_code == (0 if way == "none" else 1)
    if way != "none":
        answer = call(*shlex.split(advice["command"])[1:], "--write")
        assert answer.exit_code == 0, answer.output
        assert ("StreamingDataLoader(" in (tmp_path / "a.py").read_text()) == (way == "streaming")


def test_what_the_repository_ignores_is_not_in_the_way(call, tmp_path):
    table = '[tool.petastorm-bridge]\nto = "bridge"\nignore = ["PM003", "PM010"]\n'
    (tmp_path / "pyproject.toml").write_text(table)
    (tmp_path / "requirements.txt").write_text("petastorm\npyarrow<10\n")
    (tmp_path / "a.py").write_text("from petastorm_bridge import TransformSpec\nTransformSpec\n")
    assert call("codemod", "--check").exit_code == 0
    answer = call("doctor")
    assert (answer.exit_code, "pyarrow<10" in answer.stdout) == (0, False)


def test_what_stays_is_located_and_blocks_if_it_is_all(call, tmp_path):
    stays = "from petastorm.workers_pool import thread_pool\nthread_pool\n"
    (tmp_path / "b.py").write_text(stays)
    blocked = call("doctor")
    assert blocked.exit_code == 1
    assert "Stays on Petastorm\n  b.py:1  " in blocked.stdout
    (tmp_path / "a.py").write_text(CONVERTER)
    assert call("doctor").exit_code == 0


def test_a_conflict_is_told_once_blocks_and_names_what_brings_it(call, tmp_path):
    (tmp_path / "a.py").write_text(CONVERTER)
    (tmp_path / "requirements.txt").write_text("petastorm\npyspark==2.4.0\n")
    answer = call("doctor")
    assert answer.exit_code == 1
    (line,) = [line for line in answer.stdout.splitlines() if "contradicts" in line]
    assert "requirements.txt:2  pyspark==2.4.0 contradicts petastorm-bridge[spark]" in line
