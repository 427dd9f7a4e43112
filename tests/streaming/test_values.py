"""Columns of every encoding, against stock streaming and torch's own collation."""

import decimal
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming_oracle import FIXED, RAGGED, columnar_loader, stock_loader, write_shards

from petastorm_bridge.errors import DatasetError, ShardCorruptedError
from petastorm_bridge.streaming import ColumnarStreamingDataset, MappedStreamingDataset
from petastorm_bridge.streaming._stock import with_names
from petastorm_bridge.streaming._values import joined

# Of the stock samples; ours are writable, which has its own test.
pytestmark = [
    pytest.mark.modern,
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning"),
]

NUMBERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"]
FLOATS = ["float16", "float32", "float64"]

# Encoding and value of a row, for what torch can collate.
COLLATED = {
    **{name: (name, np.dtype(name).type) for name in [*NUMBERS, *FLOATS]},
    "integer": ("int", lambda row: row - 5),
    "text": ("str", lambda row: "ä€😀"[: row % 4] * row),
    "raw": ("bytes", lambda row: bytes([row]) * (row % 3)),
    "digits": ("str_int", lambda row: (-1) ** row * 10**row),
    "decimals": ("str_float", lambda row: [1e-300, float(row) / 3, float("inf")][row % 3]),
    "fixed": ("ndarray:float32:2,3", lambda row: np.full((2, 3), row, np.float32)),
    "typed": ("ndarray:int16", lambda row: np.full((3, 1), row, np.int16)),
    "free": ("ndarray", lambda row: np.full(4, row, np.float64)),
    "json": ("json", lambda row: {"a": row, "b": [row, 0.5]}),
    "pickled": ("pkl", lambda row: (row, {"x": np.float32(row)})),
}
ROWS = 17


def write(directory, columns, rows=ROWS, per_shard=7, **options):
    encodings = {name: encoding for name, (encoding, _) in columns.items()}
    with MDSWriter(out=str(directory), columns=encodings, **options) as writer:
        for row in range(rows):
            writer.write({name: make(row) for name, (_, make) in columns.items()})
            if row % per_shard == per_shard - 1:
                writer.flush_shard()
                writer._reset_cache()


def same(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one.view(-1).nan_to_num(), other.view(-1).nan_to_num())
        assert one.shape == other.shape
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            same(one[name], other[name])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    else:
        assert one == other


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("names", [[*NUMBERS, *FLOATS, "integer", "fixed"], list(COLLATED)])
def test_torch_batches_are_those_of_the_stock_loader(tmp_path, names, shuffle):
    """Records of fixed width, and samples of variable width: types, shapes and values."""
    write(tmp_path, {name: COLLATED[name] for name in names})
    arguments = {
        "local": str(tmp_path), "batch_size": 5, "shuffle": shuffle, "allow_unsafe_types": True,
    }  # fmt: skip
    stock = list(stock_loader(arguments))
    ours = list(columnar_loader(arguments, format="torch"))
    assert len(stock) == len(ours) == 4
    same(ours, stock)


def test_unsigned_integers_of_64_bits(tmp_path):
    """Torch makes no tensor of a list of these, but one of an array."""
    write(tmp_path, {"x": ("uint64", lambda row: np.uint64(2**64 - 1 - row))})
    arguments = {"local": str(tmp_path), "batch_size": ROWS}
    with pytest.raises(TypeError):
        next(iter(stock_loader(arguments)))
    (batch,) = columnar_loader(arguments)
    assert batch["x"].dtype == torch.uint64
    assert batch["x"].tolist() == [2**64 - 1 - row for row in range(ROWS)]


def test_numpy_batches(tmp_path):
    write(tmp_path, COLLATED)
    dataset = ColumnarStreamingDataset(
        local=str(tmp_path), batch_size=10, allow_unsafe_types=True, columns=[*COLLATED]
    )
    samples = list(StreamingDataset(local=str(tmp_path), batch_size=10, allow_unsafe_types=True))
    batches = list(dataset)
    assert [len(batch["text"]) for batch in batches] == [10, 7]
    for name, (encoding, _) in COLLATED.items():
        stored = [sample[name] for sample in samples]
        found = [value for batch in batches for value in batch[name]]
        if encoding in ("str", "bytes", "json", "pkl"):
            assert type(batches[0][name]) is list
            assert found == stored
        else:
            assert batches[0][name].dtype == np.asarray(stored[0]).dtype
            assert batches[0][name].flags.writeable
            assert batches[0][name].flags.c_contiguous
            np.testing.assert_array_equal(found, stored)


