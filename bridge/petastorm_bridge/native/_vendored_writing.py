"""A Spark DataFrame becomes MDS shards from which streaming reads what Petastorm's loaders gave."""

from __future__ import annotations

import atexit
import os
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .columns import ENCODINGS, TEXTS, check_nulls, check_types, element_of, family_of
from .directory import MdsDirectory, is_there, read_shards

__all__ = ["write_mds"]

_WHOLE = {"tinyint", "smallint", "int", "bigint"}
_FLOATS = {"float32": "float", "float64": "double"}  # in MDS and in Spark

# Microseconds since 1970 of a time, whatever the session's time zone.
_MICROSECONDS = {
    "timestamp": "unix_micros({0})",
    "timestamp_ntz": "unix_micros(timestamp(string({0}) || 'Z'))",
}
# Multiplied, other years would wrap around to wrong ones. Null is NaT, the smallest number.
_NANOSECONDS = (
    "coalesce(if(abs({0}) > 9223372036854775, raise_error('a timestamp outside the years 1678 to "
    "2261, which nanoseconds cannot hold: clip it or cast it to a number'), {0} * 1000), "
    "-9223372036854775808L)"
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
    looked at for nulls, then by streaming, and then written.

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
    """
    # Needs pyspark, which training processes may lack.
    from streaming.base.converters import dataframe_to_mds

    if dtype not in {"float32", "float64", None}:
        raise ValueError(f"dtype is 'float32', 'float64' or None, not {dtype!r}")
    check_types(dataframe.dtypes)
    path = _new_path(dataframe.sparkSession, out)
    frame = _without_vectors(dataframe, dtype).persist()
    try:
        nulls, element_nulls = _nulls(frame)
        check_nulls(dataframe.dtypes, nulls, element_nulls)
        expressions, columns = _stored(frame.dtypes, dtype, nulls | element_nulls)
        dataframe_to_mds(
            frame.selectExpr(*expressions),
            mds_kwargs={
                "out": path,
                "columns": columns,
                "compression": compression,
                "size_limit": size_limit,
                "keep_local": False,
            },
            udf_iterable=_record_maker(columns),
        )
        rows = sum(shard["samples"] for shard in read_shards(path))
        directory = MdsDirectory(path, rows, tuple(dataframe.columns))
    except BaseException:
        MdsDirectory(path, 0).delete()
        raise
    finally:
        frame.unpersist()
    if out is None:
        atexit.register(directory.delete)
    return directory


def _new_path(session: Any, out: str | None) -> str:
    """Return the path or URL of the directory to make.

    Raises:
        FileExistsError: There is something already.
        ValueError: Nothing says where.
    """
    if out is None:
        key = MdsDirectory.PARENT_CACHE_DIR_URL_CONF
        parent = session.conf.get(key, None)
        if not parent:
            raise ValueError(f"nothing says where to write: give `out`, or set spark.conf {key!r}")
        out = f"{parent.rstrip('/')}/{uuid.uuid4()}"
    scheme, _, rest = out.partition(":")
    if scheme == "dbfs":
        place = rest.lstrip("/")
        path = f"/{place}" if place.startswith("Volumes/") else f"/dbfs/{place}"
    elif scheme == "file":
        path = "/" + rest.lstrip("/")
    else:
        path = out.replace("s3a://", "s3://", 1) if "://" in out else os.path.abspath(out)
    if is_there(path):
        raise FileExistsError(
            f"{path} is there already: give another directory, or delete it first"
        )
    return path


def _without_vectors(dataframe: Any, dtype: str | None) -> Any:
    """Return the DataFrame with arrays instead of vectors; null ones stay null."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    columns = {}
    for name, kind in dataframe.dtypes:
        if kind == "vector":
            column = F.col(_quoted(name))
            array = vector_to_array(column, dtype or "float64")
            columns[name] = F.when(column.isNotNull(), array)
    return dataframe.withColumns(columns) if columns else dataframe


def _nulls(frame: Any) -> tuple[set[str], set[str]]:
    """Return the columns in which rows are null, and those of arrays in which elements are."""
    names = list(frame.columns)
    arrays = [name for name, kind in frame.dtypes if element_of(kind) is not None]
    found = frame.selectExpr(
        *(f"max({_quoted(name)} is null)" for name in names),
        *(f"max(exists({_quoted(name)}, x -> x is null))" for name in arrays),
    ).first()
    rows, elements = found[: len(names)], found[len(names) :]
    return (
        {name for name, is_found in zip(names, rows, strict=True) if is_found},
        {name for name, is_found in zip(arrays, elements, strict=True) if is_found},
    )


def _stored(
    kinds: Sequence[tuple[str, str]], dtype: str | None, with_nulls: Collection[str]
) -> tuple[list[str], dict[str, str]]:
    """Return the SQL of what is stored of each column, and its encoding in MDS by name.

    In SQL the columns are called c0, c1, …, because ``mapInPandas`` trips over dots in names.

    Args:
        kinds: Name and Spark type of each, as ``DataFrame.dtypes`` has them.
        dtype: Precision of floats, or None to leave them.
        with_nulls: Names of columns in which rows or elements are null.
    """
    expressions = []
    columns: dict[str, str] = {}
    for name, kind in kinds:
        quoted, element = _quoted(name), element_of(kind)
        encoding, sql = _value(element or kind, dtype, has_nulls=name in with_nulls)
        if element is None:
            expressions.append(f"{sql.format(quoted)} as c{len(columns)}")
            columns[name] = encoding
        else:
            each = f"transform({quoted}, x -> {sql.format('x')})"
            expressions.append(f"{each} as c{len(columns)}")
            columns[name] = f"ndarray:{encoding}"
    return expressions, columns


def _value(kind: str, dtype: str | None, *, has_nulls: bool) -> tuple[str, str]:
    """Return the encoding of a value of a Spark type, and the SQL that makes it of ``{0}``."""
    if kind in _MICROSECONDS:
        return ENCODINGS[kind], _NANOSECONDS.format(_MICROSECONDS[kind])
    if kind == "boolean":
        return ENCODINGS[kind], "cast({0} as tinyint)"
    if kind in _WHOLE and has_nulls:
        return "float64", "cast({0} as double)"
    if kind in _FLOATS.values() and dtype is not None:
        return dtype, f"cast({{0}} as {_FLOATS[dtype]})"
    return (ENCODINGS | TEXTS)[family_of(kind)], "{0}"


def _record_maker(columns: dict[str, str]) -> Callable[[pd.DataFrame], list[dict[str, Any]]]:
    """Return the function that makes samples of a DataFrame's rows; executors need no module for it.

    Args:
        columns: The encoding of each column by name.
    """
    prefix = "ndarray:"
    arrays = {n: e.removeprefix(prefix) for n, e in columns.items() if e.startswith(prefix)}

    def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
        rows = frame.set_axis(list(columns), axis=1)
        for name, dtype in arrays.items():
            values = [np.asarray(value, dtype) for value in rows[name]]
            rows[name] = pd.Series(values, index=rows.index, dtype=object)
        return [
            dict(zip(columns, row, strict=True)) for row in rows.itertuples(index=False, name=None)
        ]

    return records


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
