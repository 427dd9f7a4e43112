"""The files of a conversion's directory: which are ours, and what the marker among them says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from petastorm_bridge._sources.parquet_files import MARKER_NAME
from petastorm_bridge.mds.entry import INDEX_NAME
from petastorm_bridge.mds.files import final_name
from petastorm_bridge.mds.schema import SIDECAR_NAME

# What the executors and the engine call the files of a conversion.
_SHARD_NAME = re.compile(r"shard\.\d{5,}\.a\d+\.\d{5,}(\.flags)?\.mds(\.\w+)?")
_OTHER_NAMES = {INDEX_NAME, SIDECAR_NAME, MARKER_NAME}
MARKER_BYTES = 1 << 16  # enough for any path; the file may be anybody's
# A dying task may add or remove files while a directory is being removed.
REMOVALS = 10


def is_own_file(name: str) -> bool:
    """Return whether a conversion gives files such names, finished or not."""
    final = final_name(name)
    return final in _OTHER_NAMES or _SHARD_NAME.fullmatch(final) is not None


def marker_text(place: str) -> bytes:
    """Return what the marker of a directory holds that this machine makes."""
    marker = {"made_by": "petastorm-bridge", "directory": place, "machine": this_machine()}
    return json.dumps(marker).encode()


def this_machine() -> str | None:
    """Return what tells this machine, since it was started, from every other; None without ``/proc``."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def read_marker(text: str | bytes, place: str) -> dict[str, Any] | None:
    """Return what a marker says; None if it was written for another place, as in a copy."""
    try:
        marker = json.loads(text)
    except (ValueError, RecursionError):
        return None
    ours = isinstance(marker, dict) and marker.get("directory") == place
    return marker if ours else None


def sorted_out(is_folder: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """Return the names of our files, in the order to remove them, and those of everything else.

    The index goes first, so that whoever looks meanwhile sees no dataset, and the marker last.
    """
    ours = [name for name, folder in is_folder.items() if not folder and is_own_file(name)]
    ours.sort(key=lambda name: (name == MARKER_NAME, name != INDEX_NAME, name))
    return ours, sorted(set(is_folder) - set(ours))
