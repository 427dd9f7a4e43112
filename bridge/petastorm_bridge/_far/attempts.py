"""Asking a store again when it fails."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from petastorm_bridge.fs_utils import without_secrets
from petastorm_bridge.mds.errors import DatasetError, DatasetNotFoundError

from .errors import GivenUpError, RemoteAccessError, RemoteError, explain
from .limits import limits

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_FIRST_PAUSE_SECONDS = 0.5
_chance = random.SystemRandom()  # the user's seeds are not touched


def attempted(call: Callable[[], _Result], *, has_tried: bool = False) -> _Result:
    """Call a function until it succeeds, several times at most; every attempt that fails is logged.

    Args:
        call: Raises DatasetErrors.
        has_tried: Whether a RemoteError of its comes after several attempts already.

    Raises:
        DatasetNotFoundError, RemoteAccessError: At once; other attempts would not help.
        DatasetError: What the last attempt raised.
    """
    attempts = limits().attempts
    pause = _FIRST_PAUSE_SECONDS
    for attempt in range(1, attempts + 1):
        try:
            return call()
        except (DatasetNotFoundError, RemoteAccessError, GivenUpError):
            raise
        except DatasetError as error:
            if attempt == attempts or (has_tried and isinstance(error, RemoteError)):
                raise
            seconds = pause * _chance.uniform(0.5, 1.0)  # many workers fail at the same moment
            logger.warning(
                "Attempt %d of %d failed: %s The next one begins in %.1f seconds.",
                attempt,
                attempts,
                error,
                seconds,
            )
            time.sleep(seconds)
            pause *= 2
    raise AssertionError("the last attempt returns or raises")


def explained(call: Callable[[], _Result], url: str) -> _Result:
    """Call a store's function.

    Raises:
        ImportError: A package is missing.
        DatasetError: In place of anything else that it raises.
    """
    try:
        return call()
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001 - stores' packages raise anything
        raise explain(error, url) from without_secrets(error, url)
