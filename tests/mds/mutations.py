"""Reads randomly damaged datasets by every face of the engine; run as a script, as crashes would show.

``mutations.py <count> <seed> [<face> …]`` damages index, sidecar or shards of small datasets, one damage
at a time, and reads what is left. It must give a DatasetError, or right rows; where shards have no hash,
other values of the right types and number. Prints a tally, and every other outcome with what led to it.

Nothing outside of a file may be read: all reads of varying length go through one function, which is watched
here; all others are NumPy's indexing, which checks its bounds.
"""

import contextlib
import faulthandler
import json
import logging
import random
import shutil
import signal
import struct
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from sample_datasets import fixed_table, mixed_table, write

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources.mds import MdsSource
from petastorm_bridge.mds import dataset as mds_dataset
from petastorm_bridge.mds import layout, ndarray, ragged
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.decode import column_array, column_view
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.shard import open_shard

sys.path.append(str(Path(__file__).parents[1] / "helpers"))

from datasets import read_table

SIDECAR = "petastorm_bridge_schema.json"
TENSORS = ["i", "f", "b", "v"]
LONGEST_SECONDS = 60
NAMES_OF_OTHERS = 50
# Of the engine alone, which is quick, and where most damages of shards are found.
LEAST_ROUNDS = {"engine": 1000}
MISSING = object()
VALUES = [
    None, True, False, -1, 0, 1, 5, 7, 2**31, 2**32, 2**63, 10**30, float("inf"), float("nan"), 0.5,
    "", ".", "..", "/etc/passwd", "../x", "x" * 300, "\0", "\ud800", "int32", "str", "pkl", "json",
    "ndarray:int8:3", "ndarray:int8", "zstd", "gz", "xxh64", [], {}, [[]], [None], {"a": 1}, MISSING,
]  # fmt: skip
WORDS = [0, 1, 2, 3, 4, 5, 0x7F, 0xFF, 0x100, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF]

BYTES = b'\0\1\x7f\x80\xff0129"{}[],:.-eE\\/ \n'


unwatched = ragged.alternating


def watched(raw, starts, lengths):
    """Stand in for ``alternating``, insisting on what it relies on."""
    starts, lengths = np.asarray(starts), np.asarray(lengths)
    if len(starts):
        stops = starts + lengths
        assert (lengths >= 0).all()
        assert starts[0] >= 0
        assert stops[-1] <= len(raw)
        assert (stops[:-1] <= starts[1:]).all()
    return unwatched(raw, starts, lengths)


class HangError(Exception):
    """Reading took far too long."""


