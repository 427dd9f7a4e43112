"""What rewritten code needs beside streaming's own classes.

``write_mds`` writes a Spark DataFrame so that ``streaming.StreamingDataset`` reads from it what
Petastorm's loaders gave: the conversion that Petastorm did while reading is done once, and tensors are
stored as they are. ``Epochs`` reads a loader several times, or without end; ``PandasCollate`` and
``to_tf_dataset`` stand where Petastorm had transforms and TensorFlow datasets. All but the writer is in
``petastorm_bridge/mds_support.py``, which works alone, with a writer of its own:
``petastorm-bridge codemod --vendor`` copies that file into a repository.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from petastorm_bridge._sources._far.fetch import UNKNOWN_SIZE, Extent, Fetch
from petastorm_bridge._sources._far.s3 import S3Store
from petastorm_bridge.fs_utils import local_path, normalize_dir_url
from petastorm_bridge.mds.access import is_far
from petastorm_bridge.mds.codecs import parse_compression
from petastorm_bridge.mds.commit import Rewrite
from petastorm_bridge.mds.entry import INDEX_NAME
from petastorm_bridge.mds.errors import missing_extra
from petastorm_bridge.spark import _session, spark_dataset_converter
from petastorm_bridge.spark._directory import deletion, mounted, urls
from petastorm_bridge.spark._directory.store import store_at
from petastorm_bridge.spark._writing.columns import (
    ColumnPlan,
    Precision,
    checked_dtype,
    plan_columns,
)
from petastorm_bridge.spark._writing.materialize import (
    Form,
    Infos,
    MapShards,
    Options,
    materialize,
    new_directory_name,
)

try:
    from petastorm_bridge import mds_support as support
    from petastorm_bridge.mds_support import (
        Epochs,
        PandasCollate,
        UnsupportedColumnsError,
        check_columns,
        to_tf_dataset,
        without_vectors,
        write_on_first_rank,
    )
except ModuleNotFoundError as error:
    if error.name != "pandas":
        raise
    raise missing_extra("pandas", "streaming") from error

__all__ = [
    "Epochs",
    "MdsDirectory",
    "PandasCollate",
    "UnsupportedColumnsError",
    "to_tf_dataset",
    "write_mds",
]

_DEFAULT_SIZE_LIMIT = 1 << 26  # MDSWriter's
_S3_SCHEMES = {"s3a", "s3n"}  # Hadoop's


class MdsDirectory(support.MdsDirectory):
    """A directory of MDS shards; ``len()`` is the number of rows. It pickles as these two.

    ``StreamingDataset(remote=directory.remote, local=directory.local, …)`` reads it wherever it is.
    ``MdsDirectory(path)`` opens one that is there; its index says how many rows it has.

    Attributes:
        path: Absolute path, or the URL in a store.
        dataset_size: Number of rows.
    """

    def __repr__(self) -> str:
        """Return the path, the number of rows, and whether the directory is near or far."""
        kind = "far" if self._is_far() else "near"
        return f"{super().__repr__().removesuffix(')')}, {kind})"

    def delete(self) -> None:
        """Delete the directory, if the bridge wrote it, and this machine's copies; twice is fine."""
        self.delete_copies()
        deletion.note_deleted(self.cache_dir_url)
        deletion.default_delete_handler(self.cache_dir_url)

    def delete_at_exit(self) -> None:
        """Delete the directory when Python exits, by the handler of ``register_delete_dir_handler``."""
        deletion.delete_at_exit(
            self.cache_dir_url,
            lambda: spark_dataset_converter._delete_dir_handler,  # noqa: SLF001
        )

    def _index(self) -> bytes:
        # By what fetches the shards later: Arrow asks for the size first, and has a client of its own to make.
        if self.path.startswith("s3://"):
            with contextlib.suppress(ImportError):  # not needed where a directory is written only
                extent = Extent(f"{self.path}/{INDEX_NAME}", INDEX_NAME, UNKNOWN_SIZE)
                return Fetch(S3Store(), extent).to_memory().tobytes()
        return super()._index()

    def _is_far(self) -> bool:
        return "://" in self.path or is_far(self.path)


