"""Measures what the codemod makes of repositories of your own, without touching them.

``measure_codemod.py FOLDER`` takes a folder of checkouts (or of sources) and rewrites a copy of each to every
destination. It prints what became of the calls of the converter's API, and every fault: a crash, a file that
cannot be read any more, a name that nothing defines or nobody uses any more, a second run that changes something.
With ``--diffs FOLDER`` it writes each repository's changes there, to be read.

Exit code 0 if there are no faults and the shares are those that are asked for; otherwise 1.
"""

from __future__ import annotations

import argparse
import ast
import collections
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from petastorm_codemods._model import (
    Destination,
    Fact,
    Failed,
    NeedsHuman,
    Outcome,
    Result,
    Site,
    State,
    Success,
    Target,
)
from petastorm_codemods._reports.report import diff
from petastorm_codemods._rewriting.sites import ARGUMENTS, LOADERS, METHODS
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings
from petastorm_codemods._text.decode import write_atomically
from petastorm_codemods._text.sources import read_source
from petastorm_codemods._text.verify import undefined_names

FORMS = {
    "bridge": Settings(Destination.BRIDGE),
    "streaming": Settings(),
    "fast": Settings(target=Target(fast=True)),
    "vendored": Settings(vendor=True),
}
# What becomes of a call: streaming's own classes, the bridge because of Horovod's ranks, the bridge or
# nothing with a comment that says why, or nothing that anybody is told of.
NATIVE, RANKS, MARKED, SILENT = "native", "Horovod's ranks", "marked", "silent"
# Of the calls, how many have to be rewritten or marked; of those without Horovod's ranks, how many native.
LEAST_TOLD, LEAST_NATIVE = 0.95, 0.85


@dataclass
class Measured:
    """What came of one destination.

    Attributes:
        repositories: How many were looked at.
        files: How many files of them changed.
        calls: What became of how many calls that open loaders.
        silent: Calls that nobody is told of, by file; a method of another class may be among them.
        faults: What must not be, in words.
    """

    repositories: int = 0
    files: int = 0
    calls: collections.Counter[str] = field(default_factory=collections.Counter)
    silent: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def told(self) -> float:
        """The share of calls that are rewritten or marked with a reason."""
        total = self.calls.total()
        return 1 - self.calls[SILENT] / total if total else 1.0

    @property
    def native(self) -> float:
        """The share of native calls among those without Horovod's ranks."""
        total = self.calls.total() - self.calls[RANKS] - self.calls[SILENT]
        return self.calls[NATIVE] / total if total else 1.0


