"""A reader of MDS datasets that takes one row, one column and one value at a time.

Written from the description of the format alone, with ``struct`` and ``json``; it shares no code
with the engine and is its oracle.

A shard file is ``[rows: u32][byte offset of each row, and of the end: u32 each][JSON][rows]``.
A row is ``[u32 size of each column of variable width][the columns' bytes]``, both in column order.
"""

import bz2
import gzip
import json
import math
import os
import struct
from decimal import Decimal

SCALARS = {
    "int": "q",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}
NDARRAY_DTYPES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
NAT = -(2**63)


def read_index(directory):
    """The parsed ``index.json``."""
    with open(os.path.join(directory, "index.json"), encoding="utf-8") as file:
        index = json.load(file)
    assert index["version"] == 2
    return index


def read_sidecar(directory):
    """The parsed logical schema beside the index."""
    path = os.path.join(directory, "petastorm_bridge_schema.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def stored_rows(directory):
    """Every row of a dataset as a dict of decoded stored values, in row order."""
    rows = []
    for entry in read_index(directory)["shards"]:
        rows += shard_rows(read_shard_file(directory, entry), entry)
    return rows


def read_shard_file(directory, entry):
    """The uncompressed bytes of one shard."""
    raw = entry["raw_data"]
    if entry["zip_data"] is None:
        with open(os.path.join(directory, raw["basename"]), "rb") as file:
            data = file.read()
    else:
        with open(os.path.join(directory, entry["zip_data"]["basename"]), "rb") as file:
            packed = file.read()
        assert len(packed) == entry["zip_data"]["bytes"]
        data = expand(entry["compression"], packed)
    assert len(data) == raw["bytes"]
    return data


def expand(compression, packed):
    """Decompress with the packages that ``streaming`` itself uses."""
    family = compression.split(":")[0]
    if family == "gz":
        return gzip.decompress(packed)
    if family == "bz2":
        return bz2.decompress(packed)
    if family == "zstd":
        import zstd

        return zstd.decompress(packed)
    if family == "br":
        import brotli

        return brotli.decompress(packed)
    assert family == "snappy"
    import snappy

    return snappy.decompress(packed)


def shard_rows(data, entry):
    """The rows of one shard, given its bytes and its index entry."""
    (count,) = struct.unpack_from("<I", data, 0)
    assert count == entry["samples"]
    offsets = [struct.unpack_from("<I", data, 4 + 4 * row)[0] for row in range(count + 1)]
    config = json.loads(data[4 + 4 * (count + 1) : offsets[0]])
    for key in ("column_names", "column_encodings", "column_sizes", "compression", "hashes"):
        assert config[key] == entry[key]
    assert offsets[-1] == len(data)
    return [split_row(data[offsets[row] : offsets[row + 1]], config) for row in range(count)]


def split_row(data, config):
    """One row's bytes as a dict of decoded values."""
    position = 0
    sizes = []
    for size in config["column_sizes"]:
        sizes.append(size)
        if size is None:
            (sizes[-1],) = struct.unpack_from("<I", data, position)
            position += 4
    row = {}
    columns = zip(config["column_names"], config["column_encodings"], sizes, strict=True)
    for name, encoding, size in columns:
        row[name] = decode(encoding, data[position : position + size])
        position += size
    assert position == len(data)
    return row


def decode(encoding, data):
    """One stored value; arrays come as nested lists, pickles and images as their bytes."""
    if encoding in SCALARS:
        (value,) = struct.unpack("<" + SCALARS[encoding], data)
        return value
    if encoding == "str":
        return data.decode("utf-8")
    if encoding == "str_int":
        return int(data.decode("utf-8"))
    if encoding == "str_float":
        return float(data.decode("utf-8"))
    if encoding == "str_decimal":
        return Decimal(data.decode("utf-8"))
    if encoding == "json":
        return json.loads(data.decode("utf-8"))
    if encoding == "ndarray" or encoding.startswith("ndarray:"):
        return decode_ndarray(encoding, data)
    return data


def decode_ndarray(encoding, data):
    """A value of one of the ``ndarray`` encodings as nested lists of numbers."""
    parts = encoding.split(":")
    position = 0
    if len(parts) > 1:
        dtype = parts[1]
    else:
        dtype = NDARRAY_DTYPES[data[position]]
        position += 1
    if len(parts) > 2:
        shape = [int(size) for size in parts[2].split(",")]
    else:
        axes, width = data[position] >> 2, data[position] & 3
        position += 1
        letter = "BHIQ"[width]
        shape = []
        for _ in range(axes):
            shape.append(struct.unpack_from("<" + letter, data, position)[0])
            position += 1 << width
    letter = SCALARS[dtype]
    count = math.prod(shape)
    assert len(data) - position == count * struct.calcsize(letter)
    values = list(struct.unpack_from(f"<{count}{letter}", data, position))
    for size in reversed(shape[1:]):
        values = [values[start : start + size] for start in range(0, len(values), size)]
    return values


def logical_rows(directory):
    """Every row with the sidecar's types: nulls as None, companion columns gone.

    Dates and timestamps are integers; a null among floating-point numbers is NaN, as stored.
    """
    columns = read_sidecar(directory)["columns"]
    rows = []
    for stored in stored_rows(directory):
        row = {}
        for column in columns:
            value = stored[column["name"]]
            flag = stored.get(column["null_column"], 0)
            flags = stored.get(column["element_null_column"])
            row[column["name"]] = logical_value(column["type"], value, flag, flags)
        rows.append(row)
    return rows


def logical_value(type_text, value, flag, element_flags):
    """One logical value from what is stored.

    Args:
        type_text: The Arrow type's name, e.g. ``"int32"`` or ``"list<item: string>"``.
        value: The decoded stored value.
        flag: The stored null flag, 0 where there is none.
        element_flags: The stored null flags of the elements, or None.
    """
    if flag:
        return None
    if "list<" not in type_text:
        return logical_scalar(type_text, value)
    element = type_text.split(": ", 1)[1].split(">")[0].removesuffix(" not null")
    flags = element_flags or [0] * len(value)
    assert len(flags) == len(value)
    return [
        None if item is None or marked else logical_scalar(element, item)
        for item, marked in zip(value, flags, strict=True)
    ]


def logical_scalar(type_text, value):
    """One value that no flag says is null."""
    if type_text == "bool":
        return bool(value)
    if type_text.startswith(("timestamp", "duration")):
        return None if value == NAT else value
    if type_text.startswith("decimal"):
        return Decimal(value)
    if isinstance(value, str) and "binary" in type_text:  # bytes in a list, as hexadecimal digits
        return bytes.fromhex(value)
    return value
