"""A program as users write it, for mypy, which ``make lint`` runs over it; nothing runs it.

Each ``type: ignore`` says what has to be found: one that is not needed is an error itself.
"""

from typing import Any

import torch
from typing_extensions import assert_type

from petastorm_bridge import TransformSpec, make_batch_reader, make_reader
from petastorm_bridge.native import write_mds
from petastorm_bridge.pytorch import (
    BatchedDataLoader,
    BatchedIterableDataset,
    DataLoader,
    InMemBatchedDataLoader,
    TorchBatch,
)
from petastorm_bridge.reader import make_reader as make_row_reader
from petastorm_bridge.spark import make_spark_converter
from petastorm_bridge.streaming import ColumnarStreamingDataset, MappedStreamingDataset
from petastorm_bridge.tf_utils import make_petastorm_dataset


def train(frame: Any, model: torch.nn.Linear) -> None:
    converter = make_spark_converter(frame, dtype="float64")
    make_spark_converter(frame, dtype="float16")  # type: ignore[arg-type]
    make_spark_converter(frame, compression_codec="SNAPPY")
    make_spark_converter(frame, compression_codec="zip")  # type: ignore[arg-type]
    make_spark_converter(frame, batchsize=64)  # type: ignore[call-arg]
    write_mds(frame, dtype="float16")  # type: ignore[arg-type]
    write_mds(frame, sizelimit=1)  # type: ignore[call-arg]
    with converter.make_torch_dataloader(batch_size=64, num_epochs=1, seed=3) as loader:
        assert_type(loader, DataLoader)
        for batch in loader:
            assert_type(batch, TorchBatch)
            model(batch["x"].float()).sum().backward()
    with converter.make_torch_dataloader(data_loader_fn=BatchedDataLoader) as batched:
        assert_type(batched, BatchedDataLoader)
    converter.make_torch_dataloader(batchsize=64)  # type: ignore[call-overload]
    converter.make_torch_dataloader(reader_pool_type="threads")  # type: ignore[call-overload]
    converter.make_torch_dataloader(transform_batch_size="8")  # type: ignore[call-overload]
    converter.make_torch_dataloader(shard_by_ranks=True)  # type: ignore[call-overload]
    converter.make_tf_dataset(batchsize=64)  # type: ignore[call-arg]
    converter.make_tf_dataset(transform_batch_size="8")  # type: ignore[arg-type]
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
        DataLoader(rows, batchsize=8)  # type: ignore[call-arg]
        BatchedDataLoader(rows, batchsize=8)  # type: ignore[call-arg]
        InMemBatchedDataLoader(rows, batchsize=8)  # type: ignore[call-arg]
        make_petastorm_dataset(rows, batchsize=8)  # type: ignore[call-arg]
    make_reader(url, cache_type="disk")  # type: ignore[arg-type]
    make_row_reader(url, cache_type="disk")  # type: ignore[arg-type]
    make_batch_reader(url, even_batches="yes")  # type: ignore[arg-type]
    make_batch_reader(url, transform_batch_size="8")  # type: ignore[arg-type]
    TransformSpec(lambda rows: rows, selectedfields=["x"])  # type: ignore[call-arg]


def open_datasets(url: str) -> None:
    BatchedIterableDataset(url, 8, workers_count=2, transform_batch_size=8, filters=[("x", ">", 1)])
    BatchedIterableDataset(url, batchsize=8)  # type: ignore[call-arg]
    BatchedIterableDataset(url, cur_shard=0)  # type: ignore[call-arg]
    BatchedIterableDataset(url, reader_pool_type="threads")  # type: ignore[arg-type]
    ColumnarStreamingDataset(local=url, batch_size=8, shuffle=True, format="torch")
    ColumnarStreamingDataset(local=url, batch_size=8, formt="torch")  # type: ignore[call-arg]
    ColumnarStreamingDataset(local=url, batch_size=8, format="jax")  # type: ignore[arg-type]
    MappedStreamingDataset(local=url, batch_size=8)
    MappedStreamingDataset(local=url, batchsize=8)  # type: ignore[call-arg]
