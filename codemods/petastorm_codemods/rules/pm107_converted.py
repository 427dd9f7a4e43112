"""With ``--converted URL=DIR``, readers of a dataset that was converted become streaming's own classes.

``petastorm-bridge convert URL DIR`` makes MDS shards of a dataset of Petastorm's. Where ``make_reader`` is called with
that URL, written there or in a constant of the module, a ``DataLoader`` over it becomes ``StreamingDataLoader`` over
``StreamingDataset(local=DIR)``, and a loop over its rows, which only reads ``row.name``, a loop over the dataset, which
reads ``row["name"]``. Epochs, seeds and shards are treated as for ``make_torch_dataloader``. A directory on DBFS, in a
volume or in a store is read by way of copies: ``remote=DIR, local=MdsDirectory(DIR).local``.

What streaming cannot express stays on the bridge, over the dataset as it was, marked with the reason: n-grams and other
``schema_fields``, predicates, transforms of rows, ``collate_fn``, rows that are passed on, and what stays of
``make_torch_dataloader`` for its ranks or for what is done with the loader. If ``DIR`` is on this
machine, the codemod looks at its index, and readers also stay on the bridge that have columns which streaming gives in
another form: images, which it hands out as Pillow's, and nulls that are read in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Finding, Safety
from petastorm_codemods._registry import Rule
from petastorm_codemods._rewriting.converted import CODE, converted_findings

_BEFORE = """from petastorm import make_reader
from petastorm.pytorch import DataLoader

with DataLoader(make_reader("file:///data/digits"), batch_size=64) as loader:
    train(loader)"""
_AFTER = """from streaming import StreamingDataLoader, StreamingDataset

loader = StreamingDataLoader(
    StreamingDataset(local="/data/digits-mds", shuffle=True, batch_size=64),
    batch_size=64,
)
train(loader)"""


@Rule(
    CODE,
    "converted",
    "make_reader of a converted dataset becomes StreamingDataset",
    safety=Safety.SAFE,
    destinations=[Destination.STREAMING],
    before=_BEFORE,
    after=_AFTER,
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each reader of such a dataset."""
    yield from converted_findings(analysis)
