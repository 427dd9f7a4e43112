"""What other files do with what a file that opens loaders has: its functions, attributes and dictionaries.

They are looked at as text, and parsed only where they mention a dictionary.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from petastorm_codemods._text.import_lines import code_of, import_lines
from petastorm_codemods._text.sources import tree_of

from .other_files import (
    METHODS,
    Project,
    is_test,
    module_at,
    modules_named,
    names_of_petastorm,
    stem_of,
)
from .places import grouped, reached

_OPENS = re.compile("|".join(METHODS).encode())
_DEFINED = re.compile(rb"\b(?:def|class)[ \t]+(\w+)")
# @LOADERS.register("whole"): what registries give has a name of its own there, by which others ask for it.
_REGISTERED = re.compile(
    rb"@[\w.]*register[^\n]{,400}\n(?:@[^\n]{,400}\n)*(?:def|class)[ \t]+(\w+)", re.IGNORECASE
)
_METHOD = re.compile(rb"[ \t]def[ \t]+(\w+)")
_CALLED = re.compile(rb"\.(\w+)[ \t]*\(")
# obj.rank = 0; obj.rank, obj.size = 0, 1; setattr(obj, "rank", 0)
# Up to some bytes: data may be written in one line of millions, and each name in it would be followed to its end.
_SET = re.compile(
    rb"\.(\w+)[ \t]*(?=(?:,[^=\n()]{,400}|:[^=\n]{,400})?(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=))"
)
_SET_BY_NAME = re.compile(rb"\bsetattr\b[^\n]{,400}?[\"'](\w+)\\?[\"']")
_WORD = re.compile(rb"\w+")
# Arguments of Lightning's Trainer that ask for several ranks.
SEVERAL_RANKS = (
    r"\bstrategy\s*=\s*[^,)\n]{,40}(?:ddp|DDP|fsdp|FSDP|deepspeed|DeepSpeed)"
    r"|\b(?:devices|gpus|num_nodes)\s*=\s*[\"']?(?:[2-9]|1\d|-1)"
)
# What starts ranks that streaming finds by itself, and what works in a process group only.
STARTING = (
    *("init_process_group", "Accelerator", "all_reduce", "DistributedDataParallel", "DDP"),
    *("FullyShardedDataParallel", "FSDP"),
)
# What asks which rank this is: of torch, Ray Train and Accelerate.
ASKING = ("get_rank", "get_world_rank", "process_index", "is_local_main_process", "is_main_process")
# Lightning's, which programs ask that run in one process too: what several ranks do is in the arguments of its trainer.
ASKING_LIGHTNING = ("global_rank", "is_global_zero", "rank_zero_only")
# What starts ranks that streaming finds by itself, asks which one this is, or reads its shard; Horovod's it does
# not find.
_RANKS = re.compile(
    rf"\b(?:TorchDistributor|ray\.train\.torch|cur_shard"
    rf"|{'|'.join((*STARTING, *ASKING, *ASKING_LIGHTNING))})\b"
    rf"|[\"'](?:LOCAL_)?RANK[\"']|{SEVERAL_RANKS}".encode()
)
# What starts ranks in processes of its own, and sets no variables in them that streaming finds all of; Lightning's too.
_NUMBERING = re.compile(
    rb"\b(?:x?mp|multiprocessing)\.spawn\b|\bmultiprocessing[ \t]+import[^\n]{,400}?\bspawn\b|\bstart_processes\b"
    rb"|[\"']ddp_(?:spawn|fork|notebook)|\benviron\[[\"']RANK[\"']\][ \t]*=(?![ \t]*[=\"'])"
)
_NUMBERED_WHOLLY = re.compile(rb"\benviron\[[\"']LOCAL_WORLD_SIZE[\"']\][ \t]*=(?!=)")
# init_process_group(backend, rank=number, …), where nothing reads the launcher's number; `rank = dist.get_rank()` after
# the call is no argument of it
_GIVEN_A_RANK = re.compile(
    rb"\binit_process_group[ \t]*\((?:[^#()]|\([^#()]{,100}\)){,400}?\brank[ \t]*=(?!=)"
)
_READS_RANK = re.compile(rb"[\"']RANK[\"']")
_HOROVOD = re.compile(rb"\bhorovod\b", re.IGNORECASE)
# What may change any name of a module.
_ANYTHING = re.compile(rb"\b(?:setattr|vars|globals|__dict__|exec|reload)\b")
# Functions and methods that leave a dictionary as it is.
_READING = frozenset({"copy", "dict", "get", "items", "keys", "len", "print", "values"})

Names = frozenset[str]


def with_elsewhere(project: Project, paths: Iterable[str], read: Callable[[str], bytes]) -> Project:
    """Return what is known of other files, with what these do with what is in those that open loaders.

    Args:
        project: What is known before.
        paths: Those of all modules and notebooks.
        read: Gives the bytes of one.
    """
    paths = tuple(paths)
    opening = {path: data for path in paths if opens_loaders(data := read(path))}
    if not opening:
        return project
    asked = {path: _asked(path, data) for path, data in opening.items()}
    words = frozenset[str]().union(*(_found(_WORD, data) for data in opening.values()))
    every = frozenset[str]().union(*asked.values())
    files = _Files([_File(path, read(path), words, every) for path in paths])
    given = {(path, name) for path, data in opening.items() for name in files.give(path, data)}
    handled = {(path, name) for path in opening for name in asked[path] if files.handle(path, name)}
    on_ranks = {(path, name) for path, data in opening.items() for name in files.spread(path, data)}
    return dataclasses.replace(
        project,
        given=frozenset(given),
        handled=frozenset(handled),
        on_ranks=frozenset(on_ranks),
        numbered=frozenset(files.on_numbered_ranks),
        asking=frozenset((path, read(path)) for path in files.asking_for(opening)),
    )


def opens_loaders(data: bytes) -> bool:
    """Say whether a file's bytes name a method that opens loaders."""
    return _OPENS.search(data) is not None