def write_mds(
    dataframe: Any,
    out: str | None = None,
    *,
    dtype: Precision | None = "float32",
    compression: str | None = None,
    size_limit: int = _DEFAULT_SIZE_LIMIT,
) -> support.MdsDirectory:
    """Write a Spark DataFrame so that streaming reads what Petastorm's loaders gave.

    The DataFrame is evaluated once, in the executors. The directory is complete or not there. Of
    several ranks the first one writes.

    Args:
        dataframe: A DataFrame, classic or of Spark Connect.
        out: The directory to make, a path or URL that every machine of the cluster sees. None makes
            a new one in the directory that ``MdsDirectory.PARENT_CACHE_DIR_URL_CONF`` or the
            environment variable ``PETASTORM_BRIDGE_PARENT_CACHE_DIR_URL`` names, and deletes it
            when Python exits.
        dtype: Precision of floats, of arrays of them and of vectors: ``"float32"``, ``"float64"`` or
            None to leave them as they are.
        compression: As ``streaming.MDSWriter`` has it, say ``"zstd:3"``.
        size_limit: Bytes of a shard at most.

    Raises:
        UnsupportedColumnsError: Tensors cannot hold some columns, or the nulls in them.
        FileExistsError: There is something at ``out`` already.
        ValueError: The DataFrame has no rows, nothing says where to write it, or another argument
            cannot be used.
        MaterializationError: Writing failed; nothing was left behind.
        RuntimeError: There are several ranks, which cannot agree on one directory.
    """
    if not hasattr(dataframe, "mapInArrow"):
        type_name = type(dataframe).__name__
        raise TypeError(
            f"write_mds takes a Spark DataFrame, not {type_name}: spark.createDataFrame(…)"
        )
    _session.refuse_on_executor()
    precision = checked_dtype(dtype)
    parse_compression(compression)
    kinds = dataframe.dtypes
    check_columns(kinds)
    session = dataframe.sparkSession

    def write() -> MdsDirectory:
        url = _new_url(session) if out is None else _url_of(out)
        options = Options(int(size_limit), compression, precision)
        rows = materialize(dataframe, options, url, BatchForm(kinds)).num_rows
        if not rows:
            deletion.default_delete_handler(url)
            raise ValueError("the DataFrame has no rows, and streaming reads no empty directories")
        return MdsDirectory(local_path(url) or url, rows)

    return write_on_first_rank(MdsDirectory, dataframe.columns, write, is_temporary=out is None)


def _url_of(out: str) -> str:
    """Return the URL of a directory to make, given as path or URL; FileExistsError if something is there."""
    if ":" not in out.partition("/")[0]:
        out = f"file://{os.path.abspath(out)}"
    url = _checked(out)
    if store_at(url).is_there():
        raise FileExistsError(f"{out} is there already: give another directory, or delete it first")
    return url


def _new_url(session: Any) -> str:
    """Return the URL of a new directory in the one that the session names; ValueError if it names none."""
    key = MdsDirectory.PARENT_CACHE_DIR_URL_CONF
    named = _session.conf_value(session, key) or os.environ.get(urls.PARENT_VARIABLE)
    if named is None:
        raise ValueError(
            f"nothing says where to write: give `out`, set spark.conf {key!r} to a URL such as "
            f"'file:///dbfs/tmp/cache', or the environment variable {urls.PARENT_VARIABLE}"
        )
    parent = _checked(named)
    mounted.clear_unfinished(parent)
    return urls.sub_url(parent, new_directory_name(session))


def _checked(url: str) -> str:
    """Return the one way to write a directory's URL, with streaming's name of S3, or raise ValueError."""
    urls.check_writable_place(url)
    url = urls.canonical_url(normalize_dir_url(url))
    urls.check_scheme(url)
    scheme, _, rest = url.partition("://")
    return f"s3://{rest}" if scheme in _S3_SCHEMES else url


class BatchForm(Form):
    """Columns as tensors have them: timestamps in nanoseconds, integers with nulls as float64.

    Args:
        kinds: Name and Spark type of each column, as ``DataFrame.dtypes`` has them; of types that
            :func:`check_columns` lets pass.
    """

    refusals = (UnsupportedColumnsError,)

    def __init__(self, kinds: Sequence[tuple[str, str]]) -> None:
        self._kinds = kinds

    def plan(self, df: Any, dtype: str | None, *, case_sensitive: bool) -> ColumnPlan:
        """Return what to write of a DataFrame."""
        plan = plan_columns(without_vectors(df, dtype), dtype, case_sensitive=case_sensitive)
        fields = [field.with_type(_in_nanoseconds(field.type)) for field in plan.schema]
        return dataclasses.replace(plan, schema=pa.schema(fields))

    def settle(
        self, schema: pa.Schema, infos: Infos, map_shards: MapShards
    ) -> tuple[pa.Schema, Infos]:
        """Refuse nulls that no tensor can hold, and make integers float64 where some are null.

        Whether a column has nulls is known when its last row has been written, and all shards need
        one type: those with such columns are written once more, from themselves.

        Raises:
            UnsupportedColumnsError: Names all columns with such nulls.
        """
        nulls = _columns_with(infos, "nulls")
        element_nulls = _columns_with(infos, "element_nulls")
        check_columns(self._kinds, nulls, element_nulls)
        widened = pa.schema(
            [
                field.with_type(_as_floats(field.type))
                if field.name in nulls | element_nulls
                else field
                for field in schema
            ]
        )
        if widened.equals(schema):
            return schema, infos
        return widened, map_shards(Rewrite(schema, {}, widened), infos)


def _in_nanoseconds(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_in_nanoseconds(type_.value_type)))
    return pa.timestamp("ns", type_.tz) if pa.types.is_timestamp(type_) else type_


def _as_floats(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_as_floats(type_.value_type)))
    return pa.float64() if pa.types.is_integer(type_) else type_


def _columns_with(infos: Infos, what: str) -> set[str]:
    """Return the columns that have some of what is counted in some shard."""
    return {name for info in infos for name, stats in info["stats"].items() if stats[what]}
