"""Native streaming with epochs, shards and transforms: the reading half of `petastorm_bridge.native`.

The codemod's ``--vendor`` copies this file and ``_native_write`` into one.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import tempfile
import warnings
import weakref
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import streaming
import torch

from ._native_write import NUMBERS, MdsDirectory

_CASTS = {"uint16": "int32", "uint32": "int64", "datetime64[ns]": "int64"}


@dataclass
class TransformSpec:
    """A function on the pandas DataFrame of some rows, and what it does to their columns."""

    func: Any = None
    edit_fields: Any = ()  # (name, NumPy dtype, shape of a value, nullable) of each changed one
    removed_fields: Any = ()
    selected_fields: Any = None  # what stays, in this order

    def __post_init__(self) -> None:
        self.edit_fields, self.removed_fields = self.edit_fields or (), self.removed_fields or ()

    def __call__(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of some rows after the transform, in the order of its fields."""
        import pandas as pd

        frame = pd.DataFrame({k: _series(pd, v) for k, v in columns.items()})
        frame = self.func(frame) if self.func else frame
        edits = {edit[0]: edit for edit in self.edit_fields}
        names = [name for name in columns if name not in {*self.removed_fields, *edits}]
        found = {name: frame[name].to_numpy() for name in self.selected_fields or [*names, *edits]}
        for name, values in found.items():
            found[name] = _stack(list(values)) if values.dtype == object and len(values) else values
            _, dtype, shape, *_ = edits.get(name, (name, np.str_, ()))
            if dtype not in {Decimal, np.str_, np.bytes_}:
                fixed = shape if shape and None not in shape else found[name].shape[1:]
                found[name] = found[name].astype(dtype, copy=False).reshape(-1, *fixed)
        return found