def _found(pattern: re.Pattern[bytes], data: bytes) -> Names:
    return frozenset(name.decode(errors="replace") for name in pattern.findall(code_of(data)))


def _imported(data: bytes, words: Names) -> frozenset[tuple[str, str]]:
    """Return what a file imports from modules, of some words, with the last names of these."""
    return frozenset(
        (stem_of(module), word)
        for module, names in import_lines(data)
        for word in words.intersection(re.findall(r"\w+|\*", names.decode(errors="replace")))
    )


class _File:
    """What one file does with names that are asked about.

    Attributes:
        path: Its path.
        module: Its last name.
        named: Last names of what it imports, or runs.
        imports: Last names of modules with what it imports from them that files which open loaders mention.
        mentioned: Words of files that open loaders which it has as well.
        called: Those that it calls as methods.
        sets: Those that it sets as attributes.
        attributes: Attributes, and names in classes, that it may change.
        names: Names that it may change.
        changes_anything: Whether it may change what it does not mention.
        has_ranks: Whether it has to do with ranks that streaming finds.
        numbers_ranks: Whether it numbers ranks itself, as ``mp.spawn`` does, whatever streaming finds.
    """

    def __init__(self, path: str, data: bytes, words: Names, asked: Names) -> None:
        self.path = path
        self.module = module_at(path)
        self.named = modules_named(data)
        self.imports = _imported(data, words | {"*"})
        self.mentioned = _found(_WORD, data) & words
        self.called = _found(_CALLED, data) & words
        self.sets = (_found(_SET, data) | _found(_SET_BY_NAME, data)) & words
        code = code_of(data)
        self.changes_anything = _ANYTHING.search(code) is not None
        self.has_ranks = _RANKS.search(code) is not None and _HOROVOD.search(code) is None
        self.numbers_ranks = _numbers_ranks(code) and not is_test(path)
        self.attributes: set[str] = set()
        self.names: set[str] = set()
        asked &= self.mentioned
        tree = tree_of(path, data) if asked else None
        if tree is None:
            self.names |= asked
        else:
            self._look(tree, asked)

    def _look(self, tree: ast.Module, asked: Names) -> None:
        above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name | ast.Attribute):
                name, statement = _last(node), above[node]
                if name not in asked or _leaves_it(node, above):
                    continue
                owner = above.get(statement)
                is_given = isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(
                    node.ctx, ast.Store
                )
                if isinstance(node, ast.Attribute) or isinstance(owner, ast.ClassDef):
                    self.attributes.add(name)
                elif owner is not tree or not is_given:  # what has a name at its top is its own
                    self.names.add(name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.attributes |= {node.value.rpartition(".")[2]} & asked  # patched, perhaps
            elif isinstance(node, ast.alias) and node.asname not in {None, node.name}:
                self.names |= {node.name.rpartition(".")[2]} & asked


class _Files:
    """All files, by what they do with names: many may have modules of the same name, and all import these."""

    def __init__(self, files: Sequence[_File]) -> None:
        self._files = files
        self._modules = grouped(files, lambda each: (each.module,))
        self._named = grouped(files, lambda each: each.named)
        self._called = grouped(files, lambda each: each.called)
        self._sets = grouped(files, lambda each: each.sets)
        self._attributes = grouped(files, lambda each: each.attributes)
        self._names = grouped(
            files, lambda each: ((name, module) for name in each.names for module in each.named)
        )
        changing = [each for each in files if each.changes_anything]
        self._changing = grouped(changing, lambda each: each.named)
        self._importing: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for each in files:
            for imported in each.imports:
                self._importing[imported].add(each.module)
        self._having: dict[tuple[str, str], list[str]] = {}
        self._mentions: dict[tuple[str, bool], defaultdict[str, list[_File]]] = {}

    def give(self, path: str, data: bytes) -> Iterator[str]:
        """Yield what in a file others may use: functions, classes, what it has of Petastorm's, and attributes."""
        methods, module = _found(_METHOD, data), module_at(path)
        for name in _found(_DEFINED, data) | names_of_petastorm(data):
            if (
                (name in methods and _any_but(path, self._called[name]))
                or _any_but(path, self._mentioning(module, name))
                or _any_but(path, self._named[name])
            ):
                yield name
        for name in _found(_WORD, data) & self._sets.keys():
            if _any_but(path, self._sets[name]):
                yield name

    def spread(self, path: str, data: bytes) -> Iterator[str]:
        """Yield the functions and classes of a file that others use which have to do with ranks.

        They mention them, or may ask a registry for them.
        """
        module = module_at(path)
        if path in self._beside_ranks:
            yield from _found(_REGISTERED, data)
        for name in _found(_DEFINED, data):
            # It may come to them by way of modules that import it from this one, or from each other.
            origins = self._with_name(module, name)
            if any(_any_but(path, self._mentioning(each, name, on_ranks=True)) for each in origins):
                yield name

    def asking_for(self, opening: Collection[str]) -> Iterator[str]:
        """Yield the paths of modules that have to do with ranks, and that some files import, or run."""
        named = {name for each in self._files if each.path in opening for name in each.named}
        for each in self._files:
            if each.has_ranks and each.module in named:
                yield each.path

    @functools.cached_property
    def on_numbered_ranks(self) -> Collection[str]:
        """Paths of what programs use that number ranks themselves, in one of their files or what it imports."""
        numbering = {each.module for each in self._files if each.numbers_ranks}
        return self._with_imports(
            each for each in self._files if each.module in numbering or numbering & each.named
        )

    @functools.cached_property
    def _beside_ranks(self) -> Collection[str]:
        return self._with_imports(each for each in self._files if each.has_ranks)

    def _with_imports(self, files: Iterable[_File]) -> Collection[str]:
        """Return the paths of files, and of those that they import, or run, also by way of others."""
        first = {each.path: each for each in files}
        modules = reached(
            (name for each in first.values() for name in each.named),
            lambda module: (name for each in self._modules[module] for name in each.named),
        )
        return first.keys() | {each.path for each in self._files if each.module in modules}

    def _with_name(self, module: str, name: str) -> Collection[str]:
        """Return a module, and those that have a name of it by imports."""
        key = module, name
        if key not in self._having:
            self._having[key] = [
                *reached(
                    [module],
                    lambda origin: self._importing[origin, name] | self._importing[origin, "*"],
                )
            ]
        return self._having[key]

    def _mentioning(self, module: str, name: str, *, on_ranks: bool = False) -> Sequence[_File]:
        """Return files that import a module, or run it, and mention a name; two, to tell one of them from others.

        Args:
            module: The module's last name.
            name: The name.
            on_ranks: Whether only files count that have to do with ranks.
        """
        key = module, on_ranks
        if key not in self._mentions:
            files = self._mentions[key] = defaultdict(list)
            for each in self._named[module]:
                for word in each.mentioned if each.has_ranks or not on_ranks else ():
                    if len(files[word]) < 2:
                        files[word].append(each)
        return self._mentions[key].get(name, ())

    def handle(self, path: str, name: str) -> bool:
        """Say whether others than a file may change what has a name in it."""
        module = module_at(path)
        changing = (
            self._attributes[name],
            self._changing[module],
            self._names[name, name],
            self._names[name, module],
        )
        return any(_any_but(path, files) for files in changing)


def _any_but(path: str, files: Iterable[_File]) -> bool:
    return any(each.path != path for each in files)


def _numbers_ranks(code: bytes) -> bool:
    if _NUMBERING.search(code) is not None:
        return _NUMBERED_WHOLLY.search(code) is None
    return _GIVEN_A_RANK.search(code) is not None and _READS_RANK.search(code) is None


def _asked(path: str, data: bytes) -> Names:
    """Return the names of what may be dictionaries of arguments in a file."""
    tree = tree_of(path, data)
    names: set[str] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.keyword) and node.arg is None:
            names.add(_last(node.value))
        elif isinstance(node, ast.Dict):
            places = (place for place, key in enumerate(node.keys) if key is None)
            names |= {_last(node.values[place]) for place in places}
        elif isinstance(node, ast.Assign | ast.AnnAssign) and _is_dictionary(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {_last(each) for each in targets}
    return frozenset(names - {""})


def _last(node: ast.AST) -> str:
    """Return the last part of a dotted name; empty if it is none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_dictionary(node: ast.AST | None) -> bool:
    called = isinstance(node, ast.Call) and _last(node.func) == "dict"
    return called or isinstance(node, ast.Dict | ast.BinOp)


def _leaves_it(node: ast.Name | ast.Attribute, above: Mapping[ast.AST, ast.AST]) -> bool:
    """Say whether a dictionary is only read where it is mentioned."""
    parent = above[node]
    call = above.get(parent)
    read = False
    if isinstance(parent, ast.Subscript):
        read = parent.value is node and isinstance(parent.ctx, ast.Load)
    elif isinstance(parent, ast.Dict):
        read = node in parent.values and parent.keys[parent.values.index(node)] is None
    elif isinstance(parent, ast.keyword):
        read = parent.arg is None
    elif isinstance(parent, ast.BinOp):
        read = True  # OPTIONS | {…} is another one
    elif isinstance(parent, ast.Attribute):
        read = isinstance(call, ast.Call) and call.func is parent and parent.attr in _READING
    elif isinstance(parent, ast.Call):
        read = _last(parent.func) in _READING
    return read and isinstance(node.ctx, ast.Load)
