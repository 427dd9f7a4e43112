"""The guide's API reference, from the signatures and docstrings of the public modules: a page for each.

The sources are parsed and not imported, so that the pages are the same whichever engines are installed.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MODULES", "api_pages", "defaults_of", "public_names"]

BRIDGE = Path(__file__).resolve().parent.parent / "bridge"
# In the order in which users meet them.
MODULES = (
    "petastorm_bridge",
    "petastorm_bridge.spark",
    "petastorm_bridge.pytorch",
    "petastorm_bridge.tf_utils",
    "petastorm_bridge.transform",
    "petastorm_bridge.predicates",
    "petastorm_bridge.convert",
    "petastorm_bridge.native",
    "petastorm_bridge.streaming",
    "petastorm_bridge.parity",
    "petastorm_bridge.unischema",
    "petastorm_bridge.codecs",
    "petastorm_bridge.ngram",
    "petastorm_bridge.selectors",
    "petastorm_bridge.weighted_sampling_reader",
    "petastorm_bridge.etl.dataset_metadata",
    "petastorm_bridge.etl.rowgroup_indexing",
    "petastorm_bridge.errors",
)
_HEAD = """# API reference

For people who look up a name. Each module has a page, made from its docstrings. [Options](options.md) says what became of
each of Petastorm's arguments.