def test_what_torch_cannot_collate_is_named(tmp_path):
    columns = {
        "id": ("int64", np.int64),
        "price": ("str_decimal", lambda row: decimal.Decimal(row) / 4),
        "picture": ("png", lambda row: Image.new("L", (2, 2), row)),
    }
    write(tmp_path, columns)
    arguments = {"local": str(tmp_path), "batch_size": 4}
    with pytest.raises(TypeError, match=r"'price' \(str_decimal\).*format='numpy'"):
        list(ColumnarStreamingDataset(**arguments, format="torch", columns=["price"]))
    batch = next(iter(ColumnarStreamingDataset(**arguments)))
    assert batch["price"] == [decimal.Decimal(row) / 4 for row in range(4)]
    assert [picture.getpixel((0, 0)) for picture in batch["picture"]] == [0, 1, 2, 3]


def test_arrays_of_differing_shape(tmp_path):
    columns = {"tokens": ("ndarray:int32", lambda row: np.arange(1 + row % 3, dtype=np.int32))}
    write(tmp_path, columns)
    arguments = {"local": str(tmp_path), "batch_size": 6, "shuffle": True}
    with pytest.raises(RuntimeError, match=r"stack expects each tensor to be equal size.*'tokens'"):
        list(ColumnarStreamingDataset(**arguments))
    stock = [sample["tokens"] for sample in StreamingDataset(**arguments)]
    for format_, kind in (("numpy", np.ndarray), ("torch", torch.Tensor)):
        dataset = ColumnarStreamingDataset(**arguments, ragged="list", format=format_)
        found = [value for batch in dataset for value in batch["tokens"]]
        assert [type(value) for value in found] == [kind] * ROWS
        assert [value.tolist() for value in found] == [value.tolist() for value in stock]


def test_the_common_type_of_many_arrays_is_found_once(tmp_path, monkeypatch):
    """Not once for each of them, which takes minutes for a batch of thousands."""
    asked, promote = [], torch.promote_types

    def counted(*types):
        asked.append(types)
        return promote(*types)

    monkeypatch.setattr(torch, "promote_types", counted)
    types = [np.float32, np.float64]
    write(tmp_path, {"a": ("ndarray", lambda row: np.full(2, row, types[row % 2]))}, 40, 40)
    (batch,) = ColumnarStreamingDataset(local=str(tmp_path), batch_size=40)
    assert batch["a"].dtype == np.float64
    assert batch["a"][:, 0].tolist() == list(range(40))
    assert len(asked) == 1
    assert (
        joined("a", [np.zeros(3, types[part % 2]) for part in range(40)], np.arange(120)).dtype
        == np.float64
    )
    assert len(asked) == 2


def test_lists_stay_lists_where_shapes_happen_to_agree(tmp_path):
    write(tmp_path, {"tokens": ("ndarray:int32", lambda _: np.zeros(3, np.int32))})
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=6, ragged="list")
    assert {type(batch["tokens"]) for batch in dataset} == {list}


@pytest.mark.parametrize("y", [("str", str), ("int16", np.int16)], ids=["ragged", "fixed"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_streams_of_different_columns(tmp_path, shuffle, y):
    """Types that differ between shards are promoted, columns are those of the first sample."""
    from streaming import Stream

    write(tmp_path / "a", {"x": ("int32", np.int32), "y": y}, rows=20)
    write(tmp_path / "b", {"x": ("int64", np.int64), "y": y}, rows=20)
    loaders = []
    for make, options in ((stock_loader, {}), (columnar_loader, {"format": "torch"})):
        streams = [Stream(local=str(tmp_path / name)) for name in "ab"]
        arguments = {"streams": streams, "batch_size": 8, "shuffle": shuffle}
        loaders.append(list(make(arguments, **options)))
    stock, ours = loaders
    for one, other in zip(ours, stock, strict=True):
        assert one["x"].tolist() == other["x"].tolist()
        assert list(one["y"]) == list(other["y"])
    write(tmp_path / "c", {"z": ("int64", np.int64)}, rows=20)
    streams = [Stream(local=str(tmp_path / name)) for name in "ac"]
    mixed = ColumnarStreamingDataset(streams=streams, batch_size=40)
    with pytest.raises(DatasetError, match=r"differ in their columns: \['x', 'y'\]"):
        list(mixed)


def test_columns_can_be_chosen(tmp_path):
    write_shards(tmp_path, [5, 5], RAGGED)
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=4, columns=["text", "id"])
    assert {tuple(batch) for batch in dataset} == {("id", "text")}
    with pytest.raises(DatasetError, match=r"no columns \['nosuch'\]"):
        ColumnarStreamingDataset(local=str(tmp_path), batch_size=4, columns=["id", "nosuch"])


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"columns": "id"}, TypeError, "give a list"),
        ({"columns": []}, ValueError, "name at least one"),
        ({"format": "jax"}, ValueError, "numpy, torch"),
        ({"ragged": "pad"}, ValueError, "error, list"),
        ({"batch_size": 2.0}, ValueError, "positive integer"),
        ({"batch_size": 0}, ValueError, "positive integer"),
        ({"batch_size": None}, ValueError, "positive integer"),
    ],
)
def test_wrong_arguments(tmp_path, wrong, error, words):
    write_shards(tmp_path, [5])
    with pytest.raises(error, match=words):
        ColumnarStreamingDataset(**{"local": str(tmp_path), "batch_size": 4, **wrong})


