"""How code that earlier releases' codemod wrote reads; goes with the next release."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import decimal
import itertools
import json
import os
import pathlib
import re
import shutil
import tempfile
import unittest.mock
import warnings
import weakref
from typing import Any

import filelock
import numpy as np
import pandas as pd
import streaming
import torch

from ._deprecated_writing import MdsDirectory

_CASTS = {"uint16": "int32", "uint32": "int64", "datetime64[ns]": "int64"}


@dataclasses.dataclass
class TransformSpec:
    """A function on the pandas DataFrame of some rows, and what it does to their columns."""

    func: Any = None
    edit_fields: Any = ()  # (name, NumPy dtype, shape of a value, nullable) of each changed one
    removed_fields: Any = ()
    selected_fields: Any = None  # what stays, in this order

    def __call__(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of some rows after the transform, in the order of its fields."""
        kinds = {name: v.dtype if v.ndim == 1 else object for name, v in columns.items()}
        frame = pd.DataFrame({n: pd.Series([*columns[n]], dtype=kind) for n, kind in kinds.items()})
        frame = self.func(frame) if self.func else frame
        edits = {name: edit for name, *edit in self.edit_fields or ()}
        names = [name for name in columns if name not in {*(self.removed_fields or ()), *edits}]
        found = {name: frame[name].to_numpy() for name in self.selected_fields or [*names, *edits]}
        for name, (dtype, shape, *_) in edits.items():
            if name in found and dtype not in {decimal.Decimal, np.str_, np.bytes_}:
                values = np.array([*found[name]], dtype)
                fixed = shape if shape and None not in shape else values.shape[1:]
                found[name] = values.reshape(len(frame), *fixed)
        return found


class StreamingDataset(streaming.StreamingDataset):
    """``streaming.StreamingDataset`` with epochs (None: endless), explicit shards, transforms."""

    def __init__(self, local: str, num_epochs: Any = 1, **kwargs: Any) -> None:
        self.num_epochs, self.transform_spec = num_epochs, kwargs.pop("transform_spec", None)
        self.shard = (kwargs.pop("cur_shard", None) or 0, kwargs.pop("shard_count", None) or 1)
        kwargs["batch_size"] = int(kwargs.get("batch_size") or 32)
        if "://" in local:
            kwargs["remote"], local = local, tempfile.mkdtemp()
            weakref.finalize(self, shutil.rmtree, local, ignore_errors=True)
        # Streaming is shown one process, which reads every row. The lock is for shared memory.
        alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        lock = filelock.FileLock(f"{tempfile.gettempdir()}/mds_{os.getuid()}.lock")
        ungrouped = unittest.mock.patch.object(torch.distributed, "is_initialized", bool)
        with lock, unittest.mock.patch.dict(os.environ, alone), ungrouped:
            super().__init__(local=local, **{"num_canonical_nodes": 1, **kwargs})
        self.kinds = json.loads(pathlib.Path(local, "index.json").read_text()).get("columns", {})
        self.length = len(range(self.shard[0], self.size, self.shard[1])) * (num_epochs or 1)

    def get_item(self, sample_id: int, retry: int = 7) -> dict[str, Any]:
        """Return a row as Petastorm shows it, in the DataFrame's order."""
        row = super().get_item(sample_id, retry)
        return {name: shown(self.kinds.get(name, ""), row[name]) for name in self.kinds or row}

    def __iter__(self) -> Any:
        for _ in itertools.count() if self.num_epochs is None else range(self.num_epochs):
            for columns in batches(super().__iter__(), self.batch_size):
                made = self.transform_spec(columns) if self.transform_spec else columns
                for row in zip(*made.values(), strict=True):
                    yield dict(zip(made, row, strict=True))

    def _get_work(self, epoch: int, sample_in_epoch: int) -> Any:
        work = super()._get_work(epoch, sample_in_epoch)
        return work[work >= 0][self.shard[0] :: self.shard[1]]


def shown(kind: str, value: Any) -> Any:
    """Return a stored value, or a column of numbers, as Petastorm shows it."""
    if kind == "JSON":
        (value,) = json.loads(value, parse_float=decimal.Decimal, parse_int=decimal.Decimal)
        return np.array(value, object) if isinstance(value, list) else value
    if kind.endswith("?"):
        return value[1:] if value else None
    if kind == "bool" and value.dtype == float:
        return np.where(np.isnan(value), np.array(None), value == 1)[()]
    if kind in {"bool", "M8[D]", "M8[ns]"}:
        return value.view(kind).astype(object if kind == "M8[D]" else kind)
    return value


