"""Reads pickles without running anything, in time and memory in proportion to their length.

A pickle is a program for a stack machine that may call whatever it names. Here the machine is the standard
library's, with its instructions listed: names stay names, and what would be called, or would be a
dictionary or a set, becomes a :class:`Made`, which only remembers what the pickle puts into it. So nothing
of a pickle is imported, called, copied or hashed. It is the machine in Python, ``pickle._Unpickler``, because
that in C lets nobody replace its dictionaries and calls, and allocates its memo by a number in the pickle.
"""

from __future__ import annotations

import io
import itertools
import pickle
import pickletools
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple, TypeVar

from petastorm_bridge.errors import StoredSchemaError

_Result = TypeVar("_Result")

MAX_BYTES = 8 << 20
"""Schemas of ten thousand fields are smaller by far."""
_MEETINGS_PER_BYTE = 8  # fields share codecs and types; without that three would do
_MAX_DEPTH = 200  # of objects in one another; a struct in a struct of Spark's is seven
_MAX_BITS = 64  # of integers: the hash and the text of longer ones take long

_MACHINE: Any = pickle._Unpickler  # noqa: SLF001 – see above
_TAKEN_OVER = """
    PROTO FRAME STOP MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4
    FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES
    SHORT_BINBYTES BINBYTES8 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST APPEND APPENDS ADDITEMS
    SETITEM SETITEMS PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL BUILD
"""


