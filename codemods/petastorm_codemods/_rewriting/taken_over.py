"""The edits of readers and loaders that streaming takes over, which may be items of the same ``with``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Edit

from .blocks import Lift, Pieces, lift, whole_text
from .comments import comments_outside
from .expressions import Native
from .sites import METHODS
from .uses import Use

# Edits, and comments to keep.
Result = tuple[tuple[Edit, ...], tuple[str, ...]]


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
        found: dict[cst.WithItem, Pieces] = {}
        if self.use.held is not None:
            found[self.use.held] = ()
        item = self.use.held if self.use.loader is None else analysis.parent(self.replaced)
        if isinstance(item, cst.WithItem) and item.asname is not None:
            found[item] = (analysis.span(item.asname.name), " = ", *self.native.pieces)
        return found


def edits_of(analysis: Analysis, found: list[TakenOver]) -> dict[TakenOver, Result]:
    """Return the edits of readers; without those for which the items of a ``with`` do not allow it."""
    left = {each: each.items(analysis) for each in found}
    while True:
        lifts = _lifts(analysis, left)
        kept = {each: items for each, items in left.items() if items.keys() <= lifts.keys()}
        if len(kept) == len(left):
            return {each: _result(analysis, each, items, lifts) for each, items in left.items()}
        left = kept


def _lifts(
    analysis: Analysis, found: Mapping[TakenOver, Mapping[cst.WithItem, Pieces]]
) -> dict[cst.WithItem, Lift]:
    blocks: dict[cst.CSTNode, dict[cst.WithItem, Pieces]] = {}
    for items in found.values():
        for item, own in items.items():
            blocks.setdefault(analysis.parent(item), {})[item] = own
    lifts: dict[cst.WithItem, Lift] = {}
    for block, plain in blocks.items():
        if not isinstance(block, cst.With) or block.asynchronous is not None:
            continue
        made = None if _is_shared(analysis, block, plain) else lift(analysis, block, plain)
        lifts |= dict.fromkeys(plain, made) if made is not None else {}
    return lifts


def _is_shared(analysis: Analysis, block: cst.With, own: Mapping[cst.WithItem, Pieces]) -> bool:
    """Say whether other items of a ``with`` may be loaders of converters, which other rules rewrite."""
    others = [item.item for item in block.items if item not in own]
    methods = any(each.attr.value in METHODS for each in analysis.nodes(cst.Attribute))
    return methods and bool(others)


def _result(
    analysis: Analysis,
    each: TakenOver,
    items: Mapping[cst.WithItem, Pieces],
    lifts: Mapping[cst.WithItem, Lift],
) -> Result:
    edits, comments = [*each.use.reads], list[str]()
    for item in items:
        edits += lifts[item].edits
        comments += lifts[item].comments
    if not any(items.values()):
        start, end = analysis.span(each.replaced)
        pieces = each.native.pieces
        holes = [piece for piece in pieces if not isinstance(piece, str)]
        comments += comments_outside(analysis, start, end, holes)
        edits.append(Edit(start, end, whole_text(analysis, pieces), pieces))
    return tuple(dict.fromkeys(edits)), tuple(dict.fromkeys(comments))
