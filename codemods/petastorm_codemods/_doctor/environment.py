"""What the environment has, by the metadata of what is installed; no engine is imported here."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement
from packaging.version import Version

from petastorm_codemods._project.distribution import DISTRIBUTION, extra_names, needs, python_limit

# Extras whose names do not say what they are for.
_PURPOSES = {
    "spark": "make_spark_converter and write_mds",
    "streaming": "what --to streaming writes",
    "tensorflow": "make_tf_dataset and to_tf_dataset",
}
# What some distributions are called where another build of them is installed.
_OTHER_NAMES = {
    "tensorflow": ("tensorflow-cpu", "tensorflow-intel", "tf-nightly"),
    "pyspark": ("databricks-connect", "pyspark-client"),
}
_SECONDS = 60.0
# ParquetDataset has no validate_schema any more; with 16 Petastorm cannot be imported either.
_READS_NO_MORE = Version("15")


@dataclass(frozen=True)
class Extra:
    """An extra of ours: its name, what it is for, and what of it is there and what not."""

    name: str
    purpose: str
    present: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Environment:
    """What there is.

    Attributes:
        python: Version of Python.
        python_fits: Whether petastorm-bridge runs on it.
        version: Version of petastorm-bridge; empty in a checkout that is not installed.
        petastorm: Version of Petastorm; empty if it is not installed.
        petastorm_problem: Why it cannot be imported, or cannot read; empty if it can, or is not
            installed.
        spark: Name and version of what gives pyspark; empty if nothing does.
        spark_remote: Where Spark Connect leads, without what gives access; empty if it is not set.
        java: Version of Java, or what came of asking for it; empty if there is none.
        extras: Our extras.
    """

    python: str
    python_fits: bool
    version: str
    petastorm: str
    petastorm_problem: str
    spark: str
    spark_remote: str
    java: str
    extras: tuple[Extra, ...]


def look_around() -> Environment:
    """Return what there is; Petastorm, if installed, is imported by an interpreter of its own."""
    petastorm = _version("petastorm")
    spark = _found("pyspark")
    return Environment(
        python=platform.python_version(),
        python_fits=python_limit().contains(platform.python_version(), prereleases=True),
        version=_version(DISTRIBUTION),
        petastorm=petastorm,
        petastorm_problem=_import_problem() if petastorm else "",
        spark=spark,
        spark_remote=_server(os.environ.get("SPARK_REMOTE", "")),
        java=_java(),
        extras=tuple(_extras()),
    )


def _server(remote: str) -> str:
    """Return the server of an address such as ``sc://user@host:443/;token=…``, and nothing else of it."""
    host = remote.partition("://")[2].partition("/")[0].partition(";")[0].rpartition("@")[2]
    return f"sc://{host}" if host else ""


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _found(name: str) -> str:
    """Return a distribution, or another of the same modules, with its version; empty without one."""
    for each in (name, *_OTHER_NAMES.get(name, ())):
        version = _version(each)
        if version:
            return f"{each} {version}"
    return ""


def _extras() -> list[Extra]:
    extras = []
    for name in extra_names():
        wanted = [each.name for each in needs() if _is_of(each, name)]
        versions = {each: _found(each) for each in dict.fromkeys(wanted)}
        present = tuple(version for version in versions.values() if version)
        missing = tuple(each for each, version in versions.items() if not version)
        extras.append(Extra(name, _PURPOSES.get(name, ""), present, missing))
    return extras


def _is_of(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return (
        marker is not None
        and marker.evaluate({"extra": extra})
        and not marker.evaluate({"extra": ""})
    )


def _import_problem() -> str:
    # With this program's own path: ``-c`` alone looks for modules in the working directory first, and that
    # is the repository. -B: nothing is compiled into directories that are not ours.
    program = f"import sys; sys.path[:] = {sys.path!r}; import petastorm"
    code, text = _answer([sys.executable, "-B", "-c", program])
    if code:
        lines = [line for line in text.splitlines() if line.strip()]
        return f"cannot be imported: {lines[-1].strip() if lines else f'exit code {code}'}"
    pyarrow = _version("pyarrow")
    if pyarrow and Version(pyarrow) >= _READS_NO_MORE:
        return f"its readers fail with pyarrow {pyarrow}, and need an older one than 15"
    return ""


def _java() -> str:
    home = os.environ.get("JAVA_HOME", "")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not program:
        return ""
    code, text = _answer([program, "-version"])
    version = re.search(r'version "([^"]+)"', text)
    return version[1] if version and code == 0 else f"{program} does not run"


def _answer(command: Sequence[str]) -> tuple[int, str]:
    """Run a command and return its exit code and what it says on both outputs."""
    try:
        done = subprocess.run(  # noqa: S603 - the programs are those of this environment
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout
