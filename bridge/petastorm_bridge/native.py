"""What native streaming lacks for code that used Petastorm's Spark converter.

`dataframe_to_mds` and `StreamingDataLoader` are those of https://docs.mosaicml.com/projects/streaming
with the defaults such code needs; `StreamingDataset` adds epochs, shards and pandas transforms.
``petastorm-bridge codemod --vendor`` puts what a repository uses of it into one file of its own.
"""

from .errors import missing_extra

# Here and not in the two files, which `--vendor` copies into repositories without the bridge.
try:
    from ._native_read import (
        StreamingDataLoader,
        StreamingDataset,
        TransformSpec,
        from_petastorm,
        open_tf,
        open_torch,
        tf_dataset,
    )
    from ._native_write import MdsDirectory, dataframe_to_mds
except ModuleNotFoundError as error:
    if error.name not in {"filelock", "pandas", "streaming", "torch"}:
        raise
    package = "mosaicml-streaming" if error.name == "streaming" else error.name
    raise missing_extra(package, "streaming") from error

__all__ = [
    "MdsDirectory",
    "StreamingDataLoader",
    "StreamingDataset",
    "TransformSpec",
    "dataframe_to_mds",
    "from_petastorm",
    "open_tf",
    "open_torch",
    "tf_dataset",
]
