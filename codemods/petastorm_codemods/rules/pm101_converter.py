"""``make_spark_converter`` becomes ``write_mds``, which writes MDS shards that streaming reads.

It returns a small handle with ``path``, ``len()`` and ``delete()``, which may be stored, passed and pickled as a
converter was; annotations and the key of the cache directory follow. It stores what a batch will hold, so that
streaming need not convert while reading. A size of Parquet row groups becomes the size limit of shards; Parquet's
compression codec is removed.

``write_mds`` refuses what torch cannot hold (decimals, dates, structs, nested arrays, nulls in strings), in one message
that names every such column.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, last_name, manual, once
from petastorm_codemods._meaning.calls import argument_edits, first_given, is_none, keyword
from petastorm_codemods._meaning.flow import Provenance, flow_of
from petastorm_codemods._meaning.imports import imports
from petastorm_codemods._meaning.places import below, reached
from petastorm_codemods._meaning.reexports import NATIVE, reexported_reads, unseen_reads, uses_of
from petastorm_codemods._meaning.support import constructions, opens_directory
from petastorm_codemods._model import Destination, Edit, Finding, Need, Safety
from petastorm_codemods._petastorm.counterparts import CLASSES, COUNTERPARTS, MAKERS, original
from petastorm_codemods._petastorm.offered import canonical
from petastorm_codemods._registry import Rule
from petastorm_codemods._rewriting.decisions import native_name
from petastorm_codemods._rewriting.moves import import_findings, missing_findings, moves
from petastorm_codemods._rewriting.values import values

_MAKERS = frozenset(path.rpartition(".")[2] for path in MAKERS)
_KEYWORDS = ("parquet_row_group_size_bytes", "compression_codec", "dtype")
_READERS = frozenset({"petastorm.make_batch_reader", "petastorm.make_reader"})
_URLS = ("dataset_url", "dataset_url_or_urls")
_MEMBERS = frozenset({"cache_dir_url", "file_urls"})
_RENAMED = {"df": "dataframe", "parquet_row_group_size_bytes": "size_limit"}
_ARGUMENTS = "arguments that Parquet needed become those of shards"
_BEFORE = """from petastorm.spark import SparkDatasetConverter, make_spark_converter

spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, url)
conv = make_spark_converter(df)"""
_AFTER = """from petastorm_bridge.native import MdsDirectory, write_mds

spark.conf.set(MdsDirectory.PARENT_CACHE_DIR_URL_CONF, url)
conv = write_mds(df)"""


@Rule(
    "PM101",
    "converter",
    "make_spark_converter becomes write_mds",
    safety=Safety.SAFE,
    destinations=[Destination.STREAMING],
    before=_BEFORE,
    after=_AFTER,
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each import statement with its uses, and one for each call."""
    yield from import_findings(analysis)
    for call in constructions(analysis):
        message = "streaming reads MDS only; write these rows with write_mds, or keep the bridge"
        yield manual("PM101", analysis.start(call), message)
    yield from _inherited(analysis)
    yield from _shared(analysis)
    for call in analysis.nodes(cst.Call):
        if opens_directory(analysis, call):
            continue  # on the bridge, by an earlier run
        if _is_moved(analysis, call.func):
            yield from _call(analysis, call)
        elif _is_partial(analysis, call):
            yield from _partial(analysis, call)
        elif _is_passed_on(analysis) and analysis.imported(call.func) is None:
            yield from _call_of_variable(analysis, call)


def _call(analysis: Analysis, call: cst.Call) -> Iterator[Finding]:
    """Yield the finding of a call of a maker that is moved; none if its arguments stay as they are."""
    edits = tuple(_call_edits(analysis, call))
    problem = _call_problem(call)
    if problem:
        yield manual("PM101", analysis.start(call), problem)
    elif edits:
        yield Finding("PM101", analysis.start(call), _ARGUMENTS, Safety.SAFE, edits)


def _call_of_variable(analysis: Analysis, call: cst.Call) -> Iterator[Finding]:
    """Yield the finding of a call of what may be a maker that is moved; none if no argument needs it."""
    called = values(analysis).of(call.func)
    makers = [each for each in called if _is_moved(analysis, each)]
    bound = [each for each in called if isinstance(each, cst.Call) and _is_partial(analysis, each)]
    named = [each for each in bound if all(argument.keyword for argument in each.args[1:])]
    if not makers and not bound:
        return
    if len(makers) + len(named) == len(called):
        yield from _call(analysis, call)
    elif any(_call_edits(analysis, call)):
        message = "this may call write_mds, whose arguments are dataframe, size_limit and dtype"
        yield manual("PM101", analysis.start(call), message)


