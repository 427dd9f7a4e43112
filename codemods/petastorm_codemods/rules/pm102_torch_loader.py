"""``converter.make_torch_dataloader`` becomes ``StreamingDataLoader`` over ``StreamingDataset``.

Both are streaming's own, with arguments of its documentation; the block of a ``with`` moves one level out.
``remote=`` and ``local=`` are those of the directory.

- *Several epochs*: a loop around the one over batches, where that is all there is. Otherwise ``Epochs(loader, 3)`` of
  ``petastorm_bridge.native``, which can be gone over again.
- *No* ``num_epochs``: ``Epochs(loader)``, without end, over full batches. If rows are not shuffled, those at the end that
  fill no batch are never read.
- *Counted batches*: several epochs are full batches too, ``drop_last=True``, where the program takes
  ``len(converter) // batch_size`` of each by ``next()``. Where it takes the first batch only, the loader is a plain one.
- *Order*: rows are shuffled where ``shuffle_row_groups`` is missing, as with Petastorm. If a function or a loop makes
  the loader and there is no seed, it gets ``next_seed()`` of its directory, another one each time.
- *Transforms*: ``transform_spec`` becomes ``collate_fn``, with ``num_workers`` where ``workers_count`` says so.
- *Whole batches*: ``data_loader_fn=BatchedDataLoader`` asks for them and gets ``ColumnarStreamingDataset``.
- *Removed*: the rank and the number of ranks, which streaming finds itself, arguments that only say how Petastorm reads,
  and variables of a function that nothing else reads.
- *Entered and left by hand* (``__enter__``): becomes the loader itself. A hook of Lightning's that did nothing but leave
  it goes.

These stay on the bridge, over the same directory:

- a loader that is passed on before a ``with`` opens it, or whose ``with`` has its block on the same line;
- every loader of a notebook in which a cell that is left alone (Python in comments, ``%%writefile``, or what does not
  parse) makes or reads a converter, too;
- Horovod's ranks, what they read without a shard, and shards from a loop or from a place that the codemod cannot see;
- a loader without shards that each of several ranks reads as a whole, as streaming would divide its rows;
- a loader without end that is returned from its ``with``, or read after it, when Petastorm has closed it;
- a loader in a function that some calls give a shard and others none;
- loaders whose full batches the file counts in two ways, for one pass and for several together;
- a loader whose seed may differ among the ranks, as streaming divides one order of the rows;
- a finite loader that is given to Accelerate's ``prepare``, which would divide its rows again;
- a loader that a torch ``IterableDataset`` opens, perhaps in each of several workers;
- without ``--fast``, a loader in a function that several threads may run;
- a loader whose ``reader`` is used, that is a context itself, or whose type is asked for;
- arguments in a dictionary of another file, or that code may change which the codemod does not follow;
- rows that are filtered while they are read.

If all loaders of a file stay, it keeps ``make_spark_converter`` and ``TransformSpec``, from the bridge; if all of a
repository do, all its files keep them. If its converters stay Petastorm's, so do its loaders.
"""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Finding, Safety
from petastorm_codemods._registry import Rule
from petastorm_codemods._rewriting.loaders import loader_findings
from petastorm_codemods._rewriting.sites import TORCH

_AFTER = """from streaming import StreamingDataLoader, StreamingDataset

loader = StreamingDataLoader(
    StreamingDataset(remote=conv.remote, local=conv.local, shuffle=True, batch_size=64),
    batch_size=64,
)
train(loader)"""


@Rule(
    "PM102",
    "torch-loader",
    "make_torch_dataloader becomes StreamingDataLoader(StreamingDataset(...))",
    safety=Safety.SAFE,
    destinations=[Destination.STREAMING],
    before="with conv.make_torch_dataloader(batch_size=64, num_epochs=1) as loader:\n    train(loader)",
    after=_AFTER,
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each use."""
    yield from loader_findings(analysis, TORCH)
