"""Recordings of any content: refused in words or judged rightly, but no crash, wait or wrong "same".

`PARITY_DAMAGE=100000` tries that many changes instead of a share that is quick.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from parity_tables import batches, cells, columns

from petastorm_bridge.parity import (
    CannotCompareError,
    RecordingError,
    Rules,
    compare,
    record,
    recorder,
)

CHANGES = int(os.environ.get("PARITY_DAMAGE", "500"))
RULES = (Rules(), Rules(batches="any"), Rules(order="shuffled"))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A recording with columns of every kind, and in batches of several shapes."""

    def loader():
        for number, batch in enumerate(batches(columns(6), 3)):
            turned = np.arange(18.0).reshape((3, 2, 3) if number else (3, 3, 2))
            odd = cells([number, f"{number}", None])
            yield {**batch, "turned": turned, "wide": batch["x"].astype("c16"), "odd": odd}

    folder = tmp_path_factory.mktemp("good") / "good"
    record(loader(), folder)
    return folder


def write(folder, manifest, *, sealed=True):
    """Write a manifest with the right checksums, as somebody who means harm would."""
    if sealed and isinstance(manifest, dict):
        if isinstance(manifest.get("files"), dict):
            manifest["files"] = {
                name: recorder.checksum(str(folder), name) if (folder / name).is_file() else known
                for name, known in manifest["files"].items()
            }
        manifest["checksum"] = recorder.manifest_checksum(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def value_of(array, shape, kind):
    """One row of an Arrow column as plain data of which equality is that of bits."""
    flat = array.flatten() if shape else array
    if kind == "number" and flat.null_count:
        raise ValueError("a null among numbers")
    if pa.types.is_primitive(flat.type):
        return str(flat.type), flat.to_numpy(zero_copy_only=False).tobytes()
    # Text that is none must not keep its bytes from being compared.
    is_text = pa.types.is_large_string(flat.type)
    cells = (flat.cast(pa.large_binary()) if is_text else flat).to_pylist()
    return (str(flat.type), *cells) if shape or cells != [None] else None


def row_of(batch, layout, shapes, row):
    """One row of a record batch: of each column its name, dtype, shape and bits."""
    found = []
    for column, of_chunk in zip(layout, shapes, strict=True):
        array, shape = batch[column["name"]].slice(row, 1), of_chunk
        if column["kind"] == "ragged":
            shape = batch[column["name"] + recorder.SHAPE_SUFFIX][row].as_py()
        if array.null_count and pa.types.is_large_list(array.type):
            found.append((column["name"], column["kind"], column["dtype"], None))
            continue
        value = value_of(array, shape or column["kind"] == "ragged", column["kind"])
        found.append((column["name"], column["kind"], column["dtype"], tuple(shape), value))
    return found


def content(folder):
    """What a recording holds, read row by row with pyarrow alone: keys, sizes of batches, rows."""
    manifest = json.loads((folder / "manifest.json").read_text())

    def read(name):
        with pa.OSFile(str(folder / name)) as file:
            reader = pa.ipc.open_file(file)
            return [reader.get_batch(i) for i in range(reader.num_record_batches)]

    files = [read(f"values-{index}.arrow") for index in range(len(manifest["layouts"]))]
    rows = []
    for chunk in pa.Table.from_batches(read("chunks.arrow")).to_pylist():
        layout, batch = manifest["layouts"][chunk["layout"]], files[chunk["layout"]][chunk["index"]]
        shapes = json.loads(chunk["shapes"])
        rows += [row_of(batch, layout, shapes, row) for row in range(chunk["rows"])]
    sizes = pa.Table.from_batches(read("batches.arrow")).column("rows").to_pylist()
    keys = {tuple(column["name"] for column in layout) for layout in manifest["layouts"]}
    return keys, sizes, rows


def compared(found, rules):
    """What of a recording's content the rules compare."""
    keys, sizes, rows = found
    if rules == Rules():
        return found
    # Which objects are in a batch together decides what its dtype is called.
    rows = [[(n, k, "" if k == "object" else d, *v) for n, k, d, *v in row] for row in rows]
    if rules.order == "shuffled":
        rows = sorted(rows, key=repr)
    return keys, None if rules.batches == "any" else sizes, rows


VALUES = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 1.5, float("inf"), float("nan"), "", "x"),
    *("..", "/", "\0", "\ud800", "0" * 300, "number", "text", "object", "ragged", "int64", "O"),
    *("float64", "M8[x]", "../manifest.json", [], [[]], [None], {}, {"": {}}, [[[[]]]], ["id"]),
]


