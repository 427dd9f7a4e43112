"""What is known of the other files of a run: whether any makes converters, and what they define."""

from __future__ import annotations

import ast
import functools
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from petastorm_codemods._petastorm.counterparts import SUPPORT
from petastorm_codemods._petastorm.offered import NEW, OLD, is_petastorm
from petastorm_codemods._text.import_lines import code_of, files_run, import_lines
from petastorm_codemods._text.sources import tree_of

from .places import reached

METHODS = ("make_torch_dataloader", "make_tf_dataset")

_PETASTORM = re.compile(rb"petastorm", re.IGNORECASE)
_MAKES = re.compile(rb"\b(?:make_spark_converter|SparkDatasetConverter|write_mds)\b")
_DEFINES = re.compile(rb"\bdef[ \t]+(make_torch_dataloader|make_tf_dataset)\b")
_PROTOCOL = re.compile(r"(?:\w+\.)*Protocol\b")
_NAME = re.compile(r"[A-Za-z_]\w*")
# What files may have from each other instead of from Petastorm: what gives converters, and what is given to loaders.
_MAKER = "make_spark_converter"
CONVERTERS = (_MAKER, "SparkDatasetConverter")
REEXPORTABLE = (*CONVERTERS, "TransformSpec")
_NAMES = "|".join(REEXPORTABLE).encode()
_REEXPORTABLE = re.compile(rb"\b(%b)\b" % _NAMES)
_DOTTED = re.compile(rb"(?<![\w.])([\w.]*\b\w+)\.(%b)\b" % _NAMES)
# mock.patch.object(module, "make_spark_converter"), monkeypatch.setattr(module, "make_spark_converter", …)
_REPLACED = re.compile(rb"\b(?:object|setattr)\(\s*([\w.]+)\s*,\s*[\"'](%b)[\"']" % _NAMES)
_ALIAS = re.compile(rb"(\w+)[ \t]+as[ \t]+(\w+)")
_OURS = ("petastorm", SUPPORT)
_STARRED = re.compile(r"petastorm(?:_bridge)?\.spark[.\w]*")
_CALLS = re.compile(rb"\b(?:make_spark_converter|write_mds)\b")
_NATIVE = rb"(?:write_mds|MdsDirectory)"
_TAKEN = re.compile(rb"\b(?:def|class)[ \t]+%b\b|\b%b[ \t]*=(?!=)" % (_NATIVE, _NATIVE))
_OWN_MAKER = re.compile(rb"\bdef[ \t]+%b\b" % _MAKER.encode())
_REACHED = re.compile(rb"\.[ \t]*%b\b" % _MAKER.encode())
_IN_QUOTES = re.compile(rb"[\"']%b[\"']" % _MAKER.encode())
_WORD = re.compile(rb"\w+")
# Modules whose names a rewrite may exchange: a second run is to see what the first one saw.
_ABOUT = re.compile(r"petastorm(?:_bridge)?(?:\.|$)")


