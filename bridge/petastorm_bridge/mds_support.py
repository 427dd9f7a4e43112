"""What streaming lacks for code that used Petastorm's Spark converter.

``write_mds`` writes a Spark DataFrame so that ``streaming.StreamingDataset`` reads what Petastorm's
loaders gave, and returns an ``MdsDirectory``. ``Epochs`` reads a loader several times, or without
end. ``PandasCollate`` and ``to_tf_dataset`` stand where transforms and TensorFlow datasets stood.
"""

# Copied from petastorm-bridge by its codemod; nothing else of it is needed.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import datetime as dt
import errno
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import stat
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.fs

if TYPE_CHECKING:
    from streaming import StreamingDataset

__all__ = [
    "Epochs",
    "MdsDirectory",
    "PandasCollate",
    "UnsupportedColumnsError",
    "to_tf_dataset",
    "write_mds",
]

# Counts up from zero in this process, for each key.
_counters: dict[Any, Iterator[int]] = collections.defaultdict(itertools.count)


# --- the directory -------------------------------------------------------------------------------

_STREAMING_SEED = 9176  # what StreamingDataset shuffles with unless it is given a seed
_NETWORK_MOUNTS = {
    "9p", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "virtiofs",
    "wekafs",
}  # fmt: skip


@dataclasses.dataclass(unsafe_hash=True)
class MdsDirectory:
    """A directory of MDS shards; ``len()`` is the number of rows. It pickles as these two.

    ``StreamingDataset(remote=directory.remote, local=directory.local, …)`` reads it wherever it is.
    ``MdsDirectory(path)`` opens one that is there; its index says how many rows it has.

    Attributes:
        path: Absolute path, or the URL in a store.
        dataset_size: Number of rows.
    """

    path: str
    dataset_size: int = -1

    PARENT_CACHE_DIR_URL_CONF: ClassVar[str] = "petastorm.spark.converter.parentCacheDirUrl"
    """The Spark conf that names the directory in which new ones are made."""

    def __post_init__(self) -> None:
        if self.dataset_size < 0:
            self.path = _path_of(self.path)
            self.dataset_size = sum(shard["samples"] for shard in _shards(self._index()))

    def __len__(self) -> int:
        return self.dataset_size

    @property
    def remote(self) -> str | None:
        """The path or URL of a directory in a store or on a network mount; None for a near one."""
        return self.path if self._is_far() else None

    @property
    def local(self) -> str:
        """The directory itself if it is near, or else a place for copies on a disk of this machine.

        It is a new place each time, because streaming lets no two datasets share one, and the same
        on all ranks; shards that earlier places have are linked into it. It is deleted when the last
        process that uses it exits. In the folder that the environment variable
        ``PETASTORM_BRIDGE_LOCAL_CACHE`` names, it stays until a later place has linked its shards.

        Raises:
            PermissionError: Others could write to the folder for copies.
            OSError: The folder is on a mount that takes no file modes.
        """
        return _place_for_copies(self.path, self._index()) if self._is_far() else self.path

    @property
    def cache_dir_url(self) -> str:
        """The URL of the directory."""
        return self.path if "://" in self.path else f"file://{self.path}"

    @property
    def file_urls(self) -> list[str]:
        """The URLs of the shards, in the order of their rows."""
        written = [shard["zip_data"] or shard["raw_data"] for shard in _shards(self._index())]
        return [f"{self.cache_dir_url}/{file['basename']}" for file in written]

    def next_seed(self) -> int:
        """Return a ``shuffle_seed`` for the next loader: streaming's own, then one more each time.

        Streaming gives each new dataset the same order otherwise. It is counted in this process, so
        that ranks, which make the same loaders, have the same seeds.
        """
        return _STREAMING_SEED + next(_counters["seed", self.path])

    def delete(self) -> None:
        """Delete the directory and this machine's copies; twice is fine."""
        self.delete_copies()
        files, path = _file_system(self.path)
        with contextlib.suppress(FileNotFoundError):
            files.delete_dir(path)

    def delete_copies(self) -> None:
        """Delete this machine's copies of a directory that is far."""
        if self._is_far():
            shutil.rmtree(_folder_of_copies(self.path), ignore_errors=True)

    def delete_at_exit(self) -> None:
        """Delete the directory when Python exits."""
        atexit.register(self.delete)

    def _index(self) -> bytes:
        files, place = _file_system(self.path)
        with files.open_input_stream(f"{place}/index.json") as file:
            return bytes(file.read())

    def _is_far(self) -> bool:
        """Say whether files are in a store, or on a mount where each read is a request."""
        if "://" in self.path:
            return True
        with contextlib.suppress(OSError):  # the directory is gone, or this is no Linux
            device = os.stat(self.path).st_dev
            number = f"{os.major(device)}:{os.minor(device)}"
            with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
                for mount in mounts:
                    before, _, after = mount.partition(" - ")
                    kind = after.split()[0]
                    if before.split()[2] == number:
                        return kind in _NETWORK_MOUNTS or kind.startswith("fuse")
        return False


