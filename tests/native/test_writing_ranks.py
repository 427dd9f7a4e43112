"""Several ranks that call the writer: the first one writes, and the others read that."""

import json
import os
import socket
import sys
from pathlib import Path

import pytest
import warm

pytestmark = [
    pytest.mark.modern,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]

SCRIPT = Path(__file__).parent / "run_writers.py"


@pytest.fixture(scope="module")
def said(native, tmp_path_factory):
    """What two ranks of torchrun printed, and the folder in which they wrote."""
    parent = tmp_path_factory.mktemp("written")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = warm.run(
        [sys.executable, *launcher, str(SCRIPT), native.__name__, str(parent)],
        capture_output=True,
        text=True,
        timeout=150,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(lines, key=lambda line: line["rank"]), parent


def test_all_have_what_the_first_wrote(said):
    (first, second), parent = said
    assert first["paths"] == second["paths"]
    assert len({*first["paths"]}) == 2
    assert first["lengths"] == second["lengths"] == [40, 10]
    assert first["kind"] == second["kind"]
    assert first["named"] == second["named"] == f"{parent}/named"
    assert sorted(first["ids"] + second["ids"]) == list(range(40))
    assert len(first["ids"]) == 20


def test_the_first_may_write_alone(said):
    (first, second), parent = said
    assert first["alone"] == f"{parent}/alone"
    assert "alone" not in second


def test_all_fail_where_the_first_fails(said):
    (first, second), _ = said
    assert first["failed"].startswith("UnsupportedColumnsError: ")
    assert second["failed"].startswith("RuntimeError: write_mds failed on the first rank: ")
    assert "text: of type string, with nulls" in second["failed"]


def test_another_table_is_an_error(said):
    (first, second), _ = said
    assert "other" not in first
    assert "rank 1 would write the columns ['id1'], and the first rank has" in second["other"]


def test_directories_go_with_the_last_rank(said):
    (_, second), parent = said
    assert all(second["files"])
    assert {path.name for path in parent.iterdir()} == {"alone", "named", "other"}


@pytest.mark.parametrize("rank", ["0", "1"])
def test_ranks_that_cannot_agree_write_nothing(native, spark, tmp_path, monkeypatch, rank):
    with socket.socket() as taken:  # nobody listens there
        taken.bind(("127.0.0.1", 0))
        for name, value in {
            "RANK": rank,
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(taken.getsockname()[1]),
        }.items():
            monkeypatch.setenv(name, value)
        support = sys.modules[native.UnsupportedColumnsError.__module__]
        monkeypatch.setattr(support, "_CONNECTION_SECONDS", 1)
        with pytest.raises(RuntimeError, match="cannot agree on one before") as caught:
            native.write_mds(spark.range(3), str(tmp_path / "mds"))
    assert "prepare_data" in str(caught.value)
    assert not (tmp_path / "mds").exists()


def test_a_variable_without_a_launcher(native, spark, tmp_path, monkeypatch):
    """Some clusters set the number of processes for everything that runs on them."""
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.delenv("RANK", raising=False)
    assert len(native.write_mds(spark.range(3), str(tmp_path / "mds"))) == 3
