"""Column names, numbers of columns, and the selection of columns."""

from __future__ import annotations

import re
from typing import Any

from parity_harness.frames_options import NAMES
from parity_harness.session import Session

from parity_scenarios import Scenarios

SCENARIOS = Scenarios()
add, load, define = SCENARIOS.add, SCENARIOS.load, SCENARIOS.define

LOADERS = ("torch", "batched", "tf")

for _name in NAMES:
    _row = "colname 'x*200'" if len(_name) == 200 else f"colname [{_name!r}]"
    for _loader in LOADERS:
        load(f"{_row} [{_loader}]", "names", _loader, schema_fields=[re.escape(_name)])
for _loader in LOADERS:
    load(f"colname ['def', 'x'] [{_loader}]", "two_names", _loader)
    load(f"300 columns [{_loader}]", "three_hundred", _loader)
for _names in (["a", "A"], ["a", "a"]):
    add(
        f"colname {_names!r}",
        lambda session, names=_names: session.load(
            session.convert(
                session.spark.range(2).toDF("id").selectExpr(*(f"id as {n}" for n in names))
            )
        ),
    )


def _fields(session: Session, frame: str, fields: Any, loader: str) -> object:
    """Which columns come; as a set, the original's order depends on the hash seed."""
    with session.open(frame, loader, schema_fields=fields) as batches:
        first = next(iter(batches))
    return sorted(first if isinstance(first, dict) else first._fields)


_FIELDS: tuple[tuple[str, Any], ...] = (
    ("['id']", ["id"]),
    ("['i.*']", ["i.*"]),
    ("['.*']", [".*"]),
    ("['i']", ["i"]),
    ("['zz']", ["zz"]),
    ("[]", []),
    ("'id'", "id"),
    ("('id', 'd')", ("id", "d")),
    ("{'id', 'd'}", {"id", "d"}),
    ("['I']", ["I"]),
    ("['id', 'id']", ["id", "id"]),
    ("[5]", [5]),
    ("None", None),
    ("['i', '.d']", ["i", ".d"]),
    ("['^id$']", ["^id$"]),
    ("['i$']", ["i$"]),
    ("['(']", ["("]),
    ("5", 5),
)
for _words, _value in _FIELDS:
    for _loader in ("torch", "tf"):
        add(
            f"schema_fields={_words}" + ("" if _loader == "torch" else " [tf]"),
            lambda session, value=_value, loader=_loader: _fields(session, "fields", value, loader),
        )


@define("schema_fields with UnischemaFields")
def _unischema_fields(session: Session) -> object:
    with session.open("fields", schema_fields=["id"]) as batches:
        field = batches.reader.schema.fields["id"]
    return _fields(session, "fields", [field], "torch")