@dataclass(frozen=True)
class Project:
    """The evidence of the other files for what a name in one file may be.

    Attributes:
        converters: Whether any file makes converters, so that one may be passed to any other file.
        defines: Those of the methods that open loaders that some class or module defines itself, tests apart.
        stand_ins: Those of them which one defines that opens no loader of a converter, and may stand in for it.
        modules: First parts of the names that the project's own modules are imported by.
        importers: Last names of the project's modules that import converters' names from Petastorm,
            with these names.
        reexported: Those of them that some other file imports by name, also from modules that pass them on.
        mentioners: Last names of modules that use converters' names without importing them.
        makers: Last names of modules that make converters.
        kept: Paths of the files in which what makes them stays as it is.
        unfollowed: Last names of modules that have what makes converters from an object at run time, such as what
            ``importlib.import_module`` gives: it is the bridge's.
        on_bridge: Whether all loaders of the run stay on the bridge, so that what makes their converters does.
        borrowers: Last names of modules that open loaders and make no converters.
        lenders: Last names of modules that such which open loaders import.
        joined: Those that import another module of the project, or are imported by any: converters
            may come to them from elsewhere.
        given: Paths of files that open loaders, each with the name of a function or class of its own that others
            may call, of an attribute that they may set, or of an import of Petastorm's that they may use.
        handled: Such paths with the name of a dictionary that others may change.
        on_ranks: Such paths with the name of a function or class of their own that another file, which has to do
            with ranks, mentions.
        numbered: Paths of files on ranks which the program numbers itself, as those of ``mp.spawn``.
        asking: Paths and bytes of modules which may ask for ranks on behalf of files that open loaders.
    """

    converters: bool = False
    defines: frozenset[str] = frozenset()
    stand_ins: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    importers: frozenset[tuple[str, str]] = frozenset()
    reexported: frozenset[tuple[str, str]] = frozenset()
    mentioners: frozenset[tuple[str, str]] = frozenset()
    makers: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    unfollowed: frozenset[str] = frozenset()
    on_bridge: bool = False
    borrowers: frozenset[str] = frozenset()
    lenders: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()
    given: frozenset[tuple[str, str]] = frozenset()
    handled: frozenset[tuple[str, str]] = frozenset()
    on_ranks: frozenset[tuple[str, str]] = frozenset()
    numbered: frozenset[str] = frozenset()
    asking: frozenset[tuple[str, bytes]] = frozenset()

    @functools.cached_property
    def imported_names(self) -> frozenset[str]:
        """The names of converters that any module imports from Petastorm."""
        return frozenset(name for _, name in self.importers)

    def gives(self, path: str, name: str) -> bool:
        """Say whether another file may give something to what has a name in a file."""
        return (os.path.abspath(path), name) in self.given

    def handles(self, path: str, name: str) -> bool:
        """Say whether another file may change a dictionary of a file, or keep what a function of it returns."""
        return (os.path.abspath(path), name) in self.handled

    def spreads(self, path: str, name: str) -> bool:
        """Say whether a function or class of a file may run on ranks that another file has to do with."""
        return (os.path.abspath(path), name) in self.on_ranks

    def numbers_ranks(self, path: str) -> bool:
        """Say whether a file, or one that it works with, numbers ranks which no launcher numbers."""
        return os.path.abspath(path) in self.numbered

    def owns(self, module: str) -> bool:
        """Say whether a dotted module may be the project's own rather than a library's."""
        return module.split(".", 1)[0] in self.modules


def makes_converters(data: bytes) -> bool:
    """Say whether a file's bytes name Petastorm, or the bridge, and what makes its converters."""
    return _MAKES.search(code_of(data)) is not None and _PETASTORM.search(data) is not None


def keeps_makers(path: str, data: bytes) -> bool:
    """Say whether what makes converters in a file stays as it is.

    It is imported by ``*``, or from elsewhere where Petastorm is missing, or the native names mean something else there.
    """
    lines = import_lines(data)
    if any(_STARRED.fullmatch(module) and names.startswith(b"*") for module, names in lines):
        return True
    makes = any(module.startswith(_OURS) and _MAKER.encode() in names for module, names in lines)
    return makes and (
        _TAKEN.search(code_of(data)) is not None or _has_alternative_makers(path, data)
    )


def _has_alternative_makers(path: str, data: bytes) -> bool:
    """Say whether a ``try`` or ``if`` imports what makes converters, or a name beside it, from elsewhere as well."""
    words: dict[bool, set[bytes]] = {True: set(), False: set()}
    for module, names in import_lines(data):
        words[is_petastorm(module)] |= {*_WORD.findall(names)}
    if not words[True] & words[False] - {b"as"}:
        return False
    tree = tree_of(path, data)
    if tree is None:
        return True
    for statement, guard in _guarded_imports(tree):
        makes = any(alias.name == _MAKER for alias in statement.names)
        if guard is None or not makes or not _is_of_petastorm(statement):
            continue
        within = (each for each in ast.walk(guard) if isinstance(each, ast.ImportFrom))
        others = (each for each in within if not _is_of_petastorm(each))
        if any(_locals_of(statement) & _locals_of(each) for each in others):
            return True
    return False


def _guarded_imports(tree: ast.Module) -> Iterator[tuple[ast.ImportFrom, ast.AST | None]]:
    """Yield each import of names, with the ``try`` or ``if`` that it is in; None if it is in a function or nothing."""
    rest: list[tuple[ast.AST, ast.AST | None]] = [(tree, None)]
    while rest:
        node, guard = rest.pop()
        if isinstance(node, ast.ImportFrom):
            yield node, guard
        elif isinstance(node, ast.Try | ast.If):
            guard = node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            guard = None
        rest += [(child, guard) for child in ast.iter_child_nodes(node)]


def _is_of_petastorm(statement: ast.ImportFrom) -> bool:
    return not statement.level and is_petastorm(statement.module or "")


def _locals_of(statement: ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name for alias in statement.names}


