"""Real input for the examples: data that scikit-learn ships, as Spark DataFrames."""

import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from PIL import Image, ImageOps
from pyspark.sql import DataFrame, SparkSession
from sklearn.datasets import load_digits, load_sample_images

CROP = 64  # pixels, both ways
STRIDE = 33  # pixels between neighbouring crops


def local_spark(name: str) -> SparkSession:
    """A Spark session on this machine; a notebook has one already, called `spark`."""
    # The workers must run the same Python as the driver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def digits(spark: SparkSession) -> DataFrame:
    """1,797 handwritten digits: `id` int, `features` array<float> (64 grey values in 0..1), `label` int."""
    data = load_digits()
    features = (data.data / 16.0).tolist()
    rows = [
        (i, row, int(label))
        for i, (row, label) in enumerate(zip(features, data.target, strict=True))
    ]
    return spark.createDataFrame(rows, "id int, features array<float>, label int").repartition(4)


def digits_url(folder: str) -> str:
    """The digits as a Parquet directory that is written if it is not there yet; its `file://` URL."""
    import pyarrow as pa
    from pyarrow import parquet

    directory = Path(folder).resolve() / "digits.parquet"
    if not directory.exists():
        data = load_digits()
        features = pa.FixedSizeListArray.from_arrays(
            pa.array((data.data / 16.0).ravel(), pa.float32()), 64
        ).cast(pa.list_(pa.float32()))
        ids = pa.array(range(len(features)), pa.int32())
        table = pa.table({"id": ids, "features": features, "label": pa.array(data.target)})
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
            written = Path(temporary) / "digits"
            written.mkdir()
            parquet.write_table(table, written / "part-0.parquet", row_group_size=250)
            # The ranks of a run all come here: the first one's directory stays, whole from the beginning.
            try:
                written.rename(directory)
            except OSError:
                if not directory.is_dir():
                    raise
    return directory.as_uri()


def report(who: str, ids: Iterable[int]) -> None:
    """Prints how many rows somebody saw, and writes which to the file that SEEN_ROWS names."""
    seen = [int(i) for i in ids]
    print(f"{who}: {len(seen)} rows, {len(set(seen))} of them different", flush=True)
    if os.environ.get("SEEN_ROWS"):
        with Path(os.environ["SEEN_ROWS"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps([who, seen]) + "\n")


def photographs(spark: SparkSession) -> DataFrame:
    """JPEG-encoded crops of two photographs: `column` int, `image` binary, `label` int (which photograph).

    `column` counts the crops from left to right; crops are mirrored as well, so every place is there twice.
    """
    rows = [
        (column, jpeg, label)
        for label, photograph in enumerate(load_sample_images().images)
        for column, jpeg in _crops(Image.fromarray(photograph))
    ]
    return spark.createDataFrame(rows, "column int, image binary, label int").repartition(4)


def _crops(photograph: Image.Image) -> Iterator[tuple[int, bytes]]:
    width, height = photograph.size
    for column, left in enumerate(range(0, width - CROP + 1, STRIDE)):
        for top in range(0, height - CROP + 1, STRIDE):
            crop = photograph.crop((left, top, left + CROP, top + CROP))
            yield column, _jpeg(crop)
            yield column, _jpeg(ImageOps.mirror(crop))


def _jpeg(image: Image.Image) -> bytes:
    encoded = io.BytesIO()
    image.save(encoded, format="JPEG", quality=90)
    return encoded.getvalue()
