"""What takes the place of Petastorm's names in code that is rewritten for streaming: tables, and what reads them."""

from __future__ import annotations

import os

from .offered import NEW, OLD

# Where what is needed beside streaming comes from, unless it is vendored.
MODULE = f"{NEW}.native"
# The name of the module that is vendored.
SUPPORT = "mds_support"
STREAMING = "streaming"
COLUMNAR = f"{NEW}.streaming"
BRIDGE = f"{NEW}.spark"

# Petastorm's names that have a counterpart, wherever they are imported from.
COUNTERPARTS = {
    "petastorm.TransformSpec": "PandasCollate",
    "petastorm.transform.TransformSpec": "PandasCollate",
    "petastorm.spark.SparkDatasetConverter": "MdsDirectory",
    "petastorm.spark.make_spark_converter": "write_mds",
    "petastorm.spark.spark_dataset_converter.SparkDatasetConverter": "MdsDirectory",
    "petastorm.spark.spark_dataset_converter.make_spark_converter": "write_mds",
}
MAKERS = frozenset(old for old, new in COUNTERPARTS.items() if new == "write_mds")
CLASSES = frozenset(old for old, new in COUNTERPARTS.items() if new == "MdsDirectory")

# What they are called where a name is taken, say by ``with … as StreamingDataset``.
ALIASES = {
    "ColumnarStreamingDataset": "MosaicColumnarDataset",
    "Epochs": "MdsEpochs",
    "StreamingDataLoader": "MosaicStreamingDataLoader",
    "StreamingDataset": "MosaicStreamingDataset",
    "make_spark_converter": "open_mds_on_bridge",
    "to_tf_dataset": "mds_to_tf_dataset",
}


def original(path: str) -> str:
    """Return Petastorm's path for one of Petastorm or of the bridge."""
    return OLD + path[len(NEW) :] if path == NEW or path.startswith(f"{NEW}.") else path


def is_support_file(path: str) -> bool:
    """Say whether a file is a copy of the support module, by its name."""
    return os.path.basename(path) == f"{SUPPORT}.py"
