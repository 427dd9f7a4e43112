"""Trials with accelerate, transformers and killed processes, each in programs of its own."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import warm

pytestmark = [pytest.mark.slow, pytest.mark.modern]

needs_accelerate = pytest.mark.skipif(
    find_spec("accelerate") is None, reason="accelerate is in requirements/modern"
)


@pytest.fixture
def temporary():
    """A directory for temporary files with a short name.

    The workers of torch's ``DataLoader`` hand batches over through sockets in it, and the path of a socket ends
    at 108 characters. Where it is longer, the thread that sends fails, the batch is lost and torch waits for ever.
    """
    with tempfile.TemporaryDirectory(prefix="bridge-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def start(tmp_path, temporary):
    """``start(program, *arguments, ranks=2)`` → a process, ended with all it started when the test ends."""
    started = []

    def start(program, *arguments, ranks=None):
        script = tmp_path / "program.py"
        script.write_text(textwrap.dedent(program))
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        # streaming has imported transformers without torch in the Python that forks.
        python = sys.executable if "transformers" in program else warm.python()
        process = subprocess.Popen(
            [python, *(launcher if ranks else []), str(script), *arguments],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "OMP_NUM_THREADS": "1",
                "USE_TF": "0",  # transformers knows an older Keras
                "USE_TORCH": "1",  # of transformers, which other tests do without
                "TMPDIR": str(temporary),
                "PYTHON_EXEC": python,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
    for left in processes_in(tmp_path):  # ranks of torchrun lead process groups of their own
        left.kill()
    for process in started:
        process.communicate()


@pytest.fixture
def run(start, tmp_path):
    """As ``start``, to the end → what the program wrote as ``<name>.json``, by name."""

    def run(program, *arguments, ranks=None):
        process = start(program, *arguments, ranks=ranks)
        printed, errors = process.communicate(timeout=400)
        assert process.returncode == 0, printed + errors[-5000:]
        return {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}

    return run


ACCELERATE = """
    import json, sys
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration
    from petastorm_bridge.pytorch import BatchedIterableDataset
    from torch.utils.data import DataLoader

    accelerator = Accelerator(cpu=True)

    def take(seen, name, loader):
        try:
            lists = [batch["id"].tolist() for batch in loader]
            seen[name] = [len(loader), sum(lists, [])]
        except ValueError as error:
            seen[name] = str(error)
        accelerator.wait_for_everyone()

    def trial(url):
        # What of a dataset's rows this rank is given, by the way of reading; workers take their time.
        seen, is_first = {}, url == sys.argv[1]

        def dataset(size=8, **options):
            return BatchedIterableDataset(url, size, **options)

        for workers in (0, 2, 3) if is_first else (0,):
            data = dataset(shard_by_rank=False)
            loader = DataLoader(data, batch_size=None, num_workers=workers)
            take(seen, f"dispatched {workers}", accelerator.prepare(loader))
        take(seen, "not prepared", DataLoader(dataset(), batch_size=None))
        for name, options in {"seeded": {"seed": 3}, "unseeded": {}}.items():
            accelerator.dataloader_config = DataLoaderConfiguration(dispatch_batches=False)
            data = dataset(None, shard_by_rank=False, shuffle_rows=True, **options)
            take(seen, f"in turns, {name}", accelerator.prepare(DataLoader(data, batch_size=8)))
        for workers in (2, 3) if is_first else ():
            data = dataset(None, shard_by_rank=False, shuffle_rows=True, seed=3)
            loader = DataLoader(data, batch_size=8, num_workers=workers)
            take(seen, f"in turns, {workers} workers", accelerator.prepare(loader))
        data = dataset(None, seed=3)
        take(seen, "twice divided", accelerator.prepare(DataLoader(data, batch_size=8)))
        accelerator.dataloader_config = DataLoaderConfiguration()
        if rank == 0 and is_first:  # the others wait for what it reads
            from accelerate.data_loader import DataLoaderDispatcher
            loader = accelerator.prepare(DataLoader(dataset(), batch_size=None, num_workers=2))
            loader.begin()
            take_from = iter(loader.base_dataloader)
            try:
                next(take_from)
            except ValueError as error:
                seen["twice dispatched"] = str(error)
            loader.end()
        return seen

    rank = accelerator.process_index
    json.dump([trial(url) for url in sys.argv[1:]], open(f"{rank}.json", "w"))
    accelerator.wait_for_everyone()
    accelerator.end_training()