def reaches_makers(path: str, data: bytes, here: Collection[str]) -> bool:
    """Say whether a file has what makes converters from an object, and not by imports that can be followed.

    Args:
        path: The file's.
        data: Its bytes.
        here: Last names of the modules of the project.
    """
    code = code_of(data)
    if not _REACHED.search(code) and not _IN_QUOTES.search(code):
        return False
    tree = tree_of(path, data)
    if _has_names_in_quotes(tree) and _MAKER not in names_of_petastorm(data):
        return True
    imported: dict[str, str] = {}
    for each in ast.walk(tree) if tree else ():
        for alias in each.names if isinstance(each, ast.Import | ast.ImportFrom) else ():
            if isinstance(each, ast.ImportFrom):
                dots = "." * each.level
                imported[alias.asname or alias.name] = f"{dots}{each.module or ''}.{alias.name}"
            else:
                imported[alias.asname or alias.name.partition(".")[0]] = alias.name
    return any(
        not _is_followed(each.value, imported, here)
        for each in (ast.walk(tree) if tree else ())
        if isinstance(each, ast.Attribute) and each.attr == _MAKER
    )


def _has_names_in_quotes(tree: ast.Module | None) -> bool:
    """Say whether strings are what makes converters and its module, as where names are imported when first asked for."""
    words = {
        each.value for each in (ast.walk(tree) if tree else ()) if isinstance(each, ast.Constant)
    }
    modules = (f"{package}.spark" for package in (OLD, NEW))
    return _MAKER in words and any(
        {each, f"{each}.spark_dataset_converter"} & words for each in modules
    )


def _is_followed(owner: ast.expr, imported: Mapping[str, str], here: Collection[str]) -> bool:
    """Say whether an expression is the object of a class, or a module: not one that a name of the project stands for."""
    if isinstance(owner, ast.Name) and owner.id in {"self", "cls"}:
        return True
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    origin = imported.get(owner.id) if isinstance(owner, ast.Name) else None
    if origin is None:
        return False
    first, last = origin.split(".")[0], stem_of(origin)
    return last in here or (first not in here and not origin.startswith("."))


def names_of_petastorm(data: bytes) -> frozenset[str]:
    """Return the names that a file's bytes import from Petastorm or from the bridge."""
    lines = (names for module, names in import_lines(data) if _ABOUT.match(module))
    return frozenset(
        name.decode(errors="replace") for names in lines for name in _WORD.findall(names)
    )


def modules_named(data: bytes) -> frozenset[str]:
    """Return the last names of the modules that a file's bytes import, or run, but Petastorm's or ours."""
    modules = {*files_run(data)}
    for module, names in import_lines(data):
        if not _ABOUT.match(module):
            modules |= {module, *(word.decode(errors="replace") for word in _WORD.findall(names))}
    return frozenset(re.split(r"[./\\]", name)[-1] for name in modules if not _ABOUT.match(name))


def modules_passed_on(path: str, data: bytes) -> frozenset[tuple[str, str]]:
    """Return the module at a path with those modules whose names it passes on by importing them."""
    passed_on = (
        module
        for module, names in import_lines(data)
        if names.startswith(b"*") or _REEXPORTABLE.search(names)
    )
    return frozenset((module_at(path), stem_of(module)) for module in passed_on)


def project_from(
    sources: Iterable[tuple[str, bytes]],
    programs: Iterable[str],
    passing: frozenset[tuple[str, str]],
    named: frozenset[str],
) -> Project:
    """Return what the files of a run say of converters, but for whether any makes one and for their folders.

    Args:
        sources: Path and bytes of those that hold a word for the rules.
        programs: Paths of all modules and notebooks.
        passing: Modules and those whose names they pass on.
        named: Last names of the modules that any of them imports or runs.
    """
    here = frozenset(map(module_at, programs))
    importers, taken, mentioners = (set[tuple[str, str]]() for _ in range(3))
    defines, stand_ins, makers, kept = (set[str]() for _ in range(4))
    unfollowed, borrowers, lenders = (set[str]() for _ in range(3))
    joined, own = {*named & here}, False
    for path, data in sources:
        module, code = module_at(path), code_of(data)
        own |= _OWN_MAKER.search(code) is not None
        for origin, text in import_lines(data):
            if origin.startswith(_OURS) or stem_of(origin) == SUPPORT:
                importers |= {(module, name) for name in _reexportable(text)}
            else:
                taken |= {(stem_of(origin), name) for name in _reexportable(text)}
        aliases = {alias: name for name, alias in _ALIAS.findall(code)}
        for holder, name in (*_DOTTED.findall(code), *_REPLACED.findall(code)):
            origin = aliases.get(holder, holder).decode()
            if not origin.startswith(_OURS):
                taken.add((stem_of(origin), name.decode()))
        mentioners |= {(module, name) for name in _reexportable(code)}
        for name, is_opened in _defined(path, data):
            (defines if is_opened else stand_ins).add(name)
        # A copy of the support module, of an earlier run, defines what makes them.
        makes = _CALLS.search(code) is not None and module not in _OURS
        makers |= {module} if makes else set()
        kept |= {path} if keeps_makers(path, data) else set()
        unfollowed |= {module} if not is_test(path) and reaches_makers(path, data, here) else set()
        others = modules_named(data)
        joined |= {module} if others & here else set()
        if any(method.encode() in code for method in METHODS):
            lenders |= others
            borrowers |= set() if makes else {module}
    return Project(
        defines=frozenset(defines | stand_ins),
        stand_ins=frozenset(stand_ins),
        importers=frozenset(importers),
        reexported=reexported_names(frozenset(taken), frozenset(importers), passing),
        mentioners=frozenset(mentioners - importers),
        makers=frozenset(makers),
        kept=frozenset(kept),
        unfollowed=frozenset(unfollowed) if not own else frozenset(),
        borrowers=frozenset(borrowers),
        lenders=frozenset(lenders),
        joined=frozenset(joined),
    )