class StreamingDataset(streaming.StreamingDataset):
    """``streaming.StreamingDataset`` with epochs (None: endless), explicit shards and a transform."""

    def __init__(
        self, local: str, batch_size: Any = 32, num_epochs: Any = 1, **kwargs: Any
    ) -> None:
        self.num_epochs, self.transform_spec = num_epochs, kwargs.pop("transform_spec", None)
        self.shard = (kwargs.pop("cur_shard", None) or 0, kwargs.pop("shard_count", None) or 1)
        place: Any = {"local": local}
        if "://" in local:
            place = {"local": tempfile.mkdtemp(), "remote": local}
            weakref.finalize(self, shutil.rmtree, place["local"], ignore_errors=True)
        # Without a shard a process reads every row, whatever launched it, and opens its datasets on
        # its own: streaming is shown one process. The lock is for names in shared memory.
        alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        name = os.path.join(tempfile.gettempdir(), f"mds_{os.getuid()}.lock")
        initialised = patch.object(torch.distributed, "is_initialized", bool)
        with open(name, "w") as lock, patch.dict(os.environ, alone), initialised:
            fcntl.flock(lock, fcntl.LOCK_EX)
            options = {"num_canonical_nodes": 1, **kwargs}
            super().__init__(**place, batch_size=int(batch_size or 32), **options)
        with open(os.path.join(place["local"], "index.json")) as file:
            self.kinds: dict[str, str] = json.load(file).get("columns", {})

    def _get_work(self, epoch: int, sample_in_epoch: int) -> Any:
        work = super()._get_work(epoch, sample_in_epoch)
        return work[work >= 0][self.shard[0] :: self.shard[1]]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for _ in itertools.count() if self.num_epochs is None else range(self.num_epochs):
            samples = super().__iter__()
            while some := list(itertools.islice(samples, self.batch_size)):
                yield from self.rows(some)

    def rows(self, samples: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield samples as Petastorm shows rows, with the DataFrame's columns, transformed."""
        names = self.kinds or samples[0]
        columns = self.shown({name: [sample[name] for sample in samples] for name in names})
        rows = zip(*columns.values(), strict=True)
        yield from (dict(zip(columns, row, strict=True)) for row in rows)

    def shown(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Return stored columns as Petastorm shows them, transformed."""
        columns = {name: _shown(self.kinds.get(name, ""), stored[name]) for name in stored}
        return self.transform_spec(columns) if self.transform_spec else columns


def _series(pd: Any, column: Any) -> Any:
    # Of objects explicitly: pandas 3 would make nulls among strings NaN.
    flat = column.ndim == 1
    return pd.Series(column if flat else list(column), dtype=column.dtype if flat else object)


def _shown(kind: str, values: Any) -> Any:
    if kind.endswith("?"):
        values = [json.loads(value)[0] for value in values]
    if kind.startswith("decimal"):
        values = [None if value is None else Decimal(value) for value in values]
    if kind.startswith("array<string"):
        return np.array(values, object)
    column = _stack(values)
    if kind == "date":
        return column.view("M8[D]").astype(object)
    if kind in {"boolean", "array<boolean>"}:
        held = column == 1
        return np.where(np.isnan(column), np.array(None), held) if column.dtype == float else held
    return column.view("M8[ns]") if kind.startswith("timestamp") else column


def _stack(values: Any) -> Any:
    """Return numbers, and arrays of one shape, as one array; everything else as objects."""
    arrays = isinstance(values[0], np.ndarray)
    if isinstance(values[0], np.generic | float) or (
        arrays and len({v.shape for v in values}) == 1
    ):
        return np.asarray(values)
    return np.fromiter(values, object, len(values))


class StreamingDataLoader(streaming.StreamingDataLoader):
    """``streaming.StreamingDataLoader`` with the dataset's batch size, usable in ``with``."""

    def __init__(self, dataset: StreamingDataset, **kwargs: Any) -> None:
        super().__init__(
            dataset, **{"batch_size": dataset.batch_size, "collate_fn": collate, **kwargs}
        )

    def __len__(self) -> int:
        data: Any = self.dataset
        if data.num_epochs is None:
            raise TypeError("a loader that never ends has no length")
        rows = len(range(data.shard[0], data.size, data.shard[1])) * data.num_epochs
        return int(np.ceil(rows / data.batch_size))

    def __enter__(self) -> StreamingDataLoader:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *error: object) -> None:
        if iterator := getattr(self.dataset, "_iterator", None):
            iterator.non_blocking_exit()


def collate(rows: Any) -> dict[str, Any]:
    """Return rows, or columns, as a batch of tensors; strings, bytes, decimals, dates are lists."""
    if not isinstance(rows, dict):
        rows = {name: _stack([row[name] for row in rows]) for name in rows[0]}
    casts = {"bool": "uint8", **_CASTS}
    batch = {}
    for name, column in rows.items():
        values = column.astype(casts.get(str(column.dtype), column.dtype), copy=False)
        batch[name] = list(values) if values.dtype.kind in "OSU" else torch.tensor(values)
    return batch


@contextmanager
def tf_dataset(dataset: Any, batches: Any = None) -> Iterator[Any]:
    """Give a ``tf.data.Dataset`` of named tuples of tensors for batches, as they are by default."""
    import pandas as pd
    import tensorflow as tf

    edits = {edit[0]: edit for edit in getattr(dataset.transform_spec, "edit_fields", ())}

    def ready(name: str, column: Any) -> Any:
        kind = "" if name in edits else dataset.kinds.get(name, "")
        if pd.isna(column).any() and "float" not in NUMBERS.get(kind, kind):
            warnings.warn(f"TensorFlow gets nulls of {name!r} as values: fill them", stacklevel=2)
        if kind == "date":
            return column.astype("M8[ns]").astype("int64")
        if kind in NUMBERS and kind not in {"float", "double"}:  # also where nulls make it float64
            with np.errstate(invalid="ignore"):
                return column.astype("bool" if kind == "boolean" else NUMBERS[kind])
        if column.dtype.kind not in "OSU":
            return column.astype(_CASTS.get(str(column.dtype), column.dtype))
        values = [v if isinstance(v, bytes) else str(v).encode() for v in column.flat]
        return np.array(values, object).reshape(column.shape)

    def rebatched() -> Iterator[dict[str, Any]]:
        rows = iter(dataset)
        while some := list(itertools.islice(rows, dataset.batch_size)):
            yield {name: _stack([row[name] for row in some]) for name in some[0]}

    first = next(row for n in range(dataset.size) for row in dataset.rows([dataset[n]]))
    batch = namedtuple("batch", first)  # type: ignore[misc] # noqa: PYI024 - names are data
    specs = []
    for name, value in first.items():
        column = ready(name, _stack([value]))
        shape = edits[name][2] if name in edits else (None,) * (column.ndim - 1)
        specs.append(
            tf.TensorSpec((None, *shape), tf.string if column.dtype == object else column.dtype)
        )
    yield tf.data.Dataset.from_generator(
        lambda: (batch(*map(ready, each, each.values())) for each in (batches or rebatched)()),
        output_signature=batch(*specs),
    )


def open_torch(directory: MdsDirectory, **arguments: Any) -> StreamingDataLoader:
    """Do what ``make_torch_dataloader`` did."""
    return StreamingDataLoader(StreamingDataset(directory.path, **from_petastorm(**arguments)))


def open_tf(directory: MdsDirectory, **arguments: Any) -> Any:
    """Do what ``make_tf_dataset`` did."""
    return tf_dataset(StreamingDataset(directory.path, **from_petastorm(**arguments)))


def from_petastorm(**arguments: Any) -> dict[str, Any]:
    """Return the arguments of `StreamingDataset` for those of Petastorm's ``make_*`` methods."""
    for name in ("predicate", "filters", "schema_fields", "data_loader_fn"):
        if arguments.get(name) is not None:
            raise ValueError(f"streaming has no counterpart of {name}")
    same = ("batch_size", "num_epochs", "cur_shard", "shard_count", "transform_spec")
    found = {"num_epochs": None, **{k: v for k, v in arguments.items() if k in same}}
    found["shuffle"] = arguments.get("shuffle_row_groups", True)
    found["shuffle"] |= bool(arguments.get("shuffling_queue_capacity"))
    seed = arguments.get("seed", arguments.get("shard_seed"))
    return found if seed is None else {**found, "shuffle_seed": seed}
