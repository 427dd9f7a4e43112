"""What the recorder takes, what it leaves behind, and what it refuses."""

import datetime as dt
import decimal
import os
import types
from collections import namedtuple

import numpy as np
import pyarrow as pa
import pytest
from parity_tables import ROWS, batches, columns

from petastorm_bridge.parity import (
    CannotCompareError,
    Promise,
    RecordingError,
    Rules,
    assert_same_batches,
    compare,
    record,
    recorder,
)
from petastorm_bridge.parity._recordings.recording import open_recording

EXACT = Rules(containers="exact")


def facts(manifest):
    return {c["name"]: ("|".join(c["dtypes"]), tuple(c["shape"])) for c in manifest["columns"]}


def read(folder):
    """All values of a recording, column by column."""
    found = {}
    for block in open_recording(folder).blocks(7):
        for name, cells in block.columns.items():
            found.setdefault(name, []).extend(cells.cell(row) for row in range(block.rows))
    return found


@pytest.fixture
def out(tmp_path):
    return tmp_path / "recording"


def test_columns_of_every_kind_come_back(out):
    table = columns()
    manifest = record(batches(table), out)
    assert list(facts(manifest).items()) == [
        ("id", ("int64", ())),
        ("x", ("float64", ())),
        ("small", ("float32", ())),
        ("flag", ("bool", ())),
        ("image", ("uint8", (3, 2))),
        ("when", ("datetime64[ns]", ())),
        ("text", ("str", ())),
        ("raw", ("bytes", ())),
        ("list", ("float64", (None,))),
        ("words", ("str", (2,))),
    ]
    assert manifest["batches"] == 8
    assert manifest["epochs"] == [{"rows": ROWS, "batches": 8}]
    assert manifest["containers"] == ["dict"]
    found = read(out)
    for name in ("id", "x", "small", "flag", "image", "when"):
        assert np.array(found[name]).tobytes() == table[name].tobytes()
    assert found["text"] == table["text"].tolist()
    assert found["raw"] == table["raw"].tolist()
    assert found["words"] == table["words"].tolist()
    assert all(np.array_equal(a, b) for a, b in zip(found["list"], table["list"], strict=True))


