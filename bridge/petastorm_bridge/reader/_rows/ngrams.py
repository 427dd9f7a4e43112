"""Sequences of rows as columns: one column for each field at each timestep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from petastorm_bridge.ngram import NGram
from petastorm_bridge.unischema import Unischema

from .decoding import Values


def column_name(step: int, field: str) -> str:
    """Return what a block calls a field at a timestep; no field's own name has a slash."""
    return f"{field}/{step}"


@dataclass(frozen=True)
class Layout:
    """Which fields stand at which timestep.

    Attributes:
        ngram: The sequences asked for.
        fields: By timestep, the fields' names in the order of the schema.
    """

    ngram: NGram
    fields: Mapping[int, tuple[str, ...]]

    @property
    def timestamp(self) -> str:
        """Name of the field that holds the timestamp; it may be at no timestep."""
        return str(self.ngram.timestamp_field.name)

    @classmethod
    def of(cls, ngram: NGram, schema: Unischema) -> Layout:
        """Return the layout of sequences of rows of a schema."""
        return cls(
            ngram,
            {s: tuple(ngram.get_schema_at_timestep(schema, s).fields) for s in ngram.timesteps},
        )

    def columns(self, columns: Mapping[str, Values], starts: list[int]) -> dict[str, Values]:
        """Return the columns of the sequences that begin at some rows."""
        rows = np.asarray(starts, np.int64)
        return {
            column_name(step, name): values_at(columns[name], rows + i)
            for i, (step, names) in enumerate(self.fields.items())
            for name in names
        }


def values_at(values: Values, rows: npt.NDArray[np.int64]) -> Values:
    """Return the values of a column in some rows."""
    if isinstance(values, np.ndarray):
        taken: Values = values[rows]
        return taken
    return [values[row] for row in rows.tolist()]
