"""What programs use in their own tests (``petastorm/test_util``)."""

from __future__ import annotations

from typing import Any

from petastorm_bridge._tables.missing import attribute_error, extend_path

__all__: list[str] = []

__path__ = extend_path(__path__)  # so that importing what is missing says why


def __getattr__(name: str) -> Any:
    raise attribute_error("test_util", name)
