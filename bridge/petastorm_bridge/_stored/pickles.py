"""Reads pickles without running anything.

A pickle is a program for a stack machine that may call whatever it names. Here the names are looked up
in a table and never imported, and what the original would call becomes an :class:`Instance`: a name and
arguments, for others to judge. So nothing that a file says is executed, and there is no opcode for what
no schema or index needs (buffers, persistent ids, extension codes).
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

from petastorm_bridge.errors import StoredSchemaError

__all__ = ["Instance", "Name", "read_pickle"]

MAX_BYTES = 8 << 20
"""Schemas of ten thousand fields are smaller by far."""


@dataclass(frozen=True)
class Name:
    """A class or function that a pickle refers to."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class Instance:
    """What a call or a class would have made.

    Attributes:
        made_by: What the pickle wants called.
        arguments: The arguments by position.
        state: What the pickle wants set afterwards: attributes, or a tuple, or None.
    """

    made_by: Name
    arguments: tuple[Any, ...]
    state: Any = None


_DAMAGE = (
    ValueError, IndexError, KeyError, TypeError, OverflowError, AttributeError,
    Warning,  # of a text with a wrong escape, where the program has warnings raised
)  # fmt: skip


class _Mark:
    """Stands on the stack where a collection begins."""


def read_pickle(data: bytes, admitted: Container[tuple[str, str]]) -> Any:
    """Return what a pickle says, as numbers, texts, tuples, lists, dicts, names and instances.

    Args:
        data: The pickle; protocols 0 to 5, of Python 2 or 3.
        admitted: Module and name of everything that it may refer to.

    Raises:
        StoredSchemaError: It refers to anything else, is damaged, or needs what no schema needs.
    """
    if len(data) > MAX_BYTES:
        raise StoredSchemaError(
            f"The stored schema has {len(data)} bytes; more than {MAX_BYTES} are not read."
        )
    machine = _Machine(admitted)
    try:
        for opcode, argument, position in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.result()
            machine.step(opcode.name, argument, position)
    except StoredSchemaError:
        raise
    except _DAMAGE as error:
        raise StoredSchemaError(f"The stored schema is damaged: {error}.") from error
    raise StoredSchemaError("The stored schema is damaged: it has no end.")


@dataclass
class _Machine:
    admitted: Container[tuple[str, str]]
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def result(self) -> Any:
        return self.stack[-1]

    def step(self, opcode: str, argument: Any, position: int | None) -> None:
        if opcode in _VALUES:
            self.stack.append(argument)
        elif opcode in _CONSTANTS:
            self.stack.append(_CONSTANTS[opcode]())
        elif opcode in _ACTIONS:
            _ACTIONS[opcode](self, argument)
        elif opcode not in _NO_OPERATION:
            raise StoredSchemaError(
                f"The stored schema uses the pickle instruction {opcode} at byte {position}, which no "
                "schema needs. It was not run."
            )

    def put(self, index: Any) -> None:
        self.memo[len(self.memo) if index is None else index] = self.stack[-1]

    def get(self, index: int) -> None:
        self.stack.append(self.memo[index])

    def refer(self, argument: Any) -> None:
        if argument is None:  # the name lies on the stack
            name, module = self.stack.pop(), self.stack.pop()
        else:
            module, _, name = argument.partition(" ")
        if not isinstance(module, str) or not isinstance(name, str):
            raise StoredSchemaError("The stored schema names a class by something that is no text.")
        if (module, name) not in self.admitted:
            raise StoredSchemaError(
                f"The stored schema names {module}.{name}, which is no part of Petastorm's schemas. "
                "Nothing was run. If the class is a codec of your own, write the dataset anew with "
                "one of petastorm_bridge.codecs."
            )
        self.stack.append(Name(module, name))

    def since_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _Mark:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise IndexError("a collection ends that has not begun")

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError("a tuple has fewer elements than it should")
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(items)

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise TypeError("something is appended to what is no list")
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise TypeError("an item is set in what is no dictionary")
        target.update(_pairs(items))

    def add_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, set):
            raise TypeError("something is added to what is no set")
        target.update(_numbers(items))

    def call(self, *, is_class: bool) -> None:
        arguments, made_by = self.stack.pop(), self.stack.pop()
        if not isinstance(made_by, Name) or not isinstance(arguments, tuple):
            raise TypeError("something is called that is no name")
        make = None if is_class else _COLLECTIONS.get((made_by.module, made_by.name))
        self.stack.append(Instance(made_by, arguments) if make is None else make(arguments))

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, dict):
            return  # attributes of an OrderedDict, which has none that matter
        if not isinstance(target, Instance):
            raise TypeError("attributes are set of what is no instance")
        target.state = state