def places(value, path=()):
    """The paths of all values within JSON."""
    yield path
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in pairs:
        yield from places(inner, (*path, key))


def change_manifest(folder, chance):
    manifest = json.loads((folder / "manifest.json").read_text())
    path = chance.choice(list(places(manifest)))
    if not path:
        write(folder, chance.choice(VALUES))
        return
    inner = manifest
    for key in path[:-1]:
        inner = inner[key]
    if chance.random() < 0.3:
        del inner[path[-1]]
    elif chance.random() < 0.2 and isinstance(inner, list):
        inner.append(inner[path[-1]])
    else:
        inner[path[-1]] = chance.choice(VALUES)
    write(folder, manifest, sealed=chance.random() < 0.8)


def change_everywhere(folder, chance):
    """Exchange a word of the manifest wherever it is, so that nothing contradicts it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"], manifest["checksum"]

    def words(value):
        if isinstance(value, str):
            return [value]
        inner = value.values() if isinstance(value, dict) else value
        return [w for v in inner for w in words(v)] if isinstance(value, (dict, list)) else []

    def exchanged(value):
        if isinstance(value, dict):
            return {key: exchanged(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [exchanged(inner) for inner in value]
        return new if value == old else value

    known = sorted(set(words(manifest)))
    old, new = chance.choice(known), chance.choice([*known, *words(VALUES)])
    files = json.loads((folder / "manifest.json").read_text())["files"]
    write(folder, {**exchanged(manifest), "files": files})


def change_bytes(folder, chance):
    path = chance.choice(sorted(folder.iterdir()))
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        kind, at = chance.randrange(5), chance.randrange(len(data))
        if kind < 3:
            data[at] = chance.choice([0, 255, data[at] ^ 1 << chance.randrange(8), 127])
        elif kind == 3:
            del data[at : at + chance.choice([1, 8, len(data)])]
        else:
            data[at:at] = data[: chance.choice([1, 8, 64])]
        data = data or bytearray(b"\0")
    path.write_bytes(data)
    if path.suffix == ".arrow" and chance.random() < 0.9:
        write(folder, json.loads((folder / "manifest.json").read_text()))


def change_files(folder, chance):
    one, other = chance.sample(sorted(folder.iterdir()), 2)
    if chance.random() < 0.5:
        shutil.copy(one, other)
    else:
        other.unlink()
    if other.name != "manifest.json":
        write(folder, json.loads((folder / "manifest.json").read_text()))


def change_chunks(folder, chance):
    path = folder / chance.choice(["chunks.arrow", "batches.arrow"])
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    rows = table.to_pylist()
    row = chance.choice(rows)
    name = chance.choice(list(row))
    texts = ["", "[]", "[[1]]", "[" * 5000, "[[-1]]", row.get("shapes", "").replace("2", "3")]
    row[name] = (
        chance.choice(texts) if name == "shapes" else chance.choice([0, 1, 3, 7, -1, 2**31 - 1])
    )
    chance.shuffle(rows) if chance.random() < 0.2 else None
    recorder.write_table(str(folder), path.name, pa.Table.from_pylist(rows, table.schema))
    write(folder, json.loads((folder / "manifest.json").read_text()))


KINDS = (
    *(change_manifest, change_everywhere, change_bytes, change_bytes, change_bytes),
    *(change_files, change_chunks),
)


def outcome(good, folder, known, rules):
    """What came of comparing: 'refused', 'same' or 'different'; fails if it is wrong."""
    try:
        result = compare(good, folder, rules, profile=True)
    except CannotCompareError:
        return "refused"
    if result.same:
        found = compared(content(folder), rules)
        assert found == compared(known, rules), "another content passed for the same"
        return "same"
    try:
        found = content(folder)
    except (pa.ArrowException, LookupError, TypeError, ValueError):
        return "different"  # no recording any more, which was seen from a part of it
    assert compared(found, rules) != compared(known, rules), "the same passed for another"
    return "different"


@pytest.mark.modern
@pytest.mark.slow
def test_any_damage_is_refused_or_judged_rightly(good, tmp_path):
    known, tally = content(good), Counter()
    for number in range(CHANGES):
        chance = random.Random(number)
        folder = tmp_path / "bad"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        kind = chance.choice(KINDS)
        kind(folder, chance)
        try:
            tally[kind.__name__, outcome(good, folder, known, RULES[number % len(RULES)])] += 1
        except BaseException as error:
            error.add_note(f"change {number}, {kind.__name__}") if hasattr(
                error, "add_note"
            ) else None
            raise
    print(*sorted(tally.items()), sep="\n")
    assert {what for _, what in tally} == {"refused", "same", "different"}


@contextlib.contextmanager
def first_batch_changed(good, folder):
    """A copy of a recording, whose first record batch gets the columns that the body leaves in a list."""
    shutil.copytree(good, folder)
    path = str(folder / "values-0.arrow")
    with pa.OSFile(path) as file:
        reader = pa.ipc.open_file(file)
        first, *others = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        columns = list(first.columns)
        yield first, columns
        with pa.RecordBatchFileWriter(f"{path}.new", first.schema) as changed:
            for batch in (pa.RecordBatch.from_arrays(columns, schema=first.schema), *others):
                changed.write_batch(batch)
    os.replace(f"{path}.new", path)
    write(folder, json.loads((folder / "manifest.json").read_text()))


def test_arrays_of_negative_size_are_refused(good, tmp_path):
    """NumPy takes such a size for whatever is left, and the array for the one that was recorded."""
    with first_batch_changed(good, tmp_path / "bad") as (first, columns):
        at = next(i for i, n in enumerate(first.schema.names) if n.endswith(recorder.SHAPE_SUFFIX))
        sizes = [[-5 for _ in shape] for shape in columns[at].to_pylist()]
        columns[at] = pa.array(sizes, columns[at].type)
    with pytest.raises(CannotCompareError, match="an array of negative size"):
        compare(good, tmp_path / "bad")


def test_rows_of_a_size_that_is_not_theirs_are_refused(good, tmp_path):
    """The end of a row is damaged, and the number of values right: they passed for the same."""
    with first_batch_changed(good, tmp_path / "bad") as (first, columns):
        at = first.schema.names.index("turned")
        offsets = pa.array([0, 0, 12, 18], pa.int64())
        columns[at] = pa.LargeListArray.from_arrays(offsets, columns[at].flatten())
    with pytest.raises(CannotCompareError, match="'turned' is not of its shape"):
        compare(good, tmp_path / "bad")


def test_shapes_of_other_lengths_are_refused(good, tmp_path):
    """Two rows share the sizes of their shapes out otherwise: read as a whole, these are the same."""
    with first_batch_changed(good, tmp_path / "bad") as (first, columns):
        at = first.schema.names.index("list" + recorder.SHAPE_SUFFIX)
        moved = pa.array([0, 2, 2, 3], columns[at].offsets.type)
        columns[at] = type(columns[at]).from_arrays(moved, columns[at].flatten())
    with pytest.raises(CannotCompareError, match="'list' has shapes of other lengths than 1"):
        compare(good, tmp_path / "bad")


NO_MANIFESTS = {
    "a list": "[]",
    "a number": "5",
    "endless": "[" * 200_000,
    "no batches": lambda m: m.pop("batches"),
    "two columns of one name": lambda m: m["layouts"][0][1].update(m["layouts"][0][0]),
    "no layouts": lambda m: m.update(layouts=[]),
    "another kind": lambda m: m["layouts"][0][0].update(kind="picture"),
    "a file elsewhere": lambda m: m["files"].update({"../../x": "0"}),
    "no number of rows": lambda m: m.update(rows="many"),
    "no versions": lambda m: m.update(versions=None),
    "no source": lambda m: m.update(source=None),
    "another format": lambda m: m.update(format=99),
}


@pytest.mark.parametrize("name", NO_MANIFESTS)
def test_what_is_no_manifest(good, tmp_path, name):
    folder, change = tmp_path / "bad", NO_MANIFESTS[name]
    shutil.copytree(good, folder)
    if isinstance(change, str):
        (folder / "manifest.json").write_text(change)
    else:
        manifest = json.loads((folder / "manifest.json").read_text())
        change(manifest)
        write(folder, manifest)
    with pytest.raises(CannotCompareError, match=r"damaged|cannot be read|no manifest|format 99"):
        compare(good, tmp_path / "bad")


def test_more_rows_than_there_can_be(good, tmp_path):
    folder, rows = tmp_path / "bad", 2**40
    shutil.copytree(good, folder)
    for name in ("batches.arrow", "chunks.arrow"):
        with pa.OSFile(str(folder / name)) as file:
            table = pa.ipc.open_file(file).read_all()
        table = pa.Table.from_pylist([{**table.to_pylist()[0], "rows": rows}], table.schema)
        recorder.write_table(str(folder), name, table)
    manifest = json.loads((folder / "manifest.json").read_text())
    write(folder, {**manifest, "rows": rows, "batches": 1})
    with pytest.raises(CannotCompareError, match=r"too small for 1,099,511,627,776 rows"):
        compare(good, tmp_path / "bad")


@pytest.mark.parametrize("change", [{"dtypes": ["int64"]}, {"kinds": ["text"]}])
def test_what_a_manifest_says_of_columns_for_people_is_not_relied_on(good, tmp_path, change):
    folder = tmp_path / "bad"
    shutil.copytree(good, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    next(c for c in manifest["columns"] if c["name"] == "when").update(change)
    write(folder, manifest)
    result = compare(good, folder, profile=True)
    assert result.same
    (when,) = (column for column in result.columns if column.name == "when")
    assert when.a == when.b


@pytest.mark.parametrize("name", ["manifest.json", "batches.arrow", "values-0.arrow"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(good, tmp_path, name):
    shutil.copytree(good, tmp_path / "bad")
    (tmp_path / "bad" / name).unlink()
    os.mkfifo(tmp_path / "bad" / name)
    with pytest.raises(CannotCompareError, match="no regular file"):
        compare(good, tmp_path / "bad")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CannotCompareError, match="there is no recording"):
        compare(good, tmp_path / "pipe")


def test_ranks_without_end(good, tmp_path):
    shutil.copytree(good, tmp_path / "rank-00000-of-999999999")
    with pytest.raises(CannotCompareError, match="1 rank of 999999999"):
        compare(good, tmp_path)


# ---------------------------------------------------------------- replacing an earlier recording

KILLED = """
import os, sys
from petastorm_bridge.parity import recorder
calls, rename = [], os.rename
def killed(*names):
    calls.append(names)
    if len(calls) == int(sys.argv[2]):
        os._exit(9)
    rename(*names)
