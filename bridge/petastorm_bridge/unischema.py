"""Schemas as Petastorm writes and shows them (``petastorm/unischema.py``)."""

from __future__ import annotations

import functools
import re
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ._tables.spark_types import STAND_INS, as_type, to_pyspark
from .errors import DecodeFieldError, missing_extra

__all__ = [
    "Unischema",
    "UnischemaField",
    "dict_to_spark_row",
    "insert_explicit_nulls",
    "match_unischema_fields",
]


class UnischemaField(NamedTuple):
    """One field of a schema. Fields are equal if all but their codecs are.

    Attributes:
        name: Field name.
        numpy_dtype: NumPy scalar type (``numpy.int32``, ``decimal.Decimal`` …) of one element.
        shape: Shape of one value; None for an axis of varying length.
        codec: How values are stored (``petastorm_bridge.codecs``); None for what Parquet stores by
            itself.
        nullable: Whether the source allows nulls.
    """

    name: str
    numpy_dtype: Any
    shape: Any
    codec: Any = None
    nullable: bool | None = False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple) or not hasattr(other, "numpy_dtype"):
            return NotImplemented
        return _without_codec(self) == _without_codec(other)

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __hash__(self) -> int:
        return hash(_without_codec(self))


def _without_codec(field: Any) -> tuple[Any, ...]:
    return field.name, field.numpy_dtype, field.shape, field.nullable


def name_of(schema: Any) -> str:
    """Return a schema's name, whose attribute is private so that a field may be called ``name``."""
    return str(schema._name)  # noqa: SLF001 – the attribute Petastorm has


def tuple_class(schema: Any) -> Any:
    """Return the namedtuple class ``<name>_view`` of a schema's fields, the same for equal ones.

    Raises:
        ValueError: A field name is no identifier, a keyword, or starts with an underscore.
    """
    return schema._get_namedtuple()  # noqa: SLF001 – the method Petastorm has


# Programs set this to "alphabetical" for the order of old versions of Petastorm.
_UNISCHEMA_FIELD_ORDER = "preserve_input_order"


# Two private names of Petastorm's, which its own tests and some programs import.
_fullmatch = re.fullmatch


def _new_gt_255_compatible_namedtuple(name: str, field_names: list[str]) -> Any:
    # Not a static namedtuple: its fields are the user's columns.
    return namedtuple(name, field_names)  # noqa: PYI024


# One class per schema and fields: tf.data compares tuple types by identity.
_tuple_classes: dict[tuple[str, ...], Any] = {}

_SPARK_TYPES = {
    "int8": "ByteType",
    "uint8": "ShortType",
    "int16": "ShortType",
    "uint16": "IntegerType",
    "int32": "IntegerType",
    "int64": "LongType",
    "float32": "FloatType",
    "float64": "DoubleType",
    "bytes_": "StringType",
    "str_": "StringType",
    "bool_": "BooleanType",
    "bool": "BooleanType",  # from NumPy 2 on
}
"""What Spark stores fields without a codec as; by NumPy's names, as this module loads no NumPy."""


