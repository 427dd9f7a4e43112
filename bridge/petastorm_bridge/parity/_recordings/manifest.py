"""Read the manifest of a recording and refuse one that the rest of the package cannot rely on."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from typing import Any

from petastorm_bridge.parity.recorder import FORMAT, manifest_checksum

KINDS = {"number", "text", "bytes", "object", "ragged"}
_VALUES = re.compile(r"values-(\d{1,9})\.arrow")
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
    for name, check in _REQUIRED.items():
        if name not in manifest or not check(manifest[name]):
            return f"its {name!r} are missing or make no sense"
    for name, check in _OPTIONAL.items():
        if name in manifest and not check(manifest[name]):
            return f"its {name!r} makes no sense"
    return _contradiction(manifest)


def _contradiction(manifest: dict[str, Any]) -> str:
    """Say which parts of a manifest do not go together, if there are any."""
    needed = {f"values-{i}.arrow" for i in range(len(manifest["layouts"]))}
    if set(manifest["files"]) != needed | {"batches.arrow", "chunks.arrow"}:
        return "its files are not those of its layouts"
    keys = {tuple(keys) for keys in manifest["keys"] if keys}
    layouts = {tuple(column["name"] for column in layout) for layout in manifest["layouts"]}
    if layouts != keys:
        return "its layouts have other columns than its keys"
    names = [column["name"] for column in manifest["columns"]]
    if len(set(names)) != len(names) or set(names) != {key for row in keys for key in row}:
        return "its columns are not those of its keys"
    parts = ("kind", "dtype", "form")
    declared = {(c["name"], p, v) for c in manifest["columns"] for p in parts for v in c[f"{p}s"]}
    used = {(c["name"], p, c[p]) for layout in manifest["layouts"] for c in layout for p in parts}
    if used != declared:
        return "its columns are not those of its layouts"
    return ""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _MOST


def _or_nothing(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _dict_of(**checks: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, dict)
        and all(name in value and check(value[name]) for name, check in checks.items())
    )


def _is_keys(value: Any) -> bool:
    return _list_of(_is_text)(value) and len(set(value)) == len(value)


def _is_layout(value: Any) -> bool:
    column = _dict_of(name=_is_text, kind=_is_text, dtype=_is_text, form=_is_text)
    return (
        _list_of(column)(value)
        and bool(value)
        and _is_keys([entry["name"] for entry in value])
        and all(entry["kind"] in KINDS for entry in value)
    )


def _is_shape(value: Any) -> bool:
    if value is None or value == ["varies"]:
        return True
    return isinstance(value, list) and all(size is None or _is_count(size) for size in value)


def _is_files(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_text(checksum)
        and (name in {"batches.arrow", "chunks.arrow"} or _VALUES.fullmatch(name))
        for name, checksum in value.items()
    )


def _is_names(value: Any) -> bool:
    return _list_of(_is_text)(value) and bool(value)


_REQUIRED: dict[str, Callable[[Any], bool]] = {
    "rows": _is_count,
    "batches": _is_count,
    "epochs": _list_of(_dict_of(rows=_is_count, batches=_is_count)),
    "containers": _list_of(_is_text),
    "keys": _list_of(_is_keys),
    "columns": _list_of(
        _dict_of(
            name=_is_text,
            dtypes=_is_names,
            kinds=_is_names,
            forms=_is_names,
            shape=_is_shape,
        )
    ),
    "files": _is_files,
    "layouts": _list_of(_is_layout),
}
_OPTIONAL: dict[str, Callable[[Any], bool]] = {
    "rank": _or_nothing(_is_count),
    "world_size": _or_nothing(_is_count),
    "limited": _is_flag,
    "padded": _is_flag,
    "batched": _is_flag,
    "source": _is_text,
    "seconds": _or_nothing(_is_seconds),
    "versions": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
}
