"""Shows what a converter leaves on disk: shards that Mosaic's StreamingDataset reads by itself."""

import argparse
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlparse

from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter
from streaming import StreamingDataset

from example_data import digits, local_spark


def main(cache_dir: str) -> None:
    """Converts the digits, lists the files, counts and shows rows with streaming alone."""
    spark = local_spark("streaming")
    spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, Path(cache_dir).as_uri())
    converter = make_spark_converter(digits(spark))
    directory = Path(unquote(urlparse(converter.cache_dir_url).path))
    print(f"files in {directory}:")
    for file in sorted(directory.iterdir()):
        print(f"  {file.name:<40} {file.stat().st_size:>10,} bytes")

    dataset = StreamingDataset(local=str(directory), batch_size=64)
    first = dataset[0]
    shown = {name: getattr(value, "shape", value) for name, value in first.items()}
    print(f"StreamingDataset: {len(dataset)} rows, the first is {shown}")

    converter.delete()
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cache-dir", help="where converted data goes (default: a temporary folder)"
    )
    chosen = parser.parse_args().cache_dir
    with tempfile.TemporaryDirectory(prefix="converter-cache-") as temporary:
        main(chosen or temporary)
