"""Sequences of consecutive rows (``petastorm/ngram.py``)."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .unischema import Unischema, UnischemaField, match_unischema_fields

__all__ = ["NGram"]


class NGram:
    """What a reader makes of consecutive rows of a row group: one dictionary per sequence.

    Its keys are the timesteps, its values namedtuples of the fields wanted there. Rows have to be
    sorted by the timestamp field. Sequences end with their row group.

    Args:
        fields: Timestep (consecutive integers) → fields, or patterns of their names.
        delta_threshold: How far two neighbours' timestamps may lie apart.
        timestamp_field: The field, or a pattern of its name, that holds the timestamp.
        timestamp_overlap: Whether sequences may share rows.

    Raises:
        ValueError: An argument is of another kind.
    """

    def __init__(
        self,
        fields: Mapping[int, Sequence[Any]],
        delta_threshold: Any,
        timestamp_field: Any,
        timestamp_overlap: bool = True,
    ) -> None:
        _check(fields, delta_threshold, timestamp_field, timestamp_overlap)
        self._fields: dict[int, list[Any]] = dict(fields)  # type: ignore[arg-type]
        self._delta_threshold = delta_threshold
        self._timestamp_field = timestamp_field
        self.timestamp_overlap = timestamp_overlap

    @property
    def length(self) -> int:
        """Rows of a sequence."""
        return max(self._fields) - min(self._fields) + 1

    @property
    def fields(self) -> dict[int, list[Any]]:
        """Fields by timestep."""
        return self._fields

    @property
    def delta_threshold(self) -> Any:
        """How far two neighbours' timestamps may lie apart."""
        return self._delta_threshold

    @property
    def timestamp_field(self) -> Any:
        """The field that holds the timestamp."""
        return self._timestamp_field

    @property
    def timesteps(self) -> range:
        """All timesteps, also those without fields."""
        return range(min(self._fields), max(self._fields) + 1)

    def resolve_regex_field_names(self, schema: Unischema) -> None:
        """Replace patterns by the fields of a schema that they match.

        Raises:
            ValueError: The timestamp's pattern matches more than one field, or none.
        """
        self._fields = {key: self.convert_fields(schema, f) for key, f in self._fields.items()}
        timestamps = self.convert_fields(schema, [self._timestamp_field])
        if len(timestamps) > 1:
            raise ValueError("timestamp_field was matched to more than one unischema field")
        if not timestamps:
            raise ValueError(f"timestamp_field {self._timestamp_field!r} matches no field")
        self._timestamp_field = timestamps[0]

    def convert_fields(self, unischema: Unischema, field_list: Sequence[Any]) -> list[Any]:
        """Return fields and patterns as fields.

        Raises:
            ValueError: An element is neither.
        """
        patterns = [field for field in field_list if isinstance(field, str)]
        given = [field for field in field_list if isinstance(field, tuple)]
        if len(patterns) + len(given) != len(field_list):
            raise ValueError(
                '"Elements of fields"/"timestamp field" must be either a string (regular '
                "expressions) or an instance of UnischemaField class."
            )
        return given + match_unischema_fields(unischema, patterns)

    def get_field_names_at_timestep(self, timestep: int) -> list[str]:
        """Return the names of the fields wanted at a timestep."""
        return [field.name for field in self._fields.get(timestep, ())]

    def get_field_names_at_all_timesteps(self) -> list[Any]:
        """Return the fields (as Petastorm does, not their names) wanted at any timestep."""
        return list(dict.fromkeys(field for fields in self._fields.values() for field in fields))

    def get_schema_at_timestep(self, schema: Unischema, timestep: int) -> Unischema:
        """Return the part of a schema that is wanted at a timestep, in the schema's order."""
        names = set(self.get_field_names_at_timestep(timestep))
        return schema.create_schema_view([f for n, f in schema.fields.items() if n in names])

    def form_ngram(
        self, data: Sequence[Mapping[str, Any]], schema: Unischema
    ) -> list[dict[int, dict[str, Any]]]:
        """Return the sequences in consecutive rows.

        Args:
            data: Rows as dictionaries, sorted by the timestamp field.
            schema: Not used; Petastorm's signature.

        Raises:
            NotImplementedError: The rows are not sorted.
            KeyError: They have no timestamp, on which their sequences depend.
        """
        del schema
        name = self._timestamp_field.name
        has_timestamps = all(name in row for row in data)
        starts = self.starts(len(data), [row[name] for row in data] if has_timestamps else None)
        names = {step: set(self.get_field_names_at_timestep(step)) for step in self.timesteps}
        return [
            {
                step: {n: v for n, v in data[start + i].items() if n in names[step]}
                for i, step in enumerate(self.timesteps)
            }
            for start in starts
        ]

    def starts(self, count: int, timestamps: Any) -> list[int]:
        """Return where sequences begin in consecutive rows.

        Args:
            count: Number of rows.
            timestamps: Theirs, a list or an array; None if the timestamp was not read.

        Raises:
            NotImplementedError: The timestamps are not sorted.
            KeyError: There are none, and sequences depend on them.
        """
        length = self.length
        if count < length or (length == 1 and self.timestamp_overlap):
            return list(range(count - length + 1))
        if timestamps is None:
            raise KeyError(
                f"The timestamp_field of the NGram, {self._timestamp_field.name!r}, is among the fields "
                "of no timestep, or the transform removes it. Which rows follow one another depends on "
                "it: add it to the fields of a timestep."
            )
        if isinstance(timestamps, np.ndarray) and timestamps.dtype.kind in "iuf":
            timestamps = timestamps.tolist()
        starts: list[int] = []
        last_end = None
        run = 0  # neighbours near one another, up to this row
        for i, current in enumerate(timestamps):
            if i:
                previous = timestamps[i - 1]
                if not previous <= current and length > 1:
                    raise NotImplementedError(
                        f"NGram assumes that the data is sorted by {self._timestamp_field.name} "
                        "field which is not the case"
                    )
                run = 0 if current - previous > self._delta_threshold else run + 1
            start = i - length + 1
            if start < 0 or run < length - 1:
                continue
            if self.timestamp_overlap or last_end is None or timestamps[start] > last_end:
                starts.append(start)
                last_end = current
        return starts

    def make_namedtuple(
        self, schema: Unischema, ngram_as_dicts: Mapping[int, Mapping[str, Any]]
    ) -> dict[int, Any]:
        """Return a sequence of dictionaries as one of namedtuples."""
        return {
            step: self.get_schema_at_timestep(schema, step).make_namedtuple(**row)
            for step, row in ngram_as_dicts.items()
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NGram):
            return NotImplemented
        mine, theirs = self.fields, other.fields
        return set(mine) == set(theirs) and all(set(mine[k]) == set(theirs[k]) for k in mine)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._fields)))


def _check(fields: Any, delta_threshold: Any, timestamp_field: Any, overlap: Any) -> None:
    if not isinstance(fields, dict):
        raise ValueError("Fields must be set and must be a dictionary.")  # noqa: TRY004 – the type Petastorm raises
    for wanted in fields.values():
        if not isinstance(wanted, list):
            raise ValueError(  # noqa: TRY004
                "Each field value must be a list of unischema fields/regular expression(s)"
            )
        if not all(_is_field(field) for field in wanted):
            raise ValueError("All field values must be of type UnischemaField/regular expression")
    if not isinstance(delta_threshold, numbers.Number):
        raise ValueError("delta_threshold must be a number.")  # noqa: TRY004
    if not _is_field(timestamp_field):
        raise ValueError(
            "timestamp_field must be set and must be of type UnischemaField or regular expression"
        )
    if not isinstance(overlap, bool):
        raise ValueError("timestamp_overlap must be set and must be of type bool")  # noqa: TRY004


def _is_field(value: Any) -> bool:
    return isinstance(value, (str, UnischemaField)) or (
        isinstance(value, tuple) and hasattr(value, "numpy_dtype")
    )
