"""``converter.make_torch_dataloader`` becomes ``StreamingDataLoader`` over ``StreamingDataset``.

Both are streaming's own, with arguments of its documentation; the block of a ``with`` moves one level out.
``remote=`` and ``local=`` are those of the directory. Several epochs are a loop around the one over batches, where
that is all there is, and otherwise ``Epochs(loader, 3)`` of the support module, which can be gone over again. Epochs
without end, where ``num_epochs`` is missing, are ``Epochs(loader)`` over full batches. Rows are shuffled where
``shuffle_row_groups`` is missing, as with Petastorm; a loader that a function or a loop makes without a seed gets
``next_seed()`` of its directory, another one each time. ``transform_spec`` becomes ``collate_fn``, with ``num_workers``
where ``workers_count`` says so. The rank and size that streaming finds itself go. Arguments that only say how
Petastorm reads go as well.

A context that is entered and left by hand becomes the loader itself. One that is handed on stays on the bridge, over
the same directory, as do shards of Horovod's ranks, of a loop, or that nobody can follow, arguments in dictionaries that
the file does not show, and rows that are filtered while reading. Where all loaders of a file stay, it keeps
``make_spark_converter`` and ``TransformSpec``, from the bridge; where its converters stay Petastorm's, so do its loaders.
``data_loader_fn=BatchedDataLoader`` asks for whole batches and gets ``ColumnarStreamingDataset``.
"""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Finding, Safety
from petastorm_codemods._registry import rule
from petastorm_codemods._rewriting.loaders import loader_findings
from petastorm_codemods._rewriting.sites import TORCH

_AFTER = """from streaming import StreamingDataLoader, StreamingDataset

loader = StreamingDataLoader(
    StreamingDataset(remote=conv.remote, local=conv.local, shuffle=True, batch_size=64),
    batch_size=64,
)
train(loader)"""


@rule(
    "PM102",
    "torch-loader",
    "make_torch_dataloader becomes StreamingDataLoader(StreamingDataset(...))",
    safety=Safety.SAFE,
    destinations=[Destination.STREAMING],
    text=__doc__,
    before="with conv.make_torch_dataloader(batch_size=64, num_epochs=1) as loader:\n    train(loader)",
    after=_AFTER,
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each use."""
    yield from loader_findings(analysis, TORCH)