class Unischema:
    """An ordered set of fields with a name; a field is also an attribute.

    Args:
        name: Becomes part of the tuple class name: ``<name>_view``.
        fields: Fields in order.
    """

    def __init__(self, name: str, fields: Iterable[UnischemaField]) -> None:
        self._name = name  # Petastorm's attribute; found in user code
        if _UNISCHEMA_FIELD_ORDER.lower() == "alphabetical":
            fields = sorted(fields, key=lambda field: field.name)
        self._fields = OrderedDict((field.name, field) for field in fields)
        for field in self._fields:
            if hasattr(type(self), field) or field in {"_name", "_fields"}:
                warnings.warn(
                    f"Can not create dynamic property {field} because it conflicts with an existing "
                    "property of Unischema",
                    stacklevel=2,
                )

    @property
    def fields(self) -> OrderedDict[str, UnischemaField]:
        """Fields by name, in order."""
        return self._fields

    def __getattr__(self, item: str) -> UnischemaField:
        fields = self.__dict__.get("_fields", {})
        if item in fields:
            return fields[item]  # type: ignore[no-any-return]
        raise AttributeError(f"{type(self).__name__} has no field or attribute {item!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._fields})

    def __str__(self) -> str:
        lines = "".join(
            f"  {type(f).__name__}('{f.name}', {getattr(f.numpy_dtype, '__name__', f.numpy_dtype)}, "
            f"{f.shape}, {f.codec}, {f.nullable}),\n"
            for f in self._fields.values()
        )
        return f"{type(self).__name__}({self._name}, [\n{lines}])"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}: {', '.join(self._fields)}>"

    def create_schema_view(self, fields: Iterable[Any]) -> Unischema:
        """Return the schema restricted to fields and to regular expressions that match whole names.

        Fields that are given come first, in the order given; those that patterns match follow in
        this schema's own (in Petastorm theirs depends on the hash seed).

        Raises:
            ValueError: An element is neither a string nor a field, or is a field of another schema.
        """
        wanted = list(fields)
        patterns = [f for f in wanted if isinstance(f, str)]
        exact = [f.name for f in wanted if isinstance(f, tuple) and hasattr(f, "name")]
        if len(patterns) + len(exact) != len(wanted):
            raise ValueError(
                'Elements of "fields" must be either a string (regular expressions) or '
                "an instance of UnischemaField class."
            )
        unknown = set(exact) - set(self._fields)
        if unknown:
            raise ValueError(f"field {unknown} does not belong to the schema {self}")
        # A field given may have another codec or shape than the one stored.
        chosen = [self._fields[name] for name in exact]
        chosen += match_unischema_fields(self, patterns)
        return Unischema(f"{self._name}_view", chosen)

    def make_namedtuple(self, *args: Any, **kwargs: Any) -> Any:
        """Return one namedtuple ``<name>_view`` of this schema's fields.

        Raises:
            ValueError: A field name is no identifier, a keyword, or starts with an underscore.
        """
        return self._get_namedtuple()(*args, **kwargs)

    def make_namedtuple_tf(self, *args: Any, **kwargs: Any) -> Any:
        """Return the same of tensors."""
        return self._get_namedtuple()(*args, **kwargs)

    def _get_namedtuple(self) -> Any:
        key = (self._name, *self._fields)
        if key not in _tuple_classes:
            _tuple_classes[key] = _new_gt_255_compatible_namedtuple(
                f"{self._name}_view", list(self._fields)
            )
        return _tuple_classes[key]

    def as_spark_schema(self) -> Any:
        """Return Spark's ``StructType`` of what is stored.

        Raises:
            ImportError: pyspark is not installed.
            ValueError: A field has no codec and no type that Spark stores by itself.
        """
        entries = [
            STAND_INS["StructField"](
                name=field.name, dataType=_stored_type(field), nullable=bool(field.nullable)
            )
            for field in self._fields.values()
        ]
        return to_pyspark(STAND_INS["StructType"](fields=entries))

    @classmethod
    def from_arrow_schema(
        cls, parquet_dataset: Any, omit_unsupported_fields: bool = True
    ) -> Unischema:
        """Return the schema of a Parquet dataset that nobody described: scalars and lists of them.

        Args:
            parquet_dataset: A ``pyarrow.parquet.ParquetDataset``, today's or that of old versions.
            omit_unsupported_fields: Leave other columns out, with a warning.

        Raises:
            ValueError: An unsupported column, and none may be left out.
            RuntimeError: A partition column that is neither of strings nor of integers.
        """
        partitions, columns = _parquet_columns(parquet_dataset)
        fields = [_partition_field(name, type_) for name, type_ in partitions.items()]
        for column in columns:
            field = None
            if column.name not in partitions:
                field = inferred_field(
                    column.name, column.type, column.nullable, omit=omit_unsupported_fields
                )
            if field is not None:
                fields.append(field)
        return cls("inferred_schema", fields)