def batches(rows: Any, size: Any) -> Any:
    """Yield columns of so many rows: numbers, and arrays of one shape, as one array, or objects."""
    while some := list(itertools.islice(rows, size)):
        columns: dict[str, Any] = {name: [row[name] for row in some] for name in some[0]}
        for name, values in columns.items():
            shapes = {getattr(value, "shape", None) for value in values}
            alike = len(shapes) == 1 and shapes != {None}
            columns[name] = np.array(values) if alike else np.fromiter(values, object, len(values))
        yield columns


class StreamingDataLoader(streaming.StreamingDataLoader, contextlib.AbstractContextManager[Any]):
    """``streaming.StreamingDataLoader`` with the dataset's batch size, usable in ``with``."""

    def __init__(self, dataset: StreamingDataset, **kw: Any) -> None:
        super().__init__(dataset, **{"batch_size": dataset.batch_size, "collate_fn": collate} | kw)

    def __exit__(self, *error: object) -> None:
        if iterator := getattr(self.dataset, "_iterator", None):
            iterator.non_blocking_exit()


def collate(rows: Any) -> dict[str, Any]:
    """Return a batch of tensors from rows, or columns; what tensors cannot hold is lists."""
    batch = rows if isinstance(rows, dict) else next(batches(rows, len(rows)))
    for name, column in batch.items():
        values = column.astype({"bool": "uint8", **_CASTS}.get(str(column.dtype), column.dtype))
        batch[name] = list(values) if values.dtype.kind in "OSU" else torch.tensor(values)
    return batch


def tf_dataset(dataset: Any, source: Any = batches) -> Any:
    """Give a ``tf.data.Dataset`` of batches, named tuples of tensors, to be entered in ``with``."""
    import tensorflow as tf

    edits = {name: edit for name, *edit in getattr(dataset.transform_spec, "edit_fields", ()) or ()}

    def tensor(name: str, column: Any) -> Any:
        kind = "" if name in edits else dataset.kinds.get(name, "")
        if "float" not in (kind or column.dtype.name) and pd.isna(column).any():
            warnings.warn(f"TensorFlow gets nulls of {name!r} as values: fill them", stacklevel=2)
        if kind.startswith(("bool", "int", "M8")):  # nulls made these float64 or objects
            with np.errstate(invalid="ignore"):
                column = column.astype(kind.replace("[D]", "[ns]"))
        if column.dtype.kind in "OSU":
            values = [v if isinstance(v, bytes) else str(v).encode() for v in column.flat]
            return np.array(values, object).reshape(column.shape)
        return column.astype(_CASTS.get(str(column.dtype), column.dtype))

    def generated(batch: Any = dict) -> Any:
        for columns in source(iter(dataset), dataset.batch_size):
            yield batch(**{name: tensor(name, column) for name, column in columns.items()})

    specs = {}
    for name, column in next(generated()).items():
        shape = edits[name][1] if name in edits else (None,) * (column.ndim - 1)
        specs[name] = tf.TensorSpec((None, *shape), tf.constant(column).dtype)
    spec = collections.namedtuple("batch", specs)(**specs)
    made = tf.data.Dataset.from_generator(lambda: generated(type(spec)), output_signature=spec)
    return contextlib.nullcontext(made)


def open_torch(directory: MdsDirectory, **arguments: Any) -> StreamingDataLoader:
    """Do what ``make_torch_dataloader`` did."""
    return StreamingDataLoader(StreamingDataset(directory.path, **from_petastorm(**arguments)))


def open_tf(directory: MdsDirectory, **arguments: Any) -> Any:
    """Do what ``make_tf_dataset`` did."""
    return tf_dataset(StreamingDataset(directory.path, **from_petastorm(**arguments)))


# Arguments of Petastorm's that say how it reads, not what, by their first letters.
_HOW = "cache_(e|lo|r|s|t)|convert|files|hdfs|min_af|prefet|reader|results|shuffle_r|stor|work|zmq"


def from_petastorm(**given: Any) -> dict[str, Any]:
    """Return the arguments of `StreamingDataset` for those of Petastorm's ``make_*`` methods."""
    rows, queue = given.pop("shuffle_row_groups", True), given.pop("shuffling_queue_capacity", 0)
    given["shuffle_seed"] = given.pop("seed", given.pop("shard_seed", None))
    found = {k: v for k, v in given.items() if v is not None and not re.match(_HOW, k)}
    return {"num_epochs": None, "shuffle": bool(rows or queue), **found}


MdsDirectory.make_torch_dataloader = open_torch  # type: ignore[attr-defined] # for calls
MdsDirectory.make_tf_dataset = open_tf  # type: ignore[attr-defined] # left to a human
