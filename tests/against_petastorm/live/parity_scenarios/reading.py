"""Predicates, filters, caches and the other arguments of `make_batch_reader`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from parity_harness.session import Session

from parity_scenarios import Scenarios

SCENARIOS = Scenarios()
add, load, define = SCENARIOS.add, SCENARIOS.load, SCENARIOS.define

# --- predicates --------------------------------------------------------------------------------

load("no predicate dtypes", "predicates")


def predicate(
    name: str,
    make: Callable[[Any], Any],
    loader: str = "torch",
    *,
    frame: str = "predicates",
    seconds: float = 120,
    **options: Any,
) -> None:
    """Add a scenario with a predicate; `make` gets the package's `predicates` module."""

    def run(session: Session) -> object:
        session.stage = "opening"
        return session.load(frame, loader, predicate=make(session.module("predicates")), **options)

    add(name, run, seconds=seconds)


def _above(limit: int) -> Callable[[Any], Any]:
    return lambda module: module.in_lambda(["id"], lambda id_: id_ > limit)


for _loader in ("torch", "tf", "batched"):
    _suffix = "" if _loader == "torch" else f" {_loader}"
    predicate(f"in_lambda id>2{' (Series)' if _loader == 'torch' else _suffix}", _above(2), _loader)
predicate("in_lambda on all-true", _above(-1))
predicate("in_lambda only predicate column", _above(2), schema_fields=["id"])
predicate("in_lambda returns scalar bool", lambda m: m.in_lambda(["id"], lambda id_: True))
predicate(
    "in_lambda returns ndarray",
    lambda m: m.in_lambda(["id"], lambda id_: np.asarray(id_) > 2),
)
predicate("in_lambda none match", _above(99))
predicate("in_lambda none match tf", _above(99), "tf")
predicate("in_lambda none match, num_epochs=None", _above(99), num_epochs=None, seconds=5)
predicate("in_lambda fields not list", lambda m: m.in_lambda("id", lambda id_: id_ > 2))
predicate("in_lambda unknown field", lambda m: m.in_lambda(["zzz"], lambda zzz: zzz > 2))
predicate("in_lambda field excluded by schema_fields", _above(2), schema_fields=["d"])
predicate(
    "in_lambda with two fields",
    lambda m: m.in_lambda(["id", "d"], lambda id_, d: (id_ > 2) & (d < 6)),
)
predicate(
    "in_lambda with state",
    lambda m: m.in_lambda(["id"], lambda id_, state: id_ > state["limit"], {"limit": 2}),
)
predicate("in_set", lambda m: m.in_set({3, 4}, "id"))
predicate("in_negate(in_lambda)", lambda m: m.in_negate(_above(2)(m)))
predicate("in_reduce all", lambda m: m.in_reduce([_above(2)(m), _above(1)(m)], all))
predicate("in_reduce any", lambda m: m.in_reduce([_above(2)(m), _above(1)(m)], any))
predicate(
    "in_reduce np.logical_and",
    lambda m: m.in_reduce(
        [_above(2)(m), m.in_lambda(["d"], lambda d: d < 6)],
        lambda parts: np.logical_and(parts[0], parts[1]),
    ),
)
predicate("in_pseudorandom_split", lambda m: m.in_pseudorandom_split([0.5, 0.5], 0, "id"))
predicate("in_intersection", lambda m: m.in_intersection({3, 4}, "a"))
predicate("predicate not PredicateBase", lambda m: len)


@define("predicate of the user's own")
def _own(session: Session) -> object:
    base = session.module("predicates").PredicateBase

    class Own(base):  # type: ignore[misc,valid-type]
        def get_fields(self) -> set[str]:
            return {"id"}

        def do_include(self, values: Any) -> Any:
            return values["id"] % 3 == 0

    return session.load("predicates", predicate=Own())


def _with_transform(name: str, function: Any, **spec: Any) -> None:
    def run(session: Session) -> object:
        made = session.transform_spec(function, **spec)
        chosen = _above(2)(session.module("predicates"))
        return session.load("predicates", predicate=chosen, transform_spec=made)

    add(name, run)


def _tens(rows: Any) -> Any:
    rows["d"] *= 10
    return rows


def _images(rows: Any) -> Any:
    rows["img"] = [np.full((2, 2), i, np.float32) for i in rows["id"]]
    return rows