@pytest.mark.parametrize(
    "dtype",
    [
        *("int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "float16", "longdouble"),
        *("complex64", "complex128", "datetime64[D]", "datetime64[us]", "timedelta64[ns]"),
        *("timedelta64[h]", ">f4", ">i8"),
    ],
)
def test_every_dtype_keeps_its_bits(out, dtype):
    values = np.arange(10).astype(dtype)
    manifest = record([{"v": values[:6]}, {"v": values[6:]}], out)
    native = values.astype(values.dtype.newbyteorder("="))
    assert facts(manifest)["v"] == (native.dtype.name, ())
    assert np.array(read(out)["v"]).dtype == native.dtype
    assert np.array_equal(np.array(read(out)["v"]), native)
    assert compare(out, [{"v": values}]).promise(Promise.VALUES).state.value == "same"
    values[7] = values[8]
    assert compare(out, [{"v": values}], Rules(batches="any")).first_failure.row == 7


def test_nan_payloads_infinities_and_minus_zero(out):
    words = np.array([0x7FF8000000000001, 0xFFF8DEADBEEF0000, 0x7FF0000000000000, 1 << 63], "u8")
    record([{"v": words.view("f8")}], out)
    assert np.array(read(out)["v"]).view("u8").tolist() == words.tolist()


def test_torch_tensors(out):
    torch = pytest.importorskip("torch", reason="records its tensors")
    x = torch.rand(5, 2, requires_grad=True)
    half = torch.tensor([1.5, -2.0, 3.25, 0.1, 7.0]).to(torch.bfloat16)
    manifest = record([{"x": x, "half": half, "name": ["a", "b", "c", "d", "e"]}], out)
    assert facts(manifest) == {
        "x": ("float32", (2,)),
        "half": ("bfloat16", ()),
        "name": ("str", ()),
    }
    assert np.array_equal(np.array(read(out)["x"]), x.detach().numpy())
    again = [{"x": x.detach().clone(), "half": half.clone(), "name": list("abcde")}]
    assert compare(out, again, EXACT).same
    other = half.clone()
    other[3] = 0.11
    found = compare(out, [{**again[0], "half": other}]).first_failure
    assert (found.column, found.row) == ("half", 3)
    arrays = [{name: np.asarray(value) for name, value in again[0].items() if name == "x"}]
    assert compare([{"x": x}], arrays).same
    assert not compare([{"x": x}], arrays, EXACT).same


@pytest.mark.slow
def test_tf_datasets(out):
    tf = pytest.importorskip("tensorflow", reason="records its datasets")
    data = {"x": np.arange(10, dtype="f4"), "s": np.array([f"é{i}" for i in range(10)])}
    dataset = tf.data.Dataset.from_tensor_slices(data)
    manifest = record(dataset.batch(4), out)
    assert facts(manifest) == {"x": ("float32", ()), "s": ("bytes", ())}
    assert manifest["batches"] == 3
    rows = record(dataset, out.with_name("rows"))
    assert (rows["rows"], rows["batched"]) == (10, False)
    assert compare(out, out.with_name("rows")).same
    pairs = tf.data.Dataset.from_tensor_slices((data, np.arange(10))).batch(5)
    assert list(facts(record(pairs, out.with_name("pairs")))) == ["0.x", "0.s", "1"]


def test_tuples_named_tuples_arrays_and_nested_dicts(out):
    Row = namedtuple("Row", "id x")  # noqa: PYI024
    ids, x = np.arange(4), np.ones(4)
    for item, keys, container in (
        (Row(ids, x), ["id", "x"], "namedtuple Row"),
        ((ids, x), ["0", "1"], "tuple"),
        (ids, ["0"], "array"),
        ({"a": {"b": ids, "c": (x, x)}, "d": x}, ["a.b", "a.c.0", "a.c.1", "d"], "dict"),
    ):
        manifest = record([item], out, overwrite=True)
        assert list(facts(manifest)) == keys
        assert manifest["containers"] == [container]


def test_lists_of_columns_as_collating_makes_them(out):
    pytest.importorskip("torch", reason="collates with it")
    from torch.utils.data import default_collate

    rows = [{"pair": (1.0, "a"), "id": i} for i in range(3)]
    manifest = record([default_collate(rows)], out)
    assert facts(manifest) == {
        "pair.0": ("float64", ()),
        "pair.1": ("str", ()),
        "id": ("int64", ()),
    }


def test_a_batch_of_as_many_rows_as_positions_is_no_exception(out):
    torch = pytest.importorskip("torch", reason="collates with it")

    def loader():
        for rows in (5, 3, 2):
            yield {"id": torch.arange(rows), "three": [torch.ones(rows) * i for i in range(3)]}

    assert list(facts(record(loader(), out))) == ["id", "three.0", "three.1", "three.2"]
    assert compare(out, loader()).same


def test_rows_are_batched_for_speed_but_have_no_batches(out):
    table = columns()
    rows = ({name: column[i] for name, column in table.items()} for i in range(ROWS))
    manifest = record(rows, out)
    assert not manifest["batched"]
    result = compare(batches(table), out)
    assert result.same
    assert result.promise(Promise.BATCHES).state.value == "unchecked"
    assert facts(manifest)["image"] == ("uint8", (3, 2))


def test_large_rows_are_not_kept_until_there_are_many(out, monkeypatch):
    monkeypatch.setattr(recorder, "CHUNK_BYTES", 1000)
    rows = ({"id": i, "image": np.zeros(400, "u1"), "text": "x"} for i in range(20))
    record(rows, out)
    with pa.OSFile(str(out / "chunks.arrow")) as file:
        assert max(pa.ipc.open_file(file).read_all().column("rows").to_pylist()) <= 4


def test_rows_of_arrays_alone_need_to_be_told(out):
    rows = [{"a": np.arange(3), "b": np.ones(3)} for _ in range(5)]
    assert record(rows, out)["rows"] == 15
    assert record(rows, out, rows=True, overwrite=True)["rows"] == 5


def test_objects(out):
    cells = [
        decimal.Decimal("1.20"),
        dt.date(2020, 1, 2),
        dt.timedelta(1, 2),
        None,
        {"a": [1, 2.5], "b": None},
        (1, "x"),
        2**70,
        "half \ud800 pair",
    ]
    column = np.empty(len(cells), object)
    column[:] = cells
    manifest = record([{"o": column}], out)
    assert facts(manifest)["o"][0] == "Decimal|date|dict|int|str|timedelta|tuple"
    assert compare(out, [{"o": column.copy()}]).same
    for row, value in ((0, decimal.Decimal("1.2")), (4, {"a": [1, 2.5], "b": 0}), (6, 2**70 + 1)):
        other = column.copy()
        other[row] = value
        assert compare(out, [{"o": other}]).first_failure.row == row
    with pytest.raises(RecordingError, match="of type function cannot be recorded"):
        record([{"o": [lambda: 0, 1]}], out, overwrite=True)


def test_context_managers_and_functions(out):
    class Manager:
        left = False

        def __enter__(self):
            return batches(columns())

        def __exit__(self, *error):
            self.left = True

    manager = Manager()
    assert record(manager, out)["rows"] == ROWS
    assert manager.left
    assert record(lambda: batches(columns()), out, overwrite=True)["rows"] == ROWS

    class Loader(Manager):
        def __iter__(self):
            return batches(columns())

    class Hiding(Manager):
        def __enter__(self):
            yield from batches(columns())
            raise OSError("the disk is gone")

        def __exit__(self, *error):
            return True

    with pytest.raises(RecordingError, match="an error ended the loop over the loader"):
        record(Hiding(), out, overwrite=True)

    inside, made = Loader(), Loader()
    record(inside, out, overwrite=True)
    assert not inside.left, "who opened it closes it"
    record(lambda: made, out, overwrite=True)
    assert made.left


def test_epochs_and_limits(out):
    table = list(batches(columns()))
    manifest = record(table, out, epochs=2)
    assert manifest["epochs"] == [{"rows": ROWS, "batches": 8}] * 2
    endless = (batch for _ in iter(int, 1) for batch in table)
    manifest = record(endless, out, limit=20, overwrite=True)
    assert (manifest["rows"], manifest["limited"]) == (24, True)


@pytest.mark.parametrize("how", ["loader", "context", "function"])
def test_a_loader_that_says_it_never_ends_is_refused_at_once(out, how):
    endless = types.SimpleNamespace(num_epochs=None)

    class Loader:
        reader = endless  # as Petastorm's loaders have it, and its contexts once they are entered

        def __iter__(self):
            while True:
                yield from batches(columns())

    class Context:
        def __enter__(self):
            self.reader = endless
            return iter(Loader())

        def __exit__(self, *_):
            pass

    loader = {"loader": Loader(), "context": Context(), "function": lambda: Loader()}[how]  # noqa: PLW0108
    with pytest.raises(RecordingError, match="never ends, because num_epochs is None: limit"):
        record(loader, out)
    assert not out.exists()
    assert record(loader, out, limit=20)["limited"]


def test_an_endless_loader_is_compared_with_a_recording_until_it_is_longer(out):
    table = list(batches(columns()))
    record(table, out)
    endless = (batch for _ in iter(int, 1) for batch in table)
    found = compare(out, endless)
    assert found.first_failure.promise.value == "count"
    assert any("may have more rows: it was read up to a limit" in note for note in found.notes)
    assert compare(out, (batch for _ in iter(int, 1) for batch in table), limit=ROWS).same


def test_nothing_at_all(out):
    manifest = record([], out)
    assert (manifest["rows"], manifest["columns"]) == (0, [])
    assert compare(out, []).same
    assert compare(out, batches(columns())).first_failure.promise.value == "schema"
    empty = [{"x": np.zeros(0)}]
    assert compare(empty, [{"x": np.zeros(0)}]).same
    found = compare(empty, [{"x": np.zeros(1)}]).first_failure
    assert found.promise.value == "count"


def test_changing_dtypes_and_shapes_are_kept(out):
    def loader():
        for i in range(12):
            kind = "int64" if i % 2 else "float64"
            yield {"v": np.arange(4).astype(kind), "pad": np.zeros((4, 2 + i % 3))}

    manifest = record(loader(), out)
    assert facts(manifest) == {"v": ("float64|int64", ()), "pad": ("float64", (None,))}
    assert len([name for name in os.listdir(out) if name.startswith("values")]) == 2
    assert compare(out, loader()).same
    assert [type(v) for v in read(out)["v"][3:5]] == [np.float64, np.int64]


def test_a_reused_buffer_is_copied(out):
    def loader():
        buffer = np.empty(4)
        for i in range(5):
            buffer[:] = i
            yield {"v": buffer}

    record(loader(), out)
    assert read(out)["v"] == [float(i) for i in range(5) for _ in range(4)]


def test_it_is_invisible_until_it_is_complete(out):
    def loader():
        for i, batch in enumerate(batches(columns())):
            assert not out.exists()
            if i == 5:
                raise OSError("the disk is gone")
            yield batch

    with pytest.raises(OSError, match="the disk is gone"):
        record(loader(), out)
    assert os.listdir(out.parent) == []


def test_an_earlier_recording_is_replaced_only_on_demand(out):
    record(batches(columns()), out)
    with pytest.raises(RecordingError, match=r"exists already; .* --overwrite .* overwrite=True"):
        record([], out)
    assert record([{"x": np.ones(3)}], out, overwrite=True)["rows"] == 3
    (out.parent / "mine").mkdir()
    (out.parent / "mine" / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(RecordingError, match="exists already and is no recording"):
            record([], out.parent / "mine", overwrite=overwrite)
    assert (out.parent / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"a": np.ones(3), "b": np.ones(4)}, "different lengths"),
        ({"a": np.ones(3), "b": 5}, "has no rows"),
        ({"a": np.ones(3), "b": np.float64(5)}, "has no rows"),
    ],
)
def test_what_is_no_batch_is_refused(out, item, message):
    with pytest.raises(RecordingError, match=message):
        record([item], out, rows=False)


