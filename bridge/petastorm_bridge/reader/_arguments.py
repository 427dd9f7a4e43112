"""Checks of a reader's arguments: what Petastorm refuses is refused with the same exception type."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from petastorm_bridge._sources._far.copies import CacheSettings
from petastorm_bridge._tables.options import OPTIONS, Fate, Option
from petastorm_bridge.errors import IgnoredArgumentWarning
from petastorm_bridge.ngram import NGram
from petastorm_bridge.predicates import PredicateBase
from petastorm_bridge.selectors import RowGroupSelectorBase

from ._pool import InlinePool, Pool, WorkerPool
from ._ranks import rank_and_world_size, warn_if_all_ranks_read_all


class _CountError(ValueError, IndexError):
    """A worker count below one; Petastorm stumbles over it with an IndexError."""


@dataclass(frozen=True)
class ReaderOptions:
    """The checked arguments that decide what a reader yields."""

    schema_fields: Any
    reader_pool_type: str
    workers_count: int
    results_queue_size: int
    seed: Any
    shuffle_rows: bool
    shuffle_row_groups: bool
    shuffle_row_drop_partitions: int
    predicate: Any
    rowgroup_selector: Any
    num_epochs: int | None
    cur_shard: int | None
    shard_count: int | None
    shard_seed: int | None
    transform_spec: Any
    filters: Any
    cache_type: Any
    cache_location: str | None
    cache_size_limit: int | None
    shard_by_rank: bool
    even_batches: bool
    drop_last: bool
    zmq_copy_buffers: bool
    transform_batch_size: int | None = None

    @classmethod
    def from_arguments(
        cls, given: Mapping[str, Any], function: Callable[..., Any]
    ) -> ReaderOptions:
        """Check the arguments of ``make_batch_reader`` or ``make_reader``; what is wrong raises as Petastorm does."""
        _check_cache(given)
        _check_pool(given)
        _check_kinds(given, function.__name__)
        if given["shard_seed"]:
            warnings.warn(
                "shard_seed was deprecated and will be removed in future versions. "
                "Use seed to apply randomization effects on sharding row groups.",
                stacklevel=4,
            )
        _warn_ignored(given, function)
        cur_shard, shard_count = _shard(given)
        even = given.get("even_batches")
        even = bool(given["shard_by_rank"] if even is None else even)
        _check_evenness(given, shard_count, even=even)
        values = {name: given[name] for name in cls.__dataclass_fields__ if name in given}
        values.update(
            cur_shard=cur_shard,
            shard_count=shard_count,
            even_batches=even,
            seed=_python_int(given["seed"]),
            shard_seed=_python_int(given["shard_seed"] or given["seed"]),
            shuffle_row_drop_partitions=_parts(given["shuffle_row_drop_partitions"]),
            transform_batch_size=_frame_rows(given),
        )
        if shard_count is None:
            warn_if_all_ranks_read_all()
        return cls(**values)

    def check_row_predicate(self) -> None:
        """Refuse, with RuntimeError as Petastorm, what does not go with a predicate that is about rows."""
        if self.cache_type == "local-disk":
            raise RuntimeError(
                "Local cache is not supported together with predicates, unless the dataset is "
                "partitioned by the column the predicate operates on."
            )

    def check_rows_are_known(self) -> None:
        """Refuse, with ValueError, what makes the rows of even shards uneven again."""
        if self.even_batches:
            raise ValueError(
                "shard_by_rank=True and even_batches=True give as many rows to every rank; how many a "
                "predicate or filters leave is known only after reading. Filter the DataFrame "
                "before it is converted, or pass even_batches=False and count the steps yourself."
            )

    @property
    def has_separate_sequences(self) -> bool:
        """Whether sequences are asked for that have no row in common."""
        return isinstance(self.schema_fields, NGram) and not self.schema_fields.timestamp_overlap

    def check_sequences(self) -> None:
        """Refuse what does not go with sequences that have no row in common.

        Raises:
            NotImplementedError: Row groups in parts, as in Petastorm.
            ValueError: Shards with as many sequences on every rank.
        """
        if not self.has_separate_sequences:
            return
        if self.shuffle_row_drop_partitions > 1:
            raise NotImplementedError(
                "Using timestamp_overlap=False is not implemented with"
                " shuffle_options.shuffle_row_drop_partitions > 1"
            )
        if self.shard_by_rank:
            raise ValueError(
                "shard_by_rank=True gives as many sequences to every rank; with timestamp_overlap=False their "
                "number is known only after reading. Pass cur_shard and shard_count."
            )

    @property
    def cache_settings(self) -> CacheSettings | None:
        """What the arguments say of copies of far files; None where they say nothing."""
        if self.cache_type != "local-disk":
            return None
        return CacheSettings(self.cache_location, self.cache_size_limit)

    def make_pool(self) -> Pool:
        """Return the workers of a reader."""
        if self.reader_pool_type == "dummy":
            return InlinePool()
        in_processes = self.reader_pool_type == "process"
        return WorkerPool(self.workers_count, self.results_queue_size, in_processes=in_processes)


def _check_cache(given: Mapping[str, Any]) -> None:
    cache_type = given["cache_type"]
    if cache_type not in (None, "null", "local-disk"):
        raise ValueError(f"Unknown cache_type: {cache_type}")
    if cache_type != "local-disk":
        return
    limit, row = given["cache_size_limit"], given["cache_row_size_estimate"]
    shards = (given["cache_extra_settings"] or {}).get("shards", 6)
    if limit / shards < 5 * row:  # a missing size is a TypeError, as in petastorm/local_disk_cache
        raise ValueError(
            "Condition 'size_limit_bytes / shards < 5 * expected_row_size_bytes' needs to hold, "
            "otherwise, newly added cached values might end up being immediately evicted."
        )
    if given["shuffle_row_drop_partitions"] != 1:
        raise RuntimeError(
            "Local cache is not supported together with shuffle_row_drop_partitions > 1"
        )


def _check_pool(given: Mapping[str, Any]) -> None:
    pool, workers = given["reader_pool_type"], given["workers_count"]
    if pool not in ("thread", "process", "dummy"):
        raise ValueError(f"Unknown reader_pool_type: {pool}")
    if pool == "dummy":
        return
    if not isinstance(workers, (int, np.integer)):
        raise TypeError(
            f"workers_count is {workers!r}: '{type(workers).__name__}' object cannot be interpreted "
            "as an integer."
        )
    if workers < 1:
        raise _CountError(f"workers_count is {workers}; at least one worker is needed.")


def _check_kinds(given: Mapping[str, Any], api: str) -> None:
    fields, epochs = given["schema_fields"], given["num_epochs"]
    if fields is not None and not isinstance(fields, (Iterable, NGram)):
        raise ValueError(
            "Fields must be either None, an iterable collection of Unischema fields "
            "or an NGram object."
        )
    if epochs is not None and (not isinstance(epochs, int) or epochs < 1):
        raise ValueError("iterations must be positive integer or None")
    predicate, transform = given["predicate"], given["transform_spec"]
    if predicate is not None and not isinstance(predicate, PredicateBase):
        raise ValueError("predicate parameter is expected to be derived from PredicateBase")
    if transform is not None and not hasattr(transform, "removed_fields"):
        raise AttributeError(
            f"transform_spec is a {type(transform).__name__}, which has no attribute "
            "'removed_fields'; wrap the function: TransformSpec(func)."
        )
    selector = given["rowgroup_selector"]
    if selector is not None and not isinstance(selector, RowGroupSelectorBase):
        raise ValueError(
            "rowgroup_selector parameter is expected to be derived from RowGroupSelectorBase"
        )
    if selector is not None and api == "make_batch_reader":
        raise ValueError(
            "rowgroup_selector needs indexes of row groups, which make_batch_reader does not read. "
            "Use predicate or filters, or make_reader on the dataset that has them."
        )


def _shard(given: Mapping[str, Any]) -> tuple[int | None, int | None]:
    cur_shard, shard_count = given["cur_shard"], given["shard_count"]
    if cur_shard is None and shard_count is None:
        return rank_and_world_size() if given["shard_by_rank"] else (None, None)
    integers = (int, np.integer)
    if (
        not shard_count
        or not isinstance(cur_shard, integers)
        or not isinstance(shard_count, integers)
    ):
        raise ValueError(
            "partition and num_partitions must be ints and both specified to use partitioning: "
            f"cur_shard is {cur_shard!r}, shard_count is {shard_count!r}"
        )
    if shard_count < 0:
        raise ValueError(f"shard_count is {shard_count}; it must be at least 1.")
    if given["shard_by_rank"]:
        raise ValueError(
            f"shard_by_rank=True takes the shard from the process's rank; cur_shard={cur_shard} and "
            f"shard_count={shard_count} were given as well. Pass one or the other."
        )
    return int(cur_shard), int(shard_count)


def _check_evenness(given: Mapping[str, Any], shard_count: int | None, *, even: bool) -> None:
    # TypeErrors, as those of Petastorm, which does not know the arguments.
    if even and shard_count is None:
        raise TypeError(
            "even_batches=True makes shards even and goes with shard_by_rank=True, or with cur_shard "
            "and shard_count."
        )
    if given["drop_last"] and not even:
        raise TypeError(
            "drop_last=True says how shards are made even and goes with shard_by_rank=True, or with "
            "cur_shard, shard_count and even_batches=True. Batches keep their last, shorter one, as "
            "in Petastorm."
        )


def _frame_rows(given: Mapping[str, Any]) -> int | None:
    """Return the rows that a transform gets at once, None for whole row groups."""
    rows = given.get("transform_batch_size")
    if rows is None:
        return None
    if not isinstance(rows, (int, np.integer)) or isinstance(rows, bool):
        raise TypeError(
            f"transform_batch_size is {rows!r}, a {type(rows).__name__}; it must be an integer number "
            "of rows."
        )
    if rows < 1:
        raise ValueError(f"transform_batch_size is {rows}; the transform needs at least one row.")
    if given["transform_spec"] is None:
        raise TypeError(
            "transform_batch_size says how many rows the transform gets at once and goes with "
            "transform_spec; for batches it is batch_size of the loader."
        )
    return int(rows)


def _python_int(seed: Any) -> Any:
    """Return NumPy's integers as Python's, which alone JSON and ``random.Random`` take."""
    return int(seed) if isinstance(seed, np.integer) else seed


def _parts(drop_partitions: Any) -> int:
    try:
        return max(0, operator.index(drop_partitions))
    except TypeError as error:
        raise TypeError(f"shuffle_row_drop_partitions is {drop_partitions!r}: {error}") from None


@functools.lru_cache(maxsize=2)  # to look at a signature takes as long as to open a small dataset
def _ignored(function: Callable[..., Any]) -> list[tuple[Option, Any]]:
    """Return which arguments of a function are ignored, and their defaults."""
    parameters = inspect.signature(function).parameters
    return [
        (option, parameters[option.name].default)
        for option in OPTIONS
        if option.api == function.__name__ and option.fate is Fate.IGNORED
    ]


def _warn_ignored(given: Mapping[str, Any], function: Callable[..., Any]) -> None:
    for option, default in _ignored(function):
        value = given[option.name]
        # Of one type only: pyarrow 14 crashes when a file system is compared with None.
        if value is None or (isinstance(value, type(default)) and value == default):
            continue
        warnings.warn(
            f"{option.name}={value!r} is ignored. {option.meaning}",
            IgnoredArgumentWarning,
            stacklevel=4,
        )


def refuse_unknown(caller: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse, with TypeError, the first keyword argument that is not known, and name the nearest one that is."""
    names = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}.{hint}")