def paths_in(value, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from paths_in(inner, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def mutate_json(data, rng):
    """Put something else in one place; return what was done, too."""
    value = json.loads(data)
    path = rng.choice(list(paths_in(value))[1:])
    holder, key = at(value, path[:-1]), path[-1]
    others = [at(value, other) for other in paths_in(value)]
    scalars = [other for other in others if not isinstance(other, dict | list)]
    new = rng.choice(VALUES) if rng.random() < 0.7 else rng.choice(scalars)
    if isinstance(holder[key], int) and rng.random() < 0.3:
        new = holder[key] + rng.choice([-1, 1, 4, -4, 256])
    if isinstance(holder, dict) and rng.random() < 0.1:
        holder[str(key) + rng.choice(["x", "_", ""])[:1]] = holder.pop(key)
        new = "renamed"
    elif new is MISSING:
        del holder[key]
    else:
        holder[key] = new
    return json.dumps(value).encode(), f"{path} = {str(new)[:40]}"


def mutate_bytes(data, rng):
    """Change some bytes; return what was done, too."""
    data = bytearray(data)
    start = rng.randrange(len(data))
    kind = rng.randrange(6)
    if kind <= 1:
        data[start] ^= 1 << rng.randrange(8)
    elif kind == 2:
        data[start] = rng.choice(BYTES)
    elif kind == 3:
        del data[start:]
    elif kind == 4:
        del data[start : start + rng.choice([1, 2, 8, 64])]
    else:
        data[start:start] = data[start : start + rng.choice([1, 2, 8, 64])]
    return bytes(data), f"bytes {kind} at {start}"


def alter(data, rows, random):
    """Change some bytes, most often words of the header or of rows."""
    data = bytearray(data)
    first = struct.unpack_from("<I", data, 4)[0]
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        kind = random.randrange(5)
        if kind == 0:  # the number of rows or an offset
            struct.pack_into("<I", data, 4 * random.randrange(rows + 2), word(random, len(data)))
        elif kind == 1:  # a size word at the start of a row
            row = random.randrange(rows)
            (start,) = struct.unpack_from("<I", data, 4 + 4 * row)
            place = start + 4 * random.randrange(8)
            if place + 4 <= len(data):
                struct.pack_into("<I", data, place, word(random, len(data)))
        elif kind == 2:  # two size words, so that the row keeps its length
            (start,) = struct.unpack_from("<I", data, 4 + 4 * random.randrange(rows))
            one, other = start, start + 4 * random.randrange(1, 6)
            if other + 4 <= len(data):
                a, b = (struct.unpack_from("<I", data, place)[0] for place in (one, other))
                moved = random.randint(-b, a)
                struct.pack_into("<I", data, one, (a - moved) % 2**32)
                struct.pack_into("<I", data, other, (b + moved) % 2**32)
        elif kind == 3:  # any byte of the rows
            data[random.randrange(min(first, len(data) - 1), len(data))] = random.randrange(256)
        else:  # any byte
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def word(random, size):
    return random.choice([*WORDS, size, size - 1, size + 1, random.randrange(2**32)])


def mutate_shard(data, rng):
    if rng.random() < 0.5:
        return mutate_bytes(data, rng)
    return alter(data, int.from_bytes(data[:4], "little"), rng), "words"


# Faces: each returns rows that can be compared.


def read_engine(directory, _):
    """Open and load below the readers, with what a dataset claims of itself."""
    dataset = open_dataset(directory)
    for position in range(len(dataset.shards)):
        for field in dataset.schema.fields:
            with contextlib.suppress(DatasetError):  # the next column is read all the same
                select_rows(open_shard(dataset.directory, dataset.shards[position]), field)
    table = read_table(dataset)
    table.validate(full=True)
    source = MdsSource(dataset)
    for position, count in enumerate(source.row_counts):
        group = source.open(position)
        for name in source.schema.fields:
            assert len(group.load([name], slice(0, count))[name]) == count
    # Rows, their types, and how many the dataset claims to have.
    try:
        rows = list(map(repr, table.to_pylist()))
    except OverflowError:  # dates that Arrow has and Python has not
        rows = ["beyond"] * table.num_rows
    return [str(table.schema), str(dataset.num_rows), *rows]


def select_rows(shard, field):
    rows = np.arange(shard.num_rows)
    for selection in (slice(None), slice(1, len(rows) - 1), rows[::-1].copy()):
        array = column_array(shard, field, selection)
        array.validate(full=True)
        assert array.type == field.type
        assert len(array) == len(rows[selection])
        view = column_view(shard, field, selection)
        assert view is None or len(view) == len(array)


def rows_of(batches):
    """Each row of batches, which are dictionaries of columns."""
    return [
        repr(dict(zip(batch, row, strict=True)))
        for batch in batches
        for row in zip(*batch.values(), strict=True)
    ]


def read_reader(directory, _):
    # Without the columns whose rows have several lengths, which make no batch, as in Petastorm.
    fields = ["[^rnj]"]
    with make_batch_reader(
        f"file://{directory}", schema_fields=fields, num_epochs=1, shuffle_row_groups=False
    ) as reader:
        return rows_of(batch._asdict() for batch in reader)


def read_torch(directory, _):
    from petastorm_bridge.pytorch import DataLoader

    logging.disable()  # it logs what it raises
    reader = make_batch_reader(
        f"file://{directory}", schema_fields=TENSORS, num_epochs=1, shuffle_row_groups=False
    )
    with DataLoader(reader, batch_size=5) as loader:
        return rows_of(loader)


def hash_options(has_hashes):
    return {"validate_hash": "xxh64"} if has_hashes else {}


def read_columnar(directory, has_hashes):
    from petastorm_bridge.streaming import ColumnarStreamingDataset

    return rows_of(
        ColumnarStreamingDataset(
            local=directory,
            batch_size=5,
            ragged="list",
            allow_unsafe_types=False,
            **hash_options(has_hashes),
        )
    )


def read_mapped(directory, has_hashes):
    from petastorm_bridge.streaming import MappedStreamingDataset

    return list(
        map(repr, MappedStreamingDataset(local=directory, batch_size=5, **hash_options(has_hashes)))
    )


def read_samples(directory, has_hashes):
    from petastorm_bridge.streaming import MappedStreamingDataset

    dataset = MappedStreamingDataset(local=directory, batch_size=5, **hash_options(has_hashes))
    return [repr(dataset[i]) for i in range(dataset.num_samples)]


OUR_READERS = {"engine": read_engine, "make_batch_reader": read_reader, "torch": read_torch}
STREAMING = {"columnar": read_columnar, "mapped": read_mapped, "samples": read_samples}
FACES = OUR_READERS | STREAMING


def write_foreign(directory, hashes):
    from streaming import MDSWriter

    columns = {
        "a": "ndarray",
        "b": "ndarray:int16",
        "c": "str_int",
        "d": "str_float",
        "e": "str",
        "j": "json",
    }
    with MDSWriter(columns=columns, out=directory, hashes=hashes, size_limit=700) as writer:
        for row in range(12):
            array = np.arange(6, dtype=np.int16).reshape(2, 3) + row
            sample = {
                "a": array,
                "b": array[0, : 1 + row % 3],
                "c": row,
                "d": row / 2,
                "e": "x" * row,
            }
            writer.write({**sample, "j": {"k": [row, "ü"]}})


def write_all(parent, face):
    """Write the datasets that a face reads: name -> whether its shards have hashes."""
    found = {"fixed": True, "fixed-no-hashes": False, "mixed": True, "no-hashes": False}
    write(f"{parent}/fixed", fixed_table(), hashes=("xxh64",))
    write(f"{parent}/fixed-no-hashes", fixed_table(), hashes=())
    write(f"{parent}/mixed", mixed_table(), hashes=("xxh64",))
    write(f"{parent}/no-hashes", mixed_table(), hashes=())
    if face in OUR_READERS:
        write(f"{parent}/zstd", mixed_table(), hashes=("xxh64",), compression="zstd")
        write(f"{parent}/zstd-no-hashes", mixed_table(), hashes=(), compression="zstd")
        found |= {"zstd": True, "zstd-no-hashes": False}
    if face not in ("make_batch_reader", "torch"):  # which are asked for columns of ours
        with contextlib.suppress(ImportError):
            write_foreign(f"{parent}/foreign", ["xxh64"])
            write_foreign(f"{parent}/foreign-no-hashes", [])
            found |= {"foreign": True, "foreign-no-hashes": False}
    return found


def is_right(face, name, target, has_hashes, found, wanted):
    if found == wanted:
        return True
    if target == "shard":
        return not has_hashes and len(found) == len(wanted)
    if not has_hashes and target == "index.json":
        return set(found) <= set(wanted)  # another shard's name
    # Only the sidecar tells that an index lists a shard too few; streaming does not read it.
    is_told = face in OUR_READERS and not name.startswith("foreign")
    if face == "engine":  # without schema and number of rows
        found, wanted = found[2:], wanted[2:]
    return not is_told and set(found) <= set(wanted)


def outcome(face, directory, case, wanted):
    name, target, has_hashes = case
    signal.alarm(LONGEST_SECONDS)
    faulthandler.dump_traceback_later(2 * LONGEST_SECONDS, exit=True)
    mds_dataset._parsed.cache_clear()  # files are written faster than some clocks tick
    try:
        found = FACES[face](directory, has_hashes)
    except DatasetError as error:
        return "refused" if directory in str(error) else f"names no file: {error}"
    except Exception as error:  # noqa: BLE001 - any other one is what is looked for
        if face in STREAMING and "contains an unsafe type: pkl" in str(error):
            return "refused"  # by streaming, which asks for allow_unsafe_types
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
    if found == wanted:
        return "right"
    return "other values" if is_right(face, name, target, has_hashes, found, wanted) else "WRONG"


def run_face(face, count, seed):
    """Return how often there was what, and what there must not be."""
    tally, failures = Counter(), Counter()
    rng = random.Random(f"{seed} {face}")
    with tempfile.TemporaryDirectory() as parent, temporary_files_below(parent):
        datasets = write_all(parent, face)
        wanted = {name: FACES[face](f"{parent}/{name}", has) for name, has in datasets.items()}
        for number in range(count):
            name = rng.choice(list(datasets))
            directory = f"{parent}/{name}"
            files = sorted(path for path in Path(directory).iterdir())
            path = rng.choice(files)
            is_shard = path.suffix != ".json"
            if not is_shard and rng.random() < 0.5:
                path = Path(directory, "index.json")
            data = path.read_bytes()
            is_json = not is_shard and rng.random() < 0.6
            mutate = mutate_shard if path.suffix == ".mds" else mutate_bytes
            damaged, done = (mutate_json if is_json else mutate)(data, rng)
            path.write_bytes(damaged)
            target = "shard" if is_shard else path.name
            found = outcome(face, directory, (name, target, datasets[name]), wanted[name])
            path.write_bytes(data)
            if found in ("refused", "right", "other values"):
                tally[f"{face} {target}: {found}"] += 1
            else:
                failures[f"{face} {name} {path.name} {done} (number {number}): {found[:300]}"] += 1
            # Each dataset opens the shared memory of all that are left: fifty would have 10,000 files open.
            if face in STREAMING and number % 10 == 9:
                forget()
            if sorted(Path(directory).iterdir()) != files:
                failures[f"{face} {name} {path.name} {done} (number {number}): files differ"] += 1
                for other in datasets:
                    shutil.rmtree(f"{parent}/{other}")
                write_all(parent, face)
    return tally, failures


@contextlib.contextmanager
def temporary_files_below(parent):
    """Let streaming look for free names among its own files, not those that thousands of runs left.

    The first names are left to tests that run beside: plain streaming may meet another program's.
    """
    before, tempfile.tempdir = tempfile.tempdir, f"{parent}/temporary"
    Path(tempfile.tempdir).mkdir()
    for number in range(NAMES_OF_OTHERS):
        Path(tempfile.tempdir, f"{number:06}_barrier_filelock").touch()
    try:
        yield
    finally:
        tempfile.tempdir = before


def forget():
    """Let datasets end, which streaming keeps, and remove their locks, which it looks through."""
    import forgetting

    forgetting.forget()
    for lock in Path(tempfile.gettempdir()).glob("*_filelock"):
        if int(lock.name[:6]) >= NAMES_OF_OTHERS:
            lock.unlink()


def hang(*_):
    raise HangError


def main(count, seed, faces):
    signal.signal(signal.SIGALRM, hang)
    ndarray.alternating = layout.alternating = watched
    if STREAMING.keys() & {*faces}:
        sys.path.insert(0, str(Path(__file__).parents[1] / "streaming"))
        import forgetting

        forgetting.begin()
    failed = 0
    for face in faces:
        rounds = max(count // len(faces), LEAST_ROUNDS.get(face, 0))
        tally, failures = run_face(face, rounds, seed)
        for text, times in sorted(tally.items()):
            print(f"{times:7} {text}")
        for text in failures:
            print(f"FAILED {text}")
        failed += len(failures)
    return failed


if __name__ == "__main__":
    pa.set_cpu_count(1)
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(FACES))))
