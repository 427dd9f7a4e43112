"""Having row groups fetched from far away before they are visited."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from petastorm_bridge._sources._far.ahead import AHEAD_BYTES
from petastorm_bridge._sources.source import Source

from ._plan import Visit

_MOST_VISITS = 1024


def fetched_ahead(
    visits: Iterator[Visit],
    source: Source,
    may_cut: Callable[[], bool],
    *,
    is_for_others: bool,
) -> Iterator[Visit]:
    """Yield visits while the row groups of those that follow are being fetched, within a budget of bytes.

    Args:
        visits: Of a pass.
        source: Where the row groups are.
        may_cut: Tells whether the first visit may become two, so that its first rows do not wait for the others.
        is_for_others: Whether other processes do the visits.
    """
    if may_cut() and not is_for_others:
        visits = _cut_first(visits, source)
    waiting: deque[tuple[Visit, int]] = deque()
    size = 0
    last: int | None = None
    for visit in visits:
        wanted = 0
        if visit.piece.group != last:  # a group may take several visits
            last = visit.piece.group
            wanted = source.want(last, is_for_others=is_for_others)
        waiting.append((visit, wanted))
        size += wanted
        while waiting and (size == 0 or size > AHEAD_BYTES or len(waiting) > _MOST_VISITS):
            first, fetched = waiting.popleft()
            size -= fetched
            yield first
    yield from (visit for visit, _ in waiting)


def _cut_first(visits: Iterator[Visit], source: Source) -> Iterator[Visit]:
    """Yield visits, the first one as two where the first rows of its row group are here before the others."""
    for visit in visits:
        rows, first = visit.num_rows, 0
        if visit.piece.start == 0 and visit.order is None:
            first = source.want_first(visit.piece.group)
        if 0 < first < rows:
            yield visit.part(0, first, ends_epoch=False)
            yield visit.part(first, rows, ends_epoch=visit.ends_epoch)
        else:
            yield visit
        break
    yield from visits