@once
def _is_passed_on(analysis: Analysis) -> bool:
    """Say whether a maker that is moved is anything else than called."""
    members = (each for each in analysis.nodes(cst.Attribute) if last_name(each) in _MAKERS)
    imported = (each for each in imports(analysis) if original(each.path) in MAKERS)
    names = (read for each in imported for read in uses_of(analysis, each.local))
    return any(
        getattr(analysis.parent(each), "func", None) is not each and _is_moved(analysis, each)
        for each in itertools.chain(members, names)
    )


def _is_partial(analysis: Analysis, call: cst.Call) -> bool:
    """Say whether a call binds arguments of a maker that is moved."""
    if analysis.imported(call.func) not in {"functools.partial", "functools.partialmethod"}:
        return False
    maker = call.args[0].value if call.args else call.func
    return _is_moved(analysis, maker)


def _partial(analysis: Analysis, call: cst.Call) -> Iterator[Finding]:
    """Yield the finding of a call that binds arguments of a maker; none if it binds the DataFrame alone."""
    bound = call.args[1:]
    if any(each.star for each in bound) or sum(each.keyword is None for each in bound) > 1:
        message = "give the arguments by name, so that they can be translated"
        yield manual("PM101", analysis.start(call), message)
        return
    edits = tuple(argument_edits(analysis, call, _RENAMED, _dropped(call)))
    if edits:
        yield Finding("PM101", analysis.start(call), _ARGUMENTS, Safety.SAFE, edits)


