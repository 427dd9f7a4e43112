"""Caches of what readers read (``petastorm/cache.py``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

__all__ = ["CacheBase", "NullCache"]


class CacheBase(ABC):
    """Keeps values by key."""

    @abstractmethod
    def get(self, key: Any, fill_cache_func: Callable[[], Any]) -> Any:
        """Return the value of a key; what the function returns where there is none."""


class NullCache(CacheBase):
    """Keeps nothing."""

    def get(self, key: Any, fill_cache_func: Callable[[], Any]) -> Any:  # noqa: ARG002 - keeps nothing
        """Return what the function returns."""
        return fill_cache_func()
