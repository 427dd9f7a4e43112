"""What earlier releases' codemod wrote into programs; goes with the next release."""

from __future__ import annotations

import warnings

from ._deprecated_reading import (
    StreamingDataLoader,
    StreamingDataset,
    TransformSpec,
    from_petastorm,
    open_tf,
    open_torch,
    tf_dataset,
)
from ._deprecated_writing import dataframe_to_mds

__all__ = [
    "StreamingDataLoader",
    "StreamingDataset",
    "TransformSpec",
    "dataframe_to_mds",
    "from_petastorm",
    "open_tf",
    "open_torch",
    "tf_dataset",
    "warn_of",
]


def warn_of(name: str) -> None:
    """Tell the caller's caller that a name goes."""
    warnings.warn(
        f"petastorm_bridge.native.{name} goes with the next release: "
        "`petastorm-bridge codemod` writes streaming's own classes now",
        DeprecationWarning,
        stacklevel=3,
    )
