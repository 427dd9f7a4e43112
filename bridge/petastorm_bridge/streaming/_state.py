"""What a state to resume from must be."""

from __future__ import annotations

import reprlib
from typing import Any

# The keys of StreamingDataset.state_dict, and the least number of each; -1 is the epoch before the
# first one.
_LEAST = {"epoch": -1, "sample_in_epoch": 0, "num_canonical_nodes": 1, "shuffle_seed": 0}


def check_state(state: Any) -> None:
    """Check a state before it is put where worker processes find it.

    Raises:
        ValueError: It is not what ``StreamingDataset.state_dict`` gives.
    """
    if not isinstance(state, dict):
        raise _no_state(f"it is {state!r}", state)
    for key, least in _LEAST.items():
        if key not in state:
            raise _no_state(f"it has no {key!r}", state)
        if type(state[key]) is not int or state[key] < least:
            raise _no_state(f"{key!r} is {state[key]!r}, not an integer from {least} on", state)
    nodes = state.get("initial_physical_nodes")  # older releases have none
    if nodes is not None and (type(nodes) is not int or nodes < 1):
        raise _no_state(f"'initial_physical_nodes' is {nodes!r}", state)


def _no_state(problem: str, state: Any) -> ValueError:
    return ValueError(
        f"This is no state of a StreamingDataset: {problem} (found {reprlib.repr(state)}). Give load_state_dict "
        "what state_dict returned."
    )
