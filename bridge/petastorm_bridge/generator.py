"""Random rows of a schema, for tests (``petastorm/generator.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .unischema import Unischema

__all__ = ["LIST_SIZE", "generate_datapoint"]

LIST_SIZE = 13
"""Length of the axes whose length varies."""


def generate_datapoint(schema: Unischema) -> dict[str, Any]:
    """Return a row of random values with the dtypes and shapes of a schema.

    Integers span their type, all else is made of numbers from 0 to 1. ``numpy.random.seed`` makes them
    repeatable.

    Args:
        schema: The schema.
    """
    row = {}
    for name, field in schema.fields.items():
        dtype = field.numpy_dtype
        shape = tuple(LIST_SIZE if size is None else size for size in field.shape)
        least, most = 0, 1
        if issubclass(dtype, np.integer):
            limits = np.iinfo(dtype)
            least, most = int(limits.min), int(limits.max)
        # The global generator, which programs seed.
        value = np.random.rand(*shape) * (most - least) + least  # noqa: NPY002
        row[name] = np.array(value, dtype=dtype)
    return row
