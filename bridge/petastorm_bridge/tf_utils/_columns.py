"""Columns of a block as TensorFlow takes them (``_sanitize_field_tf_types`` of Petastorm)."""

from __future__ import annotations

import datetime as dt
import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from petastorm_bridge._blocks.columns import Block, to_numpy
from petastorm_bridge.errors import NullValueWarning
from petastorm_bridge.reader._reader import Reader
from petastorm_bridge.unischema import tuple_class

_NS_PER_DAY = 86_400_000_000_000


def tf_dtype(numpy_dtype: Any) -> Any:
    """Return the TensorFlow type of a field's NumPy type; ValueError if there is none."""
    import tensorflow as tf

    if numpy_dtype in (Decimal, np.bytes_, np.str_):
        return tf.string
    if numpy_dtype is np.datetime64:
        return tf.int64
    try:
        scalar = np.dtype(numpy_dtype).type
        promoted = {np.uint16: np.int32, np.uint32: np.int64}.get(scalar, scalar)
        return tf.as_dtype(promoted)
    except TypeError as error:
        raise ValueError(f"Unknown mapping of numpy {numpy_dtype} to tensorflow dtype") from error


def dtypes_of(schema: Any, stacklevel: int = 4) -> list[Any]:
    """Return the TensorFlow types of a schema's fields, with a warning of texts.

    Raises:
        ValueError: A field has none.
    """
    fields = schema.fields.values()
    if any(field.numpy_dtype is np.str_ for field in fields):
        warnings.warn(
            "Tensorflow will convert all unicode strings back to bytes type. "
            "You may need to decode values.",
            UnicodeWarning,
            stacklevel=stacklevel,
        )
    return [tf_dtype(field.numpy_dtype) for field in fields]