def _defined(path: str, data: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the methods that open loaders which a file defines, each with whether it opens one of a converter.

    A protocol's are what it asks of a converter.
    """
    if is_test(path) or _DEFINES.search(code_of(data)) is None:
        return  # in tests, such a class stands in for a converter
    tree = tree_of(path, data)
    if tree is None:
        yield from ((name.decode(), True) for name in _DEFINES.findall(code_of(data)))
        return
    nodes = [*ast.walk(tree)]
    classes = [each for each in nodes if isinstance(each, ast.ClassDef)]
    declared = {
        member
        for each in classes
        if any(_PROTOCOL.match(ast.unparse(base)) for base in each.bases)
        for member in each.body
    }
    for each in nodes:
        if isinstance(each, ast.FunctionDef) and each.name in METHODS and each not in declared:
            within = (one.attr for one in ast.walk(each) if isinstance(one, ast.Attribute))
            yield each.name, not {*within}.isdisjoint(METHODS)


def _reexportable(text: bytes) -> frozenset[str]:
    return frozenset(name.decode() for name in _REEXPORTABLE.findall(text))


def reexported_names(
    taken: frozenset[tuple[str, str]],
    importers: frozenset[tuple[str, str]],
    passing: frozenset[tuple[str, str]],
) -> frozenset[tuple[str, str]]:
    """Return the modules, with the names, of which other files have something of Petastorm's.

    Args:
        taken: Modules and names that files import from them.
        importers: Modules and names that they import from Petastorm.
        passing: Modules and those whose names they pass on.
    """
    sources: defaultdict[str, set[str]] = defaultdict(set)
    passers: defaultdict[str, set[str]] = defaultdict(set)
    for module, source in passing:
        sources[module].add(source)
        passers[source].add(module)
    having = reached(importers, lambda of: ((each, of[1]) for each in passers[of[0]])).keys()
    lending = reached(taken & having, lambda of: ((each, of[1]) for each in sources[of[0]]))
    return frozenset(lending.keys() & having)


def module_at(path: str) -> str:
    """Return the last name of the module at a path; a package is in its ``__init__.py``."""
    folder, file = re.split(r"[/\\]", os.path.abspath(path))[-2:]
    stem = file.partition(".")[0]
    return folder if stem == "__init__" else stem


def is_test(path: str) -> bool:
    """Say whether a file is one of tests, by its name or its folder's."""
    folder, name = re.split(r"[/\\]", os.path.abspath(path))[-2:]
    named = name.startswith(("test_", "conftest.")) or name.endswith("_test.py")
    return named or folder in {"test", "tests"}


def stem_of(module: str) -> str:
    """Return the last name of a dotted module."""
    return module.rpartition(".")[2]


def module_names(paths: Collection[str]) -> frozenset[str]:
    """Return the names that modules at some paths may be imported by: their own and their folders'."""
    folders = {os.path.dirname(os.path.abspath(path)) for path in paths}
    if not folders:
        return frozenset()
    top = os.path.dirname(os.path.commonpath(folders))
    parts = {part for folder in folders for part in os.path.relpath(folder, top).split(os.sep)}
    files = {os.path.basename(path).partition(".")[0] for path in paths}
    return frozenset(filter(_NAME.fullmatch, parts | files))
