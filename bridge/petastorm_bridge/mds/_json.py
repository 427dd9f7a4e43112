"""Lists of strings, bytes and decimals ⇄ MDS ``json`` cells, in Arrow's C++ kernels.

MDS has no encoding for a list of variable-length values but ``json``. Strings are written as JSON
strings, decimals as strings of digits, bytes as strings of hexadecimal digits; a null element is
``null``, and a null list is ``[]`` with its null flag in the null column.
"""

from __future__ import annotations

import binascii
import io

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from .ragged import (
    binary_from_offsets,
    byte_offsets,
    concat_rows,
    filled_binary,
    list_lengths,
    offsets_of,
    typed_strings,
    value_bytes,
)
from .types import is_bytes, is_text

_ESCAPES = [("\\", "\\\\"), ('"', '\\"')] + [(chr(code), f"\\u{code:04x}") for code in range(0x20)]


def lists_to_json(array: pa.Array) -> pa.LargeBinaryArray:
    """Return each list of ``array`` as UTF-8 JSON."""
    elements = _elements_as_json(array.flatten())
    offsets = pa.array(offsets_of(list_lengths(array)))
    quoted = pa.LargeListArray.from_arrays(offsets, elements)
    joined = pc.binary_join(quoted, pa.scalar(b",", pa.large_binary()))
    return concat_rows([b"[", joined, b"]"])


def json_to_lists(
    cells: pa.LargeBinaryArray, element: pa.DataType
) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return what :func:`lists_to_json` wrote: all elements one after the other, and each row's count.

    Raises:
        ValueError: A cell is not the JSON of a list of strings.
    """
    if len(cells) == 0:
        return pa.array([], element), np.empty(0, np.int64)
    count = len(cells)
    lines = concat_rows([b'{"v":', cells, b"}\n"])
    text = value_bytes(lines)
    longest = int(np.diff(byte_offsets(lines)).max())
    table = pyarrow.json.read_json(
        io.BytesIO(text.data),
        read_options=pyarrow.json.ReadOptions(block_size=max(1 << 20, 2 * longest)),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([("v", pa.list_(pa.string()))]),
            unexpected_field_behavior="error",
        ),
    )
    lists = table.column("v").combine_chunks()
    if isinstance(lists, pa.ChunkedArray):  # pyarrow < 15 for several chunks
        lists = pa.concat_arrays(lists.chunks)
    if len(lists) != count or lists.null_count:
        raise ValueError(f"{len(lists)} JSON lists in {count} rows")
    counts = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    return _elements_from_text(lists.flatten(), element), counts


def _elements_as_json(elements: pa.Array) -> pa.LargeBinaryArray:
    if is_bytes(elements.type):
        text = _to_hex(elements)
    else:
        text = _escape(elements.cast(pa.large_string())).cast(pa.large_binary())
    quoted = concat_rows([b'"', text, b'"'])
    return pc.fill_null(quoted, b"null") if quoted.null_count else quoted


def _escape(text: pa.Array) -> pa.Array:
    # One scan first: hardly any column needs the 34 replacements.
    if not pc.any(pc.match_substring_regex(text, '[\\x00-\\x1f"\\\\]')).as_py():
        return text
    for plain, escaped in _ESCAPES:
        text = pc.replace_substring(text, plain, escaped)
    return text


def _to_hex(elements: pa.Array) -> pa.LargeBinaryArray:
    filled = filled_binary(elements)
    offsets = byte_offsets(filled)
    digits = np.frombuffer(binascii.hexlify(value_bytes(filled).data), np.uint8)
    text = binary_from_offsets((offsets - offsets[0]) * 2, digits)
    if not elements.null_count:
        return text
    return pc.if_else(elements.is_null(), pa.scalar(None, pa.large_binary()), text)


def _elements_from_text(text: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(type_):
        return text.cast(type_)
    if is_text(type_):
        return text.cast(pa.binary()).cast(type_)  # there and back, because this checks UTF-8
    nulls = text.is_null().to_numpy(zero_copy_only=False) if text.null_count else None
    filled = filled_binary(text)
    offsets = byte_offsets(filled)
    data = np.frombuffer(binascii.unhexlify(value_bytes(filled).data), np.uint8)
    binary = binary_from_offsets((offsets - offsets[0]) // 2, data)
    return typed_strings(binary, type_, nulls)