Public are the names that these pages list, and every module that Petastorm itself has, which is as in Petastorm.
Everything else is private ([policy](policy.md)).
"""
_WIDTH = 88
# Sections of a docstring in Google style.
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Example|Examples|Note|Warns):$")

Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Public:
    """A public name: where it is offered, and its definition (None for a constant)."""

    name: str
    definition: Definition | None


def api_pages(note: str) -> dict[str, str]:
    """Return the pages by their names; the note says that they are generated."""
    index = [note, _HEAD, "| module | what is in it |", "|---|---|"]
    pages: dict[str, str] = {}
    entries: dict[str, str] = {}  # definition → the link to its entry
    for module in MODULES:
        page = f"api-{_anchor(module.partition('.')[2] or module)}.md"
        names = ", ".join(f"`{public.name}`" for public in public_names(module))
        index.append(f"| [`{module}`]({page}) | {names} |")
        lines = [note, f"# {module}", "", *_prose(ast.get_docstring(_tree(module)) or "")]
        for public in public_names(module):
            if public.definition is None:
                continue
            anchor = _anchor(f"{module}-{public.name}")
            link = f"{page}#{anchor}"
            first = entries.setdefault(ast.dump(public.definition), link)
            if first == link:
                lines += _entry(anchor, public.name, public.definition)
            else:
                home = first.partition("#")[0].removesuffix(".md")
                lines.append(f"`{public.name}`: see [{home}]({first}).\n")
        pages[page] = "\n".join([*lines, ""])
    return {"api.md": "\n".join([*index, ""]), **pages}


def public_names(module: str) -> Iterator[Public]:
    """Yield what a module offers, by the order of its ``__all__``.

    Raises:
        LookupError: A name of ``__all__`` is defined nowhere.
    """
    for name in _all(_tree(module)):
        if not name.startswith("__"):
            yield Public(name, _find(module, name))


def defaults_of(api: str) -> dict[str, str]:
    """Return the defaults of a function, or of a converter's method, of Petastorm's API by argument."""
    home = "petastorm_bridge.spark.spark_dataset_converter"
    module = home if api.startswith("make_t") or "spark" in api else "petastorm_bridge"
    function = _find(module, api)
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    names = [one.arg for one in given.args][len(given.args) - len(given.defaults) :]
    pairs = [*zip(names, given.defaults, strict=True)]
    pairs += [
        (one.arg, value)
        for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if value
    ]
    return {name: ast.unparse(_value(module, value)) for name, value in pairs}


def _value(module: str, node: ast.expr) -> ast.expr:
    """Return an expression, or that of the constant which it names."""
    if not isinstance(node, ast.Name):
        return node
    for place in ast.walk(_tree(module)):
        if isinstance(place, ast.ImportFrom) and node.id in {a.name for a in place.names}:
            return _value(_imported_from(module, place), node)
        if isinstance(place, ast.Assign) and ast.unparse(place.targets[0]) == node.id:
            return place.value
    return node


def _anchor(dotted: str) -> str:
    return dotted.replace(".", "-").lower()


def _path(module: str) -> Path:
    place = BRIDGE.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _tree(module: str) -> ast.Module:
    return ast.parse(_path(module).read_text(encoding="utf-8"))


def _all(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            found: list[str] = ast.literal_eval(node.value)
            return found
    raise LookupError("no __all__")


def _find(module: str, name: str) -> Definition | None:
    """Return the definition of a name, wherever the module imports it from."""
    tree = _tree(module)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and name in {a.asname or a.name for a in node.names}:
            original = next(a.name for a in node.names if (a.asname or a.name) == name)
            return _find(_imported_from(module, node), original)
    if any(isinstance(n, (ast.Assign, ast.AnnAssign)) and _names(n) == name for n in tree.body):
        return None
    raise LookupError(f"{module} does not define {name}")


def _names(node: ast.Assign | ast.AnnAssign) -> str:
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _imported_from(module: str, node: ast.ImportFrom) -> str:
    package = module.split(".")
    if _path(module).name != "__init__.py":
        package = package[:-1]
    if node.level == 0:
        return node.module or ""
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *([node.module] if node.module else [])])


def _entry(anchor: str, name: str, definition: Definition) -> Iterator[str]:
    """Yield a function, or a class with its public methods."""
    yield from ("", f'<a id="{anchor}"></a>', f"## {name}", "")
    yield from _signature(definition, name)
    yield from _prose(ast.get_docstring(definition) or "")
    if isinstance(definition, ast.ClassDef):
        for member in definition.body:
            if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                yield from ("", f"**{name}.{member.name}**", "")
                yield from _signature(member, member.name)
                yield from _prose(ast.get_docstring(member) or "")


def _signature(definition: Definition, name: str) -> Iterator[str]:
    function = definition
    if isinstance(definition, ast.ClassDef):
        made = [
            n for n in definition.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"
        ]
        if not made:
            return
        function = made[0]
    assert isinstance(function, ast.FunctionDef)
    if any(ast.unparse(decorator) == "property" for decorator in function.decorator_list):
        yield from ("```text", f"{name}: {_annotation(function.returns)}", "```", "")
        return
    arguments = _arguments(function.args)
    returns = f" -> {_annotation(function.returns)}" if function is definition else ""
    line = f"{name}({', '.join(arguments)}){returns}"
    if len(line) > _WIDTH:
        line = f"{name}(\n" + "".join(f"    {one},\n" for one in arguments) + f"){returns}"
    yield from ("```text", *line.splitlines(), "```", "")


def _annotation(node: ast.expr | None) -> str:
    return "None" if node is None else ast.unparse(node)


def _arguments(given: ast.arguments) -> list[str]:
    """Return the arguments as they are written, without types, which the text tells better."""
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    found = [_argument(one, default) for one, default in zip(positional, defaults, strict=True)]
    if found and found[0] in {"self", "cls"}:
        found = found[1:]
    if given.vararg:
        found.append(f"*{given.vararg.arg}")
    elif given.kwonlyargs:
        found.append("*")
    found += [_argument(*pair) for pair in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return [*found, *([f"**{given.kwarg.arg}"] if given.kwarg else [])]


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    return argument.arg if default is None else f"{argument.arg}={ast.unparse(default)}"


def _prose(docstring: str) -> Iterator[str]:
    """Yield a docstring in Google style as Markdown."""
    section = ""
    lines = _markdown(docstring).splitlines()
    for number, line in enumerate(lines):
        heading = _SECTION.match(line)
        if heading:
            section = heading[1]
            yield from (f"*{section}*", "")
        elif section and line.startswith("    "):
            yield from _item(section, textwrap.dedent(line) if line[4] != " " else line[4:])
        else:
            section = "" if line else section
            following = lines[number + 1] if number + 1 < len(lines) else ""
            yield line
            if line and following.startswith("    ") and not section:
                yield ""
    yield ""


def _item(section: str, line: str) -> Iterator[str]:
    name, separator, text = line.partition(": ")
    named = section in {"Args", "Attributes", "Raises", "Warns"}
    if named and separator and not line.startswith(" ") and re.fullmatch(r"[\w*., ]+", name):
        yield f"- `{name}`: {text}"
    else:
        yield f"  {line.strip()}" if named else line


def _markdown(text: str) -> str:
    """Return reStructuredText's marks as Markdown's."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`")
