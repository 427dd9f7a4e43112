"""Native streaming, made fast: whole batches or samples from ``StreamingDataset``; mapped shards."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from petastorm_bridge.mds.errors import missing_extra

if TYPE_CHECKING:
    from ._dataset import ColumnarStreamingDataset, MappedStreamingDataset
    from ._stream import MappedStream

__all__ = ["ColumnarStreamingDataset", "MappedStream", "MappedStreamingDataset"]

_HOMES = {
    "ColumnarStreamingDataset": "_dataset",
    "MappedStream": "_stream",
    "MappedStreamingDataset": "_dataset",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: all of it loads torch and streaming, which ``support`` is used without.

    Raises:
        ImportError: streaming is not installed; names the extra.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import streaming as _streaming  # noqa: F401 - the one with the message
    except ImportError as error:
        raise missing_extra("mosaicml-streaming", "streaming") from error
    globals()[name] = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
