"""Parts of streaming's own methods used with other building blocks."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

__all__ = ["with_names"]


def with_names(function: Any, **names: Any) -> Callable[..., Any]:
    """Return a copy of a function that finds other objects under some global names.

    Streaming's long methods name the classes they build from. A subclass that wants another one
    there has either to repeat the method, to put its class into streaming's module for everybody, or
    this: the module and the original stay as they are.

    Raises:
        RuntimeError: The function does not use one of the names, as in another release of streaming.
    """
    if unknown := sorted(set(names) - set(function.__code__.co_names)):
        raise RuntimeError(
            f"{function.__qualname__} of this release of mosaicml-streaming does not use {unknown}. "
            "Update petastorm-bridge, or install a release of mosaicml-streaming that it supports."
        )
    copy = FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
