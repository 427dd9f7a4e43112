# Databricks notebook source
# MAGIC %md
# MAGIC # Keras on one node
# MAGIC A Spark DataFrame of handwritten digits becomes a `tf.data.Dataset`.

# COMMAND ----------

from petastorm_bridge.native import MdsDirectory, to_tf_dataset, write_mds
from streaming import StreamingDataset
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


def train_and_evaluate(lr):
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(10)])
    model.compile(
        optimizer=tf.keras.optimizers.SGD(lr),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

    train_dataset = to_tf_dataset(
        StreamingDataset(
            remote=converter_train.remote,
            local=converter_train.local,
            shuffle=True,
            shuffle_seed=converter_train.next_seed(),
            batch_size=BATCH_SIZE,
        ),
        epochs=None,
    )
    val_dataset = to_tf_dataset(
        StreamingDataset(
            remote=converter_val.remote,
            local=converter_val.local,
            shuffle=True,
            shuffle_seed=converter_val.next_seed(),
            batch_size=BATCH_SIZE,
        ),
        epochs=None,
    )
    train_dataset = train_dataset.map(lambda x: (x.pixels, x.label))
    val_dataset = val_dataset.map(lambda x: (x.pixels, x.label))
    history = model.fit(
        train_dataset,
        steps_per_epoch=len(converter_train) // BATCH_SIZE,
        epochs=NUM_EPOCHS,
        validation_data=val_dataset,
        validation_steps=max(1, len(converter_val) // BATCH_SIZE),
        verbose=0,
    )
    return history.history["val_accuracy"][-1]


accuracy = train_and_evaluate(lr=0.5)
print(f"accuracy: {accuracy:.3f}")

# COMMAND ----------

converter_train.delete()
converter_val.delete()
