"""Schemas as Petastorm shows them (``petastorm/unischema.py``): the part that loaders use."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Iterable
from typing import Any, NamedTuple

from ._tables.missing import MISSING_IN, attribute_error, extend_path, sentence

__all__ = ["Unischema", "UnischemaField"]

__path__ = extend_path([])  # so that importing what is missing says why


def __getattr__(name: str) -> Any:
    raise attribute_error("unischema", name)


class UnischemaField(NamedTuple):
    """One field of a schema.

    Attributes:
        name: Field name.
        numpy_dtype: NumPy scalar type (``numpy.int32``, ``decimal.Decimal`` …) of one element.
        shape: Shape of one value; None for an axis of varying length.
        codec: Always None here; kept for code that builds fields by position.
        nullable: Whether the source allows nulls.
    """

    name: str
    numpy_dtype: Any
    shape: Any
    codec: Any = None
    nullable: bool | None = False


# One class per schema and fields: tf.data compares tuple types by identity.
_tuple_classes: dict[tuple[str, ...], Any] = {}


class Unischema:
    """An ordered set of fields with a name.

    Args:
        name: Becomes part of the tuple class name: ``<name>_view``.
        fields: Fields in order.
    """

    def __init__(self, name: str, fields: Iterable[UnischemaField]) -> None:
        self.name = name
        self._name = name  # Petastorm's attribute; found in user code
        self._fields = OrderedDict((field.name, field) for field in fields)

    @property
    def fields(self) -> OrderedDict[str, UnischemaField]:
        """Fields by name, in order."""
        return self._fields

    def __getattr__(self, item: str) -> UnischemaField:
        fields = self.__dict__.get("_fields", {})
        if item in fields:
            return fields[item]  # type: ignore[no-any-return]
        if item in MISSING_IN["unischema.Unischema"]:
            raise AttributeError(sentence(f"unischema.Unischema.{item}"))
        raise AttributeError(f"{type(self).__name__} has no field or attribute {item!r}")

    def __str__(self) -> str:
        lines = "".join(
            f"  {type(f).__name__}('{f.name}', {getattr(f.numpy_dtype, '__name__', f.numpy_dtype)}, "
            f"{f.shape}, {f.codec}, {f.nullable}),\n"
            for f in self._fields.values()
        )
        return f"{type(self).__name__}({self.name}, [\n{lines}])"

    def create_schema_view(self, fields: Iterable[Any]) -> Unischema:
        """Return the schema restricted to fields and to regular expressions that match whole names.

        The order is this schema's own (Petastorm's depends on the hash seed).

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
        full = {n for n in self._fields for p in patterns if re.fullmatch(p, n)}
        prefix = {n for n in self._fields for p in patterns if re.match(p, n)}
        if full != prefix:
            warnings.warn(
                "schema_fields behavior has changed. Now, regular expression pattern must match"
                " the entire field name. The change in the behavior affects "
                f"the following fields: {', '.join(sorted(full ^ prefix))}",
                stacklevel=2,
            )
        chosen = full | set(exact)
        return Unischema(f"{self.name}_view", [f for n, f in self._fields.items() if n in chosen])

    def tuple_class(self) -> Any:
        """Return the namedtuple class ``<name>_view`` of this schema's fields.

        Raises:
            ValueError: A field name is no identifier, a keyword, or starts with an underscore.
        """
        key = (self.name, *self._fields)
        if key not in _tuple_classes:
            # Not a static namedtuple: its fields are the user's columns.
            _tuple_classes[key] = namedtuple(f"{self.name}_view", list(self._fields))  # noqa: PYI024
        return _tuple_classes[key]

    def make_namedtuple(self, *args: Any, **kwargs: Any) -> Any:
        """Return one tuple of :meth:`tuple_class`."""
        return self.tuple_class()(*args, **kwargs)