def test_other_formats_are_refused(tmp_path):
    from streaming import JSONWriter

    with JSONWriter(out=str(tmp_path), columns={"id": "int"}) as writer:
        writer.write({"id": 1})
    with pytest.raises(DatasetError, match="another format than MDS"):
        ColumnarStreamingDataset(local=str(tmp_path), batch_size=1)


@pytest.mark.parametrize("columns", [FIXED, RAGGED], ids=["fixed", "ragged"])
def test_single_samples_and_chosen_ones(tmp_path, columns):
    write_shards(tmp_path, [5, 1, 9], columns)
    stock = StreamingDataset(local=str(tmp_path), batch_size=4)
    ours = ColumnarStreamingDataset(local=str(tmp_path), batch_size=4)
    assert ours.size == 15
    assert len(ours) == 4
    for index in (0, 5, 14, -1):
        np.testing.assert_equal(ours[index], stock[index])
    wanted = [14, 0, 0, 5, 7]
    taken = ours.take(wanted)
    assert taken["id"].tolist() == wanted
    np.testing.assert_array_equal(taken["many"], [stock[i]["many"] for i in wanted])
    for wrong in ([], [15], [-1]):
        with pytest.raises(IndexError, match="from 0 to 14"):
            ours.take(wrong)


def test_batches_do_not_share_memory(tmp_path):
    write_shards(tmp_path, [50])
    for shuffle in (False, True):
        dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=10, shuffle=shuffle)
        batches = list(dataset)
        before = [batch["id"].copy() for batch in batches]
        for batch in batches[::2]:
            batch["id"][:] = -1
        for batch, ids in list(zip(batches, before, strict=True))[1::2]:
            assert batch["id"].tolist() == ids.tolist()


def test_damage_is_told(tmp_path):
    write_shards(tmp_path, [20], RAGGED)
    (path,) = tmp_path.glob("*.mds")
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=4)
    with pytest.raises(ShardCorruptedError, match="bytes, found"):
        list(dataset)
    first = int.from_bytes(whole[4:8], "little")  # the first sample's first size word
    path.write_bytes(whole[:first] + b"\xff\xff\x00\x00" + whole[first + 4 :])
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=4)
    with pytest.raises(ShardCorruptedError, match="bytes of columns in a sample"):
        list(dataset)
    assert path.exists()  # there is no other copy


@pytest.mark.parametrize("columns", [FIXED, RAGGED, None], ids=["fixed", "ragged", "all"])
def test_mapped_shards_give_the_samples_of_stock_ones(tmp_path, columns):
    if columns is None:
        write(tmp_path, COLLATED)
    else:
        write_shards(tmp_path, [5, 1, 9], columns)
    arguments = {
        "local": str(tmp_path), "batch_size": 4, "shuffle": True, "allow_unsafe_types": True,
    }  # fmt: skip
    stock = StreamingDataset(**arguments)
    mapped = MappedStreamingDataset(**arguments)
    assert type(mapped.streams[0]).__name__ == "MappedStream"
    for one, other in zip(mapped, stock, strict=True):
        np.testing.assert_equal(one, other)
        assert {k: type(v) for k, v in one.items()} == {k: type(v) for k, v in other.items()}
    with pytest.raises(IndexError):
        mapped.shards[0].get_item(len(mapped.shards[0]))
    again = pickle.loads(pickle.dumps(mapped.shards[0]))
    np.testing.assert_equal(again[0], mapped.shards[0][0])


def test_the_stock_loader_counts_samples(tmp_path):
    write_shards(tmp_path, [20])
    dataset = ColumnarStreamingDataset(local=str(tmp_path), batch_size=6)
    loader = StreamingDataLoader(dataset, batch_size=None)
    batches = iter(loader)
    next(batches)
    next(batches)
    assert loader.state_dict()["sample_in_epoch"] == 12
    assert len(loader) == 4


def test_a_dataset_shows_what_it_reads(numbered, tmp_path):
    numbered(7, [4, 3])
    local = tmp_path / "data"
    size = sum(path.stat().st_size for path in local.glob("*.mds"))
    dataset = ColumnarStreamingDataset(local=str(local), batch_size=2)
    assert repr(dataset) == (
        f"<ColumnarStreamingDataset of {local}: 7 rows in 2 shards, {size} bytes, batch_size=2, "
        "columns=['id', 'x']>"
    )


def test_a_name_that_another_release_of_streaming_does_not_use_is_an_error():
    """Put in its place without effect, streaming would read sample by sample, and nothing would say so."""
    replaced = with_names(StreamingDataset.__init__, Stream=dict)
    assert replaced.__globals__["Stream"] is dict
    with pytest.raises(RuntimeError, match=r"does not use \['Spanned'\]. Update petastorm-bridge"):
        with_names(StreamingDataset.__init__, Stream=dict, Spanned=dict)
