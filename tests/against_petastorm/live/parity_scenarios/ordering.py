"""Order, shuffling and sharding.

Where the original's own order varies from run to run, a scenario returns what holds in every run.
One worker gives the original a fixed order; the bridge must give it with any number of workers.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
from parity_harness.session import CONF, Session

from parity_scenarios import Scenarios

SCENARIOS = Scenarios()
add, load, define = SCENARIOS.add, SCENARIOS.load, SCENARIOS.define

_POOLS = (
    ("thread", 1),
    ("thread", 4),
    ("thread", None),
    ("thread", 10),
    ("dummy", 1),
    ("process", 1),
)


def _ids(session: Session, source: Any = "r1000f8", loader: str = "torch", **options: Any) -> Any:
    """All ids of one pass, in order."""
    with session.open(source, loader, **{"batch_size": 1000, **options}) as batches:
        return np.concatenate([np.asarray(session.ids([batch])[0]) for batch in batches] or [[]])


def _groups(ids: Any, rows: int = 125) -> list[int]:
    """The order in which row groups come, from ids."""
    return [int(group) for group, _ in itertools.groupby(ids // rows)]


for _pool, _workers in _POOLS:
    for _frame in ("r1000f8", "r10000f20"):
        if _frame == "r10000f20" and (_pool == "process" or _workers in {4, None}):
            continue  # the original's order varies
        add(
            f"shuffle_row_groups=False {_frame} pool={_pool} workers={_workers}: "
            f"== file_urls order, {3 if _pool == 'process' else 15} runs",
            lambda session, frame=_frame, pool=_pool, workers=_workers: _ids(
                session, frame, reader_pool_type=pool, workers_count=workers
            ),
            seconds=120,
        )
add(
    "shuffle_row_groups=False r1000f8 pool=process workers=2: == file_urls order, 3 runs",
    # The original never keeps the order here.
    lambda session: np.sort(_ids(session, reader_pool_type="process", workers_count=2)),
    seconds=120,
)


def _row_groups(session: Session) -> Any:
    """A converter of 2,000 rows in two files with ten row groups each."""
    return session.converter("r2000", parquet_row_group_size_bytes=1024)


@define("row groups per dataset")
def _cuts(session: Session) -> object:
    make = session.module("reader").make_batch_reader
    urls = list(_row_groups(session).file_urls)
    with make(urls, shuffle_row_groups=False, workers_count=1) as reader:
        return [len(batch.id) for batch in reader]


for _pool, _workers in (("thread", 1), ("thread", 10), ("dummy", 1)):
    add(
        f"shuffle_row_groups=False r2000rg pool={_pool} workers={_workers}: "
        "== file_urls order, 15 runs",
        lambda session, pool=_pool, workers=_workers: _ids(
            session, _row_groups(session), reader_pool_type=pool, workers_count=workers
        ),
    )
add(
    "tf default workers r2000rg order",
    lambda session: _ids(session, _row_groups(session), "tf", workers_count=1),
)
add(
    "2 epochs order repeated r2000rg w=4",
    lambda session: _ids(
        session, _row_groups(session), num_epochs=2, workers_count=_workers_of(session)
    ),
)
add(
    "seed=5 shuffle same order across workers 1,2,4,10 and dummy r2000rg",
    lambda session: _ids(
        session,
        _row_groups(session),
        shuffle_row_groups=True,
        seed=5,
        workers_count=_workers_of(session),
    ),
)
add(
    "shuffle_rows, seed, r2000rg",
    lambda session: _ids(
        session,
        _row_groups(session),
        shuffle_row_groups=True,
        shuffle_rows=True,
        seed=5,
        workers_count=_workers_of(session),
    ),
)
for _count, _row in ((2, "shards=2 r2000rg"), (3, "shards=3 r2000rg: disjoint and complete")):
    add(
        _row,
        lambda session, count=_count: _shards_of_row_groups(session, count),
    )


def _shards_of_row_groups(session: Session, count: int) -> object:
    source = _row_groups(session)
    shards = [
        _ids(session, source, cur_shard=i, shard_count=count, workers_count=1) for i in range(count)
    ]
    return shards if count == 2 else np.sort(np.concatenate(shards))


@define("shard with multiple row groups per file (2 files x10 rg), 3 shards sizes")
def _shard_sizes(session: Session) -> object:
    source = _row_groups(session)
    options = {"shard_count": 3, "workers_count": 1}
    return [len(_ids(session, source, cur_shard=i, **options)) for i in range(3)]


@define("file_urls order == part order")
def _file_order(session: Session) -> object:
    """Read in the order in which the converter came, without sorting the original's files."""
    session.stage = "converting"
    session.spark.conf.set(CONF, session.cache_url)
    frame = session.spark.range(0, 16, 1, 16).selectExpr("id", "id as other")
    converter = session.module("spark").make_spark_converter(frame)
    ids = _ids(session, converter, workers_count=1)
    return ids.tolist() == list(range(16))