_with_transform("predicate + transform_spec func", _tens)
_with_transform("predicate + transform_spec removed_fields only", None, removed_fields=["a"])
_with_transform(
    "predicate + transform_spec (2,2) field",
    _images,
    edit_fields=[("img", np.float32, (2, 2), False)],
)
_with_transform(
    "predicate + transform_spec removed + func keeps", lambda rows: rows, removed_fields=["a"]
)
for _seed_rows in (False, True):
    predicate(
        f"predicate and shuffle_rows={_seed_rows}, rows stay whole",
        _above(2),
        frame="predicates",
        shuffle_rows=_seed_rows,
        seed=4,
        workers_count=1,
    )
predicate(
    "predicate and drop partitions", _above(2), shuffle_row_drop_partitions=2, schema_fields=["id"]
)
predicate("predicate and shards", _above(2), cur_shard=0, shard_count=1)

# --- filters -----------------------------------------------------------------------------------

for _filters in (
    [("id", "<", 3)],
    [("id", "=", 3)],
    [[("id", "<", 3)]],
    [("nope", "=", 3)],
    "bad",
):
    load(f"filters={_filters!r}", "predicates", filters=_filters)

# --- caches ------------------------------------------------------------------------------------

_CACHE = {
    "cache_type": "local-disk",
    "cache_size_limit": 10**9,
    "cache_row_size_estimate": 100,
}


def _cached(session: Session, **options: Any) -> list[Any]:
    """The loaded rows, and whether files are left in the cache's directory."""
    with tempfile.TemporaryDirectory() as directory:
        location = os.path.join(directory, "cache")
        rows = session.load("ten2", cache_location=location, **{**_CACHE, **options})
        left = os.path.isdir(location) and bool(os.listdir(location))
    return [rows, left]


add("local-disk cache", _cached)
add("local-disk cache epochs=2", lambda session: _cached(session, num_epochs=2))
load("local-disk no args", "ten2", cache_type="local-disk")
add("local-disk, small limit", lambda session: _cached(session, cache_size_limit=100))


@define("local-disk + predicate")
def _cache_predicate(session: Session) -> object:
    return _cached(session, predicate=_above(2)(session.module("predicates")))


load("cache_type unknown", "ten2", cache_type="memory")
load("cache_type None", "ten2", cache_type=None)


@define("local-disk + transform_spec: transform cached? calls over 3 epochs x 2 rg")
def _cache_transform(session: Session) -> object:
    calls: list[int] = []
    spec = session.transform_spec(lambda rows: (calls.append(1), rows)[1])
    _cached(session, transform_spec=spec, num_epochs=3, workers_count=1)
    return len(calls)


# --- other keywords ----------------------------------------------------------------------------

_KEYWORDS: tuple[dict[str, Any], ...] = (
    {"foo": 1},
    {"dataset_url": "x"},
    {"dataset_url_or_urls": "x"},
    {"reader_pool_type": "foo"},
    {"seed": "a"},
    {"seed": -1},
    {"results_queue_size": 0},
    {"results_queue_size": 1},
    {"hdfs_driver": "x"},
    {"shuffle_row_drop_partitions": 0},
    {"shuffle_row_drop_partitions": -1},
    {"shuffle_row_drop_partitions": 1.5},
    {"storage_options": {"a": 1}},
    {"rowgroup_selector": "x"},
    {"pyarrow_serialize": True},
    {"convert_early_to_numpy": True},
    {"zmq_copy_buffers": False, "reader_pool_type": "process", "workers_count": 1},
    {"convert_early_to_numpy": True, "reader_pool_type": "process", "workers_count": 1},
    {"collate_fn": list},
    {"pin_memory": True},
    {"drop_last": True},
    {"prefetch": 1},
    {"transform_spec": "x"},
    {"reader_pool_type": "process", "workers_count": 1},
    {"reader_pool_type": "dummy"},
    {"shuffle_row_groups": "yes", "seed": 3, "workers_count": 1},
    {"shuffle_rows": 1, "seed": 3, "workers_count": 1},
)
for _options in _KEYWORDS:
    _shown = {k: v for k, v in _options.items() if k != "workers_count"}
    load(f"torch kwarg {_shown}", "ten2", **_options)
for _options in ({"foo": 1}, {"data_loader_fn": None}, {"drop_remainder": True}):
    load(f"tf kwarg {_options}", "ten2", "tf", **_options)  # type: ignore[arg-type]


@define("torch kwarg filesystem=pyarrow.fs.LocalFileSystem()")
def _filesystem(session: Session) -> object:
    from pyarrow.fs import LocalFileSystem

    return session.load("ten2", filesystem=LocalFileSystem())


@define("unknown kwarg: raised at make or at enter?")
def _unknown(session: Session) -> object:
    return type(session.manager("ten2", foo=1)).__name__


