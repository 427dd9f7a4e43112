"""``converter.make_tf_dataset`` becomes ``tf_dataset`` over ``StreamingDataset``.

Streaming has no TensorFlow side; ``tf_dataset`` of the support module gives a ``tf.data.Dataset`` of named
tuples in ``with``, as before. Arguments are treated as for ``make_torch_dataloader``.
"""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Finding, Safety
from petastorm_codemods._registry import rule
from petastorm_codemods._rewriting.loaders import Method, loader_findings

_AFTER = """from petastorm_bridge.native import StreamingDataset, tf_dataset
with tf_dataset(
    StreamingDataset(local=conv.path, num_epochs=None, shuffle=True, batch_size=64)
) as dataset:
    model.fit(dataset)"""

_METHOD = Method(
    "PM103",
    "make_tf_dataset",
    "tf_dataset",
    "open_tf",
    ("batch_size", "prefetch", "num_epochs", "workers_count", "shuffling_queue_capacity"),
)


@rule(
    "PM103",
    "tf-dataset",
    "make_tf_dataset becomes tf_dataset(StreamingDataset(...))",
    safety=Safety.SAFE,
    destinations=[Destination.STREAMING],
    text=__doc__,
    before="with conv.make_tf_dataset(batch_size=64) as dataset:\n    model.fit(dataset)",
    after=_AFTER,
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each use."""
    yield from loader_findings(analysis, _METHOD)
