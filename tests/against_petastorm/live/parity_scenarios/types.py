"""Every Spark type in every variant, with every `dtype`, through every loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parity_harness import columns
from parity_harness.session import LOADERS, Session

from parity_scenarios import Program, Scenarios

SCENARIOS = Scenarios()
add, load = SCENARIOS.add, SCENARIOS.load

_NUMBERS = {"boolean", "byte", "short", "int", "long", "float", "double", "interval_dt"}
_ROW_NULLS = {"somenull", "allnull", "somenull_rg1", "somenull_rg2", "allnull_rg1", "allnull_rg2"}
_RAGGED = {"uneq", "uneq_acrossrg", "someempty", "allempty_rg1", "rownull_len1"}
_ELEMENT_NULLS = {"elemnull", "elemnull_all", "elemnull_rg1", "elemnull_rg2"}


@dataclass(frozen=True)
class ColumnCase:
    """One column of a frame, converted with a `dtype` and read by a loader."""

    frame: str
    column: str
    dtype: str | None
    loader: str

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """The name that the expected differences know."""
        return f"type {self.column} {self.dtype} {self.loader}"

    @property
    def loads(self) -> bool:
        """Whether the original loads the column, probably; a wrong guess costs time, no more."""
        kind, _, variant = self.column.partition("__")
        if kind in columns.VECTORS:
            return variant not in _RAGGED
        array, kind = kind.startswith("array_"), kind.removeprefix("array_")
        if array and variant in _ROW_NULLS | _RAGGED:
            return False
        nulls = variant in _ROW_NULLS | _ELEMENT_NULLS
        if self.loader != "tf":
            return kind in _NUMBERS and not (kind == "boolean" and nulls)
        if kind.startswith("decimal") or (array and kind == "date"):
            return False
        return not (nulls and (kind in {"binary", "date"} or (array and kind == "string")))

    def program(self, *names: str) -> Program:
        """Load the named columns as this case would load its own."""

        def run(session: Session) -> object:
            converter = session.converter(self.frame, dtype=self.dtype)
            return session.load(converter, self.loader, schema_fields=list(names))

        return run


def _columns() -> Iterator[tuple[str, str, str | None]]:
    for files in (1, 2):
        for family, chosen in (
            ("scalars", columns.scalar_columns(files=files)),
            ("arrays", columns.array_columns(files=files)),
            ("vectors", columns.vector_columns(files=files)),
        ):
            for column in chosen:
                yield f"{family}{files}", column.name, "float32"
        floating = columns.scalar_columns(files=files, only=("float", "double"))
        floating += columns.array_columns(files=files, only=("float", "double"))
        for dtype in ("float64", None):
            for column in floating:
                yield f"floats{files}", column.name, dtype
        for column in columns.vector_columns(files=files):
            yield f"vectors{files}", column.name, "float64"


# With one file InMemBatchedDataLoader reads what BatchedDataLoader reads.
COLUMNS = [
    ColumnCase(frame, column, dtype, loader)
    for frame, column, dtype in _columns()
    for loader in LOADERS
    if loader != "inmem" or frame.endswith("2")
]

for _loader in LOADERS:
    for _files in (1, 2):
        load(f"unsupported types {_files} {_loader}", f"unsupported{_files}", _loader)
    for _kind in columns.UNSUPPORTED:
        load(f"only unsupported {_kind} {_loader}", f"only:{_kind}__nonull", _loader)
load("all-unsupported columns (only map)", "only:map__nonull2f")
for _kind in columns.VECTORS:
    for _variant, _dtype in (("somenull", "float32"), ("somenull", None), ("nonull", None)):
        add(
            f"vector {_kind} {_variant} {_dtype}",
            lambda session, frame=f"{_kind}_{_variant}", dtype=_dtype: len(
                session.convert(session.frame(frame), dtype=dtype)
            ),
        )
for _frame in ("void", "ancient_timestamp", "ancient_date", "far_timestamp_ntz"):
    for _loader in ("torch", "tf"):
        load(f"odd {_frame} {_loader}", _frame, _loader)