@define("positional args torch (4,1)")
def _positional(session: Session) -> object:
    manager = session.converter("ten2").make_torch_dataloader(4, 1)
    return [manager.batch_size, manager.petastorm_reader_kwargs]


@define("positional args tf (4,1,1)")
def _positional_tf(session: Session) -> object:
    manager = session.converter("ten2").make_tf_dataset(4, 1, 1, 2, 3)
    return [
        manager.batch_size,
        manager.prefetch,
        manager.shuffling_queue_capacity,
        manager.petastorm_reader_kwargs,
    ]


@define("defaults forwarded to reader")
def _defaults(session: Session) -> object:
    torch = session.converter("ten2").make_torch_dataloader()
    tf = session.converter("ten2").make_tf_dataset()
    return [
        torch.petastorm_reader_kwargs,
        torch.batch_size,
        tf.petastorm_reader_kwargs,
        tf.batch_size,
    ]


# --- make_batch_reader on its own --------------------------------------------------------------


def _reader(session: Session, url: Any, **options: Any) -> object:
    make = session.module("reader").make_batch_reader
    session.stage = "opening"
    with make(url, **{"shuffle_row_groups": False, "workers_count": 1, **options}) as reader:
        session.stage = "iterating"
        return [[type(batch).__name__, batch._asdict()] for batch in reader]


def _directory(session: Session, frame: str = "ten2") -> str:
    """The directory of a frame's rows: the original's Parquet, the bridge's shards."""
    return str(session.converter(frame).cache_dir_url)


add(
    "make_batch_reader dir url",
    lambda session: _reader(session, _directory(session, "ten")),
)


@define("make_batch_reader list of files")
def _reader_files(session: Session) -> object:
    return _reader(session, list(session.converter("ten2").file_urls))


add("make_batch_reader schemeless", lambda session: _reader(session, "/no/scheme"))
add("make_batch_reader empty list", lambda session: _reader(session, []))
add("make_batch_reader None", lambda session: _reader(session, None))
add("make_batch_reader nonexistent", lambda session: _reader(session, "file:///no/such/dir"))
add(
    "make_batch_reader mixed schemes",
    lambda session: _reader(session, ["file:///a/b.parquet", "s3://a/b.parquet"]),
)


@define("make_batch_reader attributes")
def _attributes(session: Session) -> object:
    make = session.module("reader").make_batch_reader
    with make(_directory(session), num_epochs=2) as reader:
        return {
            "batched": reader.batched_output,
            "batched reader": reader.is_batched_reader,
            "epochs": reader.num_epochs,
            "ngram": reader.ngram,
            "stopped": reader.stopped,
            "last": reader.last_row_consumed,
            "has": [
                hasattr(reader, name)
                for name in (
                    "cleanup_cache",
                    "diagnostics",
                    "join",
                    "next",
                    "reset",
                    "schema",
                    "stop",
                )
            ],
            "schema": list(reader.schema.fields),
        }


@define("make_batch_reader: next, reset, end")
def _reader_steps(session: Session) -> object:
    make = session.module("reader").make_batch_reader
    steps: list[Any] = []
    with make(_directory(session, "ten"), workers_count=1, shuffle_row_groups=False) as reader:
        steps.append(next(reader).id)
        try:
            next(reader)
        except StopIteration:
            steps.append("end")
        steps.append(reader.last_row_consumed)
        reader.reset()
        steps.append(reader.next().id)
    steps.append(reader.stopped)
    return steps


@define("make_batch_reader as ctx manager prints")
def _reader_manager(session: Session) -> object:
    return len(_reader(session, _directory(session)))  # type: ignore[arg-type]


@define("make_batch_reader defaults")
def _reader_defaults(session: Session) -> object:
    make = session.module("reader").make_batch_reader
    with make(_directory(session)) as reader:
        return sum(len(batch.id) for batch in reader)


@define("loaders over make_batch_reader")
def _loader_over_reader(session: Session) -> object:
    make = session.module("reader").make_batch_reader
    loader = session.module("pytorch").DataLoader
    options: dict[str, Any] = {"shuffle_row_groups": False, "num_epochs": 2}
    with loader(make(_directory(session, "ten"), **options), batch_size=3) as batches:
        return list(batches)


@define("make_petastorm_dataset over make_batch_reader")
def _dataset_over_reader(session: Session) -> object:
    make = session.module("reader").make_batch_reader
    wrap = session.module("tf_utils").make_petastorm_dataset
    with make(_directory(session, "ten"), shuffle_row_groups=False, num_epochs=2) as reader:
        dataset = wrap(reader)
        return {"spec": dataset.element_spec, "batches": list(dataset)}