@define("random latency transform r1000f8 thread w=4")
def _latency(session: Session) -> object:
    def slow(rows: Any) -> Any:
        time.sleep(0.001 * (7 - rows["id"].iloc[0] // 125))
        return rows

    return _ids(session, workers_count=4, transform_spec=session.transform_spec(slow))


add(
    "tf default workers r1000f8 order",
    lambda session: _ids(session, loader="tf", workers_count=...),
)
add("2 epochs order repeated r1000f8 w=4", lambda session: _ids(session, num_epochs=2))


@define("default shuffle: row group order x4")
def _default_shuffle(session: Session) -> object:
    orders = [tuple(_groups(_ids(session, shuffle_row_groups=...))) for _ in range(4)]
    return [len(set(orders)) > 1, [sorted(order) for order in orders]]


@define("default shuffle: rows within row group in order")
def _rows_in_order(session: Session) -> object:
    ids = _ids(session, shuffle_row_groups=...)
    return [bool((np.diff(group) == 1).all()) for group in ids.reshape(8, 125)]


def _workers_of(session: Session) -> int:
    return 1 if session.original else 4


for _seed in (42, 5, 1, 123456789):
    add(
        f"seed={_seed} shuffle x4 workers=1",
        lambda session, seed=_seed: [
            _groups(
                _ids(
                    session, shuffle_row_groups=True, seed=seed, workers_count=_workers_of(session)
                )
            )
            for _ in range(2)
        ],
    )


@define("seed=42 shuffle x4 workers=4")
def _seed_workers(session: Session) -> object:
    found = [
        _groups(_ids(session, shuffle_row_groups=True, seed=42, workers_count=workers))
        for workers in (1, 4)
    ]
    return [found[0], found[0] == found[1] or session.original]


@define("seed=5 shuffle same order across workers 1,2,4,10 and dummy r1000f8")
def _seed_pools(session: Session) -> object:
    orders = {
        tuple(
            _groups(
                _ids(
                    session,
                    shuffle_row_groups=True,
                    seed=5,
                    workers_count=workers,
                    reader_pool_type=pool,
                )
            )
        )
        for pool, workers in (
            ("thread", 1),
            ("thread", 2),
            ("thread", 4),
            ("thread", 10),
            ("dummy", 1),
        )
    }
    # The original mostly agrees with itself, not always.
    return 1 if session.original else len(orders)


@define("seed=0 shuffle x4")
def _seed_zero(session: Session) -> object:
    options = {"shuffle_row_groups": True, "seed": 0, "workers_count": 1}
    return len({tuple(_groups(_ids(session, **options))) for _ in range(4)}) == 1


@define("np.random.seed controls default shuffle")
def _numpy_seed(session: Session) -> object:
    orders = []
    for _ in range(2):
        np.random.seed(3)
        orders.append(_groups(_ids(session, shuffle_row_groups=True, workers_count=1)))
    return orders[0] == orders[1]


@define("epochs=3 seed=42 row group order per epoch")
def _epochs_seed(session: Session) -> object:
    ids = _ids(
        session, shuffle_row_groups=True, seed=42, num_epochs=3, workers_count=_workers_of(session)
    )
    return [_groups(epoch) for epoch in ids.reshape(3, 1000)]


@define("epochs=3 no seed row group order per epoch")
def _epochs_no_seed(session: Session) -> object:
    ids = _ids(session, shuffle_row_groups=True, num_epochs=3, workers_count=1)
    return len({tuple(_groups(epoch)) for epoch in ids.reshape(3, 1000)})


def _passes(session: Session, **options: Any) -> list[list[int]]:
    found = []
    options = {"shuffle_row_groups": True, "batch_size": 125, "workers_count": 1, **options}
    with session.open("r1000f8", **options) as batches:
        for _ in range(3):
            found.append(_groups(np.concatenate(session.ids(batches))))
    return found


@define("re-iterated loader seed=42: order per pass")
def _passes_seed(session: Session) -> object:
    return _passes(session, seed=42)


@define("re-iterated loader no seed: order per pass")
def _passes_no_seed(session: Session) -> object:
    passes = _passes(session)
    return [len({tuple(order) for order in passes}), [sorted(order) for order in passes]]


@define("shuffle_rows no seed, shuffle_row_groups False x3")
def _rows_no_seed(session: Session) -> object:
    ids = [_ids(session, shuffle_rows=True, workers_count=1) for _ in range(3)]
    return [
        len({tuple(one.tolist()) for one in ids}),
        [_groups(one) for one in ids],
        [np.sort(one) for one in ids],
    ]


for _count in (1, 4):
    add(
        f"shuffle_rows seed=42 x3 w={_count}",
        lambda session, count=_count: _rows_seeded(session, count),
    )


def _rows_seeded(session: Session, workers: int) -> object:
    ids = [_ids(session, shuffle_rows=True, seed=42, workers_count=workers) for _ in range(2)]
    # With four workers the original's row groups of one round share a permutation.
    return [ids[0] if workers == 1 else _groups(ids[0]), bool((ids[0] == ids[1]).all())]


for _count in (1, 4):
    add(
        f"shuffle_rows seed=42: same permutation across row groups? w={_count}",
        lambda session, count=_count: (
            _ids(session, shuffle_rows=True, seed=42, workers_count=count) % 125
        ).reshape(8, 125),
    )


@define("shuffle_rows epochs=2 seed=42 w=1 epoch1==epoch2")
def _rows_epochs(session: Session) -> object:
    return _ids(session, shuffle_rows=True, seed=42, num_epochs=2, workers_count=1)


@define("shuffle_rows+shuffle_row_groups seed=42 repro w=4 x3")
def _both_seeded(session: Session) -> object:
    options = {"shuffle_rows": True, "shuffle_row_groups": True, "seed": 42}
    options["workers_count"] = _workers_of(session)
    return [_ids(session, **options) for _ in range(2)]


for _parts in (2, 3, 7):
    for _loader in ("torch", "tf"):
        load(
            f"shuffle_row_drop_partitions={_parts}"
            + ("" if (_parts, _loader) == (2, "torch") else f" [{_loader}]"),
            "ten2",
            _loader,
            shuffle_row_drop_partitions=_parts,
        )
load(
    "shuffle_row_drop_partitions=2 [more than rows]",
    "ten2",
    shuffle_row_drop_partitions=9,
)


@define("shuffle_row_drop_partitions=2 [more than rows, shuffled, seed]")
def _drop_nothing(session: Session) -> object:
    """With row groups of one row every second part is empty, and takes its turn all the same."""
    options = {"shuffle_row_groups": True, "workers_count": 1, "shuffle_row_drop_partitions": 2}
    return [_ids(session, "eight8", seed=seed, **options) for seed in (1, 2, 3)]


@define("shuffle_row_drop_partitions=2 [shuffled, seed]")
def _drop_shuffled(session: Session) -> object:
    options = {"shuffle_row_groups": True, "seed": 42, "workers_count": 1}
    return _ids(session, shuffle_row_drop_partitions=2, **options)


@define("shuffle_row_drop_partitions=2 with shuffle_rows, seed: every row")
def _drop_and_shuffle(session: Session) -> object:
    options = {"shuffle_rows": True, "seed": 1, "workers_count": 1}
    ids = _ids(session, shuffle_row_drop_partitions=2, **options)
    return sorted(np.asarray(ids).tolist())


# --- shuffle buffers ---------------------------------------------------------------------------


def _displacement(session: Session, loader: str, capacity: int, frame: str) -> object:
    """Whether rows are all there, are out of order, and (TensorFlow) how early one comes."""
    # With more workers the original reads twenty files in another order now and then.
    options = {"shuffling_queue_capacity": capacity, "batch_size": 100, "workers_count": 1}
    ids = _ids(session, frame, loader, **options)
    early = int((ids - np.arange(len(ids))).max())
    facts = {
        "all": bool((np.sort(ids) == np.arange(len(ids))).all()),
        "moved": bool((ids != np.arange(len(ids))).any()),
    }
    if loader == "tf":
        facts["never earlier than the capacity"] = early < max(capacity, 1)
    return facts


for _frame, _words in (("r10000f1", "1 rowgroup"), ("r10000f20", "20 files")):
    for _capacity in (0, 1, 10, 100, 1000, 100_000):
        for _loader in ("torch", "batched", "tf"):
            if _loader == "tf" and _frame == "r10000f20":
                continue
            add(
                f"{_loader} shuffling_queue_capacity={_capacity} 10000 rows {_words}",
                lambda session, loader=_loader, capacity=_capacity, frame=_frame: _displacement(
                    session, loader, capacity, frame
                ),
            )
for _capacity in (2, 10, 100, 1000, 100_000):
    for _loader in ("torch", "batched", "tf"):
        add(
            f"{_loader} cap={_capacity} sorted 20 files x500",
            lambda session, loader=_loader, capacity=_capacity: _displacement(
                session, loader, capacity, "r10000f20"
            ),
        )


def _orders(session: Session, loader: str, seed_all: Any) -> int:
    orders = set()
    for _ in range(2):
        seed_all()
        ids = _ids(session, loader=loader, shuffling_queue_capacity=100, seed=42, workers_count=1)
        orders.add(tuple(ids.tolist()))
    return len(orders)


@define("torch cap=100 seed=42 reproducible x2")
def _torch_buffer(session: Session) -> object:
    return _orders(session, "torch", lambda: None)


@define("tf cap=100 seed=42 reproducible x2")
def _tf_buffer(session: Session) -> object:
    return _orders(session, "tf", lambda: None)


@define("torch cap=100 seed=42 + np.random.seed reproducible")
def _torch_buffer_numpy(session: Session) -> object:
    return _orders(session, "torch", lambda: np.random.seed(1))


@define("batched cap=100 seed=42 + torch.manual_seed reproducible")
def _batched_buffer_torch(session: Session) -> object:
    import torch

    return _orders(session, "batched", lambda: torch.manual_seed(1))


@define("tf cap=100 seed=42 + tf.random.set_seed")
def _tf_buffer_tf(session: Session) -> object:
    import tensorflow as tf

    return _orders(session, "tf", lambda: tf.random.set_seed(1))


@define("torch cap=100, global seed alone, reproducible")
def _torch_buffer_global(session: Session) -> object:
    orders = set()
    for _ in range(2):
        np.random.seed(1)
        ids = _ids(session, shuffling_queue_capacity=100, workers_count=1)
        orders.add(tuple(ids.tolist()))
    return len(orders)


@define("shuffle buffer and epochs")
def _buffer_epochs(session: Session) -> object:
    """Whether every epoch has every row exactly once although rows are buffered."""
    ids = _ids(session, "hundred", shuffling_queue_capacity=50, num_epochs=3, batch_size=10)
    return [len(set(epoch)) == 100 for epoch in ids.reshape(3, 100).tolist()]


for _loader in ("torch", "batched", "tf"):
    add(
        f"shuffle buffer, batch sizes {_loader}",
        lambda session, loader=_loader: [
            len(batch)
            for batch in _sizes(session, loader, shuffling_queue_capacity=20, batch_size=7)
        ],
    )


def _sizes(session: Session, loader: str, **options: Any) -> list[list[int]]:
    with session.open("hundred", loader, **options) as batches:
        return session.ids(batches)


# --- shards ------------------------------------------------------------------------------------


def _shards(session: Session, count: int, loader: str = "torch", **options: Any) -> list[Any]:
    return [
        _ids(session, loader=loader, cur_shard=i, shard_count=count, workers_count=1, **options)
        for i in range(count)
    ]


for _shard_count in (1, 2, 3, 8):
    add(
        f"shards={_shard_count} r1000f8: rowgroups per shard",
        lambda session, count=_shard_count: _shards(session, count),
    )
add("shards=2 r1000f8: tf", lambda session: _shards(session, 2, "tf"))


@define("shards=3 r1000f8: rows per shard")
def _shard_rows(session: Session) -> object:
    return [len(shard) for shard in _shards(session, 3)]


@define("shards=3 r1000f8: disjoint and complete")
def _shards_cover(session: Session) -> object:
    return np.sort(np.concatenate(_shards(session, 3)))


for _key in ("seed", "shard_seed"):
    _words = "with seed=7: rowgroups per shard" if _key == "seed" else "with shard_seed=7"
    for _shard_count in (2, 3):
        add(
            f"shards={_shard_count} {_words}",
            lambda session, key=_key, count=_shard_count: _shards(session, count, **{key: 7}),
        )


@define("shards=2 with seed=7, shuffled")
def _shards_seeded(session: Session) -> object:
    return _shards(session, 2, seed=7, shuffle_row_groups=True)


@define("shards=3 epochs=2 union")
def _shards_epochs(session: Session) -> object:
    shards = _shards(session, 3, num_epochs=2)
    return np.sort(np.concatenate(shards))


@define("shards=2, seed, shuffled: shards stay disjoint")
def _shards_shuffled(session: Session) -> object:
    options = {"seed": 3, "shuffle_row_groups": True}
    return [np.sort(np.concatenate(_shards(session, n, **options))) for n in (2, 4)]


for _loader in ("torch", "tf"):
    load(
        "shards=9 > 8 rowgroups" + (" tf" if _loader == "tf" else ""),
        "sixteen8",
        _loader,
        cur_shard=0,
        shard_count=9,
    )
    load(f"shards=9 > 8 rows {_loader}", "eight8", _loader, cur_shard=0, shard_count=9)
    load("only cur_shard" + (" tf" if _loader == "tf" else ""), "eight8", _loader, cur_shard=0)
load("shards=2 on 1 row group", "ten", cur_shard=0, shard_count=2)
load("only shard_count", "eight8", shard_count=2)
load("cur_shard=2 shard_count=2", "eight8", cur_shard=2, shard_count=2)
load("cur_shard=-1 shard_count=2", "eight8", cur_shard=-1, shard_count=2)
load(
    "cur_shard=2 shard_count=2 num_epochs=None",
    "eight8",
    cur_shard=2,
    shard_count=2,
    num_epochs=None,
)
load("shard_count=0", "eight8", cur_shard=0, shard_count=0)
load('cur_shard="0"', "eight8", cur_shard="0", shard_count=2)
load("cur_shard=np.int64(0)", "eight8", cur_shard=np.int64(0), shard_count=2)
for _options in (
    {"seed": np.int64(7)},
    {"shard_seed": np.int64(7)},
    {"seed": 0},
    {"seed": 3, "shard_seed": 7},
    {"shard_seed": "abc"},
    {"shard_seed": 1.5},
    {"shard_seed": [1]},
):
    # One NumPy shows 7, another np.int64(7); the name is one and the same.
    _words = {k: int(v) if isinstance(v, np.integer) else v for k, v in _options.items()}
    load(f"shards with {_words}", "eight8", cur_shard=0, shard_count=2, **_options)
for _parts in (0, -1, None, True, "2"):
    load(f"shuffle_row_drop_partitions={_parts!r}", "ten2", shuffle_row_drop_partitions=_parts)
load("cur_shard=0.0", "eight8", cur_shard=0.0, shard_count=2)
load("cur_shard=True", "eight8", cur_shard=True, shard_count=2)
load(
    "empty files row groups count: 4 files, 2 non-empty",
    "empty_partition",
    cur_shard=0,
    shard_count=1,
)


@contextlib.contextmanager
def _logged(package: str) -> Iterator[list[str]]:
    """Collect the log messages of a package that can be formatted."""
    messages: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with contextlib.suppress(TypeError):
                messages.append(record.getMessage())

    handler, logger = Handler(logging.WARNING), logging.getLogger(package)
    level = logger.level
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
        logger.setLevel(level)


def _horovod(
    session: Session, environment: dict[str, str], shard: tuple[int, int] | None
) -> object:
    options = {} if shard is None else {"cur_shard": shard[0], "shard_count": shard[1]}
    with mock.patch.dict(os.environ, environment), _logged(session.package) as messages:
        rows = session.load("eight8", **options)
    told = [m for m in messages if "is not consistent with horovod environments hvd_rank" in m]
    return {"rows": rows, "told": len(told)}


_HOROVOD = (
    {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4"},
    {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
    {"PMI_RANK": "1", "PMI_SIZE": "4"},
    {"HOROVOD_RANK": "1"},
    {"HOROVOD_RANK": "x", "HOROVOD_SIZE": "4"},
)
for _environment in _HOROVOD:
    for _words, _shard in (
        ("none given", None),
        ("cur_shard=0,count=2", (0, 2)),
        ("matching", (1, 4)),
    ):
        add(
            f"horovod env {_environment} {_words}".replace("'4'", "'3'"),
            lambda session, environment=_environment, shard=_shard: _horovod(
                session, environment, shard
            ),
        )
load("torchrun environment reads everything", "eight8")


@define("torchrun environment reads everything [set]")
def _torchrun(session: Session) -> object:
    environment = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    with mock.patch.dict(os.environ, environment):
        return session.load("eight8")
