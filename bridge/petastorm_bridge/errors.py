"""Exceptions and warnings of the bridge.

``NoDataAvailableError`` keeps the name and place of ``petastorm/errors.py``.
"""

from __future__ import annotations

import pickle
import re

from .mds.errors import DatasetError, DatasetNotFoundError, ShardCorruptedError

__all__ = [
    "BridgeWarning",
    "DatasetError",
    "DatasetNotFoundError",
    "DecodeFieldError",
    "IgnoredArgumentWarning",
    "NoDataAvailableError",
    "NullValueWarning",
    "PetastormMetadataError",
    "PetastormMetadataGenerationError",
    "ShardCorruptedError",
    "StoredSchemaError",
    "missing_extra",
]

# Passwords, keys and signatures that stand in URLs are kept out of errors and logs. Texts may be hostile: a scheme
# without an end and "?" in names would be searched for again from every letter.
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,31})://(?P<rest>[^\s\"'<>]+)")
_LOCAL = {"file", "dbfs"}  # their paths are taken literally: "?" and "@" are letters
# A name before "@" is the container in Azure's URLs and the user in these; elsewhere it may be a token.
_NAMES = {"abfs", "abfss", "adl", "az", "wasb", "wasbs", "hdfs", "sftp", "ssh", "ftp"}
_QUERY_VALUE = re.compile(r"([?&][^=?&#]+)=[^&#]+")
_MASK = "***"
_SHORTEST = 6  # what is shorter is masked in URLs alone: it may be part of any word


class NoDataAvailableError(Exception):
    """Sharding was asked for with more shards than there are rows."""


class PetastormMetadataError(Exception):
    """What Petastorm stores beside a dataset is missing, incomplete or damaged."""


class PetastormMetadataGenerationError(Exception):
    """What Petastorm stores beside a dataset could not be made."""


class StoredSchemaError(PetastormMetadataError, pickle.UnpicklingError):
    """The schema stored beside a dataset was refused. Nothing of it was run."""


class DecodeFieldError(RuntimeError):
    """A value of a dataset in Petastorm's format does not fit its field (``petastorm/utils.py``)."""


class BridgeWarning(UserWarning):
    """Base of the warnings the bridge gives where Petastorm gives none."""


class IgnoredArgumentWarning(BridgeWarning):
    """An argument of the old API has no effect here; the options page says why."""


class NullValueWarning(BridgeWarning):
    """Nulls reach TensorFlow as ordinary values (0, INT_MIN, False, ``b'None'``).

    To make this an error, add ``warnings.simplefilter("error", NullValueWarning)``.
    """


def missing_extra(package: str, extra: str) -> ImportError:
    """Return the error for a package that an optional extra of the bridge installs."""
    return ImportError(
        f"{package} is not installed. Install it with: pip install 'petastorm-bridge[{extra}]'"
    )


def masked(text: str, *urls: str) -> str:
    """Return a text in which the secret parts of URLs are three stars.

    These are what stands before the host (but not a mere user or container) and the values of a query.

    Args:
        text: Anything to be shown, such as a URL or the message of an error.
        urls: URLs whose secrets may stand in the text without the rest of the URL.
    """
    secrets = {secret for url in urls for match in _URL.finditer(url) for secret in _secrets(match)}
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, _MASK)
    return _URL.sub(_masked_url, text)


def without_secrets(error: BaseException, *urls: str) -> BaseException | None:
    """Return an error to name as the cause of another; None if its text gives a secret away."""
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen)
        if masked(text, *urls) != text:
            return None
        seen = seen.__cause__ or seen.__context__
    return error


def _credentials(scheme: str, rest: str) -> tuple[str, str]:
    """Split what follows ``://`` into its secret beginning and the rest, which starts with ``@``."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        user = authority.rpartition("@")[0]
    elif re.match(r"[^/?#:]+:(?!\d*[/?#])[^?#]*@", rest):  # AWS' keys have slashes in them
        user = rest.partition("@")[0]
    else:
        return "", rest
    if ":" not in user and scheme.lower() in _NAMES:
        return "", rest
    return user, rest[len(user) :]


def _secrets(url: re.Match[str]) -> set[str]:
    # Not at the top, which runs before ``__main__`` takes the working directory off Python's path.
    from urllib.parse import unquote

    scheme, rest = url["scheme"], url["rest"]
    if scheme.lower() in _LOCAL:
        return set()
    user, rest = _credentials(scheme, rest)
    secrets = {user, user.partition(":")[2]}
    secrets.update(match[0].partition("=")[2] for match in _QUERY_VALUE.finditer(rest))
    return {form for text in secrets if text for form in (text, unquote(text))}


def _masked_url(url: re.Match[str]) -> str:
    scheme, rest = url["scheme"], url["rest"]
    if scheme.lower() in _LOCAL:
        return url[0]
    user, rest = _credentials(scheme, rest)
    return f"{scheme}://{_MASK if user else ''}" + _QUERY_VALUE.sub(rf"\1={_MASK}", rest)
