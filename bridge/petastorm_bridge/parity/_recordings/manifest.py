"""Read the manifest of a recording and refuse one that the rest of the package cannot rely on."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from petastorm_bridge.parity.recorder import FORMAT, manifest_checksum

KINDS = {"number", "text", "bytes", "object", "ragged"}
_OF_COLUMN = {"name", "kind", "dtype", "form"}
_MOST = 2**63  # no count, size or range of 64-bit values is larger


class CannotCompareError(Exception):
    """A recording is missing, incomplete or damaged, or the request makes no sense."""


def regular_file(path: str) -> str:
    """Return the path of a file that can be read without waiting.

    Raises:
        CannotCompareError: It is something else: a pipe, a device, a directory.
        OSError: It is not there.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise CannotCompareError(f"{path} is no regular file; record again")
    return path


def read_manifest(folder: str) -> dict[str, Any]:
    """Read a recording's manifest.

    Raises:
        CannotCompareError: It is not there, has another format, or does not say what it must.
    """
    path = os.path.join(folder, "manifest.json")
    try:
        with open(regular_file(path), encoding="utf-8") as file:
            manifest = json.load(file)
    except FileNotFoundError:
        raise CannotCompareError(
            f"{folder} is no recording: it has no manifest.json, which the recorder writes last"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise CannotCompareError(f"{path} cannot be read: {error}; record again") from error
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise CannotCompareError(f"{path} is no manifest of a recording")
    version = manifest["format"]
    if isinstance(version, bool) or version != FORMAT:
        raise CannotCompareError(
            f"{folder} has format {str(version)[:40]}, this version reads format {FORMAT}; record again, "
            "or use the other version of petastorm-bridge"
        )
    try:
        problem = _problem(manifest)
    except RecursionError:
        problem = "it is nested without end"
    if problem:
        raise CannotCompareError(f"{path} is damaged: {problem}; record again")
    return manifest


def _problem(manifest: dict[str, Any]) -> str:
    """Say what is wrong with a manifest, if anything is."""
    if manifest.get("checksum") != manifest_checksum(manifest):
        return "it was changed"
    for name, form in _FORMS.items():
        if name not in manifest or not _fits(manifest[name], form):
            return f"its {name!r} are missing or make no sense"
    needed = {f"values-{i}.arrow" for i in range(len(manifest["layouts"]))}
    if set(manifest["files"]) != needed | {"batches.arrow", "chunks.arrow"}:
        return "its files are not those of its layouts"
    return ""


def _fits(value: Any, form: Any) -> bool:
    """Say whether JSON is of a form: a type, a list of one form, or a check."""
    if isinstance(form, type):
        return type(value) is form
    if isinstance(form, list):
        return isinstance(value, list) and all(_fits(inner, form[0]) for inner in value)
    return bool(form(value))


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _is_seconds(value: Any) -> bool:
    return type(value) in {int, float} and abs(value) < _MOST


def _is_layout(value: Any) -> bool:
    if not _fits(value, [_is_column]):
        return False
    return len({column["name"] for column in value}) == len(value)


def _is_column(value: Any) -> bool:
    return _is_texts(value) and value.keys() >= _OF_COLUMN and value["kind"] in KINDS


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and _fits(list(value.values()), [str])


# What the rest of the package reads of a manifest.
_FORMS: dict[str, Any] = {
    "rows": _is_count,
    "batches": _is_count,
    "containers": [str],
    "files": _is_texts,
    "layouts": [_is_layout],
    "limited": bool,
    "padded": bool,
    "batched": bool,
    "source": str,
    "seconds": _is_seconds,
    "versions": _is_texts,
}