def _inherited(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each class that extends that of converters, which is another one now."""
    for owner in analysis.nodes(cst.ClassDef):
        paths = [original(analysis.imported(base.value) or "") for base in owner.bases]
        if any(path in CLASSES and native_name(analysis, path) for path in paths):
            message = f"{owner.name.value} extends MdsDirectory now, which opens no loaders; see that what it adds fits"
            yield Finding("PM101", analysis.start(owner), message, Safety.SAFE, told=True)


def _shared(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each use of a name that comes from another file of the project."""
    if analysis.project.on_bridge:
        return
    for read in unseen_reads(analysis):
        name = NATIVE[read.value]
        edits = (analysis.replace(read, name), *_around(analysis, read))
        message = f"{read.value} becomes {name}"
        needs = (Need(analysis.target.module, name, name),)
        yield Finding("PM101", analysis.start(read), message, Safety.SAFE, edits, needs=needs)
    for each in reexported_reads(analysis):
        around = tuple(_around(analysis, each))
        if around:
            name = _name_of(analysis, each)
            message = f"{name} is {NATIVE[name]} where it comes from"
            yield Finding("PM101", analysis.start(each), message, Safety.SAFE, around)


def _around(analysis: Analysis, read: cst.Name | cst.Attribute) -> Iterator[Edit]:
    """Yield the edits of what a name is called with."""
    call, name = analysis.parent(read), _name_of(analysis, read)
    if isinstance(call, cst.Call) and call.func is read and name == "make_spark_converter":
        yield from _call_edits(analysis, call)


def _name_of(analysis: Analysis, read: cst.Name | cst.Attribute) -> str:
    return (analysis.imported(read) or last_name(read)).rpartition(".")[2]


@Rule(
    "PM104",
    "no-counterpart",
    "neither streaming nor the bridge has a counterpart of this name",
    safety=Safety.MANUAL,
    destinations=[Destination.STREAMING],
    text="""The import of a name that neither streaming nor the bridge has is left as it is and marked.

    These are parts of Petastorm's own readers, such as its pools of workers, which the bridge replaces;
    the mark says what to use instead.""",
    before="from petastorm.workers_pool.thread_pool import ThreadPool",
)
def check_missing(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each import statement that leaves something to a human."""
    yield from missing_findings(analysis)
    yield from import_findings(analysis)


@Rule(
    "PM105",
    "reader",
    "readers and their loaders come from petastorm_bridge",
    safety=Safety.SAFE,
    destinations=[Destination.STREAMING],
    text="""Readers of Parquet and of Petastorm's own datasets, the loaders on them, and what writes such
    datasets have no counterpart in streaming, which reads MDS only. They run on the bridge, with the same
    batches; so do modules that are used as a whole. ``petastorm-bridge convert`` makes MDS of a dataset,
    which streaming reads.""",
    before="from petastorm import make_batch_reader",
    after="from petastorm_bridge import make_batch_reader",
)
def check_reader(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each import statement that moves to the bridge as it is."""
    yield from import_findings(analysis)
    for call in _readers_of_converters(analysis):
        message = (
            "booleans and timestamps are read as numbers here; "
            "read what write_mds wrote with StreamingDataset, or do without --vendor"
        )
        yield manual("PM105", analysis.start(call), message)


def _readers_of_converters(analysis: Analysis) -> Iterator[cst.Call]:
    """Yield the calls that open readers on the directory or the files of a converter, if streaming's own writer wrote these.

    Its shards, which a vendored support module writes, do not say what their columns meant, so that the bridge's
    readers give numbers for booleans and timestamps. What the bridge writes says it.
    """
    if not analysis.target.vendored:
        return
    named = [each for each in analysis.nodes(cst.Attribute) if each.attr.value in _MEMBERS]
    made_here = any(original(each.path) in COUNTERPARTS for each in imports(analysis))
    if not named or not (made_here or analysis.project.converters):
        return
    flow = flow_of(analysis)
    others = {Provenance.FOREIGN, Provenance.FILES}
    members = {each for each in named if flow.provenance(each.value) not in others}
    for call in analysis.nodes(cst.Call):
        if canonical(original(analysis.imported(call.func) or "")) in _READERS:
            given = {first_given(call, name) for name in _URLS}
            if any(each is not None and _comes_from(analysis, each, members) for each in given):
                yield call


def _comes_from(analysis: Analysis, value: cst.CSTNode, members: Collection[cst.CSTNode]) -> bool:
    """Say whether an expression, or what its names are assigned, has such a member in it."""

    def behind(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        yield from (one for each in below(node) for one in values(analysis).behind(each))

    return any(each in members for node in reached([value], behind) for each in below(node))


def _is_moved(analysis: Analysis, maker: cst.CSTNode) -> bool:
    """Say whether an expression is a maker whose name is moved; guarded imports are not."""
    path = analysis.imported(maker) or ""
    if original(path) not in MAKERS:
        return False
    native = (each for move in moves(analysis) for each in move.native)
    is_name = any(canonical(each.path) == canonical(path) for each in native)
    return is_name or analysis.span(maker) in _renamed(analysis)


@once
def _renamed(analysis: Analysis) -> frozenset[tuple[int, int]]:
    """Return where names are that change with imports, such as those behind a module's."""
    return frozenset(
        (edit.start, edit.end) for each in import_findings(analysis) for edit in each.edits
    )


def _call_problem(call: cst.Call) -> str:
    """Return what is odd about the arguments of a call; empty if it is as Petastorm has it."""
    positional = [each for each in call.args if each.keyword is None]
    for argument in call.args:
        named = isinstance(argument.value, cst.NamedExpr) and argument in positional[1:]
        if argument.star or named or len(positional) > 4:
            return "give the arguments by name, so that they can be translated"
        name = keyword(argument)
        if name not in {None, "df", *_KEYWORDS}:
            return f"make_spark_converter has no argument {name}; remove it"
        frame = name == "df" or argument is call.args[0]
        if frame and isinstance(argument.value, cst.BaseString):
            return "write_mds takes a DataFrame: read the files with spark.read.parquet"
    return ""


def _call_edits(analysis: Analysis, call: cst.Call) -> Iterator[Edit]:
    positional = [each for each in call.args if each.keyword is None and not each.star]
    if len(positional) > 4 or any(isinstance(each.value, cst.NamedExpr) for each in positional):
        return  # the first is a mistake, which would only become another one
    away = [each for each in positional[1:2] if _is_no_size(each)] + positional[2:3]
    for argument, name in zip(positional[1:], ("size_limit", "", "dtype"), strict=False):
        if argument not in away:
            start = analysis.start(argument)
            yield Edit(start, start, f"{name}=")
    yield from argument_edits(analysis, call, _RENAMED, [*away, *_dropped(call)])


def _dropped(call: cst.Call) -> list[cst.Arg]:
    """Return the arguments of a call whose keywords mean nothing to shards."""
    size = "parquet_row_group_size_bytes"
    return [
        each
        for each in call.args
        if keyword(each) == "compression_codec" or (keyword(each) == size and _is_no_size(each))
    ]


def _is_no_size(argument: cst.Arg) -> bool:
    """Say whether a size of row groups is none that limits shards could have."""
    value = argument.value
    negative = isinstance(value, cst.UnaryOperation) and isinstance(value.operator, cst.Minus)
    zero = isinstance(value, cst.Integer) and value.evaluated_value == 0
    return negative or zero or is_none(value) or isinstance(value, cst.BaseString)
