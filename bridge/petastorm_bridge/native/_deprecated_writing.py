"""How code that earlier releases' codemod wrote writes; goes with the next release."""

from __future__ import annotations

import atexit
import json
import os
import re
import warnings
from typing import Any

import pyarrow.fs

from . import directory, writing

# NumPy's names of Spark's types, and the SQL of days and nanoseconds since 1970.
_TYPES = {"boolean": "bool", "tinyint": "int8", "smallint": "int16", "int": "int32"}
_TYPES |= {"bigint": "int64", "float": "float32", "double": "float64"}
_TYPES |= {"date": "M8[D]", "timestamp": "M8[ns]", "timestamp_ntz": "M8[ns]"}
# Multiplied, other years would wrap around to wrong ones.
_NANOSECONDS = (
    "if(abs(unix_micros({0})) > 9223372036854775, "
    "raise_error('a timestamp outside the years 1678 to 2261: clip or cast it'), "
    "unix_micros({0}) * 1000)"
)
_TIMES = {"date": "datediff({0}, date'1970-01-01')", "timestamp": _NANOSECONDS}
_TIMES["timestamp_ntz"] = _NANOSECONDS.format("timestamp(string({0}) || 'Z')")


class MdsDirectory(writing.MdsDirectory):
    """A directory of MDS shards, local or in a store; ``len()`` is the number of rows."""

    def delete(self) -> None:
        """Delete the directory, if it is still there; it has no mark of the bridge's."""
        directory.MdsDirectory.delete(self)


def _opened(path: str) -> Any:
    if not path.startswith("s3://"):
        return pyarrow.fs.FileSystem.from_uri(path)
    return pyarrow.fs.S3FileSystem(endpoint_override=os.environ.get("S3_ENDPOINT_URL")), path[5:]


def dataframe_to_mds(dataframe: Any, out: str = "", dtype: Any = "float32", **kwargs: Any) -> Any:
    """Write a Spark DataFrame as MDS with floats of a dtype; without ``out`` for this process."""
    from streaming.base.converters import dataframe_to_mds as convert

    parent = dataframe.sparkSession.conf.get(MdsDirectory.CACHE_DIR_CONF, None)
    if not out and not parent:
        raise ValueError(f"give `out`, or set spark.conf {MdsDirectory.CACHE_DIR_CONF!r} to a URL")
    path = (out or os.path.join(parent, os.urandom(16).hex())).replace("s3a:", "s3:", 1)
    path = re.sub("^file:/*", "/", re.sub("^dbfs:/*", "/dbfs/", path))
    path = path if "://" in path else os.path.abspath(path)
    options = {"compression": None, "exist_ok": True, "keep_local": False, **kwargs, "out": path}
    frame, options["columns"], kinds = _stored(dataframe, dtype)
    options["size_limit"] = max(kwargs.get("size_limit", 1 << 26), 1 << 16)  # a row has to fit
    convert(frame, mds_kwargs=options, udf_iterable=lambda pdf: pdf.to_dict("records"))
    files, place = _opened(f"{path}/index.json")
    index = {**json.load(files.open_input_stream(place)), "columns": kinds}
    # A store shows the new file when it is whole; on a disk it takes another name for that.
    part = f"{place}.tmp" if files.type_name == "local" else place
    with files.open_output_stream(part) as file:
        file.write(json.dumps(index).encode())
    if part != place:
        files.move(part, place)
    made = MdsDirectory(path, sum(shard["samples"] for shard in index["shards"]))
    if not out:
        atexit.register(made.delete)
    return made


def _stored(frame: Any, dtype: str | None) -> tuple[Any, dict[str, str], dict[str, str]]:
    """Return the DataFrame as it is written, the MDS encoding and the NumPy type of each column."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    vectors = [(name, F.col(f"`{name}`")) for name, kind in frame.dtypes if kind == "vector"]
    frame = frame.withColumns({n: vector_to_array(v, dtype or "float64") for n, v in vectors})
    types = {**_TYPES, **({"float": dtype, "double": dtype} if dtype else {})}
    casts = {numpy: spark for spark, numpy in _TYPES.items()}
    whole = {"boolean", "tinyint", "smallint", "int", "bigint"}
    tests = {n: f"`{n}` is null" for n, k in frame.dtypes if k in {*whole, "string", "binary"}}
    tests |= {n: f"exists(`{n}`, x -> x is null)" for n, k in frame.dtypes if k[6:-1] in whole}
    may = [getattr(f.dataType, "containsNull", f.nullable) for f in frame.schema if f.name in tests]
    found = frame.selectExpr(*(f"max({t})" for t in tests.values())).first() if any(may) else ()
    nulls = {name: "float64" for name, null in zip(tests, found, strict=False) if null}
    columns, encodings, kinds = {}, {}, {}
    for name, kind in frame.dtypes:
        sql, element = f"`{name}`", kind.removeprefix("array<").removesuffix(">")
        if shown := types.get(element, ""):
            encoding = nulls.get(name) or {"b": "int8", "M": "int64"}.get(shown[0], shown)
            value = f"cast({_TIMES.get(element, '{0}')} as {casts[encoding]})"
            value = f"nvl({value}, {-(1 << 63)}L)" if element in _TIMES else value  # null is NaT
            array = f"transform({sql}, x -> {value.format('x')})"
            missing = f"raise_error('null instead of an array in column {name}: fill it')"
            sql = value.format(sql) if kind == element else f"coalesce({array}, {missing})"
            encoding = encoding if kind == element else f"ndarray:{encoding}"
        elif kind in {"string", "binary"}:
            encoding = shown = "str" if kind == "string" else "bytes"
            if name in nulls:  # which are empty; everything else begins with a dot
                sql, shown = f"nvl(cast('.' as {kind}) || {sql}, cast('' as {kind}))", f"{shown}?"
        elif element == "string" or element.startswith("decimal"):
            sql, encoding, shown = f"to_json(array({sql}))", "str", "JSON"
        elif kind.startswith(("array<", "map<", "struct<")) and element != "binary":
            warnings.warn(f"column {name!r} of type {kind} is left out", stacklevel=3)
            continue
        else:
            raise ValueError(f"column {name!r} of type {kind} cannot be stored: cast or fill it")
        columns[name], encodings[name], kinds[name] = F.expr(sql).alias(name), encoding, shown
    return frame.select(*columns.values()), encodings, kinds
