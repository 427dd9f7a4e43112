"""What is written in the place of a loader call: streaming's loader, or a TensorFlow dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Need, Piece
from petastorm_codemods._petastorm.counterparts import COLUMNAR, STREAMING

from .arguments import Pieces, Reading, Stays, Times
from .placement import need
from .repeatable import is_repeatable
from .rounds import rounds
from .sites import Site, receiver_end, receiver_start
from .stores import is_in_store

# What looks at timestamps in a DataFrame, and at the columns of a batch by their places.
_TIMES = re.compile(r"\.dt\b")
_POSITIONS = re.compile(r"\bbatch\w*\.values\(\)|\bnext\([^\n]*\)\.values\(\)")


@dataclass(frozen=True)
class Native:
    """A native call.

    Attributes:
        once: The expression that gives all rows once.
        around: What stands before and behind it where they come more often; None if they do not.
        needs: Names that it uses.
        message: What a report says.
        told: Whether a summary says it too.
    """

    once: Pieces
    around: tuple[Pieces, Pieces] | None
    needs: tuple[Need, ...]
    message: str
    told: bool

    @property
    def pieces(self) -> Pieces:
        """The whole expression."""
        if self.around is None:
            return self.once
        return (*self.around[0], *self.once, *self.around[1])

    def assigned(self, target: Pieces) -> tuple[Pieces, ...]:
        """Return the statements that assign it, as a reader likes them: one for the epochs."""
        first = (*target, " = ", *self.once)
        if self.around is None:
            return (first,)
        return first, (*target, " = ", *self.around[0], *target, *self.around[1])


def native_call(analysis: Analysis, site: Site, reading: Reading) -> Native | Stays:
    """Return the native call for what a call asks for, or why there is none."""
    columnar = analysis.target.fast or (reading.columnar and not analysis.target.vendored)
    columnar = columnar and site.method.is_torch
    name = "ColumnarStreamingDataset" if columnar else "StreamingDataset"
    dataset = need(analysis, COLUMNAR if columnar else STREAMING, name)
    problem = _unrepeatable(analysis, site, reading, columnar=columnar)
    if problem:
        return Stays(problem)
    place = _place(analysis, site)
    again = rounds(analysis, site.attribute, reading)
    shuffle, *others = reading.dataset
    arguments = [*place, shuffle, *again.seed, *others]
    if columnar:
        arguments.append(("ragged", ('"list"',)) if reading.transform else ("format", ('"torch"',)))
    opened = call_of(dataset.local, arguments)
    needs = [dataset]
    if site.method.is_torch:
        loader = need(analysis, STREAMING, "StreamingDataLoader")
        needs.append(loader)
        made = torch_loader(loader.local, opened, reading, columnar=columnar)
        around = repeated(reading)
        if around is not None:
            needs.append(Need("itertools", "", "itertools"))
    else:
        function = need(analysis, analysis.target.module, "to_tf_dataset")
        needs.append(function)
        receiver = (
            receiver_start(analysis, site.attribute),
            receiver_end(analysis, site.attribute),
        )
        made, around = _tensorflow(function.local, opened, receiver, reading), None
    notes = [*_speed(site, reading, columnar=columnar), *reading.notes]
    notes += _cautions(analysis.source.text, site, reading)
    notes += [again.caution] if again.caution else []
    said = ["made in a loop, it is shuffled anew by shuffle_seed"] if again.seed else []
    message = "; ".join([_message(site, reading, name), *said, *notes])
    return Native(made, around, tuple(needs), message, told=bool(notes))


def _unrepeatable(analysis: Analysis, site: Site, reading: Reading, *, columnar: bool) -> str:
    """Return why something that a native call has twice cannot be written twice; empty if it can."""
    receiver = site.attribute.value
    named = isinstance(receiver, cst.Name | cst.Attribute | cst.Subscript)
    twice = is_in_store(analysis) or not site.method.is_torch
    if twice and not (named and is_repeatable(receiver)):
        return "its converter has no name; give it one"
    if site.method.is_torch and not columnar and not reading.again:
        return "its batch size cannot be worked out twice; give it a name"
    return ""


def _message(site: Site, reading: Reading, dataset: str) -> str:
    opening = "StreamingDataLoader" if site.method.is_torch else "to_tf_dataset"
    message = f"{site.method.name} becomes {opening}({dataset}(...))"
    lost = [name for name in reading.lost if name != "prefetch"]
    if lost:
        message += f" without {', '.join(lost)}"
    return message


def _speed(site: Site, reading: Reading, *, columnar: bool) -> Iterator[str]:
    """Yield what is lost of what a call asks for to be fast."""
    if not columnar and (reading.columnar or "workers_count" in reading.lost):
        way = ", --fast reads whole batches" if site.method.is_torch else ""
        yield f"rows are read one by one in one process{way}"


def _cautions(text: str, site: Site, reading: Reading) -> Iterator[str]:
    """Yield what in a source may look at rows in a way that has changed."""
    if reading.transform and _TIMES.search(text):
        yield "transforms get timestamps as int64, unless PandasCollate has them in timestamps="
    if site.method.is_torch and _POSITIONS.search(text):
        yield "the columns of a batch are in alphabetical order"


def _place(analysis: Analysis, site: Site) -> list[tuple[str, Pieces]]:
    """Return the arguments that say where the rows are."""
    receiver = (receiver_start(analysis, site.attribute), receiver_end(analysis, site.attribute))
    if not is_in_store(analysis):
        return [("local", (receiver, ".path"))]
    return [("remote", (receiver, ".remote")), ("local", (receiver, ".local"))]


def torch_loader(name: str, dataset: Pieces, reading: Reading, *, columnar: bool) -> Pieces:
    """Return the expression of a loader over the one of a dataset."""
    size: Pieces = ("None",) if columnar else reading.again
    arguments: list[tuple[str, Pieces]] = [("", dataset), ("batch_size", size)]
    if reading.transform:
        arguments.append(("collate_fn", reading.transform))
    if reading.workers:
        arguments.append(("num_workers", reading.workers))
    return call_of(name, arguments)


def repeated(reading: Reading) -> tuple[Pieces, Pieces] | None:
    """Return what stands around a loader that gives all rows not just once."""
    if reading.times is Times.ONCE:
        return None
    chain = "itertools.chain.from_iterable("
    if reading.times is Times.OPEN:  # repeat() takes no None
        return (f"{chain}itertools.islice(itertools.repeat(",), ("), ", *reading.epochs, "))")
    count: Pieces = (", ", *reading.epochs) if reading.epochs else ()
    return (f"{chain}itertools.repeat(",), (*count, "))")


def _tensorflow(name: str, dataset: Pieces, receiver: tuple[int, int], reading: Reading) -> Pieces:
    # People take fields by position.
    arguments: list[tuple[str, Pieces]] = [("", dataset), ("columns", (receiver, ".columns"))]
    if reading.transform:
        arguments.append(("transform", reading.transform))
    made = call_of(name, arguments)
    return made if reading.times is Times.ONCE else (*made, ".repeat(", *reading.epochs, ")")


def call_of(name: str, arguments: Sequence[tuple[str, Pieces]]) -> Pieces:
    """Return a call with arguments by their names, which are empty for positional ones."""
    return (f"{name}(", *_listed(arguments), ")")


def _listed(arguments: Sequence[tuple[str, Pieces]]) -> Iterator[Piece]:
    for number, (name, value) in enumerate(arguments):
        yield (", " if number else "") + (f"{name}=" if name else "")
        yield from value
