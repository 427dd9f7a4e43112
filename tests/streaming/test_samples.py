"""Single samples without streaming's threads: what differs from the batches of the other dataset.

Orders are compared in test_order.py, values in test_values.py.
"""

import numpy as np
import pytest
from streaming import Stream, StreamingDataset
from streaming_oracle import RAGGED, ids, mapped_loader, stock_loader, write_shards

from petastorm_bridge.streaming import MappedStream, MappedStreamingDataset, _mapped_reader

pytestmark = [
    pytest.mark.modern,
    # Of the stock samples.
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning"),
    # Stock streaming opens files to check or expand them and leaves them to the collector.
    pytest.mark.filterwarnings(
        r"ignore:unclosed file <_io.BufferedReader name='.*shard:ResourceWarning"
    ),
    pytest.mark.filterwarnings(
        r"ignore:Exception ignored in. <_io.FileIO name='.*shard:pytest.PytestUnraisableExceptionWarning"
    ),
]

SIZES = [40, 7, 25, 33, 40, 40, 12, 28, 35, 40]


class Doubled(StreamingDataset):
    def __getitem__(self, at):
        return {"id": super().__getitem__(at)["id"] * 2}


def test_a_subclass_with_its_own_getitem(tmp_path):
    """As users of StreamingDataset write it."""
    write_shards(tmp_path, SIZES)

    class Mapped(MappedStreamingDataset):
        def __getitem__(self, at):
            return {"id": super().__getitem__(at)["id"] * 2}

    arguments = {"local": str(tmp_path), "batch_size": 7, "shuffle": True}
    stock, mapped = Doubled(**arguments), Mapped(**arguments)
    assert [sample["id"] for sample in mapped] == [sample["id"] for sample in stock]


def test_a_mapped_stream_in_a_dataset_of_streaming_itself(tmp_path):
    write_shards(tmp_path, SIZES, RAGGED)
    stock = StreamingDataset(local=str(tmp_path), batch_size=8)
    mapped = StreamingDataset(streams=[MappedStream(local=str(tmp_path))], batch_size=8)
    for one, other in zip(stock, mapped, strict=True):
        np.testing.assert_equal(other, one)


def test_streams_that_the_user_made(tmp_path):
    """Their shards are mapped, too."""
    sizes = {"a": [20, 30], "b": [25]}
    for number, (name, shards) in enumerate(sizes.items()):
        write_shards(tmp_path / name, shards, RAGGED, first=1000 * number)
    found = []
    for dataset in (StreamingDataset, MappedStreamingDataset):
        streams = [Stream(local=str(tmp_path / name), repeat=2) for name in sizes]
        made = dataset(streams=streams, batch_size=8, shuffle=True)
        found.append(list(made))
    for stock, mapped in zip(*found, strict=True):
        np.testing.assert_equal(mapped, stock)
    assert {type(shard).__name__ for shard in made.shards} == {"MappedReader"}


@pytest.mark.parametrize(
    "context",
    [pytest.param("fork", marks=pytest.mark.smoke), pytest.param("spawn", marks=pytest.mark.slow)],
)
def test_workers(tmp_path, context):
    write_shards(tmp_path, SIZES, RAGGED)
    arguments = {"local": str(tmp_path), "batch_size": 7, "shuffle": True}
    wanted = ids(stock_loader(arguments, num_workers=2))
    loader = mapped_loader(arguments, num_workers=2, multiprocessing_context=context)
    next(iter(loader.dataset))  # a dataset in use, too, travels
    loader.dataset.next_epoch = 0
    assert ids(loader) == wanted


def test_a_pass_that_is_left_ends_its_thread(tmp_path, no_leaks):
    remote = tmp_path / "remote"
    write_shards(remote, [10] * 20)
    arguments = {"remote": str(remote), "batch_size": 4, "predownload": 8}
    next(iter(MappedStreamingDataset(local=str(tmp_path / "first"), **arguments)))
    dataset = MappedStreamingDataset(local=str(tmp_path / "second"), **arguments)
    with no_leaks():
        samples = iter(dataset)
        next(samples)
        fetched = len(list((tmp_path / "second").glob("*.mds")))
        assert fetched <= 3  # 8 samples ahead
        samples.close()
        first, second = iter(dataset), iter(dataset)
        next(first)
        next(second)
        assert list(first) == []  # as with stock, only one pass at a time
        assert len(list(second)) == 199
        for shard in dataset.shards:
            shard.evict()  # lets go of the mapped files
        del samples, first, second


def test_shards_out_of_use_are_let_go(tmp_path, monkeypatch):
    """A pass in order over many shards holds some of them mapped, not all."""
    monkeypatch.setattr(_mapped_reader, "_SWEEP_BYTES", 1)  # of 1 GiB
    write_shards(tmp_path, [10] * 300)
    dataset = MappedStreamingDataset(local=str(tmp_path), batch_size=10)
    mapped = [len(dataset._mapped._readers) for _ in dataset]
    assert max(mapped) <= 128


def test_tiny_shards_are_mapped_once_in_a_shuffled_pass(tmp_path, monkeypatch):
    """Samples of thousands of shards come in turn then, and mapping costs more than reading one."""
    opened = []
    open_file = _mapped_reader.open_file
    monkeypatch.setattr(
        _mapped_reader, "open_file", lambda *arguments: opened.append(1) or open_file(*arguments)
    )
    write_shards(tmp_path, [3] * 600)
    dataset = MappedStreamingDataset(local=str(tmp_path), batch_size=10, shuffle=True)
    assert len(list(dataset)) == 1_800
    assert len(opened) == 600
