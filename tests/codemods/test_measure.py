"""The command that measures what the codemod makes of repositories, on those that the project has."""

import pathlib
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.modern

HERE = pathlib.Path(__file__).parent
TOOL = HERE.parents[1] / "tools" / "measure_codemod.py"


def measure(*arguments):
    done = subprocess.run(
        [sys.executable, str(TOOL), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def samples(folder, *names):
    for name in names:
        for path in (HERE / "repositories_hard" / name).rglob("*.txt"):
            place = folder / path.relative_to(HERE / "repositories_hard").with_suffix("")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    return folder


@pytest.mark.slow
def test_samples_have_no_faults(tmp_path):
    names = sorted(path.name for path in (HERE / "repositories_hard").iterdir())
    before = {path: path.read_bytes() for path in samples(tmp_path / "in", *names).rglob("*.*")}
    code, text = measure(tmp_path / "in", "--diffs", tmp_path / "diffs")
    assert "FAULT" not in text
    assert text.count(f": {len(names)} repositories") == len(
        ("bridge", "streaming", "fast", "vendored")
    )
    # The samples have more than their share of what is no streaming, to be marked.
    assert "rewritten or marked: 95.7%" in text
    assert code == 1
    assert {path: path.read_bytes() for path in before} == before
    written = tmp_path / "diffs" / "hyperopt_demo.streaming.diff"
    assert "+from streaming import StreamingDataLoader, StreamingDataset" in written.read_text()


def test_what_is_rewritten_as_it_should_be_ends_with_0(tmp_path):
    text = "from petastorm.spark import make_spark_converter\nconv = make_spark_converter(df)\n"
    text += "with conv.make_torch_dataloader(num_epochs=1) as loader:\n    fit(loader)\n"
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "train.py").write_text(text)
    code, said = measure(tmp_path)
    assert code == 0, said
    assert "calls: 1: 1 native\n  rewritten or marked: 100.0%" in said


@pytest.mark.parametrize(
    ("imported", "fate"), [("import horovod.torch", "Horovod's ranks"), ("", "marked")]
)
def test_ranks_that_another_file_gives_are_horovods_where_it_is_imported(tmp_path, imported, fate):
    text = "from petastorm.spark import make_spark_converter\nconv = make_spark_converter(df)\n"
    text += "def train(rank, size):\n"
    text += "    with conv.make_torch_dataloader(cur_shard=rank, shard_count=size) as loader:\n"
    (tmp_path / "train.py").write_text(f"{text}        fit(loader)\n")
    (tmp_path / "main.py").write_text(f"{imported}\nfrom train import train\nrun(train, shard())\n")
    assert f"calls: 1: 1 {fate}\n" in measure(tmp_path)[1]


def test_stubs_of_tests_are_no_calls_that_nobody_is_told_of(tmp_path):
    text = "from petastorm.spark import make_spark_converter\nconv = make_spark_converter(df)\n"
    text += "with conv.make_torch_dataloader(num_epochs=1) as loader:\n    fit(loader)\n"
    test = "conv = Mock()\nconv.make_torch_dataloader.return_value = []\n"
    (tmp_path / "one" / "tests").mkdir(parents=True)
    (tmp_path / "one" / "train.py").write_text(text)
    (tmp_path / "one" / "tests" / "test_train.py").write_text(test)
    code, said = measure(tmp_path)
    assert code == 0, said
    assert "silent" not in said
