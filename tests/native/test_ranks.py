"""What people move to streaming for: its split over ranks, and going on in the middle of an epoch."""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
import shared_memory
import warm

pytestmark = [
    pytest.mark.modern,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]

SCRIPT = Path(__file__).parent / "run_rank.py"
ROWS = 45


@pytest.fixture(scope="module")
def directory(installed, spark, tmp_path_factory):
    frame = spark.range(ROWS, numPartitions=3).selectExpr("id", "id * 0.5F as half")
    return installed.write_mds(frame, str(tmp_path_factory.mktemp("ranks") / "mds"))


@pytest.fixture(scope="module")
def small_directory(installed, spark, tmp_path_factory):
    frame = spark.range(43, numPartitions=2)
    return installed.write_mds(frame, str(tmp_path_factory.mktemp("three") / "mds"))


def run(directory, state, batches=0, ranks=1, sizes=()):
    """Run the script; return the batches of each rank, or of each rank and size of batches."""
    command = [sys.executable, str(SCRIPT), directory.path, str(state), str(batches)]
    command += map(str, sizes)
    if ranks > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command[1:1] = launcher
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(2):
        done = warm.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=300
        )
        if not shared_memory.NAME_WAS_TAKEN.search(done.stderr):
            break
    assert done.returncode == 0, done.stderr[-3000:]
    found = {rank: [] for rank in range(ranks)}
    by_size = {(rank, size): [] for rank in range(ranks) for size in sizes}
    for line in done.stdout.splitlines():
        batch = json.loads(line)
        found[batch["rank"]].append(batch["ids"])
        by_size.setdefault((batch["rank"], batch["size"]), []).append(batch["ids"])
    return by_size if sizes else found


def ids(batches):
    return [i for batch in batches for i in batch]


@pytest.mark.smoke
def test_two_ranks_take_equal_steps_through_the_table(directory, tmp_path):
    found = run(directory, tmp_path / "none", ranks=2)
    assert len(found[0]) == len(found[1])
    assert [len(batch) for batch in found[0]] == [len(batch) for batch in found[1]]
    counts = Counter(ids(found[0]) + ids(found[1]))
    assert set(counts) == set(range(ROWS))
    # 45 rows for two ranks: streaming gives one of them twice.
    assert sum(counts.values()) == ROWS + 1


def test_three_ranks_take_equal_steps_whatever_the_size_of_the_batches(small_directory, tmp_path):
    """43 rows, which three ranks cannot share: two are read twice, and sizes around a share of 15 change nothing."""
    sizes = [1, 7, 14, 15, 16, 43]
    found = run(small_directory, tmp_path / "none", ranks=3, sizes=sizes)
    for size in sizes:
        ranks = [found[rank, size] for rank in range(3)]
        whole, rest = divmod(15, size)
        expected = [size] * whole + ([rest] if rest else [])
        assert [[len(batch) for batch in batches] for batches in ranks] == [expected] * 3, size
        counts = Counter(row for batches in ranks for row in ids(batches))
        assert set(counts) == set(range(43))
        assert counts.total() == 45


def test_a_fresh_process_goes_on_where_another_stopped(directory, tmp_path):
    state = tmp_path / "state.json"
    whole = ids(run(directory, tmp_path / "none")[0])
    assert sorted(whole) == list(range(ROWS))
    begun = ids(run(directory, state, batches=5)[0])
    assert json.loads(state.read_text())["sample_in_epoch"] == 20
    went_on = ids(run(directory, state)[0])
    assert begun + went_on == whole


def test_another_number_of_ranks_goes_on(directory, tmp_path):
    """Streaming's elastic determinism: what one rank began, two go on with."""
    state = tmp_path / "state.json"
    begun = ids(run(directory, state, batches=5)[0])
    went_on = run(directory, state, ranks=2)
    assert len(went_on[0]) == len(went_on[1])
    counts = Counter(begun + ids(went_on[0]) + ids(went_on[1]))
    assert set(counts) == set(range(ROWS))
    assert sum(counts.values()) == ROWS + 1


def test_another_loader_of_the_same_process_goes_on(directory, loader):
    one = loader(directory, shuffle=True)
    whole = [batch["id"].tolist() for batch in one]
    other = loader(directory, shuffle=True)
    batches = iter(other)
    begun = [next(batches)["id"].tolist() for _ in range(3)]
    third = loader(directory, shuffle=True)
    third.load_state_dict(other.state_dict())
    assert begun + [batch["id"].tolist() for batch in third] == whole