"""


@needs_accelerate
def test_accelerate_divides_rows_once(run, numbered):
    """Whatever is prepared: all rows, or one sentence. Batches are filled up, or fewer than ranks."""
    sizes = {101: [60, 41], 157: [100, 57], 9: [5, 4], 3: [2, 1]}
    urls = [numbered(total, rows, str(total)) for total, rows in sizes.items()]
    firsts, seconds = run(ACCELERATE, *urls, ranks=2).values()
    shared = firsts[0] | seconds[0]  # only the rank that reads has a word to say
    assert "Pass shard_by_rank=False" in shared["twice dispatched"]
    assert {"dispatched 2", "dispatched 3", "in turns, 2 workers", "in turns, 3 workers"} <= {
        *shared
    }
    for total, first, second in zip(sizes, firsts, seconds, strict=True):
        _check_division(total, first, second)


def _check_division(total, first, second):
    each = -(-total // 2)
    steps = -(-each // 8)
    prepared = {name for name in first if name.startswith(("dispatched", "in turns"))}
    for name in {*prepared, "not prepared"} - {"in turns, unseeded"}:
        for length, rows in (first[name], second[name]):
            assert length == steps, (total, name)
            # accelerate fills up the last batch
            assert len(rows) in {each, 8 * steps}, (total, name)
        assert sorted({*first[name][1], *second[name][1]}) == list(range(total)), (total, name)
    for seen in (first, second):
        assert "pass seed=" in seen["in turns, unseeded"]
        assert "Pass shard_by_rank=False" in seen["twice divided"]


PREPARED = """
    import json, sys
    from urllib.parse import urlsplit
    from accelerate import Accelerator
    from petastorm_bridge import make_batch_reader
    from petastorm_bridge.native import Epochs
    from petastorm_bridge.pytorch import DataLoader
    from streaming import StreamingDataLoader, StreamingDataset

    accelerator = Accelerator(cpu=True)
    dataset = StreamingDataset(local=urlsplit(sys.argv[1]).path, batch_size=8)
    streaming = StreamingDataLoader(dataset, batch_size=8)
    with DataLoader(make_batch_reader(sys.argv[1]), batch_size=8) as ours:
        loaders = {"streaming": streaming, "epochs": Epochs(streaming), "bridge": ours}
        kept = {name: accelerator.prepare(loader) is loader for name, loader in loaders.items()}
    json.dump(kept, open("kept.json", "w"))
"""


@needs_accelerate
def test_accelerate_leaves_all_but_torch_loaders_alone(run, numbered):
    """So the codemod leaves a loader on the bridge that would become streaming's own and is prepared."""
    assert run(PREPARED, numbered(24, [24], "24")) == {
        "kept": {"streaming": False, "epochs": True, "bridge": True}
    }


