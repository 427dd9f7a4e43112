"""What is written in the place of a loader call: streaming's loader, or a TensorFlow dataset."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.flow import flow_of
from petastorm_codemods._meaning.imports import need
from petastorm_codemods._meaning.places import below
from petastorm_codemods._model import Fact, Finding, Need, Piece, Pieces, Safety
from petastorm_codemods._petastorm.counterparts import COLUMNAR, STREAMING

from .arguments import Reading, Times
from .blocks import Result
from .bound_reads import is_repeated
from .given import Stays
from .layout import PART, call_of
from .sites import METHODS, Site, receiver_end
from .uses import Use

Arguments = list[tuple[str, Pieces]]


@dataclass(frozen=True)
class Native:
    """A native call.

    Attributes:
        pieces: The whole expression.
        again: The loop over epochs that goes around the one over its batches, if the source has no other
            use of them; empty for none.
        needs: Names that it uses.
        message: What a report says.
        told: Whether a summary says it too.
        facts: What is known of it.
        converter: The statement that gives the converter a name, before the one that the call is in.
        use: What is done with the reader that it takes the place of; None for a loader of a converter, which is a
            context that has to be entered.
    """

    pieces: Pieces
    again: Pieces
    needs: tuple[Need, ...]
    message: str
    told: bool
    facts: frozenset[Fact] = frozenset()
    converter: Pieces = ()
    use: Use | None = None

    def finding(self, code: str, offset: int, result: Result) -> Finding:
        """Return the finding of a call at a place that this one takes the place of."""
        return Finding(
            code,
            offset,
            self.message,
            Safety.SAFE,
            result.edits,
            needs=self.needs,
            comments=result.comments,
            told=self.told,
            facts=self.facts,
        )


def native_call(analysis: Analysis, site: Site, reading: Reading) -> Native | Stays:
    """Return the native call for what a call asks for, or why there is none."""
    wanted = analysis.target.fast or (reading.columnar and not analysis.target.vendored)
    wanted = wanted and site.method.is_torch
    # The columns of whole batches have another form for a transform than without one.
    columnar = wanted and not reading.may_lack_transform
    receiver: Piece = (
        analysis.start(site.attribute),
        receiver_end(analysis, site.attribute),
    )
    name = _name_for(analysis, site)
    converter: Pieces = ()
    if name:
        converter, receiver = (f"{name} = ", receiver), name
    problem = _unrepeatable(analysis, site, reading, columnar=columnar, named=bool(name))
    if problem:
        return Stays(problem)
    place: Arguments = [("remote", (receiver, ".remote")), ("local", (receiver, ".local"))]
    anew = is_repeated(analysis, site.attribute) or _is_beside_another(analysis, site)
    arguments = [*place, *shuffling(reading, (receiver, ".next_seed()"), anew=anew)]
    again: Pieces = ()
    known = [*_known(reading)]
    notes = [*_speed(site, reading, columnar=columnar, wanted=wanted)]
    if site.method.is_torch:
        again = _loop_over_epochs(analysis, site, reading)
        once = bool(again)
        made, needs = torch_loader(analysis, arguments, reading, columnar=columnar, once=once)
    else:
        made, needs = _tensorflow(analysis, arguments, reading)
    name = "ColumnarStreamingDataset" if columnar else "StreamingDataset"
    message = "; ".join([_message(site, reading, name), *notes, *(fact.value for fact in known)])
    told = bool(notes)
    facts = {
        Fact.NATIVE,
        *known,
        *([Fact.ROW_BY_ROW] if site.method.is_torch and not columnar else ()),
    }
    return Native(
        made, again, tuple(needs), message, told, facts=frozenset(facts), converter=converter
    )


def shuffling(reading: Reading, seed: Pieces, *, anew: bool) -> Arguments:
    """Return the arguments of a dataset that say how its rows are shuffled.

    Streaming shuffles the first epoch of each dataset alike, where Petastorm shuffled each time anew.

    Args:
        reading: What is asked for.
        seed: What to take if no seed is given.
        anew: Whether to take it also if the program asks for none.
    """
    if reading.unseeded:
        seed = (PART, *seed, PART, "if ", *reading.unseeded, PART, "else ", *reading.seed)
    elif reading.seed or reading.shuffle == ("False",) or not anew:
        seed = reading.seed
    shuffle = reading.commented(reading.shuffle, "shuffle_row_groups")
    seed = reading.commented(seed, "seed", "shard_seed") if seed else ()
    return [("shuffle", shuffle), *([("shuffle_seed", seed)] if seed else [])]


def _is_beside_another(analysis: Analysis, site: Site) -> bool:
    """Say whether a ``with`` around a loader has another one on the same converter, beside it or in its block.

    Two orders of the same rows, as pairs of them need, would be one for streaming.
    """
    receiver = analysis.code(site.attribute.value)
    blocks = (each for each in analysis.above(site.attribute) if isinstance(each, cst.With))
    return any(_loaders_within(analysis)[receiver, each] > 1 for each in blocks)


@once
def _loaders_within(analysis: Analysis) -> collections.Counter[tuple[str, cst.With]]:
    """Return how many loaders on what has some text are opened within each ``with``."""
    within: collections.Counter[tuple[str, cst.With]] = collections.Counter()
    for each in analysis.nodes(cst.Attribute):
        if each.attr.value in METHODS:
            receiver = analysis.code(each.value)
            blocks = (above for above in analysis.above(each) if isinstance(above, cst.With))
            within.update((receiver, block) for block in blocks)
    return within


def _loop_over_epochs(analysis: Analysis, site: Site, reading: Reading) -> Pieces:
    """Return the head of a loop over epochs, where all there is to do is one loop over batches."""
    item = analysis.parent(site.call) if site.call is not None else None
    block = analysis.parent(item) if isinstance(item, cst.WithItem) else None
    if reading.times is not Times.SOME or not isinstance(block, cst.With) or len(block.items) > 1:
        return ()
    loop = block.body.body[0] if len(block.body.body) == 1 else None
    name = item.asname.name if isinstance(item, cst.WithItem) and item.asname is not None else None
    if not isinstance(loop, cst.For) or not isinstance(name, cst.Name):
        return ()
    if loop.orelse is not None or loop.asynchronous is not None:
        return ()
    over = isinstance(loop.iter, cst.Name) and loop.iter.value == name.value
    if not over or any(analysis.reads("_")) or any(analysis.within(loop.body, cst.Break)):
        return ()
    return ("for _ in range(", *reading.epochs, "):")


def _name_for(analysis: Analysis, site: Site) -> str:
    """Return a free name for a converter that is made where it is read from; empty if it needs none.

    Empty as well where no statement can give it one: it is made there if that is the only thing a ``with``
    enters.
    """
    item = analysis.parent(site.call) if site.call is not None else None
    block = analysis.parent(item) if isinstance(item, cst.WithItem) else None
    if not _may_be_made_here(analysis, site) or not isinstance(block, cst.With):
        return ""
    if len(block.items) > 1 or block.asynchronous is not None:
        return ""
    scope = analysis.enclosing(block, cst.FunctionDef) or analysis.module
    taken = _names_in(analysis, scope)
    names = itertools.chain(["converter"], (f"converter_{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


@once
def _names_in(analysis: Analysis, scope: cst.CSTNode) -> frozenset[str]:
    return frozenset(each.value for each in analysis.within(scope, cst.Name))


def _may_be_made_here(analysis: Analysis, site: Site) -> bool:
    """Say whether the expression of a converter makes one, by a call or an object's own ``[]``."""
    receiver = site.attribute.value
    if isinstance(receiver, cst.Subscript):
        return flow_of(analysis).is_instance(receiver.value)
    return isinstance(receiver, cst.Call)


