"""Prints the folders of `tests/` that belong to what has changed since a commit.

    python3 tools/rooms.py main

A change of a module concerns the tests of its room and of the rooms that import it, directly or not. What is
neither product nor test (examples, benchmarks, the guide, the tools) is looked at by `tests/project`. Needs a Python
with its standard library only.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = {"petastorm_bridge": ROOT / "bridge", "petastorm_codemods": ROOT / "codemods"}

# Folder of tests for the rooms and modules of the bridge; every other module of it is a name that Petastorm has, which is compared.
TESTS = {
    "_blocks": "blocks",
    "_sources": "sources",
    "_sources._far": "far",
    "_workers": "workers",
    "__main__": "project",
    "_tables": "project",
    "cli": "project",
    "cli._convert": "converting",
    "cli._parity": "parity",
    "codecs": "rows",
    "convert": "converting",
    "etl": "etl",
    "mds": "mds",
    "native": "native",
    "parity": "parity",
    "pytorch": "torch",
    "reader": "reading",
    "reader._rows": "rows",
    "spark": "spark",
    "spark_utils": "etl",
    "streaming": "streaming",
    "mds_support": "native",
    "tf_utils": "tensorflow",
}


def modules() -> dict[str, Path]:
    """Return the path of every module by its name; a package's name stands for its ``__init__``."""
    return {
        _dotted(path.relative_to(root)): path
        for package, root in SOURCE_ROOTS.items()
        for path in sorted((root / package).rglob("*.py"))
    }


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _module(file: str) -> str:
    """Return the name of the module that a file is, or was before it was deleted; empty if it is none."""
    for package, root in SOURCE_ROOTS.items():
        path = ROOT / file
        if path.suffix == ".py" and path.is_relative_to(root / package):
            return _dotted(path.relative_to(root))
    return ""


def imports(paths: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return the modules of ours that each module imports, wherever the statement stands."""
    packages = {name for name, path in paths.items() if path.name == "__init__.py"}
    graph = {}
    for name, path in paths.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {
            imported
            for node in ast.walk(tree)
            for imported in _named(name, node, name in packages, paths)
        }
        graph[name] = (named & set(paths)) - {name}
    return graph


def _named(name: str, node: ast.AST, is_package: bool, paths: Mapping[str, Path]) -> Iterator[str]:
    """Yield the dotted paths that a node of a module's tree imports; a module's name is one more part."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = [*name.split("."), *(["__init__"] if is_package else [])]
            base = ".".join([*parts[: -node.level], *([base] if base else [])])
        for alias in node.names:
            path = f"{base}.{alias.name}"
            yield path if path in paths else base


def touched(changed: Iterable[str], graph: Mapping[str, set[str]]) -> set[str]:
    """Return modules and those that import them, directly or not."""
    importers: dict[str, set[str]] = {}
    for name, imported in graph.items():
        for other in imported:
            importers.setdefault(other, set()).add(name)
    waiting, seen = list(changed), set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += importers.get(name, ())
    return seen


def folder(name: str) -> str:
    """Return the folder of tests of a module."""
    package, _, rest = name.partition(".")
    if package == "petastorm_codemods":
        return "codemods"
    while rest not in TESTS and rest:
        rest = rest.rpartition(".")[0]
    return TESTS.get(rest, "against_petastorm")


def folders(files: Iterable[str]) -> set[str]:
    """Return the folders of `tests/` that changed files concern.

    Args:
        files: Paths below the repository.
    """
    changed = {file: _module(file) for file in files}
    chosen = set(map(folder, touched(filter(None, changed.values()), imports(modules()))))
    for file in (file for file, module in changed.items() if not module):
        top, _, rest = file.partition("/")
        chosen.add(rest.partition("/")[0] if top == "tests" else "project")
    there = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    there -= {"helpers", "__pycache__"}
    return there if chosen & {"helpers", "conftest.py"} else chosen & there


def main(since: str) -> None:
    """Print the folders, in alphabetical order, on one line."""
    git = ["git", "-C", str(ROOT), "diff", "--name-only", "--merge-base", since]
    answer = subprocess.run(git, check=False, capture_output=True, text=True)
    if answer.returncode:
        sys.exit(f"error: {answer.stderr.strip()}")
    print(*sorted(folders(answer.stdout.splitlines())))


if __name__ == "__main__":
    main(*sys.argv[1:])