os.rename = killed
rmtree = recorder.shutil.rmtree
def never(folder, *given, **options):
    if sys.argv[2] == "3" and ".replaced-" in str(folder) and os.path.exists(folder):
        os._exit(9)
    rmtree(folder, *given, **options)
recorder.shutil.rmtree = never
import numpy as np
recorder.record([{"x": np.ones(3)}], sys.argv[1], overwrite=True)
"""


@pytest.mark.parametrize("step", ["1", "2", "3"])
def test_a_program_killed_while_it_replaces_a_recording_loses_none(tmp_path, step):
    out = tmp_path / "out"
    record([{"x": np.ones(2)}], out)
    done = subprocess.run([sys.executable, "-c", KILLED, str(out), step], check=False)
    assert done.returncode == 9
    left = {Path(p).parent.name for p in tmp_path.rglob("manifest.json")}
    if step == "1":
        assert compare(out, [{"x": np.ones(2)}]).same
    elif step == "2":
        with pytest.raises(CannotCompareError, match=r"out\.replaced-\d+ is an earlier one"):
            compare(out, [])
        old = next(name for name in left if ".replaced-" in name)
        assert compare(tmp_path / old, [{"x": np.ones(2)}]).same
    else:
        assert compare(out, [{"x": np.ones(3)}]).same
    record([{"x": np.ones(4)}], out, overwrite=True)
    assert compare(out, [{"x": np.ones(4)}]).same


def test_a_replaced_recording_leaves_nothing_and_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for rows in (2, 3):
        record([{"x": np.ones(rows)}], tmp_path / "link", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "real" / "thesis.txt").write_text("years of work")
    with pytest.raises(RecordingError, match="exists already and is no recording"):
        record([], tmp_path / "real", overwrite=True)
