"""Asking for many things at once, where each takes the time of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
Item = TypeVar("Item")

_REQUESTS = 32  # at once


def each_at_once(function: Callable[[Item], T], items: Iterable[Item], *, is_far: bool) -> list[T]:
    """Return what a function gives for each item.

    Args:
        function: May be called again where Python is exiting.
        items: Its arguments.
        is_far: Whether what it asks is in a store or on a mount of the network; else it is called for one item
            after the other.
    """
    items = list(items)
    if is_far and items:
        try:
            with ThreadPoolExecutor(min(_REQUESTS, len(items))) as pool:
                return list(pool.map(function, items))
        except RuntimeError:  # Python is exiting, and starts no threads any more
            pass
    return list(map(function, items))