class Name(NamedTuple):
    """A class or function that a pickle refers to."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Made(list[Any]):
    """What a call or a class would have made: the elements, or pairs of key and value, put into it.

    Attributes:
        made_by: What the pickle wants called.
        arguments: By position.
        state: What the pickle wants set afterwards: attributes, or a tuple, or None.
        understood: For whoever reads it: what this stands for, wherever it is referred to.
    """

    __slots__ = ("arguments", "made_by", "state", "understood")

    def __init__(self, made_by: Any, arguments: Any = ()) -> None:
        if not isinstance(made_by, Name) or not isinstance(arguments, tuple):
            raise TypeError("something is called that is no name")
        self.made_by = made_by
        self.arguments: tuple[Any, ...] = arguments
        self.state: Any = None
        self.understood: Any = None

    add = list.append

    def __setitem__(self, key: Any, value: Any) -> None:
        self.append((key, value))

    def __setstate__(self, state: Any) -> None:
        self.state = state


_DICT = Name("builtins", "dict")
_SETS = [Name("builtins", "set"), Name("__builtin__", "set")]
_ORDERED = Name("collections", "OrderedDict")
_MAPPINGS = [_DICT, _ORDERED, Name("collections", "defaultdict")]


def items_of(value: Any) -> list[tuple[Any, Any]]:
    """Return keys and values of a dictionary of whatever class, in order; StoredSchemaError if it is none."""
    if not isinstance(value, Made) or value.made_by not in _MAPPINGS:
        raise StoredSchemaError(
            "The stored schema has something else where a dictionary should be."
        )
    # Python 2 gives an OrderedDict a list of lists.
    is_given = value.made_by == _ORDERED and value.arguments
    return [(key, item) for key, item in (*(value.arguments[0] if is_given else ()), *value)]


def members_of(value: Any) -> list[Any]:
    """Return the elements of a set; StoredSchemaError if it is none."""
    if not isinstance(value, Made) or value.made_by not in _SETS:
        raise StoredSchemaError("The stored schema has something else where a set should be.")
    return [*(value.arguments[0] if value.arguments else ()), *value]


def read_pickle(
    data: bytes, admitted: Container[tuple[str, str]], understand: Callable[[Any], _Result]
) -> _Result:
    """Return what is understood of a pickle.

    Args:
        data: The pickle; protocols 0 to 5, of Python 2 or 3.
        admitted: Module and name of everything that it may refer to.
        understand: Gets the numbers, texts, tuples, lists, :class:`Name` and :class:`Made` of the pickle,
            in depth and number as a pickle of this length may have them.

    Raises:
        StoredSchemaError: It refers to anything else, is damaged, or needs what no schema needs.
    """
    if len(data) > MAX_BYTES:
        raise StoredSchemaError(
            f"The stored schema has {len(data)} bytes; more than {MAX_BYTES} are not read."
        )
    try:
        value = _Unpickler(data, admitted).load()
        _check(value, _MEETINGS_PER_BYTE * len(data))
        return understand(value)
    except StoredSchemaError:
        raise
    except Exception as error:  # whatever a damaged file leads to, memory and recursion included
        reason = str(error)[:200] or type(error).__name__
        raise StoredSchemaError(f"The stored schema is damaged: {reason}.") from error


def _check(root: Any, remaining: int) -> None:
    """Refuse what is larger, as often as it is referred to, than its pickle explains.

    Args:
        root: What was read; lists may hold one another, and themselves.
        remaining: How many objects, and bytes of texts, may be met on all ways through it.
    """
    levels: list[Iterator[Any]] = [iter((root,))]
    while levels:
        for value in levels[-1]:
            remaining -= 1
            kind = type(value)
            if kind is str or kind is bytes:
                remaining -= len(value)
            elif kind is int and value.bit_length() > _MAX_BITS:
                raise StoredSchemaError(
                    f"The stored schema has a number of {value.bit_length()} bits."
                )
            elif kind is Made:
                levels.append(itertools.chain((value.arguments, value.state), value))
                break
            elif kind is tuple or kind is list:
                levels.append(iter(value))
                break
            if remaining < 0:
                break
        else:
            levels.pop()
        if remaining < 0 or len(levels) > _MAX_DEPTH:
            raise StoredSchemaError(
                "The stored schema refers to its own parts too many times, or nests them too deep."
            )


class _Memo(dict[int, Any]):
    """Numbered without gaps, as every pickler does: numbers at will could be made to collide."""

    def __setitem__(self, index: int, value: Any) -> None:
        if index > len(self) + 1:
            raise ValueError(f"object {index} is remembered after {len(self)}")
        super().__setitem__(index, value)


class _Instructions(dict[int, Callable[[Any], None]]):
    def __missing__(self, code: int) -> Callable[[Any], None]:
        names = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
        raise StoredSchemaError(
            f"The stored schema uses the pickle instruction {names.get(code, code)}, which no "
            "schema needs. It was not run."
        )


class _Unpickler(_MACHINE):  # type: ignore[misc]
    """The library's machine, without the instructions that call, hash or load."""

    dispatch = _Instructions(
        {
            code: _MACHINE.dispatch[code]
            for code in (getattr(pickle, n)[0] for n in _TAKEN_OVER.split())
        }
    )

    def __init__(self, data: bytes, admitted: Container[tuple[str, str]]) -> None:
        super().__init__(io.BytesIO(data), encoding="latin-1")
        self.memo = _Memo()
        self._admitted = admitted

    def find_class(self, module: str, name: str) -> Name:
        if (module, name) not in self._admitted:
            raise StoredSchemaError(
                f"The stored schema names {module}.{name}, which is no part of Petastorm's schemas. "
                "Nothing was run. If the class is a codec of your own, write the dataset anew with "
                "one of petastorm_bridge.codecs."
            )
        return Name(module, name)

    def call(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = Made(self.stack[-1], arguments)

    def empty_dict(self) -> None:
        self.append(Made(_DICT))

    def full_dict(self) -> None:
        items = self.pop_mark()
        self.empty_dict()
        self.stack[-1].extend(zip(items[::2], items[1::2], strict=True))

    def empty_set(self) -> None:
        self.append(Made(_SETS[0]))

    dispatch[pickle.REDUCE[0]] = dispatch[pickle.NEWOBJ[0]] = call
    dispatch[pickle.EMPTY_DICT[0]] = empty_dict
    dispatch[pickle.DICT[0]] = full_dict
    dispatch[pickle.EMPTY_SET[0]] = empty_set
