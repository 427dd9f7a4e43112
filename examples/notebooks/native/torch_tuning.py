# Databricks notebook source
# MAGIC %md
# MAGIC # Tuning a PyTorch model on a cluster
# MAGIC Every Spark task trains with another learning rate, on data that is converted once.

# COMMAND ----------

from petastorm_bridge.native import MdsDirectory, write_mds
from streaming import StreamingDataLoader, StreamingDataset
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


def train_and_evaluate(converter_train, converter_val, lr):
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    loader = StreamingDataLoader(
        StreamingDataset(
            remote=converter_train.remote,
            local=converter_train.local,
            shuffle=True,
            shuffle_seed=converter_train.next_seed(),
            batch_size=BATCH_SIZE,
        ),
        batch_size=BATCH_SIZE,
    )
    for _ in range(NUM_EPOCHS):
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch["pixels"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    correct = seen = 0
    with torch.no_grad():
        loader = StreamingDataLoader(
            StreamingDataset(
                remote=converter_val.remote,
                local=converter_val.local,
                shuffle=True,
                shuffle_seed=converter_val.next_seed(),
                batch_size=BATCH_SIZE,
            ),
            batch_size=BATCH_SIZE,
        )
        for batch in loader:
            correct += (model(batch["pixels"]).argmax(1) == batch["label"]).sum().item()
            seen += len(batch["label"])
    return correct / seen


def trial(lr):
    return train_and_evaluate(converter_train, converter_val, lr), lr


# Each learning rate is tried in a Spark task; the converters go there by pickle.
results = spark.sparkContext.parallelize([0.01, 0.5], 2).map(trial).collect()
accuracy, lr = max(results)
print(f"accuracy: {accuracy:.3f}, lr: {lr}")

# COMMAND ----------

converter_train.delete()
converter_val.delete()