def test_what_is_no_loader_is_refused(out):
    with pytest.raises(RecordingError, match="cannot be iterated over"):
        record(5, out)


@pytest.mark.parametrize("option", ["epochs", "limit"])
def test_no_rows_and_no_epochs_are_refused(out, option):
    with pytest.raises(RecordingError, match=f"{option} is 0; it must be at least 1"):
        record(batches(columns()), out, **{option: 0})
    assert not out.exists()


def test_a_place_that_cannot_be_made_is_named(out):
    out.write_text("")
    with pytest.raises(RecordingError, match="below cannot be written: Not a directory"):
        record(batches(columns()), out / "below")


def test_ranks_come_from_the_launcher(out, monkeypatch):
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        record([{"id": np.arange(rank * 10, rank * 10 + 4)}], out)
        if rank < 2:
            with pytest.raises(CannotCompareError, match="are missing"):
                open_recording(out)
    side = open_recording(out)
    assert (side.ranks, side.rows) == (3, 12)
    assert side.place(9) == (2, 1, 0, 1)
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(RecordingError, match="rank 3 of 3 makes no sense: ranks begin at 0"):
        record([], out, rank=3, world_size=3)
    with pytest.raises(RecordingError, match="rank 3 of how many"):
        record([], out, rank=3)
    with pytest.raises(RecordingError, match="which of 2 ranks is this"):
        record([], out, world_size=2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK")
    with pytest.raises(RecordingError, match="which of 2 ranks is this"):
        record([], out)


def test_one_of_several_ranks_compares_its_own_loaders(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert compare(batches(columns()), batches(columns())).same
    assert assert_same_batches(batches(columns()), batches(columns())).same


def test_values_are_plain_arrow_files(out):
    record(batches(columns()), out)
    with pa.OSFile(str(out / "values-0.arrow")) as file:
        table = pa.ipc.open_file(file).read_all()
    assert table.column("id").to_pylist() == list(range(ROWS))
    assert table.column("text").to_pylist() == columns()["text"].tolist()
    assert table.column("image").to_pylist()[1] == columns()["image"][1].ravel().tolist()


def test_versions_name_the_stack(out):
    versions = record([], out)["versions"]
    assert versions["pyarrow"] == pa.__version__
    assert versions["numpy"] == np.__version__


def test_batches_of_the_bridge_and_streaming(out, tmp_path):
    pytest.importorskip("streaming", reason="records its loader")
    import pyarrow.parquet as pq
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

    from petastorm_bridge import make_batch_reader
    from petastorm_bridge.pytorch import DataLoader

    table = pa.table({"id": pa.array(range(20)), "x": pa.array(np.arange(20) / 3)})
    pq.write_table(table, tmp_path / "part.parquet")
    url = (tmp_path / "part.parquet").as_uri()
    manifest = record(
        lambda: DataLoader(make_batch_reader([url], shuffle_row_groups=False), batch_size=8), out
    )
    assert manifest["source"] == "petastorm_bridge.pytorch.DataLoader"
    assert not manifest["padded"]
    with MDSWriter(out=str(tmp_path / "mds"), columns={"id": "int64", "x": "float64"}) as writer:
        for row in table.to_pylist():
            writer.write({"id": np.int64(row["id"]), "x": np.float64(row["x"])})
    dataset = StreamingDataset(local=str(tmp_path / "mds"), batch_size=8)
    manifest = record(StreamingDataLoader(dataset, batch_size=8), tmp_path / "streaming")
    assert manifest["padded"]
    assert compare(out, tmp_path / "streaming").same
