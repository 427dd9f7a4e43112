"""Row predicates (``petastorm/predicates.py``).

A predicate gets the DataFrame of its fields and says which rows stay; one whose fields are all
partition columns of a table is asked once per partition, with a dict of scalars. Petastorm's own
classes were written for scalars and fail on DataFrames except ``in_lambda``; here all of them work.
"""

from __future__ import annotations

import abc
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = [
    "PredicateBase",
    "in_intersection",
    "in_lambda",
    "in_negate",
    "in_pseudorandom_split",
    "in_reduce",
    "in_set",
]


class PredicateBase(abc.ABC):
    """Base class for row predicates."""

    @abc.abstractmethod
    def get_fields(self) -> set[str]:
        """Return the names of the fields that :meth:`do_include` needs."""

    @abc.abstractmethod
    def do_include(self, values: Any) -> Any:
        """Return a boolean Series (or array) with one entry per row of the DataFrame ``values``.

        For a dict of scalars: whether they stay.
        """


def _are_scalars(values: Any) -> bool:
    return isinstance(values, Mapping)


def _require_predicates(predicates: Iterable[Any]) -> None:
    if not all(isinstance(predicate, PredicateBase) for predicate in predicates):
        raise ValueError("Predicate is nor derived from PredicateBase")


class in_set(PredicateBase):  # noqa: N801 – Petastorm's name
    """Keep rows whose ``predicate_field`` is one of ``inclusion_values``."""

    def __init__(self, inclusion_values: Iterable[Any], predicate_field: str) -> None:
        self._inclusion_values = set(inclusion_values)
        self._predicate_field = predicate_field

    def get_fields(self) -> set[str]:
        return {self._predicate_field}

    def do_include(self, values: Any) -> Any:
        column = values[self._predicate_field]
        if _are_scalars(values):
            return column in self._inclusion_values
        return column.isin(self._inclusion_values)


class in_intersection(PredicateBase):  # noqa: N801
    """Keep rows whose list in ``_predicate_field`` shares a value with ``inclusion_values``."""

    def __init__(self, inclusion_values: Iterable[Any], _predicate_field: str) -> None:
        self._inclusion_values = list(inclusion_values)
        self._predicate_field = _predicate_field

    def get_fields(self) -> set[str]:
        return {self._predicate_field}

    def do_include(self, values: Any) -> Any:
        column = values[self._predicate_field]
        first = column if _are_scalars(values) else next(iter(column), ())
        if not np.iterable(first):
            raise ValueError("Predicate field should have iterable type")
        if _are_scalars(values):
            return bool(np.isin(column, self._inclusion_values).any())
        exploded = column.reset_index(drop=True).explode()
        included = exploded.isin(self._inclusion_values).groupby(level=0).any()
        return included.to_numpy()


class in_lambda(PredicateBase):  # noqa: N801
    """Keep rows for which ``predicate_func`` is true.

    Args:
        predicate_fields: A list of field names.
        predicate_func: Called with one Series per field (and ``state_arg``, unless that is None).
        state_arg: Passed on.

    Raises:
        ValueError: ``predicate_fields`` is not a list.
    """

    def __init__(
        self,
        predicate_fields: Sequence[str],
        predicate_func: Callable[..., Any],
        state_arg: Any = None,
    ) -> None:
        if not isinstance(predicate_fields, list):
            raise ValueError("Predicate fields should be a list")  # noqa: TRY004 – as Petastorm
        self._predicate_fields = predicate_fields
        self._predicate_func = predicate_func
        self._state_arg = state_arg

    def get_fields(self) -> set[str]:
        return set(self._predicate_fields)

    def do_include(self, values: Any) -> Any:
        args = [values[field] for field in self._predicate_fields]
        if self._state_arg is not None:
            args.append(self._state_arg)
        return self._predicate_func(*args)


class in_negate(PredicateBase):  # noqa: N801
    """Keep the rows that ``predicate`` drops."""

    def __init__(self, predicate: PredicateBase) -> None:
        _require_predicates([predicate])
        self._predicate = predicate

    def get_fields(self) -> set[str]:
        return self._predicate.get_fields()

    def do_include(self, values: Any) -> Any:
        included = self._predicate.do_include(values)
        return not included if _are_scalars(values) else ~np.asarray(included, bool)


class in_reduce(PredicateBase):  # noqa: N801
    """Combine predicates.

    Args:
        predicate_list: Predicates.
        reduce_func: Gets the list of their answers: ``all``, ``any``, ``numpy.logical_and.reduce``
            or a function of Series.
    """

    def __init__(
        self, predicate_list: Sequence[PredicateBase], reduce_func: Callable[[Any], Any]
    ) -> None:
        _require_predicates(predicate_list)
        self._predicate_list = predicate_list
        self._reduce_func = reduce_func

    def get_fields(self) -> set[str]:
        return set().union(*(p.get_fields() for p in self._predicate_list))

    def do_include(self, values: Any) -> Any:
        included = [p.do_include(values) for p in self._predicate_list]
        # Builtins ask a Series for one truth value.
        if self._reduce_func in (all, any) and not _are_scalars(values):
            matrix = np.asarray(included, bool)
            return matrix.all(axis=0) if self._reduce_func is all else matrix.any(axis=0)
        return self._reduce_func(included)


class in_pseudorandom_split(PredicateBase):  # noqa: N801
    """Keep one of several subsets that rows fall into by the MD5 hash of a field.

    Args:
        fraction_list: Share of each subset.
        subset_index: Which subset to keep.
        predicate_field: Field whose text is hashed.

    Raises:
        ValueError: ``subset_index`` is out of range.
    """

    def __init__(
        self, fraction_list: Sequence[float], subset_index: int, predicate_field: str
    ) -> None:
        if subset_index >= len(fraction_list):
            raise ValueError("subset_index is out of range")
        self._predicate_field = predicate_field
        high = [sum(fraction_list[: i + 1]) for i in range(len(fraction_list))]
        low = high[subset_index - 1] if subset_index else 0
        self._bucket_low = low * (sys.maxsize - 1)
        self._bucket_high = high[subset_index] * (sys.maxsize - 1)

    def get_fields(self) -> set[str]:
        return {self._predicate_field}

    def do_include(self, values: Any) -> Any:
        if self._predicate_field not in values:
            raise ValueError(f"Tested values does not have split key: {self._predicate_field}")
        column = values[self._predicate_field]
        if _are_scalars(values):
            return self._in_subset(column)
        return column.map(self._in_subset).astype(bool)

    def _in_subset(self, value: Any) -> bool:
        digest = hashlib.md5(str(value).encode("utf-8"), usedforsecurity=False).hexdigest()
        return self._bucket_low <= int(digest, 16) % sys.maxsize < self._bucket_high
