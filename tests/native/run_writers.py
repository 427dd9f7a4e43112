"""One of several ranks that all write: ``python run_writers.py MODULE PARENT``.

Prints what each call of the writer gave in this rank, and what this rank read last.
"""

import importlib
import json
import os
import sys
import time

from pyspark.sql import SparkSession
from streaming import StreamingDataLoader, StreamingDataset
from torch import distributed


def main(module, parent):
    native = importlib.import_module(module)
    rank = int(os.environ["RANK"])
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    spark.conf.set(native.MdsDirectory.PARENT_CACHE_DIR_URL_CONF, f"file://{parent}")
    # Ranks have rows of their own, so that it shows whose were written.
    rows = spark.range(40, numPartitions=2).selectExpr(f"id + {100 * rank} as id")

    # As a helper of a data module: the same line for both, before there is a process group.
    train, holdout = (native.write_mds(frame) for frame in (rows, rows.where("id % 4 = 0")))
    said = {
        "rank": rank,
        "paths": [train.path, holdout.path],
        "lengths": [len(train), len(holdout)],
        "kind": str(type(train)),
    }
    distributed.init_process_group("gloo")
    if rank == 0:
        alone = native.write_mds(rows, f"{parent}/alone")
        said["alone"] = alone.path
    said["named"] = native.write_mds(rows, f"{parent}/named").path
    try:
        native.write_mds(rows.selectExpr("if(id > 3, null, string(id)) as text"))
    except (ValueError, RuntimeError) as error:
        said["failed"] = f"{type(error).__name__}: {error}"
    try:
        native.write_mds(rows.withColumnRenamed("id", f"id{rank}"), f"{parent}/other")
    except RuntimeError as error:
        said["other"] = str(error)
    dataset = StreamingDataset(remote=train.remote, local=train.local, shuffle=True, batch_size=4)
    loader = StreamingDataLoader(dataset, batch_size=4)
    said["ids"] = [i for batch in loader for i in batch["id"].tolist()]
    distributed.destroy_process_group()
    if rank == 1:  # the first rank has gone, and what it wrote is there
        time.sleep(3)
    said["files"] = [os.path.exists(url.removeprefix("file://")) for url in holdout.file_urls]
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
