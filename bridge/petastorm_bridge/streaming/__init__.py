"""Native streaming, made fast: whole batches or samples from ``StreamingDataset``; mapped shards.

Importing this package loads torch and streaming.
"""

from __future__ import annotations

from petastorm_bridge.mds.errors import missing_extra

try:
    import streaming as _streaming  # noqa: F401 - the one with the message
except ImportError as error:
    raise missing_extra("mosaicml-streaming", "streaming") from error

from ._dataset import ColumnarStreamingDataset, MappedStreamingDataset
from ._stream import MappedStream

__all__ = ["ColumnarStreamingDataset", "MappedStream", "MappedStreamingDataset"]
