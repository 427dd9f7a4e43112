# Databricks notebook source
# MAGIC %md
# MAGIC # Distributed training with PyTorch
# MAGIC Two processes train one model; each reads its own shard.

# COMMAND ----------

from petastorm_bridge.native import Epochs, MdsDirectory, write_mds
from streaming import StreamingDataLoader, StreamingDataset
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits

# COMMAND ----------

spark = SparkSession.builder.getOrCreate()
spark.conf.set(MdsDirectory.PARENT_CACHE_DIR_URL_CONF, "file:///dbfs/tmp/petastorm/cache")

digits = load_digits()
rows = zip((digits.data / 16).tolist(), digits.target.tolist())
df = spark.createDataFrame(rows, "pixels array<float>, label long").repartition(4)
df_train, df_val = df.randomSplit([0.8, 0.2], seed=1)

converter_train = write_mds(df_train)
converter_val = write_mds(df_val)
print(f"train: {len(converter_train)}, val: {len(converter_val)}")

# COMMAND ----------

BATCH_SIZE = 64
NUM_EPOCHS = 5
NUM_PROCESSES = 2


def train(converter_train, converter_val):
    import os

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    steps_per_epoch = len(converter_train) // (BATCH_SIZE * size)

    train_loader = Epochs(
        StreamingDataLoader(
            StreamingDataset(
                remote=converter_train.remote,
                local=converter_train.local,
                shuffle=True,
                shuffle_seed=converter_train.next_seed(),
                batch_size=BATCH_SIZE,
            ),
            batch_size=BATCH_SIZE,
            drop_last=True,
        )
    )
    for step, batch in enumerate(train_loader):
        if step == NUM_EPOCHS * steps_per_epoch:
            break
        loss = torch.nn.functional.cross_entropy(model(batch["pixels"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    totals = torch.zeros(2)
    with torch.no_grad():
        val_loader = StreamingDataLoader(
            StreamingDataset(
                remote=converter_val.remote,
                local=converter_val.local,
                shuffle=True,
                shuffle_seed=converter_val.next_seed(),
                batch_size=BATCH_SIZE,
            ),
            batch_size=BATCH_SIZE,
        )
        for batch in val_loader:
            predicted = model.module(batch["pixels"]).argmax(1)
            totals += torch.tensor([(predicted == batch["label"]).sum(), len(batch["label"])])
    dist.all_reduce(totals)
    del model  # torch may wait for ever for a group that ends before its model
    dist.destroy_process_group()
    return (totals[0] / totals[1]).item()


distributor = TorchDistributor(num_processes=NUM_PROCESSES, local_mode=True, use_gpu=False)
accuracy = distributor.run(train, converter_train, converter_val)
print(f"accuracy: {accuracy:.3f}")

# COMMAND ----------

converter_train.delete()
converter_val.delete()