def tree_of(path: str, data: bytes) -> tuple[str, ast.Module] | None:
    """Return the Python of a module or notebook, as text and parsed; None if it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is in other people's code
            text = read_source(path, data).masked
            return text, ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def loader_calls(tree: ast.Module) -> list[int]:
    """Return the lines of the calls of methods that open loaders, and of other uses of them.

    Other classes have methods of these names, too; a call with arguments that Petastorm's do not have is one.
    """
    others = {
        call.func
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and (
            any(not isinstance(each, ast.Starred) for each in call.args)
            or any(each.arg is not None and each.arg not in ARGUMENTS for each in call.keywords)
        )
    }
    return sorted(
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in METHODS and node not in others
    )


def unused_imports(tree: ast.Module) -> int:
    """Return how many names are imported and never mentioned."""
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    words |= {value.partition(".")[0] for value in constants if isinstance(value, str)}
    found = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        or (isinstance(node, ast.ImportFrom) and node.module != "__future__")
        for alias in node.names
    }
    return len(found - words)


def faults_of(path: str, before: bytes, after: bytes) -> Iterator[str]:
    """Yield what is wrong with a rewritten module or notebook."""
    old, new = tree_of(path, before), tree_of(path, after)
    if old is None:
        return  # such as a notebook with a cell that does not parse; the codemod checks cell by cell
    if new is None:
        yield f"{path}: cannot be parsed any more"
        return
    undefined = frozenset(undefined_names(new[0]) or ()) - frozenset(undefined_names(old[0]) or ())
    if undefined:
        yield f"{path}: nothing defines {', '.join(sorted(undefined))}"
    if not path.endswith("__init__.py") and unused_imports(new[1]) > unused_imports(old[1]):
        yield f"{path}: an import is left over"


def fate(site: Site, *, beside_horovod: bool) -> str:
    """Return what became of a call.

    Args:
        site: The call.
        beside_horovod: Whether its repository imports Horovod: ranks that come from another file are its then.
    """
    if Fact.HOROVOD in site.facts or (beside_horovod and Fact.OTHER_RANKS in site.facts):
        return RANKS
    if Fact.ON_BRIDGE in site.facts or site.state is not State.REWRITTEN:
        return MARKED
    return NATIVE


def imports_horovod(folder: Path) -> bool:
    """Say whether a module or notebook of a repository names Horovod in an import."""
    paths = (path for end in ("py", "ipynb") for path in folder.rglob(f"*.{end}"))
    return any(re.search(rb"\bimport horovod|\bfrom horovod", path.read_bytes()) for path in paths)


def count(measured: Measured, outcome: Outcome, *, beside_horovod: bool) -> None:
    """Add what became of the calls of one file."""
    sites = [site for site in outcome.sites if site.code in LOADERS]
    measured.calls.update(fate(site, beside_horovod=beside_horovod) for site in sites)
    path = Path(outcome.path)
    parsed = tree_of(outcome.path, path.read_bytes()) if path.exists() else None
    if parsed is None:
        return
    called = loader_calls(parsed[1])
    stubs = [site for site in outcome.sites if site.code == "PM108" and site.line in called]
    missing = len(called) - len(sites) - len(stubs)
    if missing > 0:
        measured.calls[SILENT] += missing
        lines = ", ".join(map(str, called))
        measured.silent.append(f"{outcome.path}: {missing} of the calls in lines {lines}")


def written(result: Result) -> int:
    """Write the changes of a run; return how many files changed."""
    changed = 0
    for outcome in result.outcomes:
        if isinstance(outcome, Success | NeedsHuman) and outcome.after != outcome.before:
            write_atomically(outcome.path, outcome.after)
            changed += 1
    return changed


def measure(
    folder: Path, name: str, settings: Settings, measured: Measured, diffs: Path | None
) -> None:
    """Rewrite a copy of a repository and add what came of it."""
    measured.repositories += 1
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, folder.name)
        shutil.copytree(folder, copy, symlinks=True)
        beside_horovod = imports_horovod(copy)
        try:
            result = run([str(copy)], settings)
        except Exception as error:  # noqa: BLE001 - a crash is what is looked for
            measured.faults.append(f"{folder}: {type(error).__name__}: {error}")
            return
        if diffs is not None:
            text = "".join(map(diff, result.outcomes)).replace(f"{scratch.lstrip('/')}/", "")
            diffs.mkdir(parents=True, exist_ok=True)
            Path(diffs, f"{folder.name}.{name}.diff").write_text(text, "utf-8", "surrogateescape")
        for outcome in result.outcomes:
            if isinstance(outcome, Failed):
                if outcome.abnormal or "the rewrite" in outcome.reason:
                    measured.faults.append(f"{outcome.path}: {outcome.reason}")
            elif outcome.path.endswith((".py", ".ipynb")):
                count(measured, outcome, beside_horovod=beside_horovod)
                if isinstance(outcome, Success | NeedsHuman):
                    measured.faults += faults_of(outcome.path, outcome.before, outcome.after)
        measured.files += written(result)
        again = written(run([str(copy)], settings))
        if again:
            measured.faults.append(f"{folder}: a second run changes {again} more")
        for texts in (measured.faults, measured.silent):
            texts[:] = [re.sub(rf"\S*{re.escape(Path(scratch).name)}/", "", each) for each in texts]


def repositories_in(folders: list[Path]) -> list[Path]:
    """Return the folders within some folders; a folder that has only files is one itself."""
    found: list[Path] = []
    for folder in folders:
        inside = sorted(each for each in folder.iterdir() if each.is_dir() and each.name != ".git")
        found += [folder] if (folder / ".git").exists() or not inside else inside
    return found


def main(arguments: list[str]) -> int:
    """Measure the repositories in some folders; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, help="a checkout, or a folder of checkouts"
    )
    parser.add_argument("--diffs", type=Path, help="write the diffs there")
    asked = parser.parse_args(arguments)
    is_good = True
    for name, settings in FORMS.items():
        measured = Measured()
        for folder in repositories_in(asked.folders):
            measure(folder, name, settings, measured, asked.diffs)
        print(f"{name}: {measured.repositories} repositories, {measured.files} files changed")
        is_good &= not measured.faults
        if settings.destination is Destination.STREAMING:
            told, native = measured.told, measured.native
            fates = ", ".join(f"{number} {fate}" for fate, number in measured.calls.most_common())
            print(f"  calls: {measured.calls.total()}: {fates or 'none'}")
            print(
                f"  rewritten or marked: {told:.1%}; without Horovod's ranks native: {native:.1%}"
            )
            is_good &= told >= LEAST_TOLD and native >= LEAST_NATIVE
        for text in measured.silent if settings is FORMS["streaming"] else ():
            print(f"  silent: {text}")
        for text in measured.faults:
            print(f"  FAULT: {text}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