def _unrepeatable(
    analysis: Analysis, site: Site, reading: Reading, *, columnar: bool, named: bool
) -> str:
    """Return why something that a native call has twice cannot be written twice; empty if it can."""
    receiver = site.attribute.value
    plain = isinstance(receiver, cst.Name | cst.Attribute | cst.Subscript)
    once = any(isinstance(each, cst.Call | cst.Await | cst.NamedExpr) for each in below(receiver))
    if not named and (not plain or once or _may_be_made_here(analysis, site)):
        return "its converter has no name; give it one"
    if site.method.is_torch and not columnar and not reading.again:
        return "its batch size is needed twice; put it into a variable"
    return ""


def _message(site: Site, reading: Reading, dataset: str) -> str:
    opening = "StreamingDataLoader" if site.method.is_torch else "to_tf_dataset"
    message = f"{site.method.name} becomes {opening}({dataset}(...))"
    lost = [name for name in reading.lost if name != "prefetch"]
    if lost:
        message += f" without {', '.join(lost)}"
    return message


def _speed(site: Site, reading: Reading, *, columnar: bool, wanted: bool) -> Iterator[str]:
    """Yield what is lost of what a call asks for to be fast."""
    if wanted and not columnar:
        yield "rows are read one by one, as its transform_spec may be None"
    elif not columnar and (reading.columnar or "workers_count" in reading.lost):
        way = ", --fast reads whole batches" if site.method.is_torch else ""
        yield f"rows are read one by one in one process{way}"