TRANSFORMERS = """
    import json, sys, torch
    from petastorm_bridge.pytorch import BatchedIterableDataset
    from petastorm_bridge.spark import make_spark_converter
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), []

        def forward(self, id, x):
            self.seen.append(id.tolist())
            return {"loss": self.layer(x[:, None]).mean()}

    def train(trainer=Trainer, dataset=None, workers=0, **options):
        model = Model()
        arguments = TrainingArguments(
            "out", num_train_epochs=2, save_steps=9, per_device_train_batch_size=8, report_to=[],
            use_cpu=True, disable_tqdm=True, remove_unused_columns=False, logging_steps=100,
            accelerator_config={"dispatch_batches": None},
        )
        arguments.dataloader_num_workers = workers
        trainer(model=model, args=arguments, train_dataset=dataset).train(**options)
        return model.seen

    def trial(url):
        # The batches of two epochs, those after the checkpoint, and those of a loader.
        def dataset():
            return BatchedIterableDataset(url, batch_size=None, seed=3, shuffle_rows=True)

        seen = {"whole": train(dataset=dataset())}
        for workers in (2, 3):
            seen[f"{workers} workers"] = train(dataset=dataset(), workers=workers)
        seen["resumed"] = train(dataset=dataset(), resume_from_checkpoint="out/checkpoint-18")
        converter = make_spark_converter(url)
        with converter.make_torch_dataloader(batch_size=8, num_epochs=1) as loader:
            class Own(Trainer):
                def get_train_dataloader(self):
                    return loader
            seen["loader"] = train(Own, dataset=[0])
        return seen

    json.dump([trial(url) for url in sys.argv[1:]], open("seen.json", "w"))
"""


@pytest.mark.slow
@needs_accelerate
def test_transformers_trainer_resumes(run, numbered):
    """In the second epoch or in the first; and takes a loader as it is."""
    pytest.importorskip("transformers")
    sizes = {101: [60, 41], 157: [100, 57]}
    urls = [numbered(total, rows, str(total)) for total, rows in sizes.items()]
    (trials,) = run(TRANSFORMERS, *urls).values()
    for (total, seen), whole in zip(zip(sizes, trials, strict=True), (13, 20), strict=True):
        assert seen["resumed"] == seen["whole"][18:], total
        for workers in (2, 3):
            assert seen[f"{workers} workers"] == seen["whole"], total
        for name in ("whole", "loader"):
            steps = seen[name]
            assert len(steps) == 2 * whole
            for epoch in (steps[:whole], steps[whole:]):
                assert sorted(row for step in epoch for row in step) == list(range(total))
        assert seen["whole"][:whole] != seen["whole"][whole:]


KILLED = """
    import datetime, os, signal, sys, torch
    from petastorm_bridge import TransformSpec, make_batch_reader
    from petastorm_bridge.pytorch import BatchedIterableDataset, DataLoader
    from torch.nn.parallel import DistributedDataParallel

    def same(frame):
        return frame

    torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    rank = torch.distributed.get_rank()
    if sys.argv[2] == "processes":
        spec = TransformSpec(same)
        reader = make_batch_reader(
            sys.argv[1], num_epochs=None, shard_by_rank=True, transform_spec=spec,
            reader_pool_type="process", workers_count=2,
        )
        loader = DataLoader(reader, 4)
    else:
        data = BatchedIterableDataset(sys.argv[1], 1)
        loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2)
    for step, batch in enumerate(loader):
        model(batch["x"][:, None]).sum().backward()
        if step == 3:
            open(f"reached-{rank}", "w").close()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["processes", "workers"])
def test_a_killed_rank_leaves_nothing_and_nobody_waiting(
    start, numbered, tmp_path, temporary, kind
):
    """Torch ends the others; the worker processes of all of them end by themselves."""
    process = start(KILLED, numbered(101, [60, 41]), kind, ranks=3)
    _, errors = process.communicate(timeout=200)
    assert process.returncode != 0
    assert "SIGKILL" in errors, errors[-5000:]
    assert (tmp_path / "reached-1").exists()
    deadline = time.monotonic() + 30
    while (left := processes_in(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [process.cmdline() for process in left]
    files = {path.name for path in temporary.iterdir()}
    # Torch's own: logs of the launcher, caches, sockets of killed workers.
    assert not {name for name in files if not name.startswith(("torch", "pymp-"))}


def processes_in(directory):
    """The processes that work in a directory, as ``psutil.Process``."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(directory) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
