"""The size of an image, from the first bytes of its file: decoding takes memory for all of it."""

from __future__ import annotations

import struct
from typing import Any

from ._limits import HARMLESS, check_size

_PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
_PNG_SIZE = struct.Struct(">IIBB")
# By kind of colour: grey, RGB, palette. Others have an alpha plane.
_PNG_PLANES = {0: 1, 2: 3, 3: 3}
_JPEG_SIZE = struct.Struct(">BHHB")
_JPEG_SEGMENT = struct.Struct(">BBH")
_JPEG_ALONE = {0x00, 0x01, *range(0xD0, 0xD9)}  # have no length: no marker, TEM, RST0 to RST7, SOI
_JPEG_SIZES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_TIFF_ORDER = {b"II": "<", b"MM": ">"}
_TIFF_NUMBERS = {3: "H", 4: "I", 16: "Q"}  # by type of a tag's value
_WIDTH, _HEIGHT, _BITS, _PLANES = 256, 257, 258, 277
_SIZE_IS_TOLD = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"}


def check_image(field: Any, data: bytes, format_: str) -> None:
    """Refuse an image that would be larger than its field, or its bytes, explain.

    Args:
        field: What is declared of the value (:func:`._limits.check_size`).
        data: The file: PNG, JPEG, WebP, BMP or TIFF. Of others the size is known only when they are decoded.
        format_: What the codec says the file is, ``'.png'``. Another one than these five is left to
            OpenCV, which decodes 2**30 pixels at most.

    Raises:
        ValueError: The image is too large, or is none.
    """
    size = _decoded_size(data)
    if size is not None:
        if size > HARMLESS:
            check_size(field, len(data), size)
    elif format_.lower() in _SIZE_IS_TOLD:
        raise ValueError(
            f"{field.name} holds {len(data)} bytes that are no PNG, JPEG, WebP, BMP or TIFF image"
        )


def _decoded_size(data: bytes) -> int | None:
    """Return the bytes that the decoded image has at least; None where the first bytes do not tell.

    What is transparent has a fourth plane, which not every header tells.
    """
    try:
        if data[: len(_PNG)] == _PNG:
            width, height, bits, colour = _PNG_SIZE.unpack_from(data, 16)
            return int(width * height * _PNG_PLANES.get(colour, 4) * (2 if bits > 8 else 1))
        if data[:2] == b"\xff\xd8":
            return _of_jpeg(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _of_webp(data)
        if data[:2] == b"BM":
            is_old = data[14] == 12
            width, height = struct.unpack_from("<HH" if is_old else "<ii", data, 18)
            bits = data[24 if is_old else 28]
            return int(abs(width * height) * (1 if bits <= 8 else bits // 8))
        if data[:4] in {b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"}:
            return _of_tiff(data)
    except (struct.error, IndexError, ValueError):  # it is cut off
        pass
    return None


def _of_jpeg(data: bytes) -> int:
    """Walk from marker to marker as libjpeg does, which skips what is between."""
    position = 2
    while True:
        begin, marker, length = _JPEG_SEGMENT.unpack_from(data, position)
        if begin != 0xFF or marker == 0xFF:
            position = data.index(b"\xff", position + (begin == 0xFF))
        elif marker in _JPEG_SIZES:
            bits, height, width, planes = _JPEG_SIZE.unpack_from(data, position + 4)
            return int(width * height * (1 if planes == 1 else 3) * (2 if bits > 8 else 1))
        else:
            position += 2 if marker in _JPEG_ALONE else 2 + max(2, length)


def _of_webp(data: bytes) -> int | None:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[i : i + 3], "little") + 1 for i in (24, 27))
    elif kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        width, height = (number & 0x3FFF for number in struct.unpack_from("<HH", data, 26))
    else:
        return None
    return width * height * 3


def _of_tiff(data: bytes) -> int | None:
    """Read the tags of the first image, of the classic format or the one of large files."""
    order, is_large = _TIFF_ORDER[data[:2]], b"+" in data[:4]
    head = struct.Struct(order + ("Q" if is_large else "H"))
    tag = struct.Struct(order + ("HHQ" if is_large else "HHI"))
    offset = struct.Struct(order + ("Q" if is_large else "I"))
    (begin,) = offset.unpack_from(data, 8 if is_large else 4)
    (count,) = head.unpack_from(data, begin)
    values = {_BITS: 1, _PLANES: 1}
    for number in range(count):
        at = begin + head.size + number * (tag.size + offset.size)
        name, kind, length = tag.unpack_from(data, at)
        if name not in {_WIDTH, _HEIGHT, _BITS, _PLANES}:
            continue
        value, place = struct.Struct(order + _TIFF_NUMBERS.get(kind, "H")), at + tag.size
        if length * value.size > offset.size:  # one for each plane, which are elsewhere
            (place,) = offset.unpack_from(data, place)
        (values[name],) = value.unpack_from(data, place)
    if _WIDTH not in values or _HEIGHT not in values:
        return None
    pixels = values[_WIDTH] * values[_HEIGHT]
    return int(pixels * values[_PLANES] * max(1, values[_BITS] // 8))
