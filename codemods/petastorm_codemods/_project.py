"""What is known of the other files of a run: whether any makes converters, and what they define."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass

METHODS = ("make_torch_dataloader", "make_tf_dataset")

_PETASTORM = re.compile(rb"petastorm", re.IGNORECASE)
_MAKES = re.compile(rb"\b(?:make_spark_converter|SparkDatasetConverter|dataframe_to_mds)\b")
_READS = re.compile(rb"^[^#\r\n]*\bmake_reader[ \t]*\(", re.MULTILINE)
_DEFINES = re.compile(rb"\bdef[ \t]+(make_torch_dataloader|make_tf_dataset)\b")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Project:
    """The evidence of the other files for what a name in one file may be.

    Attributes:
        converters: Whether any file makes converters, so that one may be passed to any other file.
        defines: Those of the methods that open loaders that some class or module defines itself.
        modules: First parts of the names that the project's own modules are imported by.
        readers: Whether any file calls ``make_reader``, whose readers may be passed to any other.
    """

    converters: bool = False
    defines: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    readers: bool = False

    def owns(self, module: str) -> bool:
        """Say whether a dotted module may be the project's own rather than a library's."""
        return module.split(".", 1)[0] in self.modules


def makes_converters(data: bytes) -> bool:
    """Say whether a file's bytes name Petastorm, or the bridge, and what makes its converters."""
    return _MAKES.search(data) is not None and _PETASTORM.search(data) is not None


def makes_readers(data: bytes) -> bool:
    """Say whether a file's bytes call Petastorm's ``make_reader``."""
    return _READS.search(data) is not None and _PETASTORM.search(data) is not None


def defined_methods(data: bytes) -> frozenset[str]:
    """Return which of the methods that open loaders a file's bytes define."""
    return frozenset(name.decode() for name in _DEFINES.findall(data))


def module_names(paths: Collection[str]) -> frozenset[str]:
    """Return the names that modules at some paths may be imported by: their own and their folders'."""
    folders = {os.path.dirname(os.path.abspath(path)) for path in paths}
    if not folders:
        return frozenset()
    top = os.path.dirname(os.path.commonpath(folders))
    parts = {part for folder in folders for part in os.path.relpath(folder, top).split(os.sep)}
    files = {os.path.basename(path).partition(".")[0] for path in paths}
    return frozenset(filter(_NAME.fullmatch, parts | files))
