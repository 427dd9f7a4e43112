"""Which columns of a Spark DataFrame tensors can hold, and what to say of the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

__all__ = [
    "ENCODINGS",
    "TEXTS",
    "UnsupportedColumnsError",
    "check_nulls",
    "check_types",
    "element_of",
    "family_of",
]

# How values, alone and in arrays, are stored in MDS by their Spark types; times in nanoseconds.
ENCODINGS = {
    "boolean": "uint8",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "timestamp": "int64",
    "timestamp_ntz": "int64",
}
TEXTS = {"string": "str", "binary": "bytes"}
_HELD = {*ENCODINGS, *TEXTS, "vector"}

_ADVICE = {
    "decimal": "cast it to double",
    "date": "cast it to timestamp, or take unix_date() of it",
    "interval": "cast it to bigint",
    "struct": "select its fields as columns of their own",
    "map": "select its values as columns of their own",
    "array": "cast its elements to numbers, flatten it, or make a column of each element",
}


class UnsupportedColumnsError(ValueError):
    """Some columns cannot be stored so that they are read as tensors.

    Args:
        columns: What is wrong with each of them, and what to do, by name.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        lines = "".join(f"  {name}: {problem}\n" for name, problem in columns.items())
        super().__init__(
            f"streaming cannot give these columns as tensors:\n{lines}"
            "Change them in the DataFrame, drop them, or keep petastorm_bridge's "
            "make_spark_converter for it. Nothing is left where it was to be written."
        )


def element_of(kind: str) -> str | None:
    """Return the Spark type of an array's elements, None for what is no array."""
    if not kind.startswith("array<"):
        return None
    return kind.removeprefix("array<").removesuffix(">")


def check_types(kinds: Iterable[tuple[str, str]]) -> None:
    """Check that tensors can hold the columns.

    Args:
        kinds: Name and Spark type of each, as ``DataFrame.dtypes`` has them.

    Raises:
        UnsupportedColumnsError: They cannot; names all of them.
    """
    problems = {}
    for name, kind in kinds:
        element = element_of(kind)
        is_held = family_of(kind) in _HELD if element is None else element in ENCODINGS
        if not is_held:
            advice = _ADVICE.get(family_of(kind), "cast it to a number or a string")
            problems[name] = f"of type {kind}; {advice}"
    if problems:
        raise UnsupportedColumnsError(problems)


def check_nulls(
    kinds: Iterable[tuple[str, str]], nulls: Collection[str], element_nulls: Collection[str]
) -> None:
    """Check that no column has nulls which have no form in a tensor.

    Args:
        kinds: Name and Spark type of each, as ``DataFrame.dtypes`` has them.
        nulls: Names of columns in which rows are null.
        element_nulls: Names of columns of arrays in which elements are null.

    Raises:
        UnsupportedColumnsError: Some have; names all of them.
    """
    problems = {}
    for name, kind in kinds:
        if name in nulls and family_of(kind) in {"array", "vector"}:
            problems[name] = f"of type {kind}, and null in some rows; fill or drop these"
        elif name in nulls and family_of(kind) in {"boolean", *TEXTS}:
            problems[name] = (
                f"of type {kind}, with nulls; fill them (DataFrame.fillna) or drop them"
            )
        elif name in element_nulls and element_of(kind) == "boolean":
            problems[name] = f"of type {kind}, with nulls in the arrays; fill or drop them"
    if problems:
        raise UnsupportedColumnsError(problems)


def family_of(kind: str) -> str:
    """Return the name of a type without its parameters: of "decimal(10,2)" and "array<int>"."""
    for end in (" ", "(", "<"):
        kind = kind.partition(end)[0]
    return kind
