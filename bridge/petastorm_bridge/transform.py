"""User transforms of row groups; the API of ``petastorm/transform.py``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from .unischema import Unischema, UnischemaField, name_of

__all__ = ["TransformSpec", "edit_field", "transform_schema"]

EditField = tuple[str, Any, Any, bool]


def edit_field(
    name: str, numpy_dtype: Any, shape: tuple[int | None, ...], nullable: bool = False
) -> EditField:
    """Return the 4-tuple that describes one field in ``TransformSpec(edit_fields=…)``."""
    return name, numpy_dtype, shape, nullable


class TransformSpec:
    """A function on the pandas DataFrame of a row group, and what it does to the schema.

    Args:
        func: Takes and returns a DataFrame; called in a worker, once per row group and epoch.
            None changes only the schema.
        edit_fields: ``(name, numpy_dtype, shape, is_nullable)`` of fields added or changed. A shape
            of more than one axis is constant: each value must be an array of it.
        removed_fields: Names of fields that leave the schema.
        selected_fields: Names of the fields that stay, in this order.

    Raises:
        ValueError: Both ``removed_fields`` and ``selected_fields`` are given.
    """

    def __init__(
        self,
        func: Callable[[Any], Any] | None = None,
        edit_fields: Sequence[Any] | None = None,
        removed_fields: Sequence[str] | None = None,
        selected_fields: Sequence[str] | None = None,
    ) -> None:
        if removed_fields is not None and selected_fields is not None:
            raise ValueError(
                "User can only specify one of removed_fields and selected_fields in TransformSpec."
            )
        self.func = func
        self.edit_fields = edit_fields or []
        self.removed_fields = removed_fields or []
        self.selected_fields = selected_fields


def transform_schema(schema: Unischema, transform_spec: TransformSpec) -> Unischema:
    """Return the schema that ``transform_spec`` makes of ``schema``.

    Edited fields move to the end in the order given; ``selected_fields`` fixes the order. Names
    that are not in the schema are ignored with a warning, as in ``petastorm/transform.py``.
    """
    removed = set(transform_spec.removed_fields)
    _warn_unknown("remove_fields", removed - set(schema.fields))
    edited = {edit[0] for edit in transform_spec.edit_fields}
    fields = [f for name, f in schema.fields.items() if name not in edited | removed]
    fields += [
        UnischemaField(edit[0], edit[1], edit[2], None, edit[3])
        for edit in transform_spec.edit_fields
    ]
    selected = transform_spec.selected_fields
    if selected is not None:
        _warn_unknown("selected_fields", set(selected) - {f.name for f in fields})
        fields = [f for f in fields if f.name in selected]
        fields.sort(key=lambda field: selected.index(field.name))
    return Unischema(name_of(schema) + "_transformed", fields)


def _warn_unknown(argument: str, names: set[str]) -> None:
    if names:
        warnings.warn(
            f"{argument} specified some field names that are not part of the schema. "
            f'These field names will be ignored "{", ".join(sorted(names))}". ',
            stacklevel=2,
        )
