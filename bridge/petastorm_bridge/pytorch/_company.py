"""What frameworks do with batches that a loader or a dataset must know of and nobody tells it.

accelerate divides the rows of a prepared ``DataLoader`` among the ranks; Lightning takes a batch before
it trains on the one before. Both are asked by the names that they have in their versions of today;
where these have changed, the answer is as if they were not there.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any


def batches_held_by_lightning() -> int:
    """Return how many batches Lightning has taken and not trained on, for a state that it saves now.

    It takes one in advance from a loader whose length it does not know, to see where an epoch ends,
    and does not count it when it saves a checkpoint (``_PrefetchDataFetcher``).
    """
    if "lightning" not in sys.modules and "pytorch_lightning" not in sys.modules:
        return 0
    frame = inspect.currentframe()
    while frame is not None:
        fetcher = getattr(frame.f_locals.get("self"), "_data_fetcher", None)
        held = getattr(fetcher, "batches", None)
        if isinstance(held, list):
            return len(held)
        frame = frame.f_back
    return 0


def accelerate_reads_for_others(dataset: Any) -> bool:
    """Return whether accelerate reads a dataset on its first rank and sends rows to the others."""
    return any(type(one).__name__ == "DataLoaderDispatcher" for one in _loaders_of(dataset))


def accelerate_takes_turns(dataset: Any) -> bool:
    """Return whether accelerate reads a dataset on every rank and leaves out what is the others'."""
    loaders = _loaders_of(dataset)
    return any(_wraps(loader.dataset) for loader in loaders)


def _loaders_of(dataset: Any) -> list[Any]:
    """Return accelerate's loaders that are in use and read this dataset."""
    accelerate = sys.modules.get("accelerate.state")
    if accelerate is None:
        return []
    in_use = [one for one in accelerate.GradientState().dataloader_references if one is not None]
    return [one for one in in_use if _innermost(one.dataset) is dataset]


def _innermost(dataset: Any) -> Any:
    while _wraps(dataset):
        dataset = dataset.dataset
    return dataset


def _wraps(dataset: Any) -> bool:
    return type(dataset).__name__ == "IterableDatasetShard"
