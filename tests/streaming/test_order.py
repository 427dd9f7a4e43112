"""The same samples in the same batches as stock streaming, for any arguments."""

import functools
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streaming import Stream
from streaming_oracle import columnar_loader, ids, mapped_loader, stock_loader, write_shards

pytestmark = [
    pytest.mark.modern,
    # Stock streaming's advice on small datasets, the same from both.
    pytest.mark.filterwarnings("ignore:predownload < batch_size:UserWarning"),
    pytest.mark.filterwarnings("ignore:Trying to partition:UserWarning"),
    pytest.mark.filterwarnings("ignore:Attempting to partition:UserWarning"),
    pytest.mark.filterwarnings("ignore:Shuffle block size was smaller:UserWarning"),
    pytest.mark.filterwarnings("ignore:Because of the `stratified` batching:UserWarning"),
]

ALGORITHMS = ["py1e", "py1s", "py1br", "py2s", "naive"]
REPEATABLE = functools.partial(
    settings,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def layouts(draw):
    """Shard sizes of each stream."""
    shards = st.lists(st.integers(1, 30), min_size=1, max_size=5)
    return draw(st.lists(shards, min_size=1, max_size=3))


@st.composite
def weights(draw, streams):
    """How much of each stream an epoch has."""
    kind = draw(st.sampled_from(["all", "all", "proportion", "repeat", "choose"]))
    if kind == "all":
        return [{}] * streams
    values = {
        "proportion": st.sampled_from([0.5, 1.0, 3.0]),
        "repeat": st.sampled_from([0.5, 1.0, 2.0, 2.7]),
        "choose": st.integers(1, 60),
    }
    return [{kind: draw(values[kind])} for _ in range(streams)]


@st.composite
def worlds(draw):
    """Nodes, ranks of a node, and which rank it is."""
    nodes, ranks = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (4, 2)]))
    return nodes, ranks, draw(st.integers(0, nodes * ranks - 1))


@st.composite
def arguments(draw, streams):
    """Arguments of a dataset other than where its data are."""
    shuffle = draw(st.booleans())
    chosen = {
        "batch_size": draw(st.integers(1, 12)),
        "shuffle": shuffle,
        "shuffle_seed": draw(st.integers(0, 1000)),
        "predownload": draw(st.sampled_from([None, 1, 7, 1000])),
        "sampling_method": draw(st.sampled_from(["balanced", "fixed"])),
        "sampling_granularity": draw(st.sampled_from([1, 4])),
        "partition_algo": draw(st.sampled_from(["relaxed", "orig"])),
        "num_canonical_nodes": draw(st.sampled_from([None, 1, 2, 4, 8])),
    }
    if shuffle:
        chosen["shuffle_algo"] = draw(st.sampled_from(ALGORITHMS))
        chosen["shuffle_block_size"] = draw(st.sampled_from([None, 8, 64]))
    if streams > 1:
        methods = ["random", "random", "stratified", "per_stream", "device_per_stream"]
        chosen["batching_method"] = draw(st.sampled_from(methods))
    return chosen


@st.composite
def scenarios(draw):
    sizes = draw(layouts())
    weighed = draw(weights(len(sizes)))
    chosen = draw(arguments(len(sizes)))
    if weighed[0].keys() <= {"proportion"}:
        chosen["epoch_size"] = draw(st.sampled_from([None, 17, 150]))
    return sizes, weighed, chosen, draw(worlds()), draw(st.booleans())


@functools.lru_cache(maxsize=1)
def root():
    folder = tempfile.mkdtemp(prefix="streaming-order-")
    return Path(folder)


@pytest.fixture(scope="module", autouse=True)
def clean_up():
    yield
    shutil.rmtree(root(), ignore_errors=True)
    root.cache_clear()


@functools.cache
def stream_directory(position, sizes):
    """A stream of the given shards; its ids tell which stream it is."""
    path = root() / f"{position}-{'-'.join(map(str, sizes))}"
    write_shards(path, sizes, {"id": "int64"}, first=position * 10_000)
    return str(path)


def place(sizes, weighed):
    """Streams for one dataset; each dataset needs its own."""
    return [
        Stream(local=stream_directory(i, tuple(shards)), **weight)
        for i, (shards, weight) in enumerate(zip(sizes, weighed, strict=True))
    ]


def outcome(make, sizes, weighed, chosen, world, drop_last, resume=None):
    """Two epochs of batches, or the error."""
    try:
        given = {**chosen, "streams": place(sizes, weighed)}
        loader = make(given, world, drop_last=drop_last)
        if resume is not None:
            loader.load_state_dict(resume)
        return [ids(loader), ids(loader)]
    except (ValueError, RuntimeError, ZeroDivisionError, IndexError) as error:
        return type(error), str(error)


@pytest.mark.slow
@REPEATABLE(max_examples=70)
@given(scenarios())
def test_any_arguments(scenario):
    """Two epochs are the same, batch by batch; where stock refuses, so does this, with its words."""
    expected = outcome(stock_loader, *scenario)
    assert outcome(columnar_loader, *scenario) == expected
    assert outcome(mapped_loader, *scenario) == expected


@pytest.mark.slow
@REPEATABLE(max_examples=30)
@given(scenarios(), st.data())
def test_resumption_anywhere(scenario, data):
    """A state from one world goes on in another, from any sample, as with stock."""
    sizes, weighed, chosen, _, drop_last = scenario
    total = sum(map(sum, sizes))
    state = {
        "epoch": data.draw(st.integers(0, 2)),
        "sample_in_epoch": data.draw(st.integers(0, total)),
        "num_canonical_nodes": chosen["num_canonical_nodes"] or 2,
        "shuffle_seed": data.draw(st.integers(0, 99)),
        "initial_physical_nodes": data.draw(st.sampled_from([1, 2, None])),
    }
    world = data.draw(worlds())
    expected = outcome(stock_loader, sizes, weighed, chosen, world, drop_last, state)
    for make in (columnar_loader, mapped_loader):
        assert outcome(make, sizes, weighed, chosen, world, drop_last, state) == expected
