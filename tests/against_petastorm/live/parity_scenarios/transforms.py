"""TransformSpec: what the function sees, what it may return, and what becomes of its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from parity_harness.session import Session

from parity_scenarios import Scenarios

SCENARIOS = Scenarios()
add, load, define = SCENARIOS.add, SCENARIOS.load, SCENARIOS.define

LOADERS = ("torch", "batched", "tf")
Function = Callable[[Any], Any]


def transform(
    name: str,
    function: Function | None,
    frame: str = "six",
    *,
    spec: dict[str, Any] | None = None,
    loaders: tuple[str, ...] = LOADERS,
    **options: Any,
) -> None:
    """Add a scenario per loader: `function` and the other arguments of a TransformSpec."""

    def program(loader: str) -> Callable[[Session], object]:
        def run(session: Session) -> object:
            session.stage = "opening"
            made = session.transform_spec(function, **(spec or {}))
            return session.load(frame, loader, transform_spec=made, **options)

        return run

    for loader in loaders:
        add(f"{name} [{loader}]", program(loader))


def image(make: Callable[[int], Any]) -> Function:
    """A function that adds a column `img` with one value per row."""

    def run(rows: Any) -> Any:
        rows["img"] = [make(i) for i in rows["id"]]
        return rows

    return run


def field(shape: Any, dtype: Any = np.float32, name: str = "img") -> dict[str, Any]:
    """The `edit_fields` that declare one column."""
    return {"edit_fields": [(name, dtype, shape, False)]}


def filled(shape: tuple[int, ...], dtype: Any = np.float32) -> Callable[[int], Any]:
    """A constant array per row."""
    return lambda i: np.full(shape, i, dtype)


def column(name: str, make: Callable[[Any], Any]) -> Function:
    """A function that adds or replaces one column."""

    def run(rows: Any) -> Any:
        rows[name] = make(rows)
        return rows

    return run


# --- what the function sees --------------------------------------------------------------------


def _seen(rows: Any) -> dict[str, Any]:
    """Facts about a DataFrame, but for the order of its columns (the original's is random)."""
    facts: dict[str, Any] = {"rows": len(rows), "index": repr(rows.index)}
    for name in sorted(rows.columns):
        values = rows[name]
        elements = []
        for value in values:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            inner = [str(value.dtype), list(value.shape)] if isinstance(value, np.ndarray) else []
            if inner and inner[0] == "object":
                inner += [type(v).__qualname__ for v in value.ravel()]
            elements.append([kind, *inner])
        facts[name] = {
            "dtype": str(values.dtype),
            "elements": elements,
            "text": values.map(str).tolist(),
        }
    return facts


def _what_it_sees(frame: str) -> Callable[[Session], object]:
    def run(session: Session) -> object:
        seen: list[Any] = []

        def function(rows: Any) -> Any:
            seen.append(_seen(rows))
            return rows

        names = [name for name in session.frame(frame).columns if name in _NUMBERS]
        spec = session.transform_spec(lambda rows: function(rows)[names], selected_fields=names)
        with session.open(frame, transform_spec=spec, workers_count=1) as batches:
            for _ in batches:
                pass
        return seen

    return run


_NUMBERS = {"id", "byte", "short", "int", "long", "float", "double"}
add("func input dtypes, no nulls", _what_it_sees("seen_plain"))
add("func input dtypes, nulls in row 2", _what_it_sees("seen_nulls"))
add("func input dtypes, two files, nulls in one", _what_it_sees("seen_two"))


@define("func input columns in one order")
def _input_order(session: Session) -> object:
    seen: list[list[str]] = []
    spec = session.transform_spec(lambda rows: (seen.append(list(rows.columns)), rows)[1])
    session.load("mixed_numbers", transform_spec=spec, num_epochs=2)
    return [len({tuple(names) for names in seen}), sorted(seen[0])]


def _calls(session: Session, frame: str, **options: Any) -> list[int]:
    calls: list[int] = []
    spec = session.transform_spec(lambda rows: (calls.append(len(rows)), rows)[1])
    session.load(frame, transform_spec=spec, workers_count=1, **options)
    return calls


@define("func call granularity (6 rows, 1 file)")
def _granularity(session: Session) -> object:
    return [_calls(session, "six"), _calls(session, "ten2"), _calls(session, "six", batch_size=1)]


@define("epochs=3: func called per epoch")
def _per_epoch(session: Session) -> object:
    return _calls(session, "six", num_epochs=3)


# --- fields of several dimensions --------------------------------------------------------------

transform("edit (2,3) ok", image(filled((2, 3))), spec=field((2, 3)))
transform("edit (3,8,8) uint8", image(filled((3, 8, 8), np.uint8)), spec=field((3, 8, 8), np.uint8))
transform("edit shape mismatch (3,2) vs declared (2,3)", image(filled((3, 2))), spec=field((2, 3)))
transform("edit list-of-lists declared (2,3)", image(lambda i: [[1.0] * 3] * 2), spec=field((2, 3)))
for _shape, _value in (
    ((None, 3), (2, 3)),
    ((-1, 3), (2, 3)),
):
    transform(
        f"edit shape ({_shape[0]},3)",
        image(filled(_value)),
        spec=field(_shape),
    )
transform("edit shape (None,) with (3,)", image(filled((3,))), spec=field((None,)))
transform("edit shape (3,) with (3,)", image(filled((3,))), spec=field((3,)))
transform("edit shape (3,) python list", image(lambda i: [float(i)] * 3), spec=field((3,)))
transform("edit shape (4,) but (3,) returned", image(filled((3,))), spec=field((4,)))
transform("edit shape () but (3,) returned", image(filled((3,))), spec=field(()))
transform("edit shape None with (3,)", image(filled((3,))), spec=field(None))
transform(
    "edit shape (2,3) ndarray non-contiguous",
    image(lambda i: np.full((3, 2), i, np.float32).T),
    spec=field((2, 3)),
)
transform(
    "edit (2,3) dtype mismatch func float64 declared float32",
    image(filled((2, 3), np.float64)),
    spec=field((2, 3)),
)
transform(
    "edit (3,) dtype mismatch func int64 declared float32",
    image(filled((3,), np.int64)),
    spec=field((3,)),
)
transform('edit numpy_dtype string "float32"', image(filled((2, 3))), spec=field((2, 3), "float32"))
transform(
    "edit numpy_dtype np.dtype float32",
    image(filled((2, 3))),
    spec=field((2, 3), np.dtype("float32")),
)
transform(
    "edit numpy_dtype np.float16",
    image(filled((2, 3), np.float16)),
    spec=field((2, 3), np.float16),
)
transform("edit numpy_dtype python float", image(filled((3,))), spec=field((3,), float))


def _torch_dtype(loader: str) -> Callable[[Session], object]:
    def run(session: Session) -> object:
        import torch

        spec = session.transform_spec(image(filled((3,))), **field((3,), torch.float32))
        return session.load("six", loader, transform_spec=spec)

    return run


def _torch_values(loader: str) -> Callable[[Session], object]:
    def run(session: Session) -> object:
        import torch

        spec = session.transform_spec(image(lambda i: torch.ones(2, 3)), **field((2, 3)))
        return session.load("six", loader, transform_spec=spec)

    return run


for _loader in LOADERS:
    add(f"edit numpy_dtype torch.float32 [{_loader}]", _torch_dtype(_loader))
    add(f"edit torch tensors in column [{_loader}]", _torch_values(_loader))
transform(
    "edit tuple 3 elems",
    image(filled((3,))),
    spec={"edit_fields": [("img", np.float32, (3,))]},
)


def _unischema_field(session: Session) -> object:
    made = session.module("unischema").UnischemaField("img", np.float32, (2, 3), None, False)
    spec = session.transform_spec(image(filled((2, 3))), edit_fields=[made])
    return session.load("six", transform_spec=spec)


add("edit with a UnischemaField", _unischema_field)

# --- scalar columns ----------------------------------------------------------------------------

transform(
    "new scalar col float64, declared float64",
    column("y", lambda rows: rows["x"] * 2),
    spec=field((), np.float64, "y"),
)
transform(
    "change type in place id->float32",
    column("id", lambda rows: rows["id"].astype(np.float32)),
    spec=field((), np.float32, "id"),
)
transform(
    "change type in place without edit_fields",
    column("id", lambda rows: rows["id"].astype(np.float32)),
)
transform("new col w/o edit_fields (extra)", column("y", lambda rows: rows["x"]))
transform("declared col not returned (missing)", lambda rows: rows, spec=field((), np.float32, "y"))
transform("func drops col w/o removed_fields", lambda rows: rows[["id"]])
transform(
    "func drops col with removed_fields", lambda rows: rows[["id"]], spec={"removed_fields": ["x"]}
)
transform("removed_fields only, func None", None, "six_four", spec={"removed_fields": ["s"]})
transform("removed_fields unknown", lambda rows: rows, spec={"removed_fields": ["nope"]})
transform("selected_fields [x,id] func None", None, spec={"selected_fields": ["x", "id"]})
transform(
    "selected_fields [x,id] of 4, func None",
    None,
    "six_four",
    spec={"selected_fields": ["x", "id"]},
)
transform(
    "selected_fields [x,id] of 4, func returns subset",
    lambda rows: rows[["id", "x"]],
    "six_four",
    spec={"selected_fields": ["x", "id"]},
)
transform(
    "selected_fields [x,id] of 4, func returns all",
    lambda rows: rows,
    "six_four",
    spec={"selected_fields": ["x", "id"]},
)
transform(
    "selected_fields unknown [x,nope]",
    lambda rows: rows[["x"]],
    spec={"selected_fields": ["x", "nope"]},
)
transform("selected_fields []", lambda rows: rows, spec={"selected_fields": []})
transform("selected_fields unordered set", lambda rows: rows, spec={"selected_fields": {"x", "id"}})
transform(
    "both removed and selected",
    None,
    spec={"removed_fields": ["x"], "selected_fields": ["id"]},
    loaders=("torch",),
)
transform(
    "edit existing first col: order",
    column("id", lambda rows: rows["id"]),
    spec=field((), np.int64, "id"),
)
transform(
    "edit + selected order",
    image(filled((2, 2))),
    spec={**field((2, 2)), "selected_fields": ["img", "id", "x"]},
)
transform("func None + edit_fields for nonexistent", None, spec=field((), np.float32, "y"))
transform("func returns reordered cols", lambda rows: rows[["x", "id"]])

# --- other numbers of rows, other indexes ------------------------------------------------------

transform("filter rows non-default index", lambda rows: rows[rows["id"] % 2 == 1])
transform(
    "filter rows + list col",
    lambda rows: image(filled((2, 2)))(rows[rows["id"] % 2 == 1].copy()),
    spec=field((2, 2)),
)


def _explode(rows: Any) -> Any:
    import pandas as pd

    return pd.concat([rows, rows, rows])


transform("explode rows x3", _explode)
transform("filter ALL rows", lambda rows: rows[rows["id"] < 0])
transform("filter ALL rows w/ array col", lambda rows: rows[rows["id"] < 0], "six_array")
transform("filter all rows of one row group", lambda rows: rows[rows["id"] >= 5], "ten2")
transform("set_index(id)", lambda rows: rows.set_index("id"))
transform("set_index(id, drop=False)", lambda rows: rows.set_index("id", drop=False))
transform("named index", lambda rows: rows.rename_axis("number"))
transform("returns None", lambda rows: None)
transform("returns dict of arrays", lambda rows: {name: rows[name].values for name in rows})
transform("returns Series", lambda rows: rows["id"])

for _loader in LOADERS:
    load(
        f"TransformSpec not instance (a plain function) [{_loader}]",
        "six",
        _loader,
        transform_spec=len,
    )

# --- types of the result -----------------------------------------------------------------------

_TOKENS = {**field((4,), np.int64, "tok"), "selected_fields": ["id", "tok"]}


def _tokens(rows: Any) -> Any:
    rows["tok"] = [np.array([ord(c) for c in (text * 4)[:4]]) for text in rows["s"]]
    return rows[["id", "tok"]]


transform("tokenise string -> (4,) int64", _tokens, "six_four", spec=_TOKENS)
transform("string output column", column("t", lambda rows: "x"), spec=field((), np.str_, "t"))
transform("bytes output column", column("t", lambda rows: b"x"), spec=field((), np.bytes_, "t"))
transform(
    "bool output column", column("t", lambda rows: rows["id"] > 2), spec=field((), np.bool_, "t")
)
transform(
    "object ints output",
    column("t", lambda rows: rows["id"].astype(object)),
    spec=field((), np.int64, "t"),
)


def _nullable(rows: Any) -> Any:
    import pandas as pd

    rows["t"] = pd.array([1, None, 3, 4, 5, 6][: len(rows)], dtype="Int64")
    return rows


transform("nullable Int64 ext dtype w/ NA", _nullable, spec=field((), np.int64, "t"))
transform(
    "None in scalar float col",
    column("t", lambda rows: [1.0, None, 3.0, 4.0, 5.0, 6.0]),
    spec=field((), np.float32, "t"),
)
transform(
    "categorical output",
    column("t", lambda rows: (rows["id"] % 2).map({0: "a", 1: "b"}).astype("category")),
    spec=field((), np.str_, "t"),
)


def _unsigned(rows: Any) -> Any:
    rows["u16"] = rows["id"].astype(np.uint16)
    rows["u32"] = rows["id"].astype(np.uint32)
    return rows


transform(
    "uint16/uint32/uint64 outputs",
    _unsigned,
    spec={"edit_fields": [("u16", np.uint16, (), False), ("u32", np.uint32, (), False)]},
)
transform(
    "uint64 output",
    column("u64", lambda rows: rows["id"].astype(np.uint64)),
    spec=field((), np.uint64, "u64"),
)
transform(
    "float16 scalar output",
    column("h", lambda rows: rows["id"].astype(np.float16)),
    spec=field((), np.float16, "h"),
)


def _dates(rows: Any) -> Any:
    import pandas as pd

    return pd.Timestamp("2020-01-01")


transform("datetime output", column("t", _dates), spec=field((), np.datetime64, "t"))


def _in_place(rows: Any) -> Any:
    rows["x"] += 1
    return rows


transform("func mutates input in place", _in_place)
transform("func mutates input in place, two epochs", _in_place, num_epochs=2)
transform(
    "different static width per row group (None,)",
    lambda rows: image(filled((2 if rows["id"].iloc[0] == 0 else 3,)))(rows),
    "ten2",
    spec=field((None,)),
    batch_size=10,
)


def _decode(rows: Any) -> Any:
    rows = rows[["content", "label"]].rename(columns={"content": "image"})
    rows["image"] = [
        np.frombuffer(data, np.uint8).reshape(2, 2, 3).astype(np.float32) / 255
        for data in rows["image"]
    ]
    return rows


transform(
    "image decode + selected_fields",
    _decode,
    "images",
    spec={**field((2, 2, 3), name="image"), "selected_fields": ["image", "label"]},
)
transform("nulls reach the function", lambda rows: rows.fillna(-1), "six_nulls")
transform(
    "transform with schema_fields",
    column("x", lambda rows: rows["x"] + 1),
    "six_four",
    schema_fields=["x"],
)
transform(
    "ragged lists padded by the function",
    lambda rows: _padded(rows),
    "six_ragged",
    spec=field((3,), np.int64, "a"),
)


def _padded(rows: Any) -> Any:
    rows["a"] = [np.pad(value, (0, 3 - len(value))) for value in rows["a"]]
    return rows


# --- processes ---------------------------------------------------------------------------------


def _double(rows: Any) -> Any:
    rows["x"] *= 2
    return rows


transform(
    "edit (2,3) ok process pool",
    _double,
    loaders=("torch",),
    reader_pool_type="process",
    workers_count=1,
)


class UserError(Exception):
    """An exception of the user's own."""


def _boom(error: BaseException) -> Function:
    def run(rows: Any) -> Any:
        raise error

    return run


for _pool in ("thread", "dummy", "process"):
    for _loader, _error in (("torch", UserError("boom")), ("tf", ValueError("boom value"))):
        add(
            f"transform raises {'MyErr' if _loader == 'torch' else 'ValueError'} {_loader} "
            f"pool={_pool}",
            lambda session, loader=_loader, error=_error, pool=_pool: session.load(
                "six",
                loader,
                transform_spec=session.transform_spec(_boom(error)),
                reader_pool_type=pool,
                workers_count=1,
            ),
        )


@define("iterate again after exception")
def _again(session: Session) -> object:
    spec = session.transform_spec(_boom(UserError("boom in transform")))
    found = []
    with session.open("six", transform_spec=spec) as batches:
        for _ in range(2):
            try:
                found.append(session.ids(batches))
            except (UserError, RuntimeError) as error:
                found.append(type(error).__name__)
    return found


@define("exception in a later row group")
def _later(session: Session) -> object:
    def function(rows: Any) -> Any:
        if rows["id"].iloc[0] == 5:
            raise UserError("second")
        return rows

    spec = session.transform_spec(function)
    found = []
    with session.open("ten2", transform_spec=spec, workers_count=1, batch_size=5) as batches:
        try:
            for batch in batches:
                found.append(batch)
        except UserError as error:
            found.append(str(error))
    return found


for _error in (
    ValueError,
    TypeError,
    KeyError,
    RuntimeError,
    IndexError,
    AssertionError,
    NotImplementedError,
    StopIteration,
    MemoryError,
    UserError,
    OSError,
    FileNotFoundError,
    ZeroDivisionError,
):
    for _loader in ("tf", "torch", "batched"):
        _name = "My" if _error is UserError else _error.__name__
        add(
            f"{_loader}: transform raises {_name}",
            lambda session, loader=_loader, error=_error: session.load(
                "six", loader, transform_spec=session.transform_spec(_boom(error("boom")))
            ),
        )
