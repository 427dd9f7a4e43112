"""The edits of readers and loaders that streaming takes over, which may be items of the same ``with``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Pieces

from .blocks import Result, lifts, replaced
from .expressions import Native
from .sites import METHODS
from .uses import Use


@dataclass(frozen=True, eq=False)
class TakenOver:
    """A reader that streaming takes over.

    Attributes:
        opened: The call that opens it.
        use: What is done with it.
        native: What takes the place of it, or of the loader over it.
    """

    opened: cst.Call
    use: Use
    native: Native

    @property
    def replaced(self) -> cst.Call:
        """The call in whose place the native one stands."""
        return self.use.loader or self.opened

    def items(self, analysis: Analysis) -> dict[cst.WithItem, Pieces]:
        """Return the items of ``with`` that become assignments, or nothing."""
        by_item: dict[cst.WithItem, Pieces] = {}
        if self.use.held is not None:
            by_item[self.use.held] = ()
        item = self.use.held if self.use.loader is None else analysis.parent(self.replaced)
        if isinstance(item, cst.WithItem) and item.asname is not None:
            by_item[item] = (analysis.span(item.asname.name), " = ", *self.native.pieces)
        return by_item


def edits_of(analysis: Analysis, readers: list[TakenOver]) -> dict[TakenOver, Result]:
    """Return the edits of readers; without those for which the items of a ``with`` do not allow it."""
    remaining = {each: each.items(analysis) for each in readers}
    while True:
        plain = {item: pieces for items in remaining.values() for item, pieces in items.items()}
        apart = {
            item: pieces for item, pieces in plain.items() if not _is_shared(analysis, item, plain)
        }
        lifted = lifts(analysis, apart)
        kept = {each: items for each, items in remaining.items() if items.keys() <= lifted.keys()}
        if len(kept) == len(remaining):
            return {
                each: _result(analysis, each, items, lifted) for each, items in remaining.items()
            }
        remaining = kept


def _is_shared(analysis: Analysis, item: cst.WithItem, plain: Collection[cst.WithItem]) -> bool:
    """Say whether others in the ``with`` of an item may be loaders of converters, which other rules rewrite."""
    block = analysis.parent(item)
    assert isinstance(block, cst.With)
    others = any(each not in plain for each in block.items)
    return others and any(each.attr.value in METHODS for each in analysis.nodes(cst.Attribute))


def _result(
    analysis: Analysis,
    each: TakenOver,
    items: Mapping[cst.WithItem, Pieces],
    lifted: Mapping[cst.WithItem, Result],
) -> Result:
    results = [lifted[item] for item in items]
    if not any(items.values()):
        results.append(replaced(analysis, each.replaced, each.native.pieces))
    edits = [*each.use.reads, *(edit for result in results for edit in result.edits)]
    comments = (comment for result in results for comment in result.comments)
    return Result(tuple(dict.fromkeys(edits)), tuple(dict.fromkeys(comments)))
