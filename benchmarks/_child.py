"""Runs races in a process of its own: ``python -m benchmarks._child RESULT DIRECTORY RACE …``."""

from __future__ import annotations

import json
import sys

from benchmarks._data import Data
from benchmarks._process import silence
from benchmarks._races import RACES


def main(result: str, directory: str, *names: str) -> None:
    """Writes the measurements of the named races to the file ``result`` as JSON."""
    silence()
    data = Data.load(directory)
    measurements = [one for name in names for one in RACES[name](data)]
    with open(result, "w", encoding="utf-8") as file:
        json.dump([one.as_json() for one in measurements], file)


if __name__ == "__main__":
    main(*sys.argv[1:])
