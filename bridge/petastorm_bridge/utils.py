"""Odds and ends that programs import from Petastorm (``petastorm/utils.py``)."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from .errors import DecodeFieldError
from .unischema import decode_row

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