def _ordered(arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """Return what ``OrderedDict(*arguments)`` would: Python 2 gives a list of lists."""
    if not arguments:
        return {}
    (items,) = arguments
    if isinstance(items, dict):
        return dict(items)
    if not isinstance(items, list) or not all(isinstance(item, (list, tuple)) for item in items):
        raise TypeError("an OrderedDict is made of what is no list of pairs")
    return _pairs([part for key, value in items for part in (key, value)])


def _default(arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """Return what ``defaultdict(*arguments)`` would, without a default."""
    if len(arguments) > 1:
        raise TypeError("a defaultdict is made of more than its default")
    return {}


def _set(arguments: tuple[Any, ...]) -> set[int]:
    """Return what ``set(*arguments)`` would, of numbers."""
    items = arguments[0] if arguments else []
    if not isinstance(items, (list, tuple)):
        raise TypeError("a set is made of what is no list")
    return _numbers(items)


def _numbers(items: Any) -> set[int]:
    if not all(isinstance(item, int) for item in items):
        raise TypeError("a set holds something that is no number")
    return set(items)


def _bytes(arguments: tuple[Any, ...]) -> bytes:
    """Return what ``_codecs.encode(text, 'latin1')`` would: bytes, in old protocols."""
    if len(arguments) != 2 or not isinstance(arguments[0], str) or arguments[1] != "latin1":
        raise TypeError("a text is encoded in a way that no pickle of bytes needs")
    return arguments[0].encode("latin-1")


_COLLECTIONS: dict[tuple[str, str], Callable[[tuple[Any, ...]], Any]] = {
    ("collections", "OrderedDict"): _ordered,
    ("collections", "defaultdict"): _default,
    ("_codecs", "encode"): _bytes,
    ("builtins", "set"): _set,
    ("__builtin__", "set"): _set,
}
"""What is made at once, of things that cannot hide anything."""


def _pairs(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise ValueError("a key has no value")
    # No tuples: the hash of nested ones could take for ever.
    if not all(isinstance(key, (str, bytes, int, float, Instance)) for key in items[::2]):
        raise TypeError("the key of a dictionary is no text and no number")
    return dict(zip(items[::2], items[1::2], strict=True))


_VALUES = frozenset(
    {
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
    }
)
"""What puts its own argument onto the stack."""

_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
    "MARK": lambda: _Mark,
}

_NO_OPERATION = frozenset({"PROTO", "FRAME"})

_ACTIONS: dict[str, Callable[[_Machine, Any], object]] = {
    "POP": lambda machine, _: machine.stack.pop(),
    "POP_MARK": lambda machine, _: machine.since_mark(),
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "LIST": lambda machine, _: machine.stack.append(machine.since_mark()),
    "APPEND": lambda machine, _: machine.extend([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "DICT": lambda machine, _: machine.stack.append(_pairs(machine.since_mark())),
    "SETITEM": lambda machine, _: machine.set_items(_two(machine)),
    "SETITEMS": lambda machine, _: machine.set_items(machine.since_mark()),
    "ADDITEMS": lambda machine, _: machine.add_items(machine.since_mark()),
    "PUT": lambda machine, index: machine.put(index),
    "BINPUT": lambda machine, index: machine.put(index),
    "LONG_BINPUT": lambda machine, index: machine.put(index),
    "MEMOIZE": lambda machine, _: machine.put(None),
    "GET": lambda machine, index: machine.get(index),
    "BINGET": lambda machine, index: machine.get(index),
    "LONG_BINGET": lambda machine, index: machine.get(index),
    "GLOBAL": lambda machine, names: machine.refer(names),
    "STACK_GLOBAL": lambda machine, _: machine.refer(None),
    "REDUCE": lambda machine, _: machine.call(is_class=False),
    "NEWOBJ": lambda machine, _: machine.call(is_class=True),
    "BUILD": lambda machine, _: machine.build(),
}


def _two(machine: _Machine) -> list[Any]:
    value, key = machine.stack.pop(), machine.stack.pop()
    return [key, value]
