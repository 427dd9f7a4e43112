"""Loaders that read everything on each of several ranks.

Streaming finds the ranks by itself and divides the rows among them, and its datasets are made by all of them
together: one that the first rank makes alone waits for the others for ever. Whether a loader runs on ranks is known
where others that take shards of ranks, what starts the ranks or works in their group, or what asks which one this is,
are in the same function or class, or in one that calls, or is called; or where a file that has to do with ranks uses
that function or class, or may ask a registry for it. Horovod's ranks it does not find, and where several of a machine
make their datasets in the same milliseconds all but one fail with ``FileExistsError``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.calls import keyword
from petastorm_codemods._meaning.elsewhere import ASKING, ASKING_LIGHTNING, SEVERAL_RANKS, STARTING
from petastorm_codemods._meaning.functions import functions_of
from petastorm_codemods._meaning.places import reached
from petastorm_codemods._model import Fact

from .arguments import shards_of
from .given import Stays
from .ranks import Shards, calls_of_horovod, variable_read
from .sites import METHODS

_READS_ALL = Stays(
    "each rank that gets here reads all of it; streaming would divide it among them: "
    "where all get here, give it cur_shard and shard_count to read natively"
)
_ON_HOROVOD = Stays(
    "Horovod's ranks read it, and streaming does not know them; launch with TorchDistributor to "
    "read natively",
    frozenset({Fact.HOROVOD}),
)
_VARIABLES = frozenset({"LOCAL_RANK", "RANK"})
# Petastorm's readers take shards by name. Those of converted datasets, ``make_reader``'s, may be gone in a second run,
# which has to decide as the first; Horovod's stay.
_OPENING = {name: method.positions for name, method in METHODS.items()} | {"make_batch_reader": ()}
_OPENING_FOR_HOROVOD = _OPENING | {"make_reader": ()}
_LAUNCHING = "TorchDistributor"
_RAYS = "TorchTrainer"
_SEVERAL = re.compile(SEVERAL_RANKS)
# strategy="horovod", and accelerator= as Lightning had it once
_BY_HOROVOD = re.compile(r"\b(?:strategy|accelerator|plugins)\s*=[^,\n]{,40}horovod", re.IGNORECASE)
_RANK = re.compile("rank", re.IGNORECASE)


def read_on_ranks(analysis: Analysis, call: cst.Call) -> Stays | None:
    """Return why a loader without a shard stays if it is opened on several ranks, by all appearance."""
    home = _home(analysis, call)
    if home in _homes_on_ranks(analysis):
        return _READS_ALL
    return _ON_HOROVOD if home in _homes_on_horovod(analysis) else None


@once
def _homes_on_ranks(analysis: Analysis) -> frozenset[cst.CSTNode]:
    """Return the functions and classes at the top that run on ranks; the module for what is in none."""
    shared = [*_sharded(analysis, _OPENING, {Shards.STREAMING, Shards.SOME})]
    shared += _of_some_rank(analysis)
    signs = [
        *analysis.calls(*STARTING),
        *_trainers(analysis, _SEVERAL),
        *_asking(analysis),
        *shared,
    ]
    homes = {_home(analysis, each) for each in signs} | {*_launched(analysis)}
    used = {*_used_elsewhere(analysis)}
    used |= {_home(analysis, each) for each in _named(analysis, ASKING_LIGHTNING)}
    if not homes | used:
        return frozenset()
    called = _called(analysis)
    calling: dict[cst.CSTNode, set[cst.CSTNode]] = {}
    for home, others in called.items():
        for each in others:
            calling.setdefault(each, set()).add(home)
    starts = reached(homes, lambda home: calling.get(home, ())).keys() | used
    return frozenset(reached(starts, lambda home: called.get(home, ())))


@once
def _homes_on_horovod(analysis: Analysis) -> frozenset[cst.CSTNode]:
    """Return the functions and classes at the top that work with Horovod, and what they call.

    They take its shards, ask for its rank, or have Lightning's trainer start it.
    """
    sharded = _sharded(analysis, _OPENING_FOR_HOROVOD, {Shards.HOROVOD})
    signs = [*sharded, *calls_of_horovod(analysis), *_trainers(analysis, _BY_HOROVOD)]
    homes = {_home(analysis, each) for each in signs}
    called = _called(analysis) if homes else {}
    return frozenset(reached(homes, lambda home: called.get(home, ())))


def _home(analysis: Analysis, node: cst.CSTNode) -> cst.CSTNode:
    """Return the function or class at the top that a node is in; the module for none."""
    around = (node, *analysis.above(node))
    homes = [each for each in around if isinstance(each, cst.FunctionDef | cst.ClassDef)]
    return homes[-1] if homes else analysis.module


def _trainers(analysis: Analysis, asking: re.Pattern[str]) -> Iterator[cst.Call]:
    """Yield the calls of Lightning's trainer that ask for several ranks, or for Horovod's."""
    for call in analysis.calls("Trainer"):
        if asking.search(analysis.code(call)):
            yield call


def _asking(analysis: Analysis) -> Iterator[cst.CSTNode]:
    """Yield what asks which rank this is."""
    yield from _named(analysis, ASKING)
    for node in (*analysis.nodes(cst.Subscript), *analysis.nodes(cst.Call)):
        if variable_read(analysis, node) in _VARIABLES:
            yield node


def _named(analysis: Analysis, names: Collection[str]) -> Iterator[cst.CSTNode]:
    """Yield the attributes, calls and decorators that have one of some names."""
    for attribute in analysis.nodes(cst.Attribute):
        if attribute.attr.value in names and analysis.is_read(attribute):
            yield attribute
    for name in analysis.nodes(cst.Name):
        if name.value in names and isinstance(analysis.parent(name), cst.Call | cst.Decorator):
            yield name


def _sharded(
    analysis: Analysis, opening: Mapping[str, tuple[str, ...]], kinds: Collection[Shards]
) -> Iterator[cst.Call]:
    """Yield the calls of what opens loaders or readers, each with its positional arguments, for shards of some kinds."""
    for name, positions in opening.items():
        for call in analysis.calls(name):
            if shards_of(analysis, call, positions) in kinds:
                yield call


def _of_some_rank(analysis: Analysis) -> Iterator[cst.Call]:
    """Yield the calls that open loaders with the shard of a rank by its name, whoever numbers it but Horovod."""
    for call in _sharded(analysis, _OPENING, {Shards.OTHER}):
        given = {keyword(each): analysis.code(each.value) for each in call.args}
        is_rank = "shard_count" in given and _RANK.search(given.get("cur_shard", ""))
        if is_rank and _home(analysis, call) not in _homes_on_horovod(analysis):
            yield call


def _launched(analysis: Analysis) -> Iterator[cst.CSTNode]:
    """Yield the functions that a launcher runs on ranks."""
    launching = [each for each in analysis.calls(_RAYS) if _is_rays(analysis, each)]
    if any(analysis.calls(_LAUNCHING)):
        launching += analysis.calls("run")
    for call in launching:
        for argument in call.args[:1]:
            functions = functions_of(analysis).called(cst.Call(argument.value))
            yield from (_home(analysis, each) for each in functions)


def _is_rays(analysis: Analysis, call: cst.Call) -> bool:
    """Say whether a call is of Ray's trainer, and not of a class of the project with its name."""
    path = analysis.imported(call.func)
    if path is None:
        return not functions_of(analysis).classes(call.func)  # it may come from another notebook
    return path.startswith("ray.")


def _used_elsewhere(analysis: Analysis) -> Iterator[cst.CSTNode]:
    """Yield the functions and classes at the top that files use which have to do with ranks."""
    path = analysis.source.path
    defined: list[cst.FunctionDef | cst.ClassDef] = [*analysis.nodes(cst.FunctionDef)]
    defined += analysis.nodes(cst.ClassDef)
    for node in defined:
        if analysis.project.spreads(path, node.name.value):
            yield _home(analysis, node)


def _called(analysis: Analysis) -> dict[cst.CSTNode, set[cst.CSTNode]]:
    """Return which functions and classes at the top each of them calls."""
    functions = functions_of(analysis)
    called: dict[cst.CSTNode, set[cst.CSTNode]] = {}
    for call in analysis.nodes(cst.Call):
        others: Collection[cst.CSTNode] = (*functions.called(call), *functions.classes(call.func))
        if others:
            homes = {_home(analysis, each) for each in others}
            called.setdefault(_home(analysis, call), set()).update(homes)
    return called
