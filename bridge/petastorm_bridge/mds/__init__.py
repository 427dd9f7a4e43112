"""The engine: MDS shards on disk and Arrow or NumPy columns in memory, whole columns at a time.

Nothing in this package imports Petastorm, Spark, torch or TensorFlow. The file format is that of
MosaicML Streaming (``streaming/base/format/mds``); every shard written here opens with
``streaming.StreamingDataset`` and every shard written by ``streaming.MDSWriter`` opens here.
"""

import sys

if sys.byteorder != "little":
    raise ImportError(
        "petastorm-bridge reads and writes MDS shards on little-endian machines only."
    )
