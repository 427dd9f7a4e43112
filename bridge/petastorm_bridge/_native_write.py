"""Spark DataFrames to MDS with streaming's writer: the writing half of `petastorm_bridge.native`.

The codemod's ``--vendor`` copies this file and ``_native_read`` into one; they import nothing else of ours.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import uuid
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pyarrow import fs

NUMBERS = {"boolean": "int8", "tinyint": "int8", "smallint": "int16", "int": "int32"}
NUMBERS |= {"bigint": "int64", "float": "float32", "double": "float64"}
_CLOCK = "hour({0}) * 3600 + minute({0}) * 60 + extract(second FROM {0})"
_TIMES = {"date": "datediff({0}, date'1970-01-01')", "timestamp": "unix_micros({0}) * 1000"}
_TIMES["timestamp_ntz"] = f"({_TIMES['date']} * 86400 + {_CLOCK}) * 1000000000"


@dataclass(frozen=True)
class MdsDirectory:
    """A directory of MDS shards, local or in a store; ``len()`` is the number of rows."""

    path: str
    rows: int
    # The key that Petastorm read, so that clusters configured for it go on working.
    CACHE_DIR_CONF: ClassVar[str] = "petastorm.spark.converter.parentCacheDirUrl"

    def __len__(self) -> int:
        return self.rows

    dataset_size = property(__len__)

    @property
    def cache_dir_url(self) -> str:
        """The directory as a URL."""
        return self.path if "://" in self.path else f"file://{self.path}"

    @property
    def file_urls(self) -> list[str]:
        """The URLs of the shards."""
        files, path = fs.FileSystem.from_uri(self.path)
        with files.open_input_stream(f"{path}/index.json") as file:
            shards = [each["zip_data"] or each["raw_data"] for each in json.load(file)["shards"]]
        return [f"{self.cache_dir_url}/{shard['basename']}" for shard in shards]

    def delete(self) -> None:
        """Delete the directory; nothing happens if it is gone."""
        files, path = fs.FileSystem.from_uri(self.path)
        with contextlib.suppress(FileNotFoundError):
            files.delete_dir(path)


def dataframe_to_mds(
    dataframe: Any, out: str = "", dtype: Any = "float32", size_limit: int = 1 << 26, **kwargs: Any
) -> MdsDirectory:
    """Write a Spark DataFrame as MDS with floats and vectors of a dtype (None: theirs).

    Without ``out`` it goes below the URL in Spark's configuration, until the program ends.
    """
    from streaming.base.converters import dataframe_to_mds as convert

    parent = dataframe.sparkSession.conf.get(MdsDirectory.CACHE_DIR_CONF, None)
    if not out and not parent:
        raise ValueError(f"give `out`, or set spark.conf {MdsDirectory.CACHE_DIR_CONF!r} to a URL")
    path = out or os.path.join(parent, uuid.uuid4().hex).replace("s3a:", "s3:", 1)
    if path.startswith(("file:", "dbfs:")):
        path = "/" + path.removeprefix("file:").replace("dbfs:", "dbfs", 1).lstrip("/")
    frame, encodings, kinds = _stored(dataframe, dtype)
    options = {"out": path, "columns": encodings, "size_limit": max(size_limit, 1 << 16), **kwargs}
    options = {"compression": None, "exist_ok": True, **options}
    convert(frame, mds_kwargs=options, udf_iterable=lambda pdf: pdf.to_dict("records"))
    files, root = fs.FileSystem.from_uri(path)
    with files.open_input_stream(f"{root}/index.json") as file:
        index = json.load(file)
    with files.open_output_stream(f"{root}/index.json") as file:
        file.write(json.dumps({**index, "columns": kinds}).encode())
    directory = MdsDirectory(path, sum(shard["samples"] for shard in index["shards"]))
    if not out:
        atexit.register(directory.delete)
    return directory


def _stored(frame: Any, dtype: str | None) -> tuple[Any, dict[str, str], dict[str, str]]:
    """Return the DataFrame as it is written, the MDS encoding and the Spark type of each column."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as F  # noqa: N812 – everybody's name for it

    numbers = {**NUMBERS, **({"float": dtype, "double": dtype} if dtype else {})}
    casts, wide = {mds: spark for spark, mds in NUMBERS.items()}, dtype or "float64"
    nulls = frame.agg(*(F.max(F.col(f"`{n}`").isNull()).alias(n) for n in frame.columns)).first()
    columns, encodings, kinds = [], {}, {}
    for name, kind in frame.dtypes:
        column, element = F.col(f"`{name}`"), kind.removeprefix("array<").removesuffix(">")
        encoding, suffix = "str", ""
        if kind in numbers:
            whole = nulls[name] and numbers[kind].startswith("int")
            encoding = "float64" if whole else numbers[kind]
            column = (column.cast("int") if kind == "boolean" else column).cast(casts[encoding])
            column = F.coalesce(column, F.lit(float("nan"))) if nulls[name] else column
        elif kind == "vector":
            encoding, column = f"ndarray:{wide}", vector_to_array(column, wide)
        elif element in numbers:
            encoding = f"ndarray:{numbers[element]}"
            column = column.cast(f"array<{casts[numbers[element]]}>")
        elif kind in _TIMES:  # days or nanoseconds; null is NaT
            long = F.expr(f"cast({_TIMES[kind].format(f'`{name}`')} as long)")
            encoding, column = "int64", F.coalesce(long, F.lit(np.iinfo(np.int64).min))
        elif element == "string" or kind.startswith("decimal"):
            column = column.cast("string") if element == kind else column
            if nulls[name] or element != kind:
                column, suffix = F.to_json(F.array(column)), "?"
        elif kind == "binary" and not nulls[name]:
            encoding = "bytes"
        elif kind.startswith(("struct", "map", "array<array", "array<struct")):
            warnings.warn(f"column {name!r} of type {kind} is left out", stacklevel=3)
            continue
        else:
            raise ValueError(f"column {name!r} of type {kind} cannot be stored: cast or fill it")
        columns.append(column.alias(name))
        encodings[name], kinds[name] = encoding, kind + suffix
    return frame.select(*columns), encodings, kinds
