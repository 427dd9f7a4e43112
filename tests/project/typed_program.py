"""A program as users write it, for mypy, which ``make lint`` runs over it; nothing runs it.

Each ``type: ignore`` says what has to be found: one that is not needed is an error itself.
"""

from typing import Any

import torch
from typing_extensions import assert_type

from petastorm_bridge import TransformSpec, make_batch_reader, make_reader
from petastorm_bridge.pytorch import BatchedDataLoader, DataLoader
from petastorm_bridge.spark import make_spark_converter
from petastorm_bridge.typing import TorchBatch


def train(frame: Any, model: torch.nn.Linear) -> None:
    converter = make_spark_converter(frame, dtype="float64")
    make_spark_converter(frame, dtype="float16")  # type: ignore[arg-type]
    with converter.make_torch_dataloader(batch_size=64, num_epochs=1, seed=3) as loader:
        assert_type(loader, DataLoader)
        for batch in loader:
            assert_type(batch, TorchBatch)
            model(batch["x"].float()).sum().backward()
    with converter.make_torch_dataloader(data_loader_fn=BatchedDataLoader) as batched:
        assert_type(batched, BatchedDataLoader)
    converter.make_torch_dataloader(batchsize=64)  # type: ignore[call-overload]
    converter.make_torch_dataloader(reader_pool_type="threads")  # type: ignore[call-overload]
    converter.make_tf_dataset(batchsize=64)  # type: ignore[call-arg]
    spec = TransformSpec(lambda rows: rows)
    with converter.make_tf_dataset(batch_size=64, transform_spec=spec, shard_count=2, cur_shard=0):
        pass


def read(url: str) -> None:
    with make_batch_reader(url, schema_fields=["x"], num_epochs=None) as reader:
        DataLoader(reader, batch_size=8)
    make_batch_reader(url, pool="thread")  # type: ignore[call-arg]
    make_batch_reader(url, reader_pool_type="threads")  # type: ignore[arg-type]
    with make_reader(url) as rows:
        DataLoader(rows, batch_size=8)
