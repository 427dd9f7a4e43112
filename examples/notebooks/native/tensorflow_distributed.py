# Databricks notebook source
# MAGIC %md
# MAGIC # Distributed training with TensorFlow
# MAGIC Two Spark tasks train one model; each reads its own shard.

# COMMAND ----------

from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits
from spark_tensorflow_distributor import MirroredStrategyRunner

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
NUM_TASKS = 2


def train(converter_train, converter_val):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, size = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    tf.keras.utils.set_random_seed(0)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(10)])
        optimizer = tf.keras.optimizers.SGD(0.5)
    steps_per_epoch = len(converter_train) // (BATCH_SIZE * size)

    def step(batch):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.label, model(batch.pixels))
            loss = tf.nn.compute_average_loss(losses)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    @tf.function(reduce_retracing=True)
    def train_step(batch):
        strategy.run(step, args=(batch,))

    # petastorm-bridge rule PM103: stays on the bridge: streaming takes ranks from its launcher, not cur_shard
    with converter_train.make_tf_dataset(
        batch_size=BATCH_SIZE, num_epochs=None, cur_shard=rank, shard_count=size
    ) as train_dataset:
        batches = iter(strategy.distribute_datasets_from_function(lambda context: train_dataset))
        for _ in range(NUM_EPOCHS * steps_per_epoch):
            train_step(next(batches))

    correct = seen = 0
    # petastorm-bridge rule PM103: stays on the bridge: streaming takes ranks from its launcher, not cur_shard
    with converter_val.make_tf_dataset(
        batch_size=BATCH_SIZE, num_epochs=1, cur_shard=rank, shard_count=size
    ) as val_dataset:
        for batch in val_dataset:
            predicted = tf.argmax(model(batch.pixels), axis=1)
            correct += int(tf.reduce_sum(tf.cast(predicted == batch.label, tf.int64)))
            seen += len(batch.label)
    totals = strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant([correct, seen]))
    )
    return totals.numpy().tolist()


# The loop is written out, because Keras 3 cannot `fit` under this strategy.
runner = MirroredStrategyRunner(num_slots=NUM_TASKS, use_gpu=False, use_custom_strategy=True)
correct, seen = runner.run(train, converter_train=converter_train, converter_val=converter_val)
print(f"accuracy: {correct / seen:.3f} on {seen} rows")

# COMMAND ----------

converter_train.delete()
converter_val.delete()
