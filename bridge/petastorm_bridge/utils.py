"""Odds and ends that programs import from Petastorm (``petastorm/utils.py``)."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from .errors import DecodeFieldError
from .unischema import Unischema

__all__ = ["DecodeFieldError", "add_to_dataset_metadata", "decode_row", "run_in_subprocess"]


def run_in_subprocess(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what a function returns in a process of its own, which then ends and with it its memory.

    Args:
        func: A function of a module.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    with multiprocessing.Pool(1) as pool:
        return pool.apply(func, args, kwargs)


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


def _decoded(field: Any, value: Any) -> Any:
    if field.codec:
        return field.codec.decode(field, value)
    dtype = field.numpy_dtype
    if dtype is np.bool_ and isinstance(value, str):  # of a directory's name
        import pyarrow as pa

        value = pa.scalar(value).cast(pa.bool_()).as_py()  # NumPy would take "false" for True
    if dtype and issubclass(dtype, np.generic | Decimal):
        return dtype(value)
    return value


def add_to_dataset_metadata(dataset: Any, key: bytes, value: bytes | str) -> None:
    """Add a key to the file ``_common_metadata`` of a dataset.

    Args:
        dataset: A ``pyarrow.parquet.ParquetDataset`` of a directory.
        key: The key.
        value: What stands under it from then on.

    Raises:
        ValueError: The dataset was made of a list of files.
        DatasetError: The directory has no Parquet files.
        OSError: It cannot be written.
    """
    from .reader._rows.store import store_of  # loads pyarrow

    store_of(dataset).note(key, value)
