"""``converter.make_tf_dataset`` becomes ``to_tf_dataset`` over ``StreamingDataset``.

Streaming has nothing for TensorFlow; ``to_tf_dataset`` of ``petastorm_bridge.native`` gives a ``tf.data.Dataset`` of named
tuples. One pass over it is an epoch; ``epochs=3`` gives several, ``epochs=None`` full batches without end. Arguments
are treated as for ``make_torch_dataloader``.
"""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Finding, Safety
from petastorm_codemods._registry import Rule
from petastorm_codemods._rewriting.loaders import loader_findings
from petastorm_codemods._rewriting.sites import TENSORFLOW

_AFTER = """from petastorm_bridge.native import to_tf_dataset
from streaming import StreamingDataset

dataset = to_tf_dataset(
    StreamingDataset(remote=conv.remote, local=conv.local, shuffle=True, batch_size=64),
    epochs=None,
)
model.fit(dataset)"""


@Rule(
    "PM103",
    "tf-dataset",
    "make_tf_dataset becomes to_tf_dataset(StreamingDataset(...))",
    safety=Safety.SAFE,
    destinations=[Destination.STREAMING],
    before="with conv.make_tf_dataset(batch_size=64) as dataset:\n    model.fit(dataset)",
    after=_AFTER,
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each use."""
    yield from loader_findings(analysis, TENSORFLOW)
