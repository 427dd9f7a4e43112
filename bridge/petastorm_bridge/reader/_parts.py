"""One of several parts of a pass, for readers that share it: the workers of a torch ``DataLoader``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ._plan import Visit


@dataclass(frozen=True)
class Part:
    """Which part of a pass.

    Attributes:
        number: Which one, from 0.
        count: Of how many.
        batch_size: Parts begin where batches of so many rows do; None for one batch of all rows.
    """

    number: int
    count: int
    batch_size: int | None


def rows_of_part(part: Part, rows: int) -> range:
    """Return the positions that a part has among the rows of a pass.

    All parts together have as many batches as the whole pass, and only the last batch of the last
    part may be short.
    """
    size = part.batch_size or max(rows, 1)
    batches = -(-rows // size)
    start, stop = (
        batches * number // part.count * size for number in (part.number, part.number + 1)
    )
    return range(min(start, rows), min(stop, rows))


def visits_of_part(visits: Iterator[Visit], rows: range) -> Iterator[Visit]:
    """Yield what of an epoch's visits lies among the given rows, counted in the order of the visits."""
    position = 0
    for visit in visits:
        begin, position = position, position + visit.num_rows
        first, last = max(rows.start, begin) - begin, min(rows.stop, position) - begin
        if visit.piece is None or first >= last:
            continue
        ends = begin + last == rows.stop
        yield visit.part(first, last, ends_epoch=ends)
        if ends:
            return
