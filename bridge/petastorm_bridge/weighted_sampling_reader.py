"""Several readers as one that draws from them (``petastorm/weighted_sampling_reader.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["WeightedSamplingReader"]


class WeightedSamplingReader:
    """Takes each row, or row group, from one of several readers, drawn by NumPy's global state.

    It ends with the first reader that does, and may stand wherever a reader may.

    Args:
        readers: Two or more readers of the same fields.
        probabilities: Of each; they are divided by their sum.

    Raises:
        ValueError: The readers differ in their fields, their n-grams or whether they give batches,
            or the two lists in their length; a probability is negative, infinite or no number, or all are 0.

    Attributes:
        schema: That of the readers.
        ngram: That of the readers.
        batched_output: Whether the readers give row groups.
    """

    def __init__(self, readers: Sequence[Any], probabilities: Sequence[float]) -> None:
        if len(readers) <= 1:
            raise ValueError(f"Two or more readers must be specified. Got {len(readers)}.")
        if len(readers) != len(probabilities):
            raise ValueError(
                "readers and probabilities are expected to be lists of the same length"
            )
        shares = np.asarray(probabilities, np.float64)
        if not (shares >= 0).all() or not 0 < shares.sum() < np.inf:
            raise ValueError(
                f"probabilities are {list(probabilities)}; none may be negative or infinite, and one at "
                "least must be above 0."
            )
        for other in readers[1:]:
            _check_alike(readers[0], other)
        self._readers = readers
        self._bounds = np.cumsum(shares / shares.sum())
        self._bounds[-1] = 1.0  # which rounding may miss
        self.batched_output = readers[0].batched_output
        self.ngram = readers[0].ngram
        self.schema = readers[0].schema

    def __len__(self) -> int:
        return sum(len(reader) for reader in self._readers)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        drawn = np.random.random()  # noqa: NPY002 – the state Petastorm's users seed
        return next(self._readers[int(np.searchsorted(self._bounds, drawn, side="right"))])

    def next(self) -> Any:
        """Return the next row or row group."""
        return self.__next__()

    @property
    def last_row_consumed(self) -> bool:
        """Whether one of the readers is at its end."""
        return any(reader.last_row_consumed for reader in self._readers)

    def stop(self) -> None:
        """Stop all readers."""
        for reader in self._readers:
            reader.stop()

    def join(self) -> None:
        """Wait until all readers have ended."""
        for reader in self._readers:
            reader.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()


def _check_alike(first: Any, other: Any) -> None:
    if first.batched_output != other.batched_output:
        raise ValueError(
            "All readers passed to WeightedSamplingReader should have the same value of "
            '"batched_output" attribute'
        )
    if set(first.schema.fields) != set(other.schema.fields):
        raise ValueError("All readers passed to WeightedSamplingReader should have the same schema")
    ngrams = first.ngram, other.ngram
    if (ngrams[0] is None) != (ngrams[1] is None) or (
        None not in ngrams and ngrams[0] != ngrams[1]
    ):
        raise ValueError(
            "All readers passed to WeightedSamplingReader should have the same ngram spec"
        )
