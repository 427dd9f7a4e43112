"""What frameworks do with batches that a loader or a dataset must know of and nobody tells it.

accelerate divides the rows of a prepared ``DataLoader`` among the ranks; Lightning takes a batch before
it trains on the one before. Both are asked by the names that they have in their versions of today;
where these have changed, the answer is as if they were not there.
"""

from __future__ import annotations

import inspect
import sys
from enum import Enum
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


class Division(Enum):
    """How accelerate divides rows: the first rank reads them for all, or all read and leave out others'."""

    BY_FIRST_RANK = 1
    IN_TURNS = 2


def division_by_accelerate(dataset: Any) -> Division | None:
    """Return how accelerate divides the rows of a dataset among the ranks; None where it does not."""
    accelerate = sys.modules.get("accelerate.state")
    if accelerate is None:
        return None
    in_use = [one for one in accelerate.GradientState().dataloader_references if one is not None]
    loaders = [one for one in in_use if _innermost(one.dataset) is dataset]
    if any(type(one).__name__ == "DataLoaderDispatcher" for one in loaders):
        return Division.BY_FIRST_RANK
    return Division.IN_TURNS if any(_wraps(one.dataset) for one in loaders) else None


def _innermost(dataset: Any) -> Any:
    while _wraps(dataset):
        dataset = dataset.dataset
    return dataset


def _wraps(dataset: Any) -> bool:
    return type(dataset).__name__ == "IterableDatasetShard"
