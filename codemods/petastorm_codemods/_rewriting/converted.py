"""Readers of Petastorm's datasets that were converted: what streaming reads in their place.

A loader over such a reader becomes streaming's own loader, and a loop over its rows one over streaming's
dataset. What neither expresses stays on the bridge, over the dataset as it was, with the reason.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator

import libcst as cst

from petastorm_bridge._tables.options import OPTIONS
from petastorm_codemods._meaning.analysis import Analysis, manual, once_all
from petastorm_codemods._meaning.calls import first_given, text_of
from petastorm_codemods._meaning.imports import Imported, clashes, need
from petastorm_codemods._meaning.reexports import uses_of
from petastorm_codemods._model import MOUNTED, Converted, Fact, Finding, Need, Pieces
from petastorm_codemods._petastorm.counterparts import STREAMING, original
from petastorm_codemods._petastorm.offered import canonical

from .among_ranks import read_on_ranks
from .arguments import Reading, Times, translated
from .bound_reads import is_repeated
from .comments import is_ignored
from .contexts import rewritten
from .expressions import (
    Arguments,
    Native,
    repeated,
    shuffling,
    torch_loader,
)
from .given import Given, Stays, given_arguments
from .layout import call_of
from .needs_bridge import loader_needs_bridge
from .sites import ARGUMENTS, METHODS
from .uses import Use, use_of
from .values import values

CODE = "PM107"

_READER = "petastorm.make_reader"
_READER_ARGUMENTS = tuple(each.name for each in OPTIONS if each.api == "make_reader")
_LOADER_ARGUMENTS = ("reader", "batch_size", "collate_fn", "shuffling_queue_capacity")
_ROWS = "chooses rows; convert those, or read them all"
_REFUSED = {
    "collate_fn": "its collate_fn may count on rows as Petastorm makes them",
    "filters": f"filters {_ROWS}",
    "predicate": f"predicate {_ROWS}",
    "rowgroup_selector": f"rowgroup_selector {_ROWS}",
    "schema_fields": "schema_fields makes other rows; convert with --columns",
    "transform_spec": "its transform_spec works on single rows",
}
# Defaults that are not those of the methods of converters.
_DEFAULTS = {"batch_size": "1", "num_epochs": "1"}
_URL = re.compile(r"([a-z][a-z0-9+.-]*):/")
_STORES = ("gs", "s3")
_STREAMING_SEED: Pieces = ("9176",)
_IMAGE = re.compile(r"png|jpe?g\w*")
# What streaming's loader makes no batches of, or others than Petastorm's.
_UNBATCHED = re.compile(r"png|jpe?g\w*|pil|pkl|json|str_decimal|ndarray:uint(?:16|32)\b.*")
_NULLS = "__is_null"


def is_taken_over(analysis: Analysis, each: Imported) -> bool:
    """Say whether an import serves calls alone that streaming takes over."""
    edits = sorted(edit for finding in converted_findings(analysis) for edit in finding.edits)
    ends = list(itertools.accumulate((edit.end for edit in edits), max))
    reads = uses_of(analysis, each.local)
    # How many edits begin before each read, or where it does.
    before = (bisect.bisect(edits, analysis.start(r), key=lambda edit: edit.start) for r in reads)
    return bool(reads) and all(
        number and ends[number - 1] > analysis.start(read)
        for number, read in zip(before, reads, strict=True)
    )


@once_all
def converted_findings(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each reader of a dataset that was converted."""
    if not analysis.target.converted:
        return
    decided = list(_decided(analysis))
    native = {made: each for _, made, each in decided if isinstance(each, Native)}
    items = {made: _items(analysis, made, each) for made, each in native.items()}
    known = frozenset().union(*items.values())
    apart = {
        made: each
        for made, each in native.items()
        if not any(_is_shared(analysis, item, known) for item in items[made])
    }
    results = rewritten(analysis, apart)
    for call, made, each in decided:
        if isinstance(each, Native) and made in results:
            yield each.finding(CODE, analysis.start(call), results[made])
        else:
            reason = each.reason if isinstance(each, Stays) else "its with cannot be taken apart"
            yield manual(CODE, analysis.start(call), f"stays on the bridge: {reason}")


