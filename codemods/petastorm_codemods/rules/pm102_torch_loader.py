"""``converter.make_torch_dataloader`` becomes ``StreamingDataLoader`` over ``StreamingDataset``.

Both are streaming's classes; the support module adds epochs, explicit shards and pandas transforms, and
the loader may stand in ``with`` as before, so that blocks keep their shape. Where ``num_epochs`` is missing
the loader never ends, and where ``shuffle_row_groups`` is missing rows are shuffled, as with Petastorm.
Arguments that only say how Petastorm's reader works (``workers_count`` …) go. Streaming reads row by row:
where that is too slow for narrow tables, use the bridge's own loaders.
"""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Finding, Safety
from petastorm_codemods._registry import rule
from petastorm_codemods._rewriting.loaders import Method, loader_findings

_AFTER = """from petastorm_bridge.native import StreamingDataLoader, StreamingDataset
with StreamingDataLoader(
    StreamingDataset(local=conv.path, shuffle=True, batch_size=64, num_epochs=1)
) as loader:
    train(loader)"""

_METHOD = Method(
    "PM102",
    "make_torch_dataloader",
    "StreamingDataLoader",
    "open_torch",
    ("batch_size", "num_epochs", "workers_count", "shuffling_queue_capacity", "data_loader_fn"),
)


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
    yield from loader_findings(analysis, _METHOD)
