"""Writes frames as a dataset of Petastorm's: images as PNG, points as arrays, scalars and times.

python write_frames.py file:///tmp/frames
"""

import argparse

import frame_data
from example_data import local_spark
from frame_data import COUNT, FrameSchema, frame
from petastorm_bridge.etl.dataset_metadata import materialize_dataset
from petastorm_bridge.unischema import dict_to_spark_row


def write(url: str) -> None:
    """Writes four files; consecutive frames lie in one file, in the order of their times."""
    spark = local_spark("write frames")
    # Spark's workers make the rows, and need the module that says how.
    spark.sparkContext.addPyFile(frame_data.__file__)
    with materialize_dataset(spark, url, FrameSchema, row_group_size_mb=16):
        rows = (
            spark.sparkContext.parallelize(range(COUNT), 4)
            .map(frame)
            .map(lambda row: dict_to_spark_row(FrameSchema, row))
        )
        frames = spark.createDataFrame(rows, FrameSchema.as_spark_schema())
        frames.write.mode("overwrite").parquet(url)
    spark.stop()
    print(f"{COUNT} frames at {url}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="where the dataset goes")
    write(parser.parse_args().url)
