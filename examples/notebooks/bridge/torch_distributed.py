# Databricks notebook source
# MAGIC %md
# MAGIC # Distributed training with PyTorch
# MAGIC Two processes train one model; each reads its own shard.

# COMMAND ----------

from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits

# COMMAND ----------

spark = SparkSession.builder.getOrCreate()
spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, "file:///dbfs/tmp/petastorm/cache")

digits = load_digits()
rows = zip((digits.data / 16).tolist(), digits.target.tolist())
df = spark.createDataFrame(rows, "pixels array<float>, label long").repartition(4)
df_train, df_val = df.randomSplit([0.8, 0.2], seed=1)

converter_train = make_spark_converter(df_train)
converter_val = make_spark_converter(df_val)
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

    with converter_train.make_torch_dataloader(
        batch_size=BATCH_SIZE, num_epochs=None, cur_shard=rank, shard_count=size
    ) as train_loader:
        for step, batch in enumerate(train_loader):
            if step == NUM_EPOCHS * steps_per_epoch:
                break
            loss = torch.nn.functional.cross_entropy(model(batch["pixels"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    totals = torch.zeros(2)
    with torch.no_grad():
        with converter_val.make_torch_dataloader(
            batch_size=BATCH_SIZE, num_epochs=1, cur_shard=rank, shard_count=size
        ) as val_loader:
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
