"""A function on pandas DataFrames as the ``collate_fn`` of a stock loader."""

import pickle
import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

sys.path.append(__file__.rpartition("/")[0])  # tests are no package; workers import it, too

import transforms

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
beside_petastorm = pytest.mark.skipif(
    find_spec("petastorm") is None, reason="compares with the real Petastorm"
)


@pytest.fixture(scope="module")
def collate(copied):
    return copied.PandasCollate


@pytest.fixture(scope="module")
def frame(spark):
    return spark.range(11, numPartitions=1).selectExpr(
        "id",
        "id % 2 = 0 as flag",
        "cast(id as float) / 3 as real",
        "if(id % 3 = 1, null, int(id)) as holes",
        "array(id, id) as values",
        "array(id > 3, id < 1) as flags",
        "string(id) as text",
        "timestamp'2020-01-02 03:04:05' + make_interval(0, 0, 0, 0, id) as at",
    )


@pytest.fixture(scope="module")
def directory(installed, frame, tmp_path_factory):
    return installed.write_mds(frame, str(tmp_path_factory.mktemp("transformed") / "mds"))


def assert_same(batches, others):
    assert len(batches) == len(others)
    for one, other in zip(batches, others, strict=True):
        assert set(one) == set(other)
        for name, tensor in one.items():
            assert tensor.dtype == other[name].dtype, name
            assert tensor.shape == other[name].shape, name
            np.testing.assert_array_equal(tensor, other[name], err_msg=name)


@pytest.mark.smoke
@beside_petastorm
@pytest.mark.parametrize("ending", ["selected_fields", "removed_fields"])
def test_tensors_are_petastorms(collate, frame, directory, loader, ending):
    from petastorm import TransformSpec
    from petastorm.spark import make_spark_converter

    removed = [name for name in frame.columns if name not in {"id", "flag"}]
    names = {"selected_fields": transforms.SELECTED, "removed_fields": removed}
    chosen = {ending: names[ending]}
    converter = make_spark_converter(frame)
    spec = TransformSpec(transforms.make_columns, transforms.EDITS, **chosen)
    with converter.make_torch_dataloader(
        batch_size=4,
        num_epochs=1,
        shuffle_row_groups=False,
        workers_count=1,
        transform_spec=spec,
    ) as batches:
        wanted = list(batches)
    converter.delete()
    spec = collate(transforms.make_columns, transforms.EDITS, **chosen)
    assert_same(list(loader(directory, collate_fn=spec)), wanted)


def test_dtypes_without_petastorm(collate, directory, loader):
    """Those that the function makes, in a form that torch takes; shapes as they were said."""
    spec = collate(transforms.make_columns, transforms.EDITS, selected_fields=transforms.SELECTED)
    batches = list(loader(directory, collate_fn=spec))
    assert list(batches[0]) == transforms.SELECTED
    found = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in batches[0].items()}
    assert found == {
        "id": "int64",
        "flag": "uint8",
        "inverted": "uint8",
        "scaled": "float64",
        "same": "float32",
        "pair": "float64",
        "listed": "int64",
        "image": "uint8",
        "narrow": "int8",
        "u16": "int32",
        "u32": "int64",
        "hole": "float64",
        "arr": "int64",
        "some": "uint8",
    }
    assert [tuple(batch["image"].shape) for batch in batches] == [(4, 2, 3), (4, 2, 3), (3, 2, 3)]
    assert batches[0]["inverted"].tolist() == [0, 1, 0, 1]
    assert batches[1]["pair"].tolist() == [[i, i + 1.0] for i in range(4, 8)]


@pytest.mark.modern
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_worker_processes(collate, directory, streaming, loader, method):
    spec = collate(transforms.make_columns, transforms.EDITS, selected_fields=transforms.SELECTED)
    alone = list(loader(directory, collate_fn=spec))
    dataset = streaming.StreamingDataset(local=directory.path, batch_size=4)
    shared = streaming.StreamingDataLoader(
        dataset, batch_size=4, num_workers=2, collate_fn=spec, multiprocessing_context=method
    )
    batches = sorted(shared, key=lambda batch: batch["id"][0].item())
    ids = [i for batch in batches for i in batch["id"].tolist()]
    assert sorted(ids) == list(range(11))
    assert {str(batch["scaled"].dtype) for batch in batches} == {str(alone[0]["scaled"].dtype)}


def test_rows_may_go(collate, directory, loader):
    spec = collate(transforms.keep_even, selected_fields=["id"])
    batches = list(loader(directory, collate_fn=spec))
    assert [batch["id"].tolist() for batch in batches] == [[0, 2], [4, 6], [8, 10]]


