"""What native streaming lacks for code that used Petastorm's Spark converter, in one readable file.

`dataframe_to_mds` and `StreamingDataLoader` are those of https://docs.mosaicml.com/projects/streaming
with the defaults such code needs; `StreamingDataset` adds epochs, shards and pandas transforms. Nothing
here imports the rest of the bridge, so the file may be copied into a repository.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import shutil
import tempfile
import uuid
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import streaming
import torch
from filelock import FileLock
from streaming.base.world import World

__all__ = [
    "MdsDirectory",
    "StreamingDataLoader",
    "StreamingDataset",
    "TransformSpec",
    "dataframe_to_mds",
    "from_petastorm",
    "tf_dataset",
]

_SIDECAR = "columns.json"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class MdsDirectory:
    """A directory of MDS shards; ``len()`` is the number of rows. Pickles small.

    Attributes:
        path: Local path, or URL of a remote store.
        rows: Number of rows.
    """

    path: str
    rows: int
    # The key that Petastorm read, so that clusters configured for it go on working.
    CACHE_DIR_CONF: ClassVar[str] = "petastorm.spark.converter.parentCacheDirUrl"

    def __len__(self) -> int:
        return self.rows

    @property
    def cache_dir_url(self) -> str:
        """The directory as a URL."""
        return self.path if "://" in self.path else f"file://{self.path}"

    @property
    def file_urls(self) -> list[str]:
        """The URLs of the shards."""
        with open(os.path.join(self.path, "index.json"), encoding="utf-8") as file:
            shards = json.load(file)["shards"]
        names = [(shard["zip_data"] or shard["raw_data"])["basename"] for shard in shards]
        return [f"{self.cache_dir_url}/{name}" for name in names]

    @property
    def dataset_size(self) -> int:
        """The number of rows."""
        return self.rows

    def delete(self) -> None:
        """Delete the directory; nothing happens if it is gone."""
        shutil.rmtree(self.path, ignore_errors=True)


class TransformSpec:
    """A function on a pandas DataFrame, and what it does to the columns.

    Attributes:
        func: Takes and returns a DataFrame of some rows; None leaves them as they are.
        edit_fields: ``(name, NumPy dtype, shape of one value, nullable)`` of changed or new columns.
        removed_fields: Columns to drop.
        selected_fields: Columns to keep, in this order; None keeps all.
    """

    def __init__(
        self,
        func: Callable[[Any], Any] | None = None,
        edit_fields: Sequence[Any] | None = None,
        removed_fields: Sequence[str] | None = None,
        selected_fields: Sequence[str] | None = None,
    ) -> None:
        self.func = func
        self.edit_fields = {edit[0]: (edit[1], edit[2]) for edit in edit_fields or ()}
        self.removed_fields = removed_fields or ()
        self.selected_fields = selected_fields

    def apply(self, columns: dict[str, Array]) -> dict[str, Array]:
        """Return the columns of some rows after the transform, in the order of its fields."""
        import pandas as pd

        values = {k: list(v) if v.ndim > 1 else v for k, v in columns.items()}
        frame = pd.DataFrame(values, copy=True)
        frame = self.func(frame) if self.func else frame
        gone = {*self.removed_fields, *self.edit_fields}
        names: Sequence[str] = [*(k for k in columns if k not in gone), *self.edit_fields]
        if self.selected_fields is not None:
            names = [name for name in self.selected_fields if name in names]
        return {name: self._column(name, frame[name]) for name in names}

    def _column(self, name: str, series: Any) -> Array:
        nested = len(series) and isinstance(series.iloc[0], np.ndarray | list | tuple)
        values = np.stack(list(series)) if nested else series.to_numpy()
        if name not in self.edit_fields:
            return np.asarray(values)
        dtype, shape = self.edit_fields[name]
        scalar = getattr(dtype, "__name__", "") in {"Decimal", "str_", "bytes_"}
        values = values if scalar else values.astype(dtype, copy=False)
        return np.asarray(values.reshape(-1, *shape) if shape and None not in shape else values)


def dataframe_to_mds(
    dataframe: Any,
    out: str | None = None,
    dtype: str | None = "float32",
    size_limit: int = 1 << 26,
    compression: str | None = None,
) -> MdsDirectory:
    """Write a Spark DataFrame with streaming's ``dataframe_to_mds``.

    Args:
        dataframe: The DataFrame. Structs and maps are left out with a warning.
        out: Directory; by default a new one below the URL in `MdsDirectory.CACHE_DIR_CONF`, which is
            deleted when the program ends.
        dtype: ``'float32'`` or ``'float64'`` for all floating-point columns and vectors; None keeps
            them.
        size_limit: Greatest size of a shard in bytes.
        compression: As for ``MDSWriter``, for instance ``'zstd'``.

    Raises:
        ValueError: The DataFrame is empty, or neither ``out`` nor the configuration says where to.
    """
    from streaming.base.converters import dataframe_to_mds as convert

    path = out or _new_directory(dataframe.sparkSession)
    frame, encodings, kinds = _stored(dataframe, dtype)
    arrays = {k: v.split(":")[1] for k, v in encodings.items() if v.startswith("ndarray:")}

    def records(pdf: Any) -> Any:  # travels to the executors by value
        for row in pdf.to_dict("records"):
            yield {k: np.asarray(v, arrays[k]) if k in arrays else v for k, v in row.items()}

    options = {
        "out": path,
        "columns": encodings,
        "compression": compression,
        "size_limit": max(size_limit, 1 << 16),
        "exist_ok": True,
    }
    convert(frame, merge_index=True, mds_kwargs=options, udf_iterable=records)
    with open(os.path.join(path, _SIDECAR), "w", encoding="utf-8") as file:
        json.dump(kinds, file)
    with open(os.path.join(path, "index.json"), encoding="utf-8") as file:
        rows = sum(shard["samples"] for shard in json.load(file)["shards"])
    directory = MdsDirectory(path, rows)
    if out is None:
        atexit.register(directory.delete)
    return directory


def _new_directory(spark: Any) -> str:
    parent = spark.conf.get(MdsDirectory.CACHE_DIR_CONF, None)
    if not parent:
        key = MdsDirectory.CACHE_DIR_CONF
        raise ValueError(f"give `out`, or set the directory of datasets with spark.conf {key!r}")
    parent = parent.removeprefix("file:").replace("dbfs:/", "/dbfs/", 1)
    return os.path.join("/" + parent.lstrip("/"), uuid.uuid4().hex)


def _stored(frame: Any, dtype: str | None) -> tuple[Any, dict[str, str], dict[str, str]]:
    """Return the DataFrame as it is written, the MDS encoding and the kind of each column."""
    from pyspark.sql import functions as F  # noqa: N812 – everybody's name for it

    simple = {"tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64"}
    floats = {"float": dtype or "float32", "double": dtype or "float64"}
    names = {**simple, **floats, "boolean": "uint8"}
    spark_names = {"float32": "float", "float64": "double", "uint8": "tinyint"}
    has_null = [F.max(F.col(f"`{name}`").isNull()).alias(name) for name in frame.columns]
    nulls = frame.agg(*has_null).first().asDict()
    columns, encodings, kinds = [], {}, {}
    for field in frame.schema:
        column, kind = F.col(f"`{field.name}`"), field.dataType.simpleString()
        element = kind[6:-1] if kind.startswith("array<") else ""
        if kind == "vector":
            from pyspark.ml.functions import vector_to_array

            encoding = f"ndarray:{dtype or 'float64'}"
            column = vector_to_array(column, encoding.split(":")[1])
        elif kind in names:
            encoding = "float64" if nulls[field.name] and kind not in floats else names[kind]
            column = column.cast(spark_names.get(encoding, kind))
            column = F.coalesce(column, F.lit(float("nan"))) if nulls[field.name] else column
        elif element in names:
            encoding = f"ndarray:{names[element]}"
            column = column.cast(f"array<{spark_names.get(names[element], element)}>")
        elif kind == "date":
            day = 86_400_000_000_000
            encoding, column = "int64", F.datediff(column, F.lit("1970-01-01")).cast("long") * day
        elif kind == "timestamp":
            encoding, column = "int64", F.expr(f"unix_micros(`{field.name}`)") * 1000
        elif kind in {"string", "binary"} or kind.startswith(("decimal", "array<string")):
            encoding = {"string": "str", "binary": "bytes"}.get(kind, "json")
            encoding = "str_decimal" if kind.startswith("decimal") else encoding
        else:
            warnings.warn(f"column {field.name!r} of type {kind} is left out", stacklevel=3)
            continue
        columns.append(column.alias(field.name))
        encodings[field.name] = encoding
        kinds[field.name] = "bool" if kind == "boolean" and encoding == "uint8" else kind
    return frame.select(*columns), encodings, kinds


class StreamingDataset(streaming.StreamingDataset):
    """``streaming.StreamingDataset`` for several epochs and explicit shards.

    Every process reads every row unless it is given a shard, whatever launched it.

    Args:
        local: Directory, or URL of a remote store.
        batch_size: Rows in a batch.
        num_epochs: Passes over the rows in one iteration; None never ends.
        cur_shard: Which share of the rows to read, from 0; shares differ by at most one row.
        shard_count: Number of shares.
        transform_spec: Is applied to each batch.
        **kwargs: As for ``streaming.StreamingDataset``: ``shuffle``, ``shuffle_seed`` …
    """

    def __init__(
        self,
        local: str,
        *,
        batch_size: int = 32,
        num_epochs: int | None = 1,
        cur_shard: int | None = None,
        shard_count: int | None = None,
        transform_spec: TransformSpec | None = None,
        **kwargs: Any,
    ) -> None:
        place: dict[str, Any] = {"remote" if "://" in local else "local": local}
        lock = os.path.join(tempfile.gettempdir(), "petastorm_native_init.lock")
        # Processes that no launcher coordinates must not take the same names in shared memory.
        alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
        with FileLock(lock) if alone else contextlib.nullcontext():
            options = {"num_canonical_nodes": 1, **kwargs}
            super().__init__(**place, batch_size=int(batch_size), **options)
        self._parallel_rank_world = World(1, 1, 1, 0)
        self.num_epochs, self.transform_spec = num_epochs, transform_spec
        self.shard = (cur_shard or 0, shard_count or 1)
        with contextlib.suppress(OSError), open(os.path.join(local, _SIDECAR)) as file:
            self.kinds: dict[str, str] = json.load(file)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for _ in itertools.count() if self.num_epochs is None else range(self.num_epochs):
            yield from super().__iter__()

    def _get_work(self, epoch: int, sample_in_epoch: int) -> Any:
        work = super()._get_work(epoch, sample_in_epoch)
        return work[work >= 0][self.shard[0] :: self.shard[1]]

    def columns(self, samples: Sequence[dict[str, Any]]) -> dict[str, Array]:
        """Return the columns of some samples, in the order of the DataFrame, transformed."""
        kinds = getattr(self, "kinds", dict.fromkeys(samples[0], ""))
        found = {}
        for name, kind in kinds.items():
            values = [sample[name] for sample in samples]
            plain = isinstance(values[0], str | bytes) or kind.startswith("decimal")
            column = np.array(values, object) if plain else np.asarray(values)
            column = column.view(np.bool_) if kind == "bool" else column
            found[name] = column.view("M8[ns]") if kind in {"date", "timestamp"} else column
        return self.transform_spec.apply(found) if self.transform_spec else found

    def collate(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return a batch of tensors; strings, bytes and decimals are lists."""
        casts = {"bool": "uint8", "uint16": "int32", "uint32": "int64", "datetime64[ns]": "int64"}
        batch = {}
        for name, column in self.columns(samples).items():
            to = casts.get(str(column.dtype))
            values = column.astype(to) if to else column
            listed = values.dtype.kind in "OSU"
            batch[name] = list(values) if listed else torch.as_tensor(values.copy())
        return batch


