"""Which columns of a DataFrame are written, converted how, under which Arrow type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from petastorm_bridge.mds.types import is_storable
from petastorm_bridge.spark._session import analysis_error, illegal_argument, logger

_PLAIN_TYPES = {
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "StringType": pa.string(),
    "CharType": pa.string(),
    "VarcharType": pa.string(),
    "BinaryType": pa.binary(),
    "DateType": pa.date32(),
    "TimestampType": pa.timestamp("us", tz="UTC"),
    "TimestampNTZType": pa.timestamp("us"),
    # Parquet files hold intervals as plain integers, microseconds and months, and that is what
    # Petastorm shows.
    "DayTimeIntervalType": pa.int64(),
    "YearMonthIntervalType": pa.int32(),
    "VariantType": pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),
    "NullType": pa.null(),
}

Precision = Literal["float32", "float64"]
# dtype -> the Spark type converted from, and the SQL and Arrow types converted to.
_PRECISION = {
    "float32": ("DoubleType", "FLOAT", pa.float32()),
    "float64": ("FloatType", "DOUBLE", pa.float64()),
}

# What Spark's Parquet writer refuses, at any depth.
_UNWRITABLE = {"NullType": "VOID", "CalendarIntervalType": "INTERVAL"}


@dataclass(frozen=True)
class ColumnPlan:
    """What the executors get and what is written.

    Attributes:
        df: The DataFrame with just the columns to write, converted and called c0, c1, … (pyspark's
            ``mapInArrow`` trips over dots and backticks in names); without any storable column, one
            constant column, so that rows can be counted.
        schema: Arrow schema to write; empty without any storable column.
        ignored: Name and Arrow type of each column that neither MDS nor Petastorm's readers can
            hold (maps, structs, nested arrays).
    """

    df: Any
    schema: pa.Schema
    ignored: tuple[tuple[str, str], ...]


def checked_dtype(dtype: Any) -> str | None:
    """Return the ``dtype`` argument as plain text, which what equals it may stand for, as in Petastorm.

    Raises:
        ValueError: Neither ``'float32'``, ``'float64'`` nor None (Petastorm's text, gap included);
            also Spark's ``IllegalArgumentException``, Petastorm's type if there are vectors.
    """
    if dtype is None:
        return None
    for name in _PRECISION:
        if dtype == name:
            return name
    raise illegal_argument(f"dtype {dtype} is not supported.             Use 'float32' or float64")


def plan_columns(df: Any, dtype: str | None, *, case_sensitive: bool = False) -> ColumnPlan:
    """Return what to write of a DataFrame.

    Vectors become arrays of ``dtype``. Floating-point columns and arrays are cast to it, on the top
    level only, as in Petastorm: what is nested deeper and decimals keep their type.

    Raises:
        AnalysisException: Spark could not write the DataFrame as Parquet either: no columns, names
            used twice, a column of null or calendar interval type.
        IllegalArgumentException: A vector column with ``dtype=None``.
    """
    _check_names(df.columns, case_sensitive=case_sensitive)
    df = vectors_to_arrays(df, dtype)
    if dtype is not None:
        logger.warning("Converting floating-point columns to %s", dtype)
    expressions: list[str] = []
    fields: list[pa.Field] = []
    ignored: list[tuple[str, str]] = []
    for column in df.schema.fields:
        _refuse_unwritable(column.name, column.dataType)
        expression, arrow = _expression(column.name, column.dataType, dtype)
        if arrow is not None and is_storable(arrow):
            expressions.append(f"{expression} AS c{len(fields)}")
            fields.append(pa.field(column.name, arrow, column.nullable))
        else:
            type_name = column.dataType.simpleString() if arrow is None else str(arrow)
            ignored.append((column.name, type_name))
    selected = df.selectExpr(*(expressions or ["true AS c0"]))
    return ColumnPlan(selected, pa.schema(fields), tuple(ignored))


def arrow_type(spark_type: Any) -> pa.DataType | None:
    """Return the Arrow type that holds a Spark type's values, None for an unknown type.

    User-defined types are what they are stored as. Nested types come out as Arrow describes the
    Parquet file that Petastorm would have read.
    """
    spark_type = _stored_type(spark_type)
    kind = type(spark_type).__name__
    if kind == "DecimalType":
        return pa.decimal128(spark_type.precision, spark_type.scale)
    if kind == "ArrayType":
        element = arrow_type(spark_type.elementType)
        return None if element is None else _list_of(element)
    if kind == "MapType":
        key, value = arrow_type(spark_type.keyType), arrow_type(spark_type.valueType)
        return None if key is None or value is None else pa.map_(key, value)
    if kind == "StructType":
        parts = [(part.name, arrow_type(part.dataType)) for part in spark_type.fields]
        return None if any(part is None for _, part in parts) else pa.struct(parts)
    return _PLAIN_TYPES.get(kind)


def _list_of(element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element))


def _stored_type(spark_type: Any) -> Any:
    sql_type = getattr(spark_type, "sqlType", None)  # only user-defined types have one
    return spark_type if sql_type is None else sql_type()


def _expression(name: str, spark_type: Any, dtype: str | None) -> tuple[str, pa.DataType | None]:
    """Return the SQL that selects a column as it is written, and the Arrow type it then has."""
    quoted = _quote(name)
    stored = _stored_type(spark_type)
    is_array = type(stored).__name__ == "ArrayType"
    kind = type(stored.elementType if is_array else stored).__name__
    if stored is spark_type and dtype is not None and kind == _PRECISION[dtype][0]:
        _, sql, arrow = _PRECISION[dtype]
        target = f"ARRAY<{sql}>" if is_array else sql
        return f"CAST({quoted} AS {target})", _list_of(arrow) if is_array else arrow
    if kind == "YearMonthIntervalType":
        interval = stored.elementType if is_array else stored
        months = _months(interval, "v" if is_array else quoted)
        sql = f"transform({quoted}, v -> {months})" if is_array else months
        return sql, arrow_type(stored)
    return quoted, arrow_type(stored)


def _months(interval: Any, operand: str) -> str:
    """Return SQL for an interval as a number of months, which pyarrow has no type for."""
    parts = []
    if interval.startField == interval.YEAR:
        parts.append(f"12 * extract(YEAR FROM {operand})")
    if interval.endField == interval.MONTH:
        parts.append(f"extract(MONTH FROM {operand})")
    return f"CAST({' + '.join(parts)} AS INT)"


def _quote(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _check_names(names: list[str], *, case_sensitive: bool) -> None:
    if not names:
        raise analysis_error(
            "The DataFrame has no columns, so there is nothing to write. "
            "Please make sure the data schema has at least one or more column(s)."
        )
    seen: set[str] = set()
    for name in names:
        key = name if case_sensitive else name.lower()
        if key in seen:
            raise analysis_error(
                f"[COLUMN_ALREADY_EXISTS] The column `{key}` already exists. Consider to choose "
                f"another name or rename the existing column. The DataFrame has {names}."
            )
        seen.add(key)


def _refuse_unwritable(name: str, spark_type: Any) -> None:
    unwritable = _find_unwritable(spark_type)
    if unwritable is not None:
        raise analysis_error(
            "[UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE] The MDS datasource, like Parquet, doesn't "
            f'support the column `{name}` of the type "{spark_type.simpleString().upper()}", which '
            f"holds {unwritable}. Cast it (e.g. to STRING or DOUBLE) or drop it before converting."
        )


def _find_unwritable(spark_type: Any) -> str | None:
    kind = type(spark_type).__name__
    if kind in _UNWRITABLE:
        return _UNWRITABLE[kind]
    inner = [getattr(spark_type, name, None) for name in ("elementType", "keyType", "valueType")]
    inner += [part.dataType for part in getattr(spark_type, "fields", ())]
    for part in inner:
        unwritable = None if part is None else _find_unwritable(part)
        if unwritable is not None:
            return unwritable
    return None


def vectors_to_arrays(df: Any, dtype: str | None) -> Any:
    """Return a DataFrame whose MLlib vectors are arrays of ``dtype``.

    Raises:
        IllegalArgumentException: There are vectors, and ``dtype`` is None.
    """
    vectors = [column.name for column in df.schema.fields if _is_vector(column.dataType)]
    if not vectors:
        return df
    if dtype is None:
        raise illegal_argument(
            "Unsupported dtype: null. Valid values: float64, float32. The vector columns "
            f"{vectors} need dtype='float64' or 'float32' in make_spark_converter."
        )
    from pyspark.ml.functions import vector_to_array

    for name in vectors:
        df = df.withColumn(name, vector_to_array(df[_quote(name)], dtype))
    return df


def _is_vector(spark_type: Any) -> bool:
    if type(spark_type).__name__ != "VectorUDT":
        return False
    from pyspark.ml.linalg import VectorUDT
    from pyspark.mllib.linalg import VectorUDT as OldVectorUDT

    return isinstance(spark_type, VectorUDT | OldVectorUDT)
