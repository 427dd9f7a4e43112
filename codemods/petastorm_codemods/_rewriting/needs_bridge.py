"""Loaders with which a program does what would end otherwise with streaming's.

- Accelerate's ``prepare`` divides the batches of torch's loaders among the ranks, and leaves other objects as they are:
  Petastorm's loader, and the bridge's. Streaming's is a torch loader whose rows are divided already. On two ranks, the
  first then waits for ever (mosaicml/streaming#722, #789).
- Petastorm's loader has a reader and is a context; streaming's is neither.
- Petastorm's TensorFlow dataset is one of version 1's, which have methods that those of today lack.
- In the workers of a torch ``DataLoader``, each opening of Petastorm's reads everything. A dataset of streaming's that each
  worker makes for itself divides the rows among them, and waits for ever for those of the others.
- Threads that make datasets of streaming's at the same moment take the same name in shared memory, and all but one fail.
  The columnar ones wait for their turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.calls import keyword
from petastorm_codemods._meaning.functions import functions_of
from petastorm_codemods._meaning.places import below, reached

from .uses import MORE_THAN_BATCHES
from .values import constants, opened_by, values

_PREPARED = (
    "Accelerate's prepare would divide its batches again; "
    "pass it everything but the loader to read natively"
)
_IN_WORKERS = "the workers of a DataLoader may open it; streaming would divide it among them"
_IN_THREADS = "threads may open it at once; streaming's datasets fail then: open it before they start to read natively"
# Pools of threads, and their methods that take a function.
_POOLS = frozenset(
    {
        "concurrent.futures.ThreadPoolExecutor",
        "concurrent.futures.thread.ThreadPoolExecutor",
        "multiprocessing.dummy.Pool",
        "multiprocessing.pool.ThreadPool",
    }
)
_POOL_NAMES = frozenset(path.rpartition(".")[2] for path in _POOLS)
_RUNNING = (
    *("apply_async", "imap", "imap_unordered", "map", "map_async", "starmap", "starmap_async"),
    "submit",
)
_BY_HAND = ("make_initializable_iterator", "make_one_shot_iterator")
_VERSION_1 = "{} is TensorFlow 1's; iterate over the dataset to read it natively"
_PREPARING = ("prepare", "prepare_data_loader")
_ASKING = ("isinstance", "hasattr", "getattr", "type")


def dataset_needs_bridge(analysis: Analysis, call: cst.Call) -> str:
    """Return why a TensorFlow dataset stays on the bridge for what is done with it; empty if it does not."""
    opened = opened_by(analysis, call)
    for name in _BY_HAND:
        if opened in _iterated_by(analysis, name):
            return _VERSION_1.format(name)
    return _IN_THREADS if _is_run_by_threads(analysis, call) else ""


def loader_needs_bridge(analysis: Analysis, call: cst.Call, *, is_torch_loader: bool) -> str:
    """Return why a torch loader stays on the bridge for what is done with it; empty if it does not.

    Args:
        analysis: Of the source.
        call: The call that opens it.
        is_torch_loader: Whether its successor is one of torch's, and not ``Epochs`` around one.
    """
    if _is_run_by_iterable_dataset(analysis, call):
        return _IN_WORKERS
    if not analysis.target.fast and _is_run_by_threads(analysis, call):
        return _IN_THREADS
    opened = opened_by(analysis, call)
    if opened is None:
        return ""
    if is_torch_loader and (_is_all_prepared(analysis) or opened in _prepared(analysis)):
        return _PREPARED
    # A call outside of a ``with`` may be entered by one.
    is_entered_again = opened is not call and opened in _entered(analysis)
    is_more = is_entered_again or opened in _asked(analysis)
    return MORE_THAN_BATCHES if is_more else ""


@once
def _iterated_by(analysis: Analysis, method: str) -> frozenset[cst.CSTNode]:
    """Return datasets of which a method is asked, or of what other methods have made of them."""
    attributes = (each for each in analysis.nodes(cst.Attribute) if each.attr.value == method)
    return _with_all_behind(analysis, (each.value for each in attributes), through_methods=True)


def _is_run_by_iterable_dataset(analysis: Analysis, call: cst.Call) -> bool:
    """Say whether a call is in a function that ``__iter__`` of a torch ``IterableDataset`` may run."""
    return any(each in _run_by_iterable_datasets(analysis) for each in analysis.above(call))


@once
def _run_by_iterable_datasets(analysis: Analysis) -> frozenset[cst.CSTNode]:
    """Return ``__iter__`` of each torch ``IterableDataset``, and all that these call."""
    datasets = (
        each
        for each in analysis.nodes(cst.ClassDef)
        if any(analysis.code(base.value).endswith("IterableDataset") for base in each.bases)
    )
    methods = (each for dataset in datasets for each in dataset.body.body)
    run = (each for each in methods if isinstance(each, cst.FunctionDef))
    return _with_all_run(analysis, (each for each in run if each.name.value == "__iter__"))


def _is_run_by_threads(analysis: Analysis, call: cst.Call) -> bool:
    return any(each in _run_by_threads(analysis) for each in analysis.above(call))


@once
def _run_by_threads(analysis: Analysis) -> frozenset[cst.CSTNode]:
    """Return the functions that threads are given, and all that these call."""
    given = [each.value for call in _starting_threads(analysis) for each in call.args]
    parts = [part for each in given for part in below(each)]
    run: list[cst.CSTNode] = [each for each in parts if isinstance(each, cst.Lambda)]
    run += (function for part in parts for function in functions_of(analysis).named(part))
    return _with_all_run(analysis, run)


def _with_all_run(analysis: Analysis, run: Iterable[cst.CSTNode]) -> frozenset[cst.CSTNode]:
    """Return functions with all that they call."""

    def behind(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        for call in analysis.within(node, cst.Call):
            yield from functions_of(analysis).run_by(call)

    return frozenset(reached(run, behind))


def _starting_threads(analysis: Analysis) -> Iterator[cst.Call]:
    """Yield the calls that give threads something to run.

    Where there is a pool of several threads, whatever has a method of such a name is taken to be it.
    """
    for call in analysis.calls("Thread"):
        if analysis.imported(call.func) == "threading.Thread":
            yield call
    for call in analysis.calls("optimize"):  # Optuna's
        jobs = [each.value for each in call.args if keyword(each) == "n_jobs"]
        if jobs and constants(jobs) != [1]:
            yield call
    if any(_is_pool(analysis, call) for call in analysis.calls(*_POOL_NAMES)):
        running = analysis.calls(*_RUNNING)
        yield from (call for call in running if isinstance(call.func, cst.Attribute))


def _is_pool(analysis: Analysis, made: cst.Call) -> bool:
    size = [made.args[0].value] if made.args else []
    return analysis.imported(made.func) in _POOLS and constants(size) != [1]


@once
def _is_all_prepared(analysis: Analysis) -> bool:
    """Say whether it cannot be seen what is prepared."""
    return any(each.star for call in analysis.calls(*_PREPARING) for each in call.args)


@once
def _prepared(analysis: Analysis) -> frozenset[cst.CSTNode]:
    """Return what is prepared, and what that has its value from."""
    arguments = (each for call in analysis.calls(*_PREPARING) for each in call.args)
    return _with_all_behind(analysis, (each.value for each in arguments))


@once
def _asked(analysis: Analysis) -> frozenset[cst.CSTNode]:
    """Return what is asked for its reader or its kind, and what that has its value from."""
    attributes = analysis.nodes(cst.Attribute)
    used = [each.value for each in attributes if each.attr.value == "reader"]
    used += [each.args[0].value for each in analysis.calls(*_ASKING) if each.args]
    return _with_all_behind(analysis, used)


@once
def _entered(analysis: Analysis) -> frozenset[cst.CSTNode]:
    """Return what is entered by a ``with``, and what that has its value from."""
    entered = [each.item for each in analysis.nodes(cst.WithItem)]
    used = [each for each in entered if not _is_made_by_a_generator(analysis, each)]
    return _with_all_behind(analysis, used)


def _is_made_by_a_generator(analysis: Analysis, context: cst.BaseExpression) -> bool:
    """Say whether a context is one of ``contextlib.contextmanager``: what the generator yields is not entered."""
    called = functions_of(analysis).called(context) if isinstance(context, cst.Call) else ()
    decorators = (each.decorator for function in called for each in function.decorators)
    return any(
        analysis.imported(each) in {"contextlib.contextmanager", "contextlib.asynccontextmanager"}
        for each in decorators
    )


def _with_all_behind(
    analysis: Analysis, used: Iterable[cst.CSTNode], *, through_methods: bool = False
) -> frozenset[cst.CSTNode]:
    """Return expressions with all that they may have their values from, each followed once, and into contexts.

    What a loop gives one by one is not what it goes through: batches are no loaders.

    Args:
        analysis: Of the source.
        used: The expressions.
        through_methods: Whether what a method returns is taken to be made of what it belongs to.
    """
    gone_through = {each.iter for each in analysis.nodes(cst.For)}
    gone_through |= {each.iter for each in analysis.nodes(cst.CompFor)}

    def behind(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        for each in values(analysis).behind(node):
            if each not in gone_through:
                yield each
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
            return
        if through_methods or node.func.attr.value == "__enter__":
            yield node.func.value
        if node.func.attr.value == "enter_context":
            yield from (each.value for each in node.args)

    return frozenset(reached(used, behind))