class StreamingDataLoader(streaming.StreamingDataLoader):
    """``streaming.StreamingDataLoader`` with the dataset's batch size, usable in ``with``."""

    def __init__(self, dataset: StreamingDataset, **kwargs: Any) -> None:
        options = {"batch_size": dataset.batch_size, "collate_fn": dataset.collate, **kwargs}
        super().__init__(dataset, **options)

    def __enter__(self) -> StreamingDataLoader:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *error: object) -> None:
        iterator = getattr(self.dataset, "_iterator", None)
        if iterator is not None:
            iterator.non_blocking_exit()


@contextlib.contextmanager
def tf_dataset(dataset: StreamingDataset) -> Iterator[Any]:
    """Give a ``tf.data.Dataset`` of batches, named tuples of tensors."""
    import tensorflow as tf

    casts = {"uint16": "int32", "uint32": "int64", "datetime64[ns]": "int64"}

    def ready(column: Array) -> Array:
        if column.dtype == object:
            return np.array(
                [v if isinstance(v, bytes) else str(v).encode() for v in column], object
            )
        return column.astype(casts.get(str(column.dtype), column.dtype))

    def batches() -> Iterator[Any]:
        samples = iter(dataset)
        while rows := list(itertools.islice(samples, dataset.batch_size)):
            yield batch(*map(ready, dataset.columns(rows).values()))

    first = {name: ready(column) for name, column in dataset.columns([dataset[0]]).items()}
    batch = namedtuple("batch", first)  # type: ignore[misc] # noqa: PYI024 – names are data
    specs = [
        tf.TensorSpec((None, *c.shape[1:]), tf.string if c.dtype == object else c.dtype)
        for c in first.values()
    ]
    yield tf.data.Dataset.from_generator(batches, output_signature=batch(*specs))


def from_petastorm(**arguments: Any) -> dict[str, Any]:
    """Return the arguments of `StreamingDataset` for those of Petastorm's ``make_*`` methods."""
    same = ("batch_size", "cur_shard", "shard_count", "transform_spec")
    found = {name: arguments[name] for name in same if name in arguments}
    found["num_epochs"] = arguments.get("num_epochs")
    found["shuffle"] = arguments.get("shuffle_row_groups", True)
    seed = arguments.get("seed", arguments.get("shard_seed"))
    return found if seed is None else {**found, "shuffle_seed": seed}
