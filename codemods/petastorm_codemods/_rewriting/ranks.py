"""Whose shards a loader reads: those that streaming finds by itself, Horovod's, or others."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import re
from collections.abc import Iterator, Sequence

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.calls import key_of, keyword, text_of
from petastorm_codemods._meaning.effects import is_repeatable
from petastorm_codemods._meaning.functions import functions_of
from petastorm_codemods._meaning.other_files import Project, module_at, stem_of
from petastorm_codemods._meaning.places import reached
from petastorm_codemods._model import Destination
from petastorm_codemods._text.sources import read_source

from .values import constants, values

# streaming.base.distributed reads the environment of torch's launchers, and not the process group.
_STREAMING = re.compile(
    r"(?:torch\.distributed|streaming\.base\.distributed)\.get_(?:rank|world_size)"
)
_HOROVOD = re.compile(r"(?:horovod\.[\w.]+|hvd)\.(?:rank|size)")
# Ray Train's TorchTrainer sets the variables that streaming reads (``_set_torch_distributed_env_vars`` of its torch/config.py).
_RAYS = frozenset({"get_world_rank", "get_world_size"})
_RAYS_CONTEXT = "ray.train.get_context"
# What starts Horovod in a process, or asks which one this is.
_OF_HOROVOD = ("init", "rank", "local_rank")
_ASKS_HOROVOD = re.compile(rf"(?:horovod\.[\w.]+|hvd)\.(?:{'|'.join(_OF_HOROVOD)})")
# Attributes of Lightning's trainers and modules, and of Accelerate's Accelerator, which start the process group.
_LAUNCHED = frozenset({"global_rank", "world_size", "process_index", "num_processes"})
_VARIABLES = frozenset({"RANK", "WORLD_SIZE"})
# What gives each rank another number, as their common size does not, or may do so, as the time does.
_OF_EACH = re.compile(
    r"(?:RANK|LOCAL_RANK)|(?:[\w.]+\.)?(?:get_rank|global_rank|local_rank|process_index)"
    r"|(?:[\w.]+\.)?(?:getpid|time|time_ns)"
)
_READING = re.compile(r"os\.(?:environ(?:\.get)?|getenv)")


class Shards(enum.Enum):
    """Whose rank and number a loader's shard has."""

    ALL = "there are none: every process reads everything"
    STREAMING = "those of the launcher"
    SOME = "those of the launcher in some calls of a function, and none in others"
    HOROVOD = "Horovod's"
    OTHER = "others"


_STRICTEST = (Shards.OTHER, Shards.HOROVOD, Shards.STREAMING)


def shards(analysis: Analysis, rank: cst.CSTNode | None, size: cst.CSTNode | None) -> Shards:
    """Return whose shards the values of ``cur_shard`` and ``shard_count`` are; None for one not given."""
    if rank is None and size is None:
        return Shards.ALL
    if rank is None or size is None:
        return Shards.OTHER
    alike = values(analysis).alike
    given = ((alike(rank), 0), (alike(size), 1))  # with that of a process that reads everything
    kinds = {kind for each in given for kind in _kinds(analysis, *each)}
    strictest = next((each for each in _STRICTEST if each in kinds), Shards.ALL)
    differ = strictest is Shards.STREAMING and any(_differ(analysis, *each) for each in given)
    return Shards.SOME if differ else strictest


@once
def _kinds(analysis: Analysis, node: cst.CSTNode, whole: int) -> frozenset[Shards]:
    """Return what an expression may say of shards; ``whole`` stands for there being none."""
    kinds: set[Shards] = set()
    for leaf in values(analysis).of(node):
        kinds |= _asked_elsewhere(analysis, leaf, whole) or {_of_leaf(analysis, leaf, whole)}
    return frozenset(kinds)


def _asked_elsewhere(analysis: Analysis, node: cst.CSTNode, whole: int) -> frozenset[Shards]:
    """Return what a call of a function of another module may say of shards; nothing if it is no such call."""
    path = analysis.imported(node.func) if isinstance(node, cst.Call) else None
    module, _, name = (path or "").rpartition(".")
    is_own = module.startswith(".") or analysis.project.owns(module)
    kinds: set[Shards] = set()
    for other in _modules_asking(analysis, stem_of(module)) if is_own else ():
        with contextlib.suppress(RecursionError):  # its code is nested too deep
            kinds.update(*_kinds_returned(other, name, whole))
    if Shards.STREAMING in kinds and _is_numbered_by_hand(analysis):
        kinds.add(Shards.OTHER)
    return frozenset(kinds)


def _kinds_returned(analysis: Analysis, name: str, whole: int) -> Iterator[frozenset[Shards]]:
    """Yield what each expression may say of shards that functions of a name return."""
    functions = functions_of(analysis)
    for function in analysis.nodes(cst.FunctionDef):
        if function.name.value == name and functions.owner(function) is None:
            yield from (_kinds(analysis, each, whole) for each in functions.returned(function))


@once
def _modules_asking(analysis: Analysis, name: str) -> Sequence[Analysis]:
    """Return the modules of a last name that may ask for ranks; these are not followed to others in turn."""
    project = dataclasses.replace(analysis.project, asking=frozenset())
    modules = (
        _module(path, data, analysis.destination, project)
        for path, data in analysis.project.asking
        if module_at(path) == name
    )
    return [each for each in modules if each is not None]


@functools.lru_cache(maxsize=16)  # all files of a package may ask the same one
def _module(path: str, data: bytes, destination: Destination, project: Project) -> Analysis | None:
    """Return a module of the project; None if it does not parse."""
    try:
        return Analysis(read_source(path, data), destination, project)
    except ValueError:
        return None


@once
def _differ(analysis: Analysis, node: cst.CSTNode, whole: int) -> bool:
    """Say whether calls of a function differ in whether they give it what a value comes from."""
    functions = functions_of(analysis)
    names = (each for each in values(analysis).passed(node) if isinstance(each, cst.Name))
    for bound in (one for name in names for one in analysis.assignments(name)):
        parameter = bound.node if isinstance(bound, Assignment) else None
        function = analysis.enclosing(parameter, cst.FunctionDef, cst.Lambda) if parameter else None
        if isinstance(parameter, cst.Param) and isinstance(function, cst.FunctionDef):
            given = functions.given_by_call(parameter, function)
            alternatives = [each or parameter.default for each in given]
            if len({_reads_all(analysis, each, whole) for each in alternatives if each}) > 1:
                return True
    return False


def _reads_all(analysis: Analysis, node: cst.CSTNode, whole: int) -> bool:
    return _kinds(analysis, values(analysis).alike(node), whole) <= {Shards.ALL}


def _of_leaf(analysis: Analysis, node: cst.CSTNode, whole: int) -> Shards:
    numbers = constants([node])
    if numbers:
        return Shards.ALL if numbers[0] in {None, whole} else Shards.OTHER
    name = get_full_name_for_node(node.func) if isinstance(node, cst.Call) else None
    path = (analysis.imported(node.func) if isinstance(node, cst.Call) else None) or name or ""
    launched = isinstance(node, cst.Attribute) and node.attr.value in _LAUNCHED
    launched |= _STREAMING.fullmatch(path) is not None or _is_of_ray(analysis, node)
    if launched or variable_read(analysis, node) in _VARIABLES:
        return Shards.OTHER if _is_numbered_by_hand(analysis) else Shards.STREAMING
    return Shards.HOROVOD if _HOROVOD.fullmatch(path) else Shards.OTHER


def _is_of_ray(analysis: Analysis, node: cst.CSTNode) -> bool:
    """Say whether an expression asks the context of a worker of Ray Train for its rank, or the number of these."""
    if not (isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)):
        return False
    contexts = values(analysis).of(node.func.value) if node.func.attr.value in _RAYS else []
    return any(
        isinstance(each, cst.Call) and analysis.imported(each.func) == _RAYS_CONTEXT
        for each in contexts
    )


def calls_of_horovod(analysis: Analysis) -> Iterator[cst.Call]:
    """Yield the calls that start Horovod in a process, or ask it which one this is."""
    for call in analysis.calls(*_OF_HOROVOD):
        path = analysis.imported(call.func) or get_full_name_for_node(call.func) or ""
        if _ASKS_HOROVOD.fullmatch(path):
            yield call


@once
def differs_by_rank(analysis: Analysis, node: cst.CSTNode) -> bool:
    """Say whether each rank may get another value of an expression: by its rank, the time, or a draw."""

    def behind(each: cst.CSTNode) -> Iterator[cst.CSTNode]:
        yield from values(analysis).behind(each)
        if isinstance(each, cst.BinaryOperation):
            yield from (each.left, each.right)

    for each in reached([node], behind):
        read = each.func if isinstance(each, cst.Call) else each
        name = variable_read(analysis, each) or get_full_name_for_node(read) or ""
        if _OF_EACH.fullmatch(name) or not is_repeatable(each):
            return True
    return False


@once
def _is_numbered_by_hand(analysis: Analysis) -> bool:
    """Say whether ranks get their numbers by the program, as in ``mp.spawn``, and not by their launcher.

    Each would be streaming's first rank of one, or of its machine; the second then fails with ``FileExistsError``.
    """
    if analysis.project.numbers_ranks(analysis.source.path):
        return True
    given = (
        argument.value
        for call in analysis.calls("init_process_group")
        for argument in call.args
        if keyword(argument) == "rank"
    )
    leaves = (leaf for node in given for leaf in values(analysis).of(node))
    return any(variable_read(analysis, leaf) not in _VARIABLES for leaf in leaves)


def variable_read(analysis: Analysis, node: cst.CSTNode) -> str:
    """Return the name of the environment variable that an expression reads; empty if it reads none."""
    if isinstance(node, cst.Subscript):
        key, source = key_of(node), node.value
    elif isinstance(node, cst.Call) and node.args:
        key, source = text_of(node.args[0].value), node.func
    else:
        return ""
    path = analysis.imported(source) or get_full_name_for_node(source) or ""
    return key if _READING.fullmatch(path) else ""
