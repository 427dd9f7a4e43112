"""The race in writing a DataFrame to disk, on two executors that are processes of their own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks._data import Data, spark_session
from benchmarks._materialise import materialise
from benchmarks._measure import Measurement

MASTER = "local-cluster[2,1,1024]"
GROUP = "materialise-cluster"


def materialise_on_executors(data: Data) -> list[Measurement]:
    """Measures the same as ``materialise``, with two executors of one core each."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["SPARK_HOME"] = _spark_home(Path(directory))
        session = spark_session(directory, MASTER)
        try:
            return materialise(session, data.settings, GROUP)
        finally:
            session.stop()
            del os.environ["SPARK_HOME"]


def _spark_home(directory: Path) -> str:
    """A place for the executors' working directories, which Spark would put into its own package."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    home = directory / "spark-home"
    home.mkdir()
    for name in ("bin", "jars", "sbin", "python"):
        if (installed / name).exists():
            (home / name).symlink_to(installed / name)
    return str(home)