def _items(analysis: Analysis, made: cst.Call, native: Native) -> frozenset[cst.CSTNode]:
    """Return the items of ``with`` that hold what a native call takes the place of, and its reader."""
    held = native.use.held if native.use is not None else None
    around = (analysis.parent(made), held)
    return frozenset(each for each in around if isinstance(each, cst.WithItem))


def _is_shared(analysis: Analysis, item: cst.CSTNode, known: Collection[cst.CSTNode]) -> bool:
    """Say whether others in the ``with`` of an item may be loaders of converters, which other rules rewrite."""
    block = analysis.parent(item)
    others = isinstance(block, cst.With) and any(each not in known for each in block.items)
    return others and any(each.attr.value in METHODS for each in analysis.nodes(cst.Attribute))


def _decided(analysis: Analysis) -> Iterator[tuple[cst.Call, cst.Call, Native | Stays]]:
    """Yield the calls that open readers of converted datasets, each with what a native call replaces, and with that."""
    known = {each.url: each for each in analysis.target.converted}
    for call in analysis.nodes(cst.Call):
        if canonical(original(analysis.imported(call.func) or "")) != _READER:
            continue
        data = known.get(_url(analysis, call).rstrip("/"))
        if data is not None and not is_ignored(analysis.source.text, analysis.start(call), CODE):
            use = use_of(analysis, call)
            made = call if isinstance(use, Stays) else use.loader or call
            yield call, made, _taken_over(analysis, call, data, use)


def _url(analysis: Analysis, call: cst.Call) -> str:
    """Return the URL that a reader is opened with; empty if the source does not say it."""
    value = first_given(call, "dataset_url")
    leaves = values(analysis).of(value) if value is not None else []
    return text_of(leaves[0]) if len(leaves) == 1 else ""


def _taken_over(
    analysis: Analysis, call: cst.Call, data: Converted, use: Use | Stays
) -> Native | Stays:
    """Return what takes the place of a reader, or why it stays."""
    if isinstance(use, Stays):
        return use
    reading = _reading(analysis, call, use)
    if isinstance(reading, Stays):
        return reading
    among = None if reading.ranks else read_on_ranks(analysis, call)
    if among is not None:
        return among
    problem = _unlike(data, use) or loader_needs_bridge(
        analysis, use.loader or call, is_torch_loader=reading.times is Times.ONCE
    )
    if problem:
        return Stays(problem)
    native = _native(analysis, call, data, use, reading)
    clash = clashes(analysis, native.needs)
    if clash:
        return Stays(f"{', '.join(clash)} means something else in this file")
    return native


# --- what is asked for --------------------------------------------------------------------------------


def _reading(analysis: Analysis, call: cst.Call, use: Use) -> Reading | Stays:
    """Return what a reader and the loader over it ask for, or why streaming cannot give it."""
    given = given_arguments(analysis, call, _READER_ARGUMENTS)
    if isinstance(given, Stays):
        return given
    # They may stand in a `with` that goes.
    text = analysis.source.text
    given = {
        name: dataclasses.replace(
            each,
            pieces=tuple(p if isinstance(p, str) else text[p[0] : p[1]] for p in each.pieces),
            comments=(),
        )
        for name, each in given.items()
        if name != "dataset_url"
    }
    if use.loader is not None:
        more = given_arguments(analysis, use.loader, _LOADER_ARGUMENTS)
        if isinstance(more, Stays):
            return more
        given |= {name: each for name, each in more.items() if name != "reader"}
    for name, reason in _REFUSED.items():
        if name in given:
            return Stays(reason)
    for name, value in _DEFAULTS.items():
        given.setdefault(name, Given((value,), cst.Integer(value)))
    dropped = [name for name in given if name in _READER_ARGUMENTS and name not in ARGUMENTS]
    kept = {name: each for name, each in given.items() if name not in dropped}
    reading = translated(analysis, kept)
    if isinstance(reading, Stays):
        return reading
    if not reading.again:
        return Stays("its batch size is needed twice; put it into a variable")
    return dataclasses.replace(reading, lost=tuple(sorted({*reading.lost, *dropped})))