def _shards(index: bytes) -> Any:
    """Return what an index says of its shards, in the order of their rows."""
    return json.loads(index)["shards"]


def _file_system(path: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """Return the file system that a path or URL is in, and the path in it.

    A store that stands in for S3 is named by ``S3_ENDPOINT_URL``, as streaming has it.
    """
    if not path.startswith("s3://"):
        files, place = pyarrow.fs.FileSystem.from_uri(path)
        return files, place
    endpoint = os.environ.get("S3_ENDPOINT_URL")
    return pyarrow.fs.S3FileSystem(endpoint_override=endpoint), path.removeprefix("s3://")


# --- writing -------------------------------------------------------------------------------------

# The encoding in MDS of values of each Spark type, alone and in arrays.
_ENCODINGS = {
    "boolean": "uint8",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "timestamp": "int64",
    "timestamp_ntz": "int64",
    "string": "str",
    "binary": "bytes",
}
_TEXTS = {"string", "binary"}
_WHOLE_NUMBERS = {"tinyint", "smallint", "int", "bigint"}

# Multiplied, other years would wrap around to wrong ones. Null is NaT, the smallest number.
_NANOSECONDS = (
    "coalesce(if(abs({0}) > 9223372036854775, raise_error('a timestamp outside the years 1678 to "
    "2261, which nanoseconds cannot hold: clip it or cast it to a number'), {0} * 1000), "
    "-9223372036854775808L)"
)
_TIMES = {
    "timestamp": _NANOSECONDS.format("unix_micros({0})"),
    # Whatever the session's time zone.
    "timestamp_ntz": _NANOSECONDS.format("unix_micros(timestamp(string({0}) || 'Z'))"),
}

_ADVICE = {
    "decimal": "cast it to double",
    "date": "cast it to timestamp, or take unix_date() of it",
    "interval": "cast it to bigint",
    "struct": "select its fields as columns of their own",
    "map": "select its values as columns of their own",
    "array": "cast its elements to numbers, flatten it, or make a column of each element",
}

# How mounts of object stores say that their files have no modes.
_NO_MODES = {errno.ENOSYS, errno.ENOTSUP, errno.EPERM}


class UnsupportedColumnsError(ValueError):
    """Some columns cannot be stored so that they are read as tensors.

    Args:
        columns: What is wrong with each of them, and what to do, by name.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        lines = "".join(f"  {name}: {problem}\n" for name, problem in columns.items())
        super().__init__(
            f"streaming cannot give these columns as tensors:\n{lines}"
            "Change them in the DataFrame, drop them, or keep petastorm_bridge's "
            "make_spark_converter for it. Nothing is left where it was to be written."
        )


def write_mds(
    dataframe: Any,
    out: str | None = None,
    *,
    dtype: str | None = "float32",
    compression: str | None = None,
    size_limit: int = 1 << 26,
) -> MdsDirectory:
    """Write a Spark DataFrame so that streaming reads what Petastorm's loaders gave.

    Floats get one precision, booleans become uint8, timestamps int64 nanoseconds, integers with
    nulls float64, vectors arrays. The DataFrame is kept in Spark's cache meanwhile, because it is
    looked at for nulls, then by streaming, and then written. Of several ranks the first one writes.

    Args:
        dataframe: A Spark DataFrame.
        out: The directory to make, a path or URL that every machine of the cluster sees. None makes
            a new one in the directory that ``MdsDirectory.PARENT_CACHE_DIR_URL_CONF`` names, and
            deletes it when Python exits.
        dtype: Precision of floats, of arrays of them and of vectors: ``"float32"``, ``"float64"`` or
            None to leave them as they are.
        compression: As ``streaming.MDSWriter`` has it, say ``"zstd:3"``.
        size_limit: Bytes of a shard at most, as ``streaming.MDSWriter`` has it.

    Raises:
        UnsupportedColumnsError: Tensors cannot hold some columns, or the nulls in them.
        FileExistsError: There is something at ``out`` already.
        ValueError: The DataFrame has no rows, or nothing says where to write it.
        RuntimeError: There are several ranks, which cannot agree on one directory.
    """
    if dtype not in {"float32", "float64", None}:
        raise ValueError(f"dtype is 'float32', 'float64' or None, not {dtype!r}")
    check_columns(dataframe.dtypes)

    def write() -> MdsDirectory:
        path = _new_path(dataframe.sparkSession, out)
        frame = without_vectors(dataframe, dtype).persist()
        try:
            nulls, element_nulls = _nulls(frame)
            check_columns(dataframe.dtypes, nulls, element_nulls)
            expressions, columns = _stored(frame.dtypes, dtype, nulls | element_nulls)
            arguments = {"out": path, "compression": compression, "size_limit": size_limit}
            return _write_shards(frame.selectExpr(*expressions), columns, arguments)
        finally:
            frame.unpersist()

    return write_on_first_rank(MdsDirectory, dataframe.columns, write, is_temporary=out is None)


def _write_shards(frame: Any, columns: dict[str, str], arguments: dict[str, Any]) -> MdsDirectory:
    """Write what ``_stored`` says, with some arguments of ``streaming.MDSWriter``."""
    # Needs pyspark, which training processes may lack.
    from streaming.base.converters import dataframe_to_mds

    path = arguments["out"]
    try:
        try:
            dataframe_to_mds(
                frame,
                mds_kwargs={
                    **arguments,
                    "columns": _in_order(columns),
                    "hashes": ["sha1"],
                    "keep_local": False,
                },
                udf_iterable=_record_maker(columns),
            )
        except OSError as error:
            # The last step gives the index a mode, which mounts of object stores refuse.
            is_of_index = error.filename == os.path.join(path, "index.json")
            if not is_of_index or error.errno not in _NO_MODES:
                raise
        return MdsDirectory(path)
    except BaseException:
        _delete_unfinished(path)
        raise


def _delete_unfinished(path: str) -> None:
    """Delete what a failed job has written, for two seconds, as some of its tasks end after it."""
    files, place = _file_system(path)
    for _ in range(20):
        time.sleep(0.1)
        with contextlib.suppress(OSError):  # it is gone, or another file has come meanwhile
            files.delete_dir(place)


def _new_path(session: Any, out: str | None) -> str:
    """Return the path or URL of the directory to make, where nothing is yet."""
    if out is None:
        key = MdsDirectory.PARENT_CACHE_DIR_URL_CONF
        parent = session.conf.get(key, None)
        if not parent:
            raise ValueError(f"nothing says where to write: give `out`, or set spark.conf {key!r}")
        out = f"{parent.rstrip('/')}/{uuid.uuid4()}"
    path = _path_of(out)
    files, place = _file_system(path)
    if files.get_file_info(place).type != pyarrow.fs.FileType.NotFound:
        raise FileExistsError(
            f"{path} is there already: give another directory, or delete it first"
        )
    return path


def _path_of(place: str) -> str:
    """Return the absolute path that a path or URL means, or the URL of what is in a store."""
    scheme, _, rest = place.partition(":")
    if scheme == "dbfs":
        below = rest.lstrip("/")
        return f"/{below}" if below.startswith("Volumes/") else f"/dbfs/{below}"
    if scheme == "file":
        return "/" + rest.lstrip("/")
    return place.replace("s3a://", "s3://", 1) if "://" in place else os.path.abspath(place)


def check_columns(
    kinds: Iterable[tuple[str, str]],
    nulls: Collection[str] = (),
    element_nulls: Collection[str] = (),
) -> None:
    """Check that tensors can hold the columns, and the nulls in them as far as these are known.

    Args:
        kinds: Name and Spark type of each, as ``DataFrame.dtypes`` has them.
        nulls: Names of columns in which rows are null.
        element_nulls: Names of columns of arrays in which elements are null.

    Raises:
        UnsupportedColumnsError: They cannot; names all of them.
    """
    problems = {}
    for name, kind in kinds:
        family, element = _family_of(kind), _element_of(kind)
        if element is None and family not in {*_ENCODINGS, "vector"}:
            problems[name] = f"of type {kind}; {_ADVICE.get(family, 'cast it to a number')}"
        elif element is not None and element not in _ENCODINGS.keys() - _TEXTS:
            problems[name] = f"of type {kind}; {_ADVICE['array']}"
        elif name in nulls and family in {"array", "vector"}:
            problems[name] = f"of type {kind}, and null in some rows; fill or drop these"
        elif name in nulls and family in {"boolean", *_TEXTS}:
            problems[name] = f"of type {kind}, with nulls; fill (DataFrame.fillna) or drop them"
        elif name in element_nulls and element == "boolean":
            problems[name] = f"of type {kind}, with nulls in the arrays; fill or drop them"
    if problems:
        raise UnsupportedColumnsError(problems)


def _element_of(kind: str) -> str | None:
    """Return the Spark type of an array's elements, None for what is no array."""
    if not kind.startswith("array<"):
        return None
    return kind.removeprefix("array<").removesuffix(">")


def _family_of(kind: str) -> str:
    """Return the name of a type without its parameters: of "decimal(10,2)" and "array<int>"."""
    for end in (" ", "(", "<"):
        kind = kind.partition(end)[0]
    return kind


def without_vectors(dataframe: Any, dtype: str | None) -> Any:
    """Return the DataFrame with arrays instead of vectors; null ones stay null."""
    vectors = [name for name, kind in dataframe.dtypes if kind == "vector"]
    if not vectors:
        return dataframe
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    columns = {}
    for name in vectors:
        vector = F.col(_quoted(name))
        columns[name] = F.when(vector.isNotNull(), vector_to_array(vector, dtype or "float64"))
    return dataframe.withColumns(columns)


def _nulls(frame: Any) -> tuple[set[str], set[str]]:
    """Return the columns in which rows are null, and those of arrays in which elements are."""
    names = list(frame.columns)
    arrays = [name for name, kind in frame.dtypes if _element_of(kind) is not None]
    answers = frame.selectExpr(
        *(f"max({_quoted(name)} is null)" for name in names),
        *(f"max(exists({_quoted(name)}, x -> x is null))" for name in arrays),
    ).first()
    rows, elements = answers[: len(names)], answers[len(names) :]
    return set(itertools.compress(names, rows)), set(itertools.compress(arrays, elements))


def _stored(
    kinds: Sequence[tuple[str, str]], dtype: str | None, with_nulls: Collection[str]
) -> tuple[list[str], dict[str, str]]:
    """Return the SQL of what is stored of each column, and its encoding in MDS by name.

    In SQL the columns are called c0, c1, …, because ``mapInPandas`` trips over dots in names.
    """
    expressions = []
    columns: dict[str, str] = {}
    for name, kind in kinds:
        element = _element_of(kind)
        value_kind = element or _family_of(kind)
        encoding, sql = _ENCODINGS[value_kind], _TIMES.get(value_kind, "{0}")
        if value_kind in _WHOLE_NUMBERS and name in with_nulls:
            # Spark 4 has nulls in them as pandas.NA, which is no number.
            encoding, sql = "float64", "cast({0} as double)"
        elif value_kind in {"float", "double"} and dtype is not None:
            encoding = dtype
        column = _quoted(name)
        if not element:
            column = sql.format(column)
        elif sql != "{0}":
            column = f"transform({column}, x -> {sql.format('x')})"
        expressions.append(f"{column} as c{len(columns)}")
        columns[name] = f"ndarray:{encoding}" if element else encoding
    return expressions, columns


def _in_order(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the encodings by names that sort by their places.

    ``MDSWriter`` sorts names, and samples have its order. The class is a local one, for which
    executors need no module either.
    """
    places = {name: place for place, name in enumerate(columns)}

    class PlacedName(str):
        __slots__ = ()

        def __lt__(self, other: str) -> bool:
            return places[self] < places[other]

    return {PlacedName(name): encoding for name, encoding in columns.items()}


def _record_maker(columns: dict[str, str]) -> Callable[[pd.DataFrame], list[dict[str, Any]]]:
    """Return the function that makes samples of a DataFrame's rows; executors need no module for it."""

    def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
        values: list[Iterable[Any]] = []
        for encoding, (_, column) in zip(columns.values(), frame.items(), strict=True):
            _, is_array, dtype = encoding.partition("ndarray:")
            values.append([np.asarray(v, dtype) for v in column] if is_array else column)
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]

    return records


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# --- epochs --------------------------------------------------------------------------------------


class Epochs:
    """Reads a loader several times, or without end, as one iterable.

    Each pass over the loader is the next epoch of its dataset, in another order if it shuffles.
    Iterating again begins with a new pass.

    Args:
        loader: Such as a ``StreamingDataLoader``; with its ``drop_last=True`` all batches are full.
        epochs: How many passes; None for no end.
    """

    def __init__(self, loader: Any, epochs: int | None = None) -> None:
        self.loader = loader
        self.epochs = epochs

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of all passes.

        Raises:
            ValueError: There is no end, and no batch either.
        """
        for _ in itertools.count() if self.epochs is None else range(self.epochs):
            is_empty = True
            for batch in self.loader:
                is_empty = False
                yield batch
            if is_empty and self.epochs is None:
                raise ValueError(
                    "there is no batch in a whole pass over the data, and passes without end would "
                    "wait for one for ever. Where only full batches count (drop_last=True), each "
                    "rank needs at least batch_size rows: take a smaller batch_size, or more rows"
                )

    def __len__(self) -> int:
        """Return the number of batches of all passes.

        Raises:
            TypeError: There is no end.
        """
        if self.epochs is None:
            raise TypeError("epochs without end have no length")
        return self.epochs * len(self.loader)

    def __bool__(self) -> bool:
        """Return True, as loaders without a length are true."""
        return True


# --- transforms ----------------------------------------------------------------------------------

# Torch has no arithmetic for these types, and TensorFlow hardly any for the last two.
_TORCH_DTYPES = {"bool": "uint8", "uint16": "int32", "uint32": "int64"}
_TF_DTYPES = {"uint16": "int32", "uint32": "int64"}


class PandasCollate:
    """Makes a batch of tensors from samples, by way of a function on their DataFrame.

    Booleans, which are stored as uint8, are booleans in the DataFrame; arrays of one axis or more
    are objects in it. Pickles, for ``num_workers``, if the function does.

    Args:
        func: Takes the DataFrame of a batch and returns one; it may have other rows. None only
            selects columns.
        edit_fields: ``(name, NumPy dtype, shape of a value, nullable)`` of each column that the
            function adds or changes.
        removed_fields: Names of columns that batches do not have.
        selected_fields: Names of all columns that batches have, in this order.
        timestamps: Names of columns of nanoseconds since 1970, which is how timestamps are stored,
            that the function gets as ``datetime64[ns]``.

    Raises:
        ValueError: Both ``removed_fields`` and ``selected_fields`` are given.
    """

    def __init__(
        self,
        func: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
        edit_fields: Sequence[Any] | None = None,
        removed_fields: Sequence[str] | None = None,
        selected_fields: Sequence[str] | None = None,
        *,
        timestamps: Iterable[str] = (),
    ) -> None:
        if removed_fields is not None and selected_fields is not None:
            raise ValueError("give removed_fields or selected_fields, not both")
        self.func = func
        self.edit_fields = edit_fields or []
        self.removed_fields = removed_fields or []
        self.selected_fields = selected_fields
        self.timestamps = frozenset(timestamps)

    def __call__(self, samples: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch of some samples: tensors, and lists where values are strings.

        Args:
            samples: Samples of a ``StreamingDataset``, or their columns.
        """
        columns = self.transformed(samples)
        return {name: _tensor(name, values) for name, values in columns.items()}

    def transformed(
        self, samples: Sequence[Mapping[str, Any]] | Mapping[str, Any]
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of some samples after the function, each of shape ``(rows, …)``.

        Raises:
            ValueError: The function returned other columns than were declared, or other shapes.
        """
        if isinstance(samples, Mapping):
            columns = dict(samples)
        else:
            columns = {name: [sample[name] for sample in samples] for name in samples[0]}
        names = self.names(columns)
        if self.func is None and set(names) <= set(columns):
            return {name: _as_booleans(_stacked(name, columns[name])) for name in names}
        frame = pd.DataFrame({name: self._series(name, columns[name]) for name in columns})
        if self.func is not None:
            frame = self.func(frame)
        frame = frame.drop(columns=[name for name in self.removed_fields if name in frame])
        if set(frame.columns) != set(names):
            raise ValueError(f"the transform returned the columns {[*frame]} instead of {names}")
        shapes = {edit[0]: tuple(edit[2]) for edit in self.edit_fields}
        return {name: _values(name, frame[name], shapes.get(name, ())) for name in names}

    def names(self, before: Iterable[str]) -> list[str]:
        """Return the names of a batch's columns, in order, given those of the samples."""
        edited = [edit[0] for edit in self.edit_fields]
        kept = [name for name in before if name not in {*edited, *self.removed_fields}]
        names = [*kept, *edited]
        if self.selected_fields is None:
            return names
        return [name for name in self.selected_fields if name in names]

    def _series(self, name: str, values: Sequence[Any]) -> pd.Series[Any]:
        """Return a column of the DataFrame: numbers as they are, everything else as objects."""
        column: pd.Series[Any]
        if isinstance(values[0], (str, bytes)):
            column = pd.Series(list(values), dtype=object)
        elif np.ndim(values[0]) > 0:
            column = pd.Series([_as_booleans(np.asarray(row)) for row in values], dtype=object)
        elif name in self.timestamps:
            column = pd.Series(np.asarray(values).view("datetime64[ns]"))
        else:
            column = pd.Series(_as_booleans(np.asarray(values)))
        return column


def _as_booleans(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return booleans for what is stored as uint8."""
    return values.astype(bool) if values.dtype == np.uint8 else values


def _stacked(name: str, rows: Sequence[Any]) -> npt.NDArray[Any]:
    """Return the values of some rows as one array; strings as objects."""
    dtype = object if isinstance(rows[0], (str, bytes)) else None
    try:
        return np.array(rows, dtype)
    except ValueError as error:
        raise ValueError(f"the arrays in column {name!r} differ in shape") from error


def _values(name: str, series: pd.Series[Any], shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    """Return a column of the result as one array; times as nanoseconds since 1970.

    The declared shape of a value, in which None is any size, is checked if it has several axes.
    """
    values = series.to_numpy()
    if values.dtype.kind == "M":
        return values.astype("datetime64[ns]").view(np.int64)
    if values.dtype == object:
        values = _stacked(name, series.tolist()) if len(series) else np.empty(0)
    if len(shape) < 2:
        return values
    if not len(values):
        return np.empty((0, *(size or 0 for size in shape)), values.dtype)
    actual = values.shape[1:]
    pairs = zip(actual, shape, strict=False)
    if len(actual) != len(shape) or any(declared not in {None, size} for size, declared in pairs):
        raise ValueError(f"field {name} must be the shape {shape}, not {actual}")
    return values


def _tensor(name: str, values: npt.NDArray[Any]) -> Any:
    """Return a column as a tensor, or as a list if it holds strings."""
    import torch  # programs that only write do without

    if values.dtype.kind in "OSUT":
        if any(not isinstance(value, (str, bytes)) for value in values.flat):
            raise TypeError(f"column {name!r} holds objects, which no tensor can hold")
        return values.tolist()
    dtype = _TORCH_DTYPES.get(values.dtype.name, values.dtype)
    return torch.from_numpy(np.array(values, dtype, order="C"))


# --- TensorFlow ----------------------------------------------------------------------------------


def to_tf_dataset(
    dataset: StreamingDataset,
    epochs: int | None = 1,
    *,
    transform: PandasCollate | None = None,
) -> Any:
    """Return a ``tf.data.Dataset`` of the batches of a streaming dataset.

    Its epochs are those of the streaming dataset, with their order and this rank's share; another
    pass over it gives the next ones. Its elements are named tuples of tensors of shape
    ``(rows, …)``. What is stored as uint8 is a boolean, as ``write_mds`` stores them; strings are
    bytes.

    Args:
        dataset: With the ``batch_size`` to cut.
        epochs: How many passes, each of which may end with a smaller batch. None for no end; all
            batches are full then.
        transform: Its ``edit_fields`` say the types and shapes that its function makes.

    Raises:
        ValueError: The dataset has no batch size.
    """
    import tensorflow as tf
    from torch.utils.data import DataLoader

    if not dataset.batch_size:
        raise ValueError("give the StreamingDataset a batch_size, which says how to cut batches")

    transform = transform or PandasCollate()
    sample = dataset[0]
    edits = {edit[0]: edit[1:3] for edit in transform.edit_fields}
    specs = {}
    for name in transform.names(sample):
        if name in edits:
            dtype, shape = np.dtype(edits[name][0]), edits[name][1]
        else:
            value = _as_booleans(np.asarray(sample[name]))
            dtype, shape = value.dtype, (None,) * value.ndim
        specs[name] = tf.TensorSpec((None, *shape), _tf_dtype(tf, dtype))
    batch_type: Any = collections.namedtuple("batch", specs)  # type: ignore[misc]  # noqa: PYI024
    loader = DataLoader(dataset, dataset.batch_size, drop_last=epochs is None, collate_fn=list)

    def batches() -> Iterator[Any]:
        for samples in Epochs(loader, epochs):
            values = transform.transformed(samples)
            yield batch_type(*(values[name] for name in specs))

    return tf.data.Dataset.from_generator(batches, output_signature=batch_type(**specs))


def _tf_dtype(tf: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "OSU":
        return tf.string
    if dtype.kind == "M":
        return tf.int64  # nanoseconds since 1970
    return tf.as_dtype(_TF_DTYPES.get(dtype.name, dtype))


# --- copies of a far directory -------------------------------------------------------------------

_LOCAL_CACHE_VARIABLE = "PETASTORM_BRIDGE_LOCAL_CACHE"
_DATABRICKS_DISK = "/local_disk0/tmp"
_LAUNCH_VARIABLES = (
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
)  # fmt: skip


def _place_for_copies(path: str, index: bytes) -> str:
    """Return a directory for copies of a far one, with links to what is here of it already."""
    # By content, as the index has the hashes of all shards: what is written anew is fetched anew.
    folder = os.path.join(_folder_of_copies(path), hashlib.sha256(index).hexdigest()[:16])
    os.makedirs(folder, exist_ok=True)
    try:
        os.chmod(folder, 0o700)
    except OSError as error:  # streaming, which sets modes in its threads, would wait for ever
        raise OSError(
            f"{folder}, where copies of far files would go, takes no file modes: name a folder on a "
            f"disk of this machine by the environment variable {_LOCAL_CACHE_VARIABLE}"
        ) from error
    with _locked(folder, fcntl.LOCK_EX):
        others = [entry.path for entry in os.scandir(folder)]
        place = _new_place(folder)
        # Streaming would fetch it with a client whose open connection forked workers would then share.
        index_file = os.path.join(place, "index.json")
        with open(f"{index_file}.tmp", "wb") as file:
            file.write(index)
        os.replace(f"{index_file}.tmp", index_file)
        shards = [shard["raw_data"] for shard in _shards(index)]
        for other in others:
            for shard in shards:
                _link(shard, other, place)
            _delete_unused(other)
    return place


def _new_place(folder: str) -> str:
    """Make a directory, the same one on all ranks, and hold a lock on it while this process lives."""
    if _rank_and_size()[1] > 1:
        launch = [os.environ.get(name, "") for name in _LAUNCH_VARIABLES]
        place = os.path.join(folder, "-".join([*launch, str(next(_counters["place", folder]))]))
        os.makedirs(place, exist_ok=True)
    else:
        place = tempfile.mkdtemp(dir=folder)
    user = os.open(place, os.O_RDONLY)
    fcntl.flock(user, fcntl.LOCK_SH)
    if not os.environ.get(_LOCAL_CACHE_VARIABLE):
        atexit.register(_delete_unused, place)
        atexit.register(os.close, user)  # which runs first
    return place


def _delete_unused(place: str) -> None:
    """Delete a place that no process holds a lock on."""
    with contextlib.suppress(OSError), _locked(place, fcntl.LOCK_EX | fcntl.LOCK_NB):
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _locked(directory: str, kind: int) -> Iterator[None]:
    """Hold a lock on a directory, of a kind that ``flock`` has."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


def _link(file: Mapping[str, Any], source: str, place: str) -> None:
    """Link a file into a place from another one, if that has all of it."""
    here, there = (os.path.join(directory, file["basename"]) for directory in (place, source))
    with contextlib.suppress(OSError):  # it is not there yet, or here already
        if os.path.getsize(there) == file["bytes"]:
            os.makedirs(os.path.dirname(here), exist_ok=True)
            os.link(there, here)


def _folder_of_copies(path: str) -> str:
    """Return the folder with this machine's copies of a directory, in one that only this user has."""
    named = os.environ.get(_LOCAL_CACHE_VARIABLE)
    disk = _DATABRICKS_DISK if os.path.isdir(_DATABRICKS_DISK) else tempfile.gettempdir()
    root = os.path.join(named or disk, f"mds-copies-{os.getuid()}")
    os.makedirs(root, mode=0o700, exist_ok=True)
    status = os.lstat(root)
    is_mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_mine or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"{root}, where copies of far files would go, is a link, or others can write to it: "
            f"remove it, or name another folder by the environment variable {_LOCAL_CACHE_VARIABLE}"
        )
    return os.path.join(root, hashlib.sha256(path.encode()).hexdigest()[:16])


# --- several ranks -------------------------------------------------------------------------------

_CONNECTION_SECONDS = 30
_ARRIVAL_SECONDS = 1800  # as long as torch.distributed lets ranks wait for one another


def write_on_first_rank(
    kind: type[MdsDirectory],
    columns: Sequence[str],
    write: Callable[[], MdsDirectory],
    *,
    is_temporary: bool,
) -> MdsDirectory:
    """Write a directory, which a launch of several ranks does once: the others wait for the first.

    It is no collective call, so that the first rank may write alone. The others are told of what it
    writes at the same line of the program.

    Args:
        kind: What the ranks that do not write make of what they are told.
        columns: Names of the columns that are to be written.
        write: Writes the directory.
        is_temporary: Whether the directory is deleted when the last rank exits.

    Raises:
        RuntimeError: The ranks cannot agree, or writing failed on the first one.
    """
    rank, size = _rank_and_size()
    if size == 1:
        directory = write()
        if is_temporary:
            directory.delete_at_exit()
        return directory
    store = _store_of_launch()
    caller = traceback.extract_stack(limit=3)[0]  # of write_mds
    line = f"{caller.name}:{caller.lineno}"
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    key = f"write_mds/{restarts}/{line}/{next(_counters['call', line])}"
    if rank == 0:
        store.set(f"{key}/begun", "")
        try:
            directory = write()
        except BaseException as error:
            store.set(key, json.dumps({"error": repr(error)}))
            raise
        store.add(f"{key}/users", 1)
        store.set(key, json.dumps({**dataclasses.asdict(directory), "columns": [*columns]}))
    else:
        answer = _answer_of_first_rank(store, key, rank)
        directory = kind(answer["path"], answer["dataset_size"])
        if answer["columns"] != [*columns]:
            raise RuntimeError(
                f"rank {rank} would write the columns {[*columns]}, and the first rank has written "
                f"{answer['columns']}: call write_mds equally often on all ranks, or on one"
            )
        store.add(f"{key}/users", 1)
    if is_temporary:
        atexit.register(_leave, store, key, directory)
    return directory


def _rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and how many there are, by torch or else by the launcher."""
    distributed = sys.modules.get("torch.distributed")  # who has not imported it has no group
    if distributed and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    if "RANK" in os.environ:
        return int(os.environ["RANK"]), int(os.environ.get("WORLD_SIZE", "1"))
    return 0, 1


def _store_of_launch() -> Any:
    """Return a client of the store by which the processes of a launch find one another."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        return TCPStore(
            host, port, is_master=False, timeout=dt.timedelta(seconds=_CONNECTION_SECONDS)
        )
    except (KeyError, RuntimeError) as error:
        raise RuntimeError(
            "write_mds was called in one of several ranks, which would write a directory each, and "
            "they cannot agree on one before torch.distributed.init_process_group: call it after "
            "that, or write before the ranks are started (with `out=`, or in Lightning's "
            "prepare_data) and read that directory in each of them. Nothing was written"
        ) from error


def _answer_of_first_rank(store: Any, key: str, rank: int) -> dict[str, Any]:
    """Return the fields of the directory that the first rank has written, once it has."""
    latest = time.monotonic() + _ARRIVAL_SECONDS
    while not store.check([key]):
        if time.monotonic() > latest and not store.check([f"{key}/begun"]):
            raise RuntimeError(
                f"rank {rank} has called write_mds, and for {_ARRIVAL_SECONDS} seconds the first "
                "rank has not: call it on all ranks, or on the first one only"
            )
        time.sleep(0.1)
    answer = dict(json.loads(store.get(key)))
    if "error" in answer:
        raise RuntimeError(f"write_mds failed on the first rank: {answer['error']}")
    return answer


def _leave(store: Any, key: str, directory: MdsDirectory) -> None:
    """Delete a directory if this is the last rank that uses it."""
    try:
        users = store.add(f"{key}/users", -1)
    except RuntimeError:  # the rank with the store has gone, and with it the training
        users = 0
    if users == 0:
        directory.delete()
