"""The vendored support module: parts of `petastorm_bridge.native` put together into one file."""

from __future__ import annotations

import ast
import functools
import importlib.resources
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from petastorm_codemods._petastorm.offered import NEW

NAME = "mds_support"
_TITLE = "What streaming lacks for code that used Petastorm's Spark converter"
_HEAD = f'"""{_TITLE}."""\n# Copied from petastorm-bridge. SPDX-License-Identifier: Apache-2.0\n'
_FOLDER = "native"
# The files in the order in which they are put together, and what each offers to rewritten code.
_PARTS = {
    "directory.py": ("MdsDirectory",),
    "columns.py": ("UnsupportedColumnsError",),
    "_vendored_writing.py": ("write_mds",),
    "collating.py": ("PandasCollate",),
    "tensorflow.py": ("to_tf_dataset",),
}
_NEEDED = {"_vendored_writing.py": ("directory.py", "columns.py")}
# Properties that are left out where a repository has no attribute of the name.
PROPERTIES = frozenset({"cache_dir_url", "file_urls", "local", "remote"})


def offered_names() -> frozenset[str]:
    """Return the names that rewritten code may import, and attributes that may be left out."""
    return frozenset(name for names in _PARTS.values() for name in names) | PROPERTIES


def names_in(text: str) -> frozenset[str]:
    """Return which of these names a file offers that was written before.

    Raises:
        ValueError: Something else has the file's name.
    """
    if not text.startswith(f'"""{_TITLE}'):
        raise ValueError(f"{NAME}.py exists and is something else")
    kinds = ast.ClassDef | ast.FunctionDef
    found = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)}
    return frozenset(found & offered_names())


def assembled(names: Collection[str]) -> str:
    """Return the file that offers some names, with all that they need and nothing else."""
    wanted = {file for file, own in _PARTS.items() if set(own) & set(names)}
    wanted |= {needed for file in wanted for needed in _NEEDED.get(file, ())}
    statements = [each for file in _PARTS if file in wanted for each in _statements(file)]
    kept = _without_idle(_without_properties(statements, names), names)
    imports = "\n".join(_imports(wanted, kept))
    return "\n".join([_HEAD, imports, *_spaced(kept), ""])


@dataclass(frozen=True)
class _Statement:
    """A statement at the top of a part.

    Attributes:
        text: Its lines, with the comments above.
        node: The statement.
    """

    text: str
    node: ast.stmt

    @property
    def names(self) -> frozenset[str]:
        """What it binds."""
        if isinstance(self.node, ast.ClassDef | ast.FunctionDef):
            return frozenset({self.node.name})
        return frozenset(
            each.id
            for each in ast.walk(self.node)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        )

    @property
    def is_definition(self) -> bool:
        """Whether it is a function or a class."""
        return isinstance(self.node, ast.ClassDef | ast.FunctionDef)


@functools.cache
def _source(file: str) -> str:
    return importlib.resources.files(NEW).joinpath(_FOLDER).joinpath(file).read_text("utf-8")


def _statements(file: str) -> Iterator[_Statement]:
    """Yield what a part defines."""
    text = _source(file)
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Expr):
            continue
        statement = _statement(text, node)
        if "__all__" not in statement.names:
            yield statement


def _statement(text: str, node: ast.stmt) -> _Statement:
    lines = text.splitlines()
    decorators = getattr(node, "decorator_list", [])
    first = (decorators[0].lineno if decorators else node.lineno) - 1
    while first and lines[first - 1].startswith("#"):
        first -= 1
    return _Statement("\n".join(lines[first : node.end_lineno]), node)


def _without_properties(
    statements: Sequence[_Statement], names: Collection[str]
) -> list[_Statement]:
    """Return statements again, the class of directories without properties that nothing uses."""
    result = list(statements)
    while True:
        used = set(names) | {
            each.attr
            for statement in result
            for each in ast.walk(statement.node)
            if isinstance(each, ast.Attribute)
        }
        idle = [
            (number, method)
            for number, statement in enumerate(result)
            if isinstance(statement.node, ast.ClassDef)
            for method in statement.node.body
            if isinstance(method, ast.FunctionDef) and method.name in PROPERTIES - used
        ]
        if not idle:
            return result
        number, method = idle[0]
        result[number] = _without_method(result[number], method)


def _without_method(statement: _Statement, method: ast.FunctionDef) -> _Statement:
    """Return a class without one of its methods, which is not its first and is decorated."""
    lines = statement.text.splitlines()
    # The text may begin with comments, before what the node's numbers are about.
    node = ast.parse(statement.text).body[0]
    assert isinstance(node, ast.ClassDef)
    own = next(
        each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == method.name
    )
    first = (own.decorator_list[0] if own.decorator_list else own).lineno - 1
    del lines[first - 1 : own.end_lineno]  # with the empty line above
    text = "\n".join(lines)
    return _Statement(text, ast.parse(text).body[0])


def _without_idle(statements: Sequence[_Statement], names: Collection[str]) -> list[_Statement]:
    """Return statements without repetitions and without private ones that no other uses."""
    unique: dict[str, _Statement] = {}
    for statement in statements:
        unique.setdefault(statement.text, statement)
    result = list(unique.values())
    public = {name for own in _PARTS.values() for name in own} & set(names)
    while True:
        used = [_reads(statement.node) for statement in result]
        kept = [
            statement
            for number, statement in enumerate(result)
            if statement.names & public
            or any(statement.names & own for other, own in enumerate(used) if other != number)
        ]
        if len(kept) == len(result):
            return result
        result = kept


def _reads(node: ast.AST) -> set[str]:
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    }


def _spaced(statements: Iterable[_Statement]) -> Iterator[str]:
    """Yield the texts of statements with the empty lines that formatters put between them."""
    before: _Statement | None = None
    for statement in statements:
        apart = before is None or before.is_definition or statement.is_definition
        if apart and not (before is None and not statement.is_definition):
            yield "\n" if before is not None or statement.is_definition else ""
        elif before is None or statement.text.startswith("#"):
            yield ""
        yield statement.text
        before = statement


# --- imports -------------------------------------------------------------------------------------


def _imports(files: Collection[str], kept: Sequence[_Statement]) -> list[str]:
    """Return the import lines that some statements need, in the order of isort and Ruff."""
    used = set().union(*(_reads(statement.node) for statement in kept))
    plain: set[str] = set()
    names: dict[str, set[str]] = {}
    for file in files:
        for node in ast.parse(_source(file)).body:
            if isinstance(node, ast.Import):
                plain |= {
                    ast.unparse(ast.Import([each]))
                    for each in node.names
                    if (each.asname or each.name.partition(".")[0]) in used
                }
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                own = {each.name for each in node.names if (each.asname or each.name) in used}
                names.setdefault(node.module, set()).update(own)
    lines = [(_section(_root(line)), 0, line) for line in plain]
    lines += [
        (_section(module.partition(".")[0]), 1, f"from {module} import {', '.join(_sorted(own))}")
        for module, own in names.items()
        if own
    ]
    result = ["from __future__ import annotations"]
    last = -1
    for section, _, line in sorted(lines):
        result += ["", line] if section != last else [line]
        last = section
    return result


def _root(line: str) -> str:
    return line.split()[1].partition(".")[0]


def _section(root: str) -> int:
    return int(root not in sys.stdlib_module_names)


def _sorted(names: Iterable[str]) -> list[str]:
    """Return names as isort and Ruff sort them: constants, classes, the rest."""

    def order(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name

    return sorted(names, key=order)
