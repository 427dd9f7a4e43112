"""The one logger of the converter, called as a user who swapped the prefix would look for it."""

from __future__ import annotations

import logging

__all__ = ["logger"]

logger = logging.getLogger("petastorm_bridge.spark.spark_dataset_converter")
