"""A reader without a dataset (``petastorm/test_util/reader_mock.py``)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from petastorm_bridge.unischema import Unischema

__all__ = ["ReaderMock", "schema_data_generator_example"]

_LENGTH = 10


class ReaderMock:
    """Gives rows that a function makes up, without end.

    Args:
        schema: Of the rows.
        schema_data_generator: Returns the values of a row by field name, given the schema.
        ngram: None; n-grams cannot be made up.

    Raises:
        ValueError: An n-gram is asked for.
    """

    def __init__(
        self,
        schema: Unischema,
        schema_data_generator: Callable[[Unischema], dict[str, Any]],
        ngram: Any = None,
    ) -> None:
        if ngram is not None:
            raise ValueError("Sequence argument not supported for ReaderMock")
        self.schema = schema
        self.schema_data_generator = schema_data_generator
        self.ngram = ngram
        self.batched_output = False

    def fetch(self) -> Any:
        """Return one row, a named tuple of the schema."""
        return self.schema.make_namedtuple(**self.schema_data_generator(self.schema))

    def __iter__(self) -> ReaderMock:
        return self

    def __next__(self) -> Any:
        return self.fetch()

    def next(self) -> Any:
        """Return one row."""
        return self.fetch()

    def __enter__(self) -> ReaderMock:  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is nothing to end."""

    def stop(self) -> None:
        """Do nothing."""

    def join(self) -> None:
        """Do nothing."""


def schema_data_generator_example(schema: Unischema) -> dict[str, Any]:
    """Return zeros of the dtypes and shapes of a schema, ten for an axis of any length."""
    return {
        field.name: Decimal("0.0")
        if field.numpy_dtype is Decimal
        else np.zeros([_LENGTH if n is None else n for n in field.shape], field.numpy_dtype)
        for field in schema.fields.values()
    }
