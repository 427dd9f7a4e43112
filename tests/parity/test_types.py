"""Every Spark type in every variant, through every loader, with every `dtype`."""

import pytest
from parity_harness import columns
from parity_harness.judge import judge
from parity_harness.outcome import Items, Outcome
from parity_harness.session import LOADERS
from parity_scenarios import Scenario

pytestmark = [pytest.mark.tf]

NUMBERS = {"boolean", "byte", "short", "int", "long", "float", "double", "interval_dt"}
ROW_NULLS = {"somenull", "allnull", "somenull_rg1", "somenull_rg2", "allnull_rg1", "allnull_rg2"}
RAGGED = {"uneq", "uneq_acrossrg", "someempty", "allempty_rg1", "rownull_len1"}
ELEMENT_NULLS = {"elemnull", "elemnull_all", "elemnull_rg1", "elemnull_rg2"}


def _cases():
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


CASES = list(_cases())
# With one file InMemBatchedDataLoader reads what BatchedDataLoader reads.
LOADED = [(*case, k) for case in CASES for k in LOADERS if k != "inmem" or case[0].endswith("2")]


def _loads(column, loader):
    """Guess whether the original can load a column; a wrong guess costs time, nothing else."""
    kind, _, variant = column.partition("__")
    if kind in columns.VECTORS:
        return variant not in RAGGED
    array = kind.startswith("array_")
    kind = kind.removeprefix("array_")
    if array and variant in ROW_NULLS | RAGGED:
        return False
    nulls = variant in ROW_NULLS | ELEMENT_NULLS
    if loader != "tf":
        return kind in NUMBERS and not (kind == "boolean" and nulls)
    if kind.startswith("decimal") or (array and kind == "date"):
        return False
    return not (nulls and (kind in {"binary", "date"} or (array and kind == "string")))


@pytest.fixture(scope="session")
def load_column():
    """Load one column of a frame, together with all others that load, or alone if need be."""
    together = {}

    def load(session, frame, column, dtype, loader):
        def program(*names):
            def run(session):
                converter = session.converter(frame, dtype=dtype)
                return session.load(converter, loader, schema_fields=list(names))

            return run

        if _loads(column, loader):
            key = (id(session), frame, dtype, loader)
            if key not in together:
                names = [c for f, c, d in CASES if (f, d) == (frame, dtype) and _loads(c, loader)]
                together[key] = session.run(program(*names), seconds=60)
            if not together[key].raised:
                return Outcome(value=_only(together[key].value, column))
        return session.run(program(column))

    return load


def _only(value, column):
    """Keep one column in the batches and in the element spec."""
    if not isinstance(value, Items):
        return value
    if value.container == "list" or value.keys in {("batches",), ("spec", "batches")}:
        return Items(value.container, value.keys, tuple(_only(v, column) for v in value.values))
    kept = [i for i, key in enumerate(value.keys) if key == column]
    return Items(value.container, (column,) * len(kept), tuple(value.values[i] for i in kept))


@pytest.mark.parametrize(("frame", "column", "dtype", "loader"), LOADED)
def test_column(sessions, load_column, frame, column, dtype, loader):
    original, bridge = (load_column(s, frame, column, dtype, loader) for s in sessions)
    judge(f"type {column} {dtype} {loader}", original, bridge)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("files", [1, 2])
def test_unsupported_types_are_left_out(compare, files, loader):
    compare(
        Scenario(
            f"unsupported types {files} {loader}",
            lambda session: session.load(f"unsupported{files}", loader),
        )
    )


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("kind", columns.UNSUPPORTED)
def test_only_an_unsupported_column(compare, kind, loader):
    compare(
        Scenario(
            f"only unsupported {kind} {loader}",
            lambda session: session.load(f"only:{kind}__nonull", loader),
        )
    )


@pytest.mark.parametrize("kind", columns.VECTORS)
@pytest.mark.parametrize(
    ("variant", "dtype"), [("somenull", "float32"), ("somenull", None), ("nonull", None)]
)
def test_vectors_that_do_not_convert(compare, kind, variant, dtype):
    def program(session):
        return len(session.convert(session.frame(f"{kind}_{variant}"), dtype=dtype))

    compare(Scenario(f"vector {kind} {variant} {dtype}", program))


@pytest.mark.parametrize("frame", ["void", "ancient_timestamp", "ancient_date", "far_timestamp_ntz"])
@pytest.mark.parametrize("loader", ["torch", "tf"])
def test_odd_columns(compare, frame, loader):
    compare(Scenario(f"odd {frame} {loader}", lambda session: session.load(frame, loader)))