class TfColumns:
    """The fields of a reader's blocks on their way to TensorFlow, and the namedtuple class of elements."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        fields = reader.schema.fields
        self.names = list(fields)
        self.tuple_class = tuple_class(reader.schema)
        self._dtypes = dict(zip(fields, dtypes_of(reader.schema), strict=True))
        self._warned: set[str] = set()
        for name in self.names:
            if reader.nulls(name) and not _marks_nulls(reader.types[name]):
                self._warn(name)

    def signature(self, leading: tuple[None, ...]) -> Any:
        """Return the specs of elements whose tensors have ``leading`` axes before the value's."""
        import tensorflow as tf

        specs = [
            tf.TensorSpec((*leading, *field.shape), self._dtypes[name])
            for name, field in self._reader.schema.fields.items()
        ]
        return self.tuple_class(*specs)

    def convert(self, block: Block) -> Block:
        """Return a block whose columns are arrays of TensorFlow's types."""
        if not block.num_rows:
            return Block({}, 0, block.ends_epoch)
        columns = {name: self._convert(name, block.columns[name]) for name in self.names}
        return Block(columns, block.num_rows, block.ends_epoch)

    def _warn(self, name: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            warnings.warn(
                f"Column {name!r} holds nulls, which TensorFlow gets as ordinary values "
                "(0, the smallest integer, False or b'None'). Fill or drop them before converting. "
                "`petastorm-bridge difference tf-null-warning` says more.",
                NullValueWarning,
                stacklevel=2,
            )

    def _convert(self, name: str, column: Any) -> npt.NDArray[Any]:
        target = self._dtypes[name].as_numpy_dtype
        if isinstance(column, pa.Array):
            exact = _exact(name, column, target)
            if exact is not None:
                if column.null_count and not _marks_nulls(column.type):
                    self._warn(name)
                return exact
            column = to_numpy(name, column)
        return self._plain(name, np.asarray(column), target)

    def _plain(self, name: str, values: npt.NDArray[Any], target: Any) -> npt.NDArray[Any]:
        kind = values.dtype.kind
        if kind == "M":
            if np.isnat(values).any():
                self._warn(name)
            return nanoseconds(name, values)
        if kind == "O" and isinstance(_first_present(values), dt.date):
            return _dates(name, values)
        if kind in "SU":
            return (
                np.char.encode(values, "utf-8").astype(object)
                if kind == "U"
                else values.astype(object)
            )
        if target is object:
            return values.astype(object)
        if kind == "f" and np.dtype(target).kind in "iu":
            missing = np.isnan(values)
            if missing.any():
                self._warn(name)
                filled = np.where(missing, 0, values).astype(target)
                filled[missing] = null_filler(np.dtype(target))
                return filled
        if kind == "O" and target is np.bool_ and any(value is None for value in values.flat):
            self._warn(name)
        return values.astype(target, copy=False)


def _exact(name: str, column: pa.Array, target: Any) -> npt.NDArray[Any] | None:
    """Return an Arrow column's values as they are stored; None for those that pandas converts."""
    type_ = column.type
    if pa.types.is_string(type_):
        text = pc.fill_null(column, "None") if column.null_count else column
        return np.asarray(text.cast(pa.binary()).to_numpy(zero_copy_only=False))
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return _whole_numbers(column, target)
    return _days(name, column) if pa.types.is_date32(type_) else None


def _whole_numbers(column: pa.Array, target: Any) -> npt.NDArray[Any]:
    if pa.types.is_unsigned_integer(column.type):  # which has no room for the smallest number
        column = column.cast(pa.int64())
    filler = pa.scalar(null_filler(np.dtype(target))).cast(column.type)
    filled = pc.fill_null(column, filler).to_numpy(zero_copy_only=False)
    return np.asarray(filled.astype(target, copy=False))


def _days(name: str, column: pa.Array) -> npt.NDArray[Any]:
    if column.null_count:
        raise _null_date(name, first=not column[0].is_valid)
    days = column.cast(pa.int32()).to_numpy(zero_copy_only=False)
    return _in_nanoseconds(name, days.astype(np.int64))


def null_filler(dtype: np.dtype[Any]) -> int:
    """Return what a null integer becomes: NaN cast to it, on the machines Petastorm ran on."""
    return int(np.iinfo(dtype).min) if dtype.kind == "i" and dtype.itemsize >= 4 else 0


def nanoseconds(name: str, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return timestamps of any unit as nanoseconds since 1970; ValueError if some do not fit."""
    exact = values.astype("datetime64[ns]")
    seconds = "datetime64[s]"
    # NumPy lets those that do not fit wrap around.
    if exact.dtype != values.dtype and not np.array_equal(
        exact.astype(seconds), values.astype(seconds), equal_nan=True
    ):
        raise ValueError(
            f"Column {name!r} holds timestamps outside the years 1678 to 2261, which have no value in "
            "TensorFlow: 64 bits hold no more nanoseconds. Clip or drop such rows before converting."
        )
    return exact.view(np.int64)


def _first_present(values: npt.NDArray[Any]) -> Any:
    """Return the first value that is not None; None if there is none."""
    return next((value for value in values.flat if value is not None), None)


def _dates(name: str, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if any(value is None for value in values.flat):
        raise _null_date(name, first=values.ndim > 1 or values.flat[0] is None)
    try:
        days = values.astype("datetime64[D]").astype(np.int64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Column {name!r} mixes dates with other objects: {error}") from error
    return _in_nanoseconds(name, days)


def _in_nanoseconds(name: str, days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    most = np.iinfo(np.int64).max // _NS_PER_DAY
    if days.size and (days.min() < -most or days.max() > most):
        raise OverflowError(
            f"Column {name!r} holds dates before 1677-09-22 or after 2262-04-11, which have no value in "
            "TensorFlow: 64 bits hold no more nanoseconds. Convert them in a TransformSpec."
        )
    return days * _NS_PER_DAY


def _null_date(name: str, *, first: bool) -> Exception:
    """Return the error for a null date; TensorFlow makes of its type what it makes in Petastorm."""
    kind = ValueError if first else AttributeError
    return kind(
        f"Column {name!r} holds null dates, which have no value in TensorFlow. Fill or drop them "
        "before converting."
    )


def _marks_nulls(type_: pa.DataType) -> bool:
    """Return whether nulls of a type reach TensorFlow as NaN, or as an error."""
    if pa.types.is_list(type_):
        type_ = type_.value_type
    return bool(
        pa.types.is_floating(type_)
        or pa.types.is_decimal(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_date(type_)
    )
