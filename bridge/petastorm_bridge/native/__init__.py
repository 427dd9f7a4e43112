"""What rewritten code needs beside streaming's own classes.

``write_mds`` writes a Spark DataFrame so that ``streaming.StreamingDataset`` reads from it what
Petastorm's loaders gave; ``PandasCollate`` and ``to_tf_dataset`` stand where Petastorm had transforms
and TensorFlow datasets. ``petastorm-bridge codemod --vendor`` puts what a repository uses of this
into a file of its own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from petastorm_bridge.errors import missing_extra

if TYPE_CHECKING:
    from .collating import PandasCollate
    from .columns import UnsupportedColumnsError
    from .tensorflow import to_tf_dataset
    from .writing import MdsDirectory, write_mds

__all__ = [
    "MdsDirectory",
    "PandasCollate",
    "UnsupportedColumnsError",
    "to_tf_dataset",
    "write_mds",
]

_HOMES = {
    "MdsDirectory": "writing",
    "PandasCollate": "collating",
    "UnsupportedColumnsError": "columns",
    "to_tf_dataset": "tensorflow",
    "write_mds": "writing",
}
_DISTRIBUTIONS = {"streaming": "mosaicml-streaming"}
_ENGINES = frozenset({"pandas", "streaming", "torch"})


def __getattr__(name: str) -> Any:
    """Import what is asked for, so that each name needs its own engines only.

    Raises:
        ImportError: One of them is not installed; names the extra.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f".{home}", __name__)
    except ModuleNotFoundError as error:
        if error.name not in _ENGINES:
            raise
        raise missing_extra(_DISTRIBUTIONS.get(error.name, error.name), "streaming") from error
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
