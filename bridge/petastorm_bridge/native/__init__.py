"""What rewritten code needs beside streaming's own classes.

``write_mds`` writes a Spark DataFrame so that ``streaming.StreamingDataset`` reads from it what
Petastorm's loaders gave; ``Epochs`` reads a loader several times, or without end; ``PandasCollate``
and ``to_tf_dataset`` stand where Petastorm had transforms and TensorFlow datasets. All but the writer
is in ``support``, which works alone, with a writer of its own: ``petastorm-bridge codemod --vendor``
copies that file into a repository.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from petastorm_bridge.mds.errors import missing_extra

if TYPE_CHECKING:
    from .support import Epochs, PandasCollate, UnsupportedColumnsError, to_tf_dataset
    from .writing import MdsDirectory, write_mds

__all__ = [
    "Epochs",
    "MdsDirectory",
    "PandasCollate",
    "UnsupportedColumnsError",
    "to_tf_dataset",
    "write_mds",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for, so that reading needs nothing of what writing needs.

    Raises:
        ImportError: pandas is not installed; names the extra.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "writing" if name in {"MdsDirectory", "write_mds"} else "support"
    try:
        module = importlib.import_module(f".{home}", __name__)
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        raise missing_extra("pandas", "streaming") from error
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
