"""TensorFlow over two processes: each reads its shard, both take as many steps."""

import json
import subprocess
import sys
import textwrap
from collections import Counter

import pytest
import warm

pytestmark = pytest.mark.slow

# The program is both workers: the second is a fork, which comes before TensorFlow has threads.
WORKERS = """
    import json, os, socket, sys

    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]  # addresses that are free now
    cluster = {"worker": [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]}
    for each in sockets:
        each.close()
    other = os.fork()
    rank = 0 if other else 1
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})

    import tensorflow as tf
    from petastorm_bridge.spark import make_spark_converter

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weight = tf.Variable(0.0)

    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((weight * batch.x - 1) ** 2)
        gradient = tape.gradient(loss, weight)
        context = tf.distribute.get_replica_context()
        weight.assign_sub(1e-5 * context.all_reduce("MEAN", gradient))  # waits for the other process

    @tf.function(reduce_retracing=True)
    def train_step(batch):
        strategy.run(step, args=(batch,))

    epochs = []
    converter = make_spark_converter(sys.argv[1])
    options = {"num_epochs": 1, "shard_by_rank": True, "seed": 3}
    with converter.make_tf_dataset(batch_size=7, **options) as dataset:
        batches = strategy.distribute_datasets_from_function(lambda context: dataset)
        for _ in range(2):
            epochs.append([])
            for batch in batches:
                train_step(batch)
                (ids,) = strategy.experimental_local_results(batch.id)
                epochs[-1].append(ids.numpy().tolist())
    with open(f"{rank}.json", "w") as file:
        json.dump([epochs, float(weight.numpy())], file)
    if rank == 0 and os.waitpid(other, 0)[1]:
        sys.exit("the other worker failed")
"""


def _train(script, url):
    """Run both workers to their ends; return what they printed of errors, nothing if all went well."""
    command = [sys.executable, str(script), url]
    options = {"cwd": script.parent, "capture_output": True, "text": True, "check": False}
    try:
        done = warm.run(command, timeout=120, **options)
    except subprocess.TimeoutExpired as error:
        return str(error)
    return done.stderr if done.returncode else ""


def test_a_loop_under_a_strategy_of_two_processes(numbered, tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(textwrap.dedent(WORKERS))
    url = numbered(101, [20] * 5 + [1])
    for _ in range(2):  # somebody else may take an address before TensorFlow does
        errors = _train(script, url)
        if not errors:
            break
    assert not errors, errors[-5000:]
    (first, weight), (second, other_weight) = (
        json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)
    )
    assert weight == other_weight != 0
    for epoch in zip(first, second, strict=True):
        assert [[len(batch) for batch in batches] for batches in epoch] == [[7] * 7 + [2]] * 2
        read = Counter(row for batches in epoch for batch in batches for row in batch)
        assert set(read) == set(range(101))
        assert read.total() == 102  # the shorter shard reads a row again
    assert first[0] != first[1], "each epoch is shuffled anew"
