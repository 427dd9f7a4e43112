"""What people move to streaming for, in code that the codemod wrote: its ranks, and resuming in mid-epoch."""

import json
import os
import pickle
import sys

import numpy as np
import pytest
import warm

from petastorm_bridge import parity
from petastorm_codemods._engine import process
from petastorm_codemods._meaning.other_files import Project
from petastorm_codemods._model import Success
from petastorm_codemods._settings import Settings

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.modern,
    pytest.mark.filterwarnings("ignore"),
]

# Written for Petastorm: what a launcher starts on each rank, and what a program does with a loader.
RANK = """\
import os
import pickle
import sys

from petastorm_bridge import parity

with open(sys.argv[1], "rb") as file:
    converter = pickle.load(file)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
with converter.make_torch_dataloader(batch_size=4, num_epochs=1, cur_shard=rank, shard_count=size) as loader:
    parity.record(loader, sys.argv[2])
"""
RAY = """\
import pickle
import sys

import ray
from petastorm_bridge import parity
from ray import train
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def work(config):
    context = train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    with config["converter"].make_torch_dataloader(
        batch_size=4, num_epochs=1, cur_shard=rank, shard_count=size
    ) as loader:
        parity.record(loader, config["out"])


with open(sys.argv[1], "rb") as file:
    converter = pickle.load(file)
ray.init(num_cpus=2, include_dashboard=False)
trainer = TorchTrainer(
    work,
    train_loop_config={"converter": converter, "out": sys.argv[2]},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=sys.argv[2] + ".ray"),
)
trainer.fit()
"""
TRAIN = """\
def train(converter, opened, step):
    with converter.make_torch_dataloader(batch_size=4, num_epochs=1, seed=7) as loader:
        opened(loader)
        for batch in loader:
            if step(loader, batch["id"].tolist()):
                return
"""


@pytest.fixture(scope="module")
def directory_of(spark, tmp_path_factory):
    """A function that writes so many rows, in three partitions, as rewritten code does."""
    native = pytest.importorskip("petastorm_bridge.native", reason="needs [streaming]")
    folder = tmp_path_factory.mktemp("written")
    return lambda rows: native.write_mds(
        spark.range(rows, numPartitions=3), out=str(folder / f"of_{rows}")
    )


def rewritten(text):
    """The code as it is native: streaming's own loader reads the rows."""
    outcome = process("train.py", text.encode(), Settings(project=Project(converters=True)))
    assert isinstance(outcome, Success), outcome
    after = outcome.after.decode()
    assert "from streaming import StreamingDataLoader, StreamingDataset\n" in after
    assert "make_torch_dataloader" not in after
    assert "cur_shard" not in after
    return after


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def run_ranks(folder, directory, text=RANK, launcher=TORCHRUN):
    """Run the rewritten program on two ranks; return where their batches are recorded."""
    pickled, script, out = folder / "converter.pickle", folder / "rank.py", folder / "recorded"
    pickled.write_bytes(pickle.dumps(directory))
    script.write_text(rewritten(text))
    done = warm.run(
        [sys.executable, *launcher, str(script), str(pickled), str(out)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def steps(recorded):
    """The number of batches of each rank."""
    manifests = sorted(recorded.rglob("manifest.json"))
    return [json.loads(path.read_text())["batches"] for path in manifests]


RULES = parity.Rules(order="shuffled", batches="any", shards="union")


def test_ranks_of_a_launcher_share_the_table(directory_of, tmp_path):
    recorded = run_ranks(tmp_path, directory_of(48))
    assert steps(recorded) == [6, 6]
    parity.assert_same_batches([{"id": np.arange(48)}], recorded, RULES)


def test_workers_of_ray_share_the_table(directory_of, tmp_path):
    pytest.importorskip("ray.train.torch", reason="its workers are the ranks")
    recorded = run_ranks(tmp_path, directory_of(40), RAY, [])
    assert steps(recorded) == [5, 5]
    parity.assert_same_batches([{"id": np.arange(40)}], recorded, RULES)


def test_what_streaming_pads_is_told(directory_of, tmp_path):
    """49 rows for two ranks: both take seven steps, for which one row comes twice."""
    recorded = run_ranks(tmp_path, directory_of(49))
    assert steps(recorded) == [7, 7]
    table = [{"id": np.arange(49)}]
    with pytest.raises(AssertionError, match="repeats 1 row, the padding"):
        parity.assert_same_batches(table, recorded, RULES)
    parity.assert_same_batches(table, recorded, RULES, allow=["streaming-padding"])


def test_a_stopped_epoch_is_resumed_by_the_loader_of_rewritten_code(directory_of):
    directory = directory_of(50)
    module: dict = {}
    exec(rewritten(TRAIN), module)

    whole: list = []
    module["train"](directory, lambda _: None, lambda _, ids: whole.append(ids))
    assert sorted(i for ids in whole for i in ids) == list(range(50))

    begun: list = []
    states: list = []

    def stop(loader, ids):
        begun.append(ids)
        states.append(loader.state_dict())
        return len(begun) == 5

    module["train"](directory, lambda _: None, stop)
    assert states[-1]["sample_in_epoch"] == 20
    state = json.loads(json.dumps(states[-1]))

    went_on: list = []
    module["train"](
        directory, lambda loader: loader.load_state_dict(state), lambda _, ids: went_on.append(ids)
    )
    assert begun + went_on == whole


def rows_of_two_machines(seeds):
    """The rows that streaming gives two machines, each of which shuffles by a seed of its own."""
    from streaming.base.partition import get_partitions
    from streaming.base.shuffle import get_shuffle

    places = get_partitions("relaxed", 64, 2, 2, 1, 1, 4)
    shards = np.full(16, 4)
    rows = [
        get_shuffle("py1e", shards, 2, seed, 0)[place[place >= 0]]
        for seed, place in zip(seeds, places, strict=True)
    ]
    return np.unique(np.concatenate(rows))


def test_why_a_seed_for_each_rank_stays_on_the_bridge():
    """Machines whose seeds differ divide different orders, and rows are read twice and never."""
    assert len(rows_of_two_machines((7, 7))) == 64
    assert len(rows_of_two_machines((7, 8))) < 64