def _known(reading: Reading) -> Iterator[Fact]:
    """Yield what a reviewer has to know of a call."""
    if reading.ranks:
        yield Fact.RANKS
    is_full = reading.drop_last == ("True",)
    if reading.times in {Times.SOME, Times.OPEN} and reading.several and not is_full:
        yield Fact.SHORT_BATCHES
    if is_full and reading.shuffle == ("False",):
        yield Fact.LEFT_OUT


def torch_loader(
    analysis: Analysis,
    arguments: Arguments,
    reading: Reading,
    *,
    columnar: bool,
    once: bool = False,
) -> tuple[Pieces, list[Need]]:
    """Return the expression of a loader, and the names that it uses.

    Args:
        analysis: Of the source.
        arguments: Those of the dataset that say where it is and how it is shuffled.
        reading: What is asked for.
        columnar: Whether the dataset gives whole batches.
        once: Whether it gives all rows once, however often they are asked for.
    """
    drop_last: Arguments = [("drop_last", reading.drop_last)] if reading.drop_last else []
    needs = [need(analysis, STREAMING, "StreamingDataLoader")]
    if columnar:
        needs.append(need(analysis, COLUMNAR, "ColumnarStreamingDataset"))
        option, value = ("ragged", "list") if reading.transform else ("format", "torch")
        form = (option, (f"{analysis.quote}{value}{analysis.quote}",))
        rows = reading.commented(reading.batch_size, "batch_size")
        dataset_options: Arguments = [("batch_size", rows), *drop_last, form]
        size: Pieces = ("None",)
    else:
        needs.append(need(analysis, STREAMING, "StreamingDataset"))
        dataset_options = [("batch_size", reading.batch_size)]
        size = reading.commented(reading.again, "batch_size")
    outer: Arguments = [
        ("", call_of(needs[1].local, [*arguments, *dataset_options])),
        ("batch_size", size),
    ]
    outer += [] if columnar else drop_last
    collate = reading.commented(reading.transform, "transform_spec")
    outer += [("collate_fn", collate)] if reading.transform else []
    workers = reading.commented(reading.workers, "workers_count")
    outer += [("num_workers", workers)] if reading.workers else []
    made = call_of(needs[0].local, outer)
    if once:
        return made, needs
    made, more = repeated(analysis, made, reading)
    return made, [*needs, *more]


def repeated(analysis: Analysis, made: Pieces, reading: Reading) -> tuple[Pieces, list[Need]]:
    """Return the expression of what gives all rows as often as is asked for, and what that uses."""
    if reading.times is Times.ONCE:
        return made, []
    epochs = need(analysis, analysis.target.module, "Epochs")
    epoch_count = reading.commented(reading.epochs, "num_epochs")
    number: Arguments = [("", epoch_count)] if reading.epochs else []
    return call_of(epochs.local, [("", made), *number]), [epochs]


def _tensorflow(
    analysis: Analysis, arguments: Arguments, reading: Reading
) -> tuple[Pieces, list[Need]]:
    """Return the expression of a TensorFlow dataset, and the names that it uses."""
    needs = [
        need(analysis, STREAMING, "StreamingDataset"),
        need(analysis, analysis.target.module, "to_tf_dataset"),
    ]
    rows = reading.commented(reading.batch_size, "batch_size")
    dataset = call_of(needs[0].local, [*arguments, ("batch_size", rows)])
    outer: Arguments = [("", dataset)]
    if reading.times is not Times.ONCE:
        epochs = reading.commented(reading.epochs or ("None",), "num_epochs")
        outer.append(("epochs", epochs))
    if reading.transform:
        outer.append(("transform", reading.commented(reading.transform, "transform_spec")))
    return call_of(needs[1].local, outer), needs