def _unlike(data: Converted, use: Use) -> str:
    """Return what of a conversion streaming does not give, or in another form than Petastorm; empty if nothing."""
    store = _URL.match(data.directory)
    if store is not None and store[1] not in _STORES:
        known = " and ".join(f"{each}://" for each in _STORES)
        return f"streaming reads paths, {known}, and no {store[1]}:// urls"
    columns = dict(data.columns)
    if use.loader is not None:
        other = (name for name in columns if _UNBATCHED.fullmatch(columns[name]))
        name = next(other, None)
        needed = f"streaming's loader needs a collate_fn for {name} ({columns.get(name or '')})"
        return needed if name is not None else ""
    for name in use.names if columns else ():
        if name not in columns:
            return f"there is no column {name} in what was converted"
        if _IMAGE.fullmatch(columns[name]):
            return f"{name} is an image of Pillow in streaming, not an array"
        if name + _NULLS in columns:
            return f"{name} has nulls, which streaming keeps in {name}{_NULLS}"
    return ""


# --- what is written ----------------------------------------------------------------------------------


def _native(
    analysis: Analysis, call: cst.Call, data: Converted, use: Use, reading: Reading
) -> Native:
    """Return what takes the place of a loader, or of a reader whose rows are read."""
    columnar = analysis.target.fast and use.loader is not None
    where, places = _where(analysis, data.directory)
    where += shuffling(reading, _STREAMING_SEED, anew=False)
    if use.loader is not None:
        made, needs = torch_loader(analysis, where, reading, columnar=columnar)
        name = "ColumnarStreamingDataset" if columnar else "StreamingDataset"
        becomes = f"StreamingDataLoader({name}(...))"
    else:
        needs = [need(analysis, STREAMING, "StreamingDataset")]
        made = call_of(needs[0].local, [*where, ("batch_size", reading.batch_size)])
        made, more = repeated(analysis, made, reading)
        needs += more
        becomes = "StreamingDataset(...)"
    needs = [*places, *needs]
    notes = list(_notes(data, use, reading, columnar=columnar))
    known = [Fact.RANKS] if reading.ranks else []
    if reading.shuffle != ("False",) and not reading.seed and is_repeated(analysis, call):
        notes.append("each time it is made it is shuffled as the first time, without shuffle_seed=")
    without = f" without {', '.join(reading.lost)}" if reading.lost else ""
    said = [f"make_reader becomes {becomes}{without}", *notes, *(fact.value for fact in known)]
    facts = frozenset({Fact.NATIVE, *known})
    return Native(
        made,
        (),
        tuple(needs),
        "; ".join(said),
        told=bool(notes),
        facts=facts,
        use=use,
    )


def _where(analysis: Analysis, directory: str) -> tuple[Arguments, list[Need]]:
    """Return streaming's arguments for a directory; one that is far gets a new place for copies each time.

    Streaming's own place for them is one for each directory, which has to be empty.
    """
    path = _quoted(directory, analysis.quote)
    # Other mounts cannot be told from here.
    if not _URL.match(directory) and not directory.startswith(MOUNTED):
        return [("local", path)], []
    opened = need(analysis, analysis.target.module, "MdsDirectory")
    return [("remote", path), ("local", (f"{opened.local}(", *path, ").local"))], [opened]


def _quoted(directory: str, quote: str) -> Pieces:
    plain = directory.isprintable() and quote not in directory and "\\" not in directory
    return (f"{quote}{directory}{quote}" if plain else ascii(directory),)


def _notes(data: Converted, use: Use, reading: Reading, *, columnar: bool) -> Iterator[str]:
    """Yield what is to be said of a rewrite that may matter to the program."""
    if not data.columns:
        yield f"{data.directory} is not here: look at images, nulls and unsigned integers"
    nulls = [name for name, _ in data.columns if name.endswith(_NULLS)]
    if nulls and use.loader is not None:
        yield f"batches have {', '.join(nulls)} as well"
    if use.loader is None:
        yield "booleans and times in rows are numbers"
    elif "workers_count" in reading.lost and not columnar:
        yield "rows are read one by one in one process, --fast reads whole batches"
