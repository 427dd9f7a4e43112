"""The lists of dependencies of a run together: whom each is for, and which belong together."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from petastorm_codemods._model import Outcome, Unchanged
from petastorm_codemods._petastorm.offered import OLD

from .evidence import Code, Evidence
from .files import is_dependency_file, is_lock_file
from .manifests import entries
from .requirements import rewritten
from .wanted import asked_extras, wanted

_INCLUDED = re.compile(r"^[ \t]*(?:-[rc]|--(?:requirement|constraint))[ \t=]*(\S+)", re.MULTILINE)
# Files that say for which Pythons the programs beside them are.
_PROJECTS = frozenset({"pyproject.toml", "setup.py", "setup.cfg"})


class Lists:
    """Decides about lists of dependencies, each for the programs that it is for.

    Args:
        code: The programs of the run.
        files: Path and bytes of the lists, and of other files that may install packages.
        repository: Returns the programs around a file of which the run has none.
    """

    def __init__(
        self,
        code: Code,
        files: Sequence[tuple[str, bytes]],
        repository: Callable[[str], Code],
    ) -> None:
        self._code = code
        self._repository = repository
        self._texts = {path: data.decode("utf-8", "replace") for path, data in files}
        self._folders = {path: code.folder_for(path) for path in self._texts}
        named = [path for path, text in self._texts.items() if OLD in text]
        # What is installed for everyone does not make the folder of a program its own.
        self._homes = {self._folders[path] for path in named if is_dependency_file(path)}
        self._known: dict[str, Evidence] = {}
        self._listed: defaultdict[str, set[str]] = defaultdict(set)
        self._asked: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
        self._gather()
        self._linked = _linked(self._texts, named)

    def around(self, path: str) -> Evidence:
        """Return what the programs import that share a list with the one at a path."""
        return self._evidence(self._code.nearest(path, self._homes))

    def outcome(self, path: str, data: bytes, *, lift: bool) -> Iterator[Outcome]:
        """Yield what becomes of a file; nothing if it does not concern the run."""
        folder = self._folders[path]
        beside = os.path.dirname(path) in self._homes and os.path.basename(path) in _PROJECTS
        if OLD not in self._texts[path] and path not in self._linked and not beside:
            return
        evidence = self._evidence(folder)
        if evidence.empty:
            around = self._repository(path)
            there = os.path.relpath(path)
            evidence = around.evidence(around.folder_for(there), ())
        want = wanted(evidence, self._listed[folder], self._asked[folder])
        found = rewritten(path, data, want, lift=lift)
        if not isinstance(found, Unchanged) or OLD in self._texts[path]:
            yield found

    def _evidence(self, folder: str) -> Evidence:
        if folder not in self._known:
            self._known[folder] = self._code.evidence(folder, self._homes - {folder})
        return self._known[folder]

    def _gather(self) -> None:
        """Note the names that the lists for one folder hold together, and extras of the bridge."""
        for path, text in self._texts.items():
            if is_dependency_file(path) and not is_lock_file(path):
                found, folder = entries(path, text), self._folders[path]
                self._listed[folder] |= {entry.name for entry in found}
                self._asked[folder] |= asked_extras(found)


def _linked(texts: dict[str, str], named: Sequence[str]) -> set[str]:
    """Return the files that those which name Petastorm include, or are included by, at any depth."""
    links: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in texts.items():
        if not is_dependency_file(path):
            continue
        for name in _INCLUDED.findall(text):
            other = os.path.normpath(os.path.join(os.path.dirname(path), name))
            links[path].add(other)
            links[other].add(path)
    found, left = set(named), [*named]
    while left:
        new = links[left.pop()] - found
        found |= new
        left += new
    return found & set(texts)