def dict_to_spark_row(unischema: Unischema, row_dict: Mapping[str, Any]) -> Any:
    """Return a ``pyspark.Row`` with a row's values as they are stored.

    Args:
        unischema: The schema of the dataset.
        row_dict: Values by field name; nullable fields may be left out. It is not changed.

    Raises:
        ImportError: pyspark is not installed.
        ValueError, TypeError: Names, dtypes or shapes are not those of the schema, or a null stands
            in a field that is not nullable.
    """
    encoded = encode_row(unischema, row_dict)
    try:
        from pyspark.sql import Row
    except ImportError:
        raise missing_extra("pyspark", "spark") from None
    row = Row(*encoded.values())
    # In the schema's order, which keywords would not keep everywhere.
    row.__fields__ = list(encoded)
    return row


def encode_row(unischema: Unischema, row_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a row as they are stored, in the order of the schema.

    Raises:
        ValueError, TypeError: As :func:`dict_to_spark_row`.
    """
    if not isinstance(unischema, Unischema):
        raise AssertionError(f"unischema is a {type(unischema).__name__}, not a Unischema.")  # noqa: TRY004 – the type Petastorm raises
    row = dict(row_dict)
    insert_explicit_nulls(unischema, row)
    if set(row) != set(unischema.fields):
        given, wanted = "\n".join(sorted(row)), "\n".join(unischema.fields)
        raise ValueError(f"Dictionary fields \n{given}\n do not match schema fields \n{wanted}")
    return {name: _encoded(field, row[name]) for name, field in unischema.fields.items()}


def _encoded(field: UnischemaField, value: Any) -> Any:
    if value is None:
        if not field.nullable:
            raise ValueError(f'Field {field.name} is not "nullable", but got passes a None value')
        return None
    if field.codec:
        return field.codec.encode(field, value)
    import numpy as np

    return value.tolist() if isinstance(value, np.generic) else value


def decode_row(row: Mapping[str, Any], schema: Unischema) -> dict[str, Any]:
    """Return the values of a row as they were before codecs encoded them.

    Fields without a codec become the schema's NumPy type, or ``decimal.Decimal``; columns that the
    schema does not have are left out.

    Raises:
        DecodeFieldError: A value cannot be decoded; the error is its cause.
    """
    decoded = {}
    for name, value in row.items():
        field = schema.fields.get(str(name))
        if field is None:
            continue
        try:
            decoded[str(name)] = None if value is None else _decoded(field, value)
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise DecodeFieldError(f'Decoding field "{name}" failed: {reason}') from error
    return decoded


def _decoded(field: UnischemaField, value: Any) -> Any:
    if field.codec:
        return field.codec.decode(field, value)
    from decimal import Decimal

    import numpy as np

    dtype = field.numpy_dtype
    if dtype is np.bool_ and isinstance(value, str):  # of a directory's name
        import pyarrow as pa

        value = pa.scalar(value).cast(pa.bool_()).as_py()  # NumPy would take "false" for True
    if dtype and issubclass(dtype, np.generic | Decimal):
        return dtype(value)
    return value


def insert_explicit_nulls(unischema: Unischema, row_dict: dict[str, Any]) -> None:
    """Add None to ``row_dict`` for every nullable field that it lacks.

    Raises:
        ValueError: It lacks a field that is not nullable.
    """
    for name, field in unischema.fields.items():
        if name in row_dict:
            continue
        if not field.nullable:
            raise ValueError(f"Field {name} is not found in the row_dict, but is not nullable.")
        row_dict[name] = None


def match_unischema_fields(
    schema: Unischema, field_regex: Iterable[str] | None
) -> list[UnischemaField]:
    """Return the fields whose whole names match one of the patterns, in the schema's order.

    A warning names fields of whose names a pattern matches only the beginning: these matched in old
    versions of Petastorm.
    """
    patterns = list(field_regex or [])
    # Patterns outside: `re` keeps only some hundred compiled ones, and every other call would compile one.
    full = {n for p in patterns for n in schema.fields if re.fullmatch(p, n)}
    prefix = {n for p in patterns for n in schema.fields if re.match(p, n)}
    if full != prefix:
        warnings.warn(
            "schema_fields behavior has changed. Now, regular expression pattern must match"
            " the entire field name. The change in the behavior affects "
            f"the following fields: {', '.join(sorted(full ^ prefix))}",
            stacklevel=2,
        )
    return [field for name, field in schema.fields.items() if name in full]


def inferred_field(
    name: str, type_: Any, nullable: bool, *, omit: bool = True
) -> UnischemaField | None:
    """Return the field of a Parquet column that nobody described; None, with a warning, if it is unsupported.

    Raises:
        ValueError: It is unsupported, and not to be omitted.
    """
    import pyarrow as pa

    from petastorm_bridge.mds.types import is_list

    from ._tables.types import find_type

    row = find_type(type_)
    has_elements = is_list(type_)
    if row is not None:
        return UnischemaField(name, row.numpy, (None,) if has_elements else (), None, nullable)
    if not omit and not (has_elements and pa.types.is_nested(type_.value_type)):
        raise ValueError(f"Cannot auto-create unischema due to unsupported column type {type_}")
    warnings.warn(unsupported_text(name, repr(type_)), stacklevel=3)
    return None


def unsupported_text(name: str, type_text: str) -> str:
    """Return the warning Petastorm gives for a column it leaves out.

    Args:
        name: Column name.
        type_text: ``repr`` of the Arrow type, e.g. ``"MapType(map<string, int64>)"``.
    """
    if type_text.startswith(("ListType", "list<")):
        return f"[ARROW-1644] Ignoring unsupported structure {type_text} for field {name!r}"
    return f"Column {name!r} has an unsupported field {type_text}. Ignoring..."


def _parquet_columns(dataset: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the types of a dataset's partition columns, and the fields of its files."""
    if hasattr(dataset, "paths") or not hasattr(dataset, "partitioning"):  # until pyarrow 14
        schema = dataset.pieces[0].get_metadata().schema.to_arrow_schema()
        partitions = {p.name: p.dictionary.type for p in dataset.partitions or []}
        return partitions, list(schema)
    if dataset.partitioning is None:
        return {}, list(dataset.schema)
    # Without directories of keys its schema is that of the files, and no field has values.
    known = zip(dataset.partitioning.schema, dataset.partitioning.dictionaries, strict=True)
    return {f.name: values.type for f, values in known if values is not None}, list(dataset.schema)


def _partition_field(name: str, type_: Any) -> UnischemaField:
    import numpy as np
    import pyarrow as pa

    if pa.types.is_string(type_):
        return UnischemaField(name, np.str_, (), None, False)
    if pa.types.is_integer(type_):
        return UnischemaField(name, np.int64, (), None, False)
    raise RuntimeError(
        f"Expected partition type to be one of currently supported types: string or int64. Got {type_}"
    )


def _stored_type(field: UnischemaField) -> Any:
    if field.codec is not None:
        return field.codec.spark_dtype()
    if field.shape != ():
        raise ValueError(
            f"An instance of non-scalar UnischemaField '{field.name}' has codec set to None. "
            "Don't know how to guess a Spark type for it"
        )
    name = _SPARK_TYPES.get(_numpy_name(field.numpy_dtype))
    if name is None:
        raise ValueError(f"Was not able to map type {field.numpy_dtype} to a spark type.")
    return as_type(name)


@functools.cache
def _numpy_to_spark_mapping() -> dict[Any, Any]:
    """Return Spark's types by NumPy's, the same dictionary each time (Petastorm's private name)."""
    import numpy as np

    # "bool" is NumPy 2's name of what getattr finds as "bool_" everywhere.
    names = _SPARK_TYPES.keys() - {"bool"}
    return {getattr(np, name): to_pyspark(as_type(_SPARK_TYPES[name])) for name in names}


def _numpy_name(dtype: Any) -> str:
    """Return the name of a type of NumPy's; of another type one that no NumPy type has."""
    return dtype.__name__ if getattr(dtype, "__module__", "") == "numpy" else ""
