"""Exceptions and warnings of the bridge.

``NoDataAvailableError`` keeps the name and place of ``petastorm/errors.py``.
"""

from __future__ import annotations

import pickle

from .mds.errors import DatasetError, DatasetNotFoundError, ShardCorruptedError, missing_extra

__all__ = [
    "BridgeWarning",
    "DatasetError",
    "DatasetNotFoundError",
    "DecodeFieldError",
    "IgnoredArgumentWarning",
    "NoDataAvailableError",
    "NullValueWarning",
    "PetastormMetadataError",
    "PetastormMetadataGenerationError",
    "ShardCorruptedError",
    "StoredSchemaError",
    "missing_extra",
]


class NoDataAvailableError(Exception):
    """Sharding was asked for with more shards than there are rows."""


class PetastormMetadataError(Exception):
    """What Petastorm stores beside a dataset is missing, incomplete or damaged."""


class PetastormMetadataGenerationError(Exception):
    """What Petastorm stores beside a dataset could not be made."""


class StoredSchemaError(PetastormMetadataError, pickle.UnpicklingError):
    """The schema stored beside a dataset was refused. Nothing of it was run."""


class DecodeFieldError(RuntimeError):
    """A value of a dataset in Petastorm's format does not fit its field (``petastorm/utils.py``)."""


class BridgeWarning(UserWarning):
    """Base of the warnings the bridge gives where Petastorm gives none."""


class IgnoredArgumentWarning(BridgeWarning):
    """An argument of the old API has no effect here; the options page says why."""


class NullValueWarning(BridgeWarning):
    """Nulls reach TensorFlow as ordinary values (0, INT_MIN, False, ``b'None'``).

    To make this an error, add ``warnings.simplefilter("error", NullValueWarning)``.
    """
