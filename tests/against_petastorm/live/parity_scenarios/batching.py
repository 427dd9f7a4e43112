"""Batch sizes, epochs, repeated and broken-off iteration, empty frames."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from parity_harness.session import LOADERS, Session

from parity_scenarios import Scenarios

SCENARIOS = Scenarios()
add, load, define = SCENARIOS.add, SCENARIOS.load, SCENARIOS.define

BATCH_SIZES = (None, 0, -1, 2.0, 2.5, "4", True, 1000)
# The original never ends with these.
_ENDLESS = {("batched", 0), ("batched", -1)}


def _second(session: Session, loader: str, first: int | None, **options: Any) -> list[Any]:
    """Two passes over one open loader, the first one broken off after `first` batches."""
    with session.open("ten", loader, **options) as batches:
        return [session.ids(batches, 10_000 if first is None else first), session.ids(batches)]


for _loader in LOADERS:
    _files = "2files" if _loader == "tf" else "2 files"
    _limit = "lim8" if _loader == "tf" else "lim 8"
    load(f"partial last batch {_loader} bs=4", "ten", _loader)
    load(f"partial last batch {_files} {_loader} bs=4", "ten2", _loader)
    load(f"epochs=2 {_loader} bs=4", "ten", _loader, num_epochs=2)
    if _loader != "inmem":
        load(f"epochs=None {_limit} {_loader} bs=4", "ten", _loader, num_epochs=None, limit=8)
    for _size in BATCH_SIZES:
        load(
            f"batch_size={_size!r} {_loader}",
            "ten",
            _loader,
            batch_size=_size,
            seconds=5 if (_loader, _size) in _ENDLESS else 120,
        )
    load(f"straddling row groups {_loader}", "ten2", _loader, batch_size=3, num_epochs=3)
load("InMem default num_epochs=None reader", "ten", "inmem", num_epochs=None)
load("default batch_size torch (100 rows)", "hundred", batch_size=...)
load("default batch_size tf (100 rows)", "hundred", "tf", batch_size=...)


@define("batch that is never full, endless epochs", seconds=5)
def _never_full(session: Session) -> object:
    return session.load("ten", batch_size=None, num_epochs=None, limit=1)


@define("data_loader_fn=InMemBatchedDataLoader directly")
def _inmem_directly(session: Session) -> object:
    loader = session.module("pytorch").InMemBatchedDataLoader
    return session.load("ten", data_loader_fn=loader)


@define("data_loader_fn=torch.utils.data.DataLoader directly")
def _torch_directly(session: Session) -> object:
    from torch.utils.data import DataLoader

    return session.load("ten", data_loader_fn=DataLoader)


@define("data_loader_fn gets its arguments")
def _loader_arguments(session: Session) -> object:
    def make(reader: Any, **options: Any) -> Iterator[Any]:
        seen = {"options": options, "batched": reader.batched_output}
        return iter([seen, *(batch.id for batch in reader)])

    with session.open("ten", data_loader_fn=make, shuffling_queue_capacity=3) as batches:
        return list(batches)


@define("InMemBatchedDataLoader with its own options")
def _inmem_options(session: Session) -> object:
    def make(reader: Any, batch_size: int, shuffling_queue_capacity: int) -> Any:
        in_memory = session.module("pytorch").InMemBatchedDataLoader
        return in_memory(reader, batch_size=3, num_epochs=2, seed=3, rows_capacity=7, shuffle=True)

    return session.load("ten", data_loader_fn=make)


@define("transform_fn of BatchedDataLoader")
def _transform_fn(session: Session) -> object:
    import torch

    def make(reader: Any, batch_size: int, shuffling_queue_capacity: int) -> Any:
        batched = session.module("pytorch").BatchedDataLoader
        return batched(
            reader, batch_size=batch_size, transform_fn=lambda column: torch.as_tensor(column) + 1
        )

    return session.load("ten", data_loader_fn=make)


def _define_types_by_row_group(first: str, second: str, size: int) -> None:
    """The first row group becomes tensors of one type, the second of another."""

    @define(f"transform_fn of BatchedDataLoader: {first}, then {second}, batches of {size}")
    def _types_by_row_group(session: Session) -> object:
        import torch

        types = iter([first, second])

        def to_tensor(column: Any) -> Any:
            return torch.as_tensor(column).to(getattr(torch, next(types)))

        def make(reader: Any, batch_size: int, shuffling_queue_capacity: int) -> Any:
            batched = session.module("pytorch").BatchedDataLoader
            return batched(reader, batch_size=size, transform_fn=to_tensor)

        return session.load("ten2", data_loader_fn=make, schema_fields=["id"], workers_count=1)


for _types in (("float32", "float64"), ("float64", "float32")):
    for _size in (4, 5):
        _define_types_by_row_group(*_types, _size)


@define("transform_fn whose types widen in InMemBatchedDataLoader")
def _types_in_memory(session: Session) -> object:
    import torch

    group = iter([0, 1])

    def transform(column: Any) -> Any:
        tensor = torch.as_tensor(column)
        return tensor + 0.5 if next(group) else tensor

    def make(reader: Any, batch_size: int, shuffling_queue_capacity: int) -> Any:
        in_memory = session.module("pytorch").InMemBatchedDataLoader
        return in_memory(reader, batch_size=4, transform_fn=transform)

    return session.load("ten2", data_loader_fn=make, schema_fields=["id"], workers_count=1)


def _define_rows_of_one_column(loader: str, **options: Any) -> None:
    @define(
        f"transform_fn of {loader} that drops rows of one column{' (shuffled)' * bool(options)}"
    )
    def _load(session: Session) -> object:
        def make(reader: Any, batch_size: int, shuffling_queue_capacity: int) -> Any:
            import torch

            return getattr(session.module("pytorch"), loader)(
                reader,
                batch_size=4,
                transform_fn=lambda column: torch.as_tensor(column)[: 5 if column[0] < 0 else 3],
                **options,
            )

        columns = "select id, -1 - id as below from range(0, 10, 1, 1)"
        return session.load(session.convert(session.spark.sql(columns)), data_loader_fn=make)


_define_rows_of_one_column("BatchedDataLoader")
_define_rows_of_one_column("BatchedDataLoader", shuffling_queue_capacity=7)
_define_rows_of_one_column("InMemBatchedDataLoader")


# What a transform_fn may give for a column of a row group, or for a row in a list.
_TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "the column": lambda column: column,
    "an array": lambda column: np.asarray(column, np.float32),
    "an array of unsigned numbers": lambda column: np.asarray(column, np.uint16),
    "a list": lambda column: list(column),
    "every other row": lambda column: np.asarray(column)[::2].copy(),
    "no row": lambda column: np.asarray(column)[:0],
    "rows less their mean": lambda column: np.asarray(column) - np.mean(column),
    "another shape": lambda column: np.asarray(column)[:, np.newaxis],
    "a number": lambda column: float(np.sum(column)),
    "text": lambda column: [str(value) for value in column],
    "nothing": lambda column: None,
}


def _define_transform(name: str, gives: str, loader: str, **options: Any) -> None:
    """Two row groups through a transform_fn."""

    @define(name, order="shuffling_queue_capacity" not in options)
    def _load(session: Session) -> object:
        import torch

        function = _TRANSFORMS[gives.removesuffix(" as a tensor")]

        def transform(column: Any) -> Any:
            found = function(column)
            return torch.as_tensor(found) if gives.endswith(" as a tensor") else found

        def make(reader: Any, batch_size: int, shuffling_queue_capacity: int) -> Any:
            make_loader = getattr(session.module("pytorch"), loader)
            return make_loader(reader, batch_size=batch_size, transform_fn=transform, **options)

        return session.load("ten2", data_loader_fn=make, schema_fields=["id"], workers_count=1)


for _gives in _TRANSFORMS:
    _name, _loader = f"transform_fn of BatchedDataLoader that gives {_gives}", "BatchedDataLoader"
    _define_transform(_name, _gives, _loader)
    _define_transform(f"{_name}, shuffled", _gives, _loader, shuffling_queue_capacity=7)
    _tensor = f"{_gives} as a tensor"
    _name = f"transform_fn of InMemBatchedDataLoader that gives {_tensor}"
    _define_transform(_name, _tensor, "InMemBatchedDataLoader", rows_capacity=8)
for _gives in ("an array", "a list"):
    _name = f"transform_fn of InMemBatchedDataLoader that gives {_gives}"
    _define_transform(_name, _gives, "InMemBatchedDataLoader", rows_capacity=8)


@define("collate_fn of DataLoader")
def _collate_fn(session: Session) -> object:
    def make(reader: Any, batch_size: int, shuffling_queue_capacity: int) -> Any:
        loader = session.module("pytorch").DataLoader
        return loader(reader, batch_size=batch_size, collate_fn=lambda rows: {"rows": rows})

    return session.load("ten", data_loader_fn=make)


for _epochs in (0, -1, 1.5, "1", True):
    load(f"num_epochs={_epochs!r} torch", "ten", num_epochs=_epochs)
load("num_epochs=0 tf", "ten", "tf", num_epochs=0)
for _count in (0, -1, 1.5):
    load(f"workers_count={_count} torch", "ten", workers_count=_count)
for _capacity in (-1, 0, 1, 2.5, None):
    for _loader in ("torch", "tf"):
        load(
            f"shuffling_queue_capacity={_capacity} {_loader}",
            "ten",
            _loader,
            shuffling_queue_capacity=_capacity,
            order=_capacity != 1,
        )
for _prefetch in (0, -1, 3):
    load(f"prefetch={_prefetch} tf", "ten", "tf", prefetch=_prefetch)

load("torch col order", "mixed_order")
load("torch col order dummy pool", "mixed_order", reader_pool_type="dummy")
load("torch col order, numbers", "mixed_numbers")
load("batched col order, numbers", "mixed_numbers", "batched")
load("tf col order", "mixed_order", "tf")


def _unordered(session: Session, loader: str) -> object:
    """Keys are compared as a set: the original's order depends on the process's hash seed."""
    with session.open("mixed_order", loader, schema_fields=["id", "a", "z"]) as batches:
        first = next(iter(batches))
    return first if isinstance(first, dict) else [type(first).__name__, first._asdict()]


for _loader in ("torch", "tf"):
    add(
        f"{_loader} order w/ schema_fields [id,a,z]",
        lambda session, loader=_loader: dict(sorted(_as_dict(_unordered(session, loader)).items())),
    )


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {**value[1], "name": value[0]}


@define("schema_fields order is one order")
def _schema_fields_order(session: Session) -> object:
    orders = [tuple(_as_dict(_unordered(session, "torch"))) for _ in range(2)]
    return len(set(orders))


for _loader in LOADERS:
    add(f"re-iterate x3 {_loader}", lambda session, loader=_loader: _three(session, loader))
    add(
        f"break then iterate again {_loader}" if _loader != "tf" else "tf break then iterate again",
        lambda session, loader=_loader: _second(session, loader, 1),
    )
    add(
        f"iterate after with exits {_loader}",
        lambda session, loader=_loader: _after_exit(session, loader, passes=0),
    )


def _three(session: Session, loader: str) -> object:
    with session.open("ten", loader) as batches:
        return [session.ids(batches) for _ in range(3)]


def _after_exit(session: Session, loader: str, passes: int) -> object:
    with session.open("ten", loader) as batches:
        for _ in range(passes):
            session.ids(batches)
    return session.ids(batches)


@define("re-iterate x2 torch epochs=2")
def _twice_two_epochs(session: Session) -> object:
    return _second(session, "torch", None, num_epochs=2)


@define("re-iterate x2 torch, full batches")
def _twice_full(session: Session) -> object:
    return _second(session, "torch", None, batch_size=5)


@define("re-iterate shuffle_row_groups seed")
def _passes_shuffled(session: Session) -> object:
    options = {"shuffle_row_groups": True, "seed": 7, "workers_count": 1, "batch_size": 4}
    with session.open("eight8", **options) as batches:
        return [sorted(sum(session.ids(batches), [])) for _ in range(3)]


@define("iterate after full pass & with exits torch")
def _after_full_pass(session: Session) -> object:
    return _after_exit(session, "torch", passes=1)


@define("tf ds.repeat(2)")
def _repeat(session: Session) -> object:
    with session.open("ten", "tf") as dataset:
        return session.ids(dataset.repeat(2))


@define("parallel iterators torch")
def _parallel_torch(session: Session) -> object:
    with session.open("ten") as batches:
        one, two = iter(batches), iter(batches)
        return [next(one)["id"], next(two)["id"], next(one)["id"]]


@define("partially consumed iterator held, then loop")
def _held(session: Session) -> object:
    with session.open("ten") as batches:
        held = iter(batches)
        next(held)
        return session.ids(batches)


@define("tf parallel iterators")
def _parallel_tf(session: Session) -> object:
    with session.open("ten", "tf") as batches:
        one, two = iter(batches), iter(batches)
        return [next(one).id, next(two).id, next(one).id]


for _loader in ("torch", "tf"):
    add(
        f"iterate ctx manager without entering {_loader}",
        lambda session, loader=_loader: list(session.manager("ten", loader)),
    )


@define("ctx types")
def _context_types(session: Session) -> object:
    torch, tf = session.manager("ten"), session.manager("ten", "tf")
    return [type(torch).__name__, type(tf).__name__, sorted(vars(torch))]


@define("dataloader object info")
def _loader_info(session: Session) -> object:
    with session.open("ten") as batches:
        module = type(batches).__module__.replace(session.package, "petastorm")
        return [
            f"{module}.{type(batches).__qualname__}",
            hasattr(batches, "__len__"),
            batches.batch_size,
            type(batches.reader).__name__,
        ]


@define("tf dataset info")
def _dataset_info(session: Session) -> object:
    import tensorflow as tf

    with session.open("ten", "tf") as dataset:
        return [
            isinstance(dataset, tf.data.Dataset),
            int(dataset.cardinality()),
            dataset.element_spec,
        ]


for _row, _options in (
    ("tuple name", {}),
    ("tuple name schema_fields", {"schema_fields": ["id"]}),
):
    load(_row, "ten", "tf", limit=1, **_options)


@define("tuple name transform")
def _tuple_name(session: Session) -> object:
    spec = session.transform_spec(lambda rows: rows)
    return [
        session.load("ten", "tf", limit=1, transform_spec=spec),
        session.load("ten", "tf", limit=1, transform_spec=spec, schema_fields=["id"]),
    ]


@define("enter same ctx manager twice")
def _enter_twice(session: Session) -> object:
    manager = session.manager("ten")
    found = []
    for _ in range(2):
        with manager as batches:
            found.append(session.ids(batches))
    return found


@define("__exit__ without enter")
def _exit_only(session: Session) -> object:
    return session.manager("ten").__exit__(None, None, None)


@define("exception in with body propagates")
def _body_raises(session: Session) -> object:
    with session.manager("ten") as batches:
        next(iter(batches))
        raise KeyError("user body")


@define("two loaders at once on one converter")
def _two_loaders(session: Session) -> object:
    with session.open("ten") as one, session.open("ten", batch_size=3) as two:
        pairs = itertools.zip_longest(one, two)
        return [[None if batch is None else batch["id"] for batch in pair] for pair in pairs]


for _frame, _row in (
    ("empty_range", "empty: range(0)"),
    ("empty_filter", "empty: range(5).filter(false)"),
    ("empty_created", "empty: createDataFrame([],schema)"),
    ("empty_partition", "one empty partition of 4 files"),
    ("single_row", "single row"),
):
    add(f"{_row} [length]", lambda session, frame=_frame: len(session.converter(frame)))
    for _loader in LOADERS:
        load(f"{_row} [{_loader}]", _frame, _loader)
load("empty, num_epochs=None torch", "empty_range", num_epochs=None, seconds=10)
load("empty, num_epochs=None tf", "empty_range", "tf", num_epochs=None, seconds=10)


def _define_timestamps(name: str, loader: str, **options: Any) -> None:
    """A column of timestamps, of which torch has no type."""

    @define(f"timestamps: {name}")
    def _load(session: Session) -> object:
        def make(reader: Any, batch_size: int, shuffling_queue_capacity: int) -> Any:
            return getattr(session.module("pytorch"), loader)(reader, batch_size=4, **options)

        timestamps = "select id, timestamp_seconds(id * 86400) as at from range(0, 10, 1, 1)"
        return session.load(session.convert(session.spark.sql(timestamps)), data_loader_fn=make)


def _days(column: Any) -> Any:
    return column.astype("datetime64[D]").astype(np.int64) if column.dtype.kind == "M" else column


_OWN_COLLATE: dict[str, Callable[[list[Any]], Any]] = {
    "a collate_fn that leaves them out": lambda rows: [int(row["id"]) for row in rows],
    "a collate_fn of numbers": lambda rows: np.array([int(row["at"].astype(int)) for row in rows]),
    "a collate_fn of their types": lambda rows: [str(row["at"].dtype) for row in rows],
}
for _name, _collate in _OWN_COLLATE.items():
    _define_timestamps(_name, "DataLoader", collate_fn=_collate)
_define_timestamps("a transform_fn of numbers", "BatchedDataLoader", transform_fn=_days)
for _loader in ("DataLoader", "BatchedDataLoader", "InMemBatchedDataLoader"):
    _define_timestamps(_loader, _loader)
