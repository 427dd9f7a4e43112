"""Parts of streaming's own methods used with other building blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any


def with_names(function: Any, **names: Any) -> Callable[..., Any]:
    """Return a copy of a function that finds other objects under some global names.

    Streaming's long methods name the classes they build from. A subclass that wants another one
    there has either to repeat the method, to put its class into streaming's module for everybody, or
    this: the module and the original stay as they are.

    Raises:
        RuntimeError: The function does not use one of the names, as in another release of streaming.
    """
    if unknown := sorted(set(names) - set(_global_names(function.__code__))):
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


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up, also in its comprehensions: before Python 3.12 these are functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)
