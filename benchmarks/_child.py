"""Runs one race in a process of its own: ``python -m benchmarks._child RACE DIRECTORY RESULT``."""

from __future__ import annotations

import json
import logging
import sys
import warnings

from benchmarks._data import Data
from benchmarks._races import RACES


def main(name: str, directory: str, result: str) -> None:
    """Writes the race's measurements to the file ``result`` as JSON."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    measurements = RACES[name](Data.load(directory))
    with open(result, "w", encoding="utf-8") as file:
        json.dump([one.as_json() for one in measurements], file)


if __name__ == "__main__":
    main(*sys.argv[1:])