def test_all_rows_may_go(collate, directory, loader):
    spec = collate(
        lambda rows: rows[:0][["id"]].assign(image=[]),
        [("image", np.uint8, (2, 3), False)],
        selected_fields=["id", "image"],
    )
    for batch in loader(directory, collate_fn=spec):
        assert tuple(batch["id"].shape) == (0,)
        assert tuple(batch["image"].shape) == (0, 2, 3)


def test_no_function(collate, directory, loader):
    removed = collate(removed_fields=["text", "at", "holes", "real", "flags", "values"])
    assert list(next(iter(loader(directory, collate_fn=removed)))) == ["id", "flag"]


def test_timestamps_and_strings(collate, directory, loader):
    spec = collate(
        transforms.hours,
        [("hour", np.int32, (), False)],
        selected_fields=["hour", "id"],
        timestamps=["at"],
    )
    batch = next(iter(loader(directory, collate_fn=spec)))
    assert list(batch) == ["hour", "id"]
    assert batch["hour"].tolist() == [3, 4, 5, 6]
    kept = collate(
        lambda rows: rows[["at", "text"]], selected_fields=["at", "text"], timestamps=["at"]
    )
    batch = next(iter(loader(directory, collate_fn=kept)))
    assert batch["text"] == ["0", "1", "2", "3"]
    assert batch["at"][0].item() == np.datetime64("2020-01-02T03:04:05", "ns").astype("int64")


def test_what_the_function_gets(collate, directory, loader):
    """The types that Petastorm's DataFrames have."""
    seen = {}

    def look(rows):
        seen.update(rows.dtypes.astype(str).to_dict())
        seen["of values"] = rows["values"][0].dtype.name
        seen["of flags"] = rows["flags"][0].dtype.name
        seen["a text"] = type(rows["text"][0])
        return rows[["id"]]

    next(iter(loader(directory, collate_fn=collate(look, selected_fields=["id"]))))
    assert seen == {
        "at": "int64",
        "flag": "bool",
        "flags": "object",
        "holes": "float64",
        "id": "int64",
        "real": "float32",
        "text": "object",
        "values": "object",
        "of values": "int64",
        "of flags": "bool",
        "a text": str,
    }


def test_whole_batches(collate, directory, streaming, loader):
    """Of the columnar dataset, which yields columns."""
    from petastorm_bridge.streaming import ColumnarStreamingDataset

    spec = collate(transforms.make_columns, transforms.EDITS, selected_fields=transforms.SELECTED)
    dataset = ColumnarStreamingDataset(local=directory.path, batch_size=4, ragged="list")
    columnar = streaming.StreamingDataLoader(dataset, batch_size=None, collate_fn=spec)
    assert_same(list(columnar), list(loader(directory, collate_fn=spec)))


def test_what_is_wrong_is_said(collate, directory, loader):
    def run(*arguments, **keywords):
        return next(iter(loader(directory, collate_fn=collate(*arguments, **keywords))))

    with pytest.raises(ValueError, match="not both"):
        collate(removed_fields=["a"], selected_fields=["b"])
    with pytest.raises(ValueError, match=r"returned the columns \['id'\] instead of \['id', 'n'\]"):
        run(lambda rows: rows[["id"]], [("n", int, (), False)], selected_fields=["id", "n"])
    with pytest.raises(ValueError, match=r"must be the shape \(3, 2\), not \(2, 3\)"):
        run(
            transforms.make_columns,
            [
                ("image", np.uint8, (3, 2), False) if edit[0] == "image" else edit
                for edit in transforms.EDITS
            ],
            selected_fields=transforms.SELECTED,
        )
    with pytest.raises(ValueError, match="the arrays in column 'v' differ in shape"):
        run(
            lambda rows: pd.DataFrame({"v": [np.ones(i) for i in rows["id"]]}),
            [("v", float, (None,), False)],
            selected_fields=["v"],
        )
    with pytest.raises(TypeError, match="column 'v' holds objects"):
        run(
            lambda rows: pd.DataFrame({"v": [object()] * len(rows)}),
            [("v", object, (), False)],
            selected_fields=["v"],
        )


def test_pickles(collate):
    spec = collate(transforms.keep_even, [("id", np.int32, (), False)], timestamps=["at"])
    copied = pickle.loads(pickle.dumps(spec))
    assert copied.func is transforms.keep_even
    assert copied.names(["at", "id"]) == ["at", "id"]
    assert copied.timestamps == {"at"}
