"""What went wrong at a remote store: asked again if that helps, or else told in one clear error."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

from petastorm_bridge.fs_utils import masked, without_secrets
from petastorm_bridge.mds.errors import (
    DatasetError,
    DatasetNotFoundError,
    FetchedShardError,
    NoFileError,
)

from . import limits

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_FIRST_PAUSE_SECONDS = 0.5
_chance = random.SystemRandom()  # the user's seeds are not touched

# How the packages of the stores say that something is not there, or not to be seen: by the name of a class, because
# none of the packages may be imported to look at an error, or by a code.
_MISSING = {
    "404", "EntryNotFoundError", "FileNotFoundError", "NOT_FOUND", "NoSuchBucket", "NoSuchKey", "NotFound",
    "RESOURCE_DOES_NOT_EXIST", "ResourceNotFoundError",
}  # fmt: skip
_DENIED = {
    "401", "403", "AccessDenied", "ClientAuthenticationError", "DefaultCredentialsError", "ExpiredToken",
    "Forbidden", "InvalidAccessKeyId", "NoCredentialsError", "NotAuthenticated", "PERMISSION_DENIED",
    "PartialCredentialsError", "PermissionDenied", "PermissionError", "SignatureDoesNotMatch",
    "Unauthenticated", "Unauthorized",
}  # fmt: skip

# What some packages say in a ValueError or the like.
_NO_CREDENTIALS = (
    r"application default credentials|unable to locate credentials|no credentials found"
)

_ADVICE = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and S3_ENDPOINT_URL for a store that is "
    "not AWS)",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS, or GCS_KEY and GCS_SECRET",
    "azure": "Set AZURE_ACCOUNT_NAME and AZURE_ACCOUNT_ACCESS_KEY",
    "abfs": "Pass account_name and account_key in storage_options",
    "dbfs": "Set DATABRICKS_HOST and DATABRICKS_TOKEN",
}
_ADVICE.update({"s3a": _ADVICE["s3"], "s3n": _ADVICE["s3"], "gcs": _ADVICE["gs"]})
_ADVICE.update({"azure-dl": _ADVICE["azure"], "abfss": _ADVICE["abfs"]})


class RemoteError(DatasetError, OSError):
    """A remote store could not be read."""


class RemoteAccessError(RemoteError, PermissionError):
    """A remote store refused: credentials are missing, wrong, or not good enough."""


class GivenUpError(RemoteError):
    """The file is no longer needed."""


def mismatch(url: str, expected: str, found: str) -> FetchedShardError:
    """Return the error for a file that is not what its dataset's index says."""
    return FetchedShardError(
        f"{masked(url)} does not match the dataset's index: expected {expected}, found {found}. The download "
        "was cut short, or the file was replaced or damaged in the store."
    )


def explain(error: BaseException, url: str) -> DatasetError:
    """Return the error to raise in place of ``error``, which a store's package raised.

    Args:
        error: Anything from boto3, the Google, Azure and Databricks packages, fsspec, Arrow.
        url: What was being read. Its secrets are not in the error.
    """
    if isinstance(error, DatasetError):
        return error
    is_mount = "://" not in url and not url.startswith("dbfs:")
    codes = _codes(error)
    cause = masked(" ".join([type(error).__name__, *sorted(codes)]) + f": {error}", url)
    url = masked(url)
    if re.search(r"default auth|cannot configure default credentials", str(error)):
        return RemoteAccessError(
            f"Databricks gave no access to {url} ({cause}). This process has no Databricks "
            "credentials: worker processes do not inherit those of a notebook. Set DATABRICKS_HOST "
            "and DATABRICKS_TOKEN in the worker's environment, for instance with os.environ at "
            "the start of the function that runs there."
        )
    words = {cls.__name__ for cls in type(error).__mro__} | codes
    if words & _MISSING:
        return DatasetNotFoundError(
            f"{url} is missing. If the directory was deleted, convert the DataFrame again."
            if is_mount
            else f"{url} is not there, or its bucket is not ({cause}). Check the url, the region and the "
            "endpoint."
        )
    if words & _DENIED or re.search(_NO_CREDENTIALS, str(error), re.IGNORECASE):
        advice = _ADVICE.get(url.partition(":")[0].lower(), "Pass credentials in storage_options")
        return RemoteAccessError(
            f"No access to {url} ({cause}). Look at its permissions."
            if is_mount
            else f"No access to {url} ({cause}). {advice}, in this process and in every worker that "
            "reads, or pass storage_options."
        )
    return RemoteError(f"{url} could not be read ({cause}).")


def _codes(error: Any) -> set[str]:
    response, status = getattr(error, "response", None), getattr(error, "status", None)
    # Looking at the code of an error of aiohttp, which is its status, gives a warning.
    codes = [getattr(error, "code", None) if status is None else status]
    codes.append(getattr(error, "error_code", None))
    if isinstance(response, dict):
        codes.append(response.get("Error", {}).get("Code"))
    return {str(code) for code in codes if isinstance(code, (int, str))}


def attempted(call: Callable[[], _Result], *, has_tried: bool = False) -> _Result:
    """Call a function until it succeeds, several times at most; every attempt that fails is logged.

    Args:
        call: Raises DatasetErrors.
        has_tried: Whether a RemoteError of its comes after several attempts already.

    Raises:
        DatasetNotFoundError, NoFileError, RemoteAccessError: At once; other attempts would not help.
        DatasetError: What the last attempt raised.
    """
    most = limits.attempts()
    attempt = 1
    while True:
        try:
            return call()
        except (DatasetNotFoundError, NoFileError, RemoteAccessError, GivenUpError):
            raise
        except DatasetError as error:
            if attempt == most or (has_tried and isinstance(error, RemoteError)):
                raise
            # Many workers fail at the same moment.
            seconds = _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1) * _chance.uniform(0.5, 1.0)
            logger.warning(
                "Attempt %d of %d failed: %s The next one begins in %.1f seconds.",
                attempt,
                most,
                error,
                seconds,
            )
            time.sleep(seconds)
            attempt += 1


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
