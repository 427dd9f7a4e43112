"""Cells whose few bytes announce or unpack to much: refused before they take memory, and named."""

import bz2
import io
import re
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from stored import write_stored

from petastorm_bridge import make_reader
from petastorm_bridge.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec
from petastorm_bridge.errors import DecodeFieldError
from petastorm_bridge.reader._rows.decoding import decode_column
from petastorm_bridge.unischema import Unischema, UnischemaField
from petastorm_bridge.utils import decode_row

MEGABYTE = 1 << 20


def npy(text):
    header = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def announced(descr, shape):
    return npy(f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}")


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def zipped(array):
    file = io.BytesIO()
    np.savez_compressed(file, arr=array)
    return file.getvalue()


def archive(content, method=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as names:
        names.writestr("arr.npy", content)
    return file.getvalue()


def lying(content, size):
    """An archive whose entries say a size that is not that of their content."""
    told = archive(content)
    return told.replace(struct.pack("<I", len(content)), struct.pack("<I", size))


def png(width, height):
    start = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", start) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def jpeg(width, height):
    size = struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    # What libjpeg skips between markers must not hide the size.
    return b"\xff\xd8\xff\xe0\0\x04ab??\xff\xff\xc0" + size + b"\xff\xda" + bytes(50)


def bmp(width, height):
    return b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, width, -height, 1, 24, 0) + bytes(60)


WEBP = b"RIFF\0\0\0\0WEBPVP8X" + struct.pack("<II", 10, 0) + b"\xfe\x3f\0\xfe\x3f\0" + bytes(60)


def tiff(width, height, order="<", large=False):
    """A header and the tags of an RGB image of 8 bits, without the image."""
    start = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}H", 43 if large else 42)
    start += struct.pack(f"{order}HHQ", 8, 0, 16) if large else struct.pack(f"{order}I", 8)
    tags = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 3, 200), (277, 3, 1, 3)]
    text = struct.pack(f"{order}{'Q' if large else 'H'}", len(tags))
    for name, kind, count, value in tags:
        text += struct.pack(f"{order}HH{'Q' if large else 'I'}", name, kind, count)
        stored = struct.pack(f"{order}{'H' if kind == 3 and count == 1 else 'I'}", value)
        if large and count > 1:
            stored = struct.pack(f"{order}Q", value)
        text += stored.ljust(8 if large else 4, b"\0")
    text = (start + text).ljust(200, b"\0")
    return text + struct.pack(f"{order}HHH", 8, 8, 8) + bytes(60)


def field(codec, shape=(None,), dtype=np.float32):
    return UnischemaField("value", dtype, shape, codec, True)


def reading(tmp_path, field, cells, rows=4):
    schema = Unischema("B", [field])
    url = write_stored(tmp_path / "d", schema, [], files=1)
    table = pa.table({field.name: pa.array(cells, pa.binary())})
    parquet.write_table(table, tmp_path / "d" / "part-00000.parquet", row_group_size=rows)
    with make_reader(url, num_epochs=1, shuffle_row_groups=False) as reader:
        return [row.value for row in reader]


NPY, NPZ = NdarrayCodec(), CompressedNdarrayCodec()
PNG, TIFF = CompressedImageCodec("png"), CompressedImageCodec("tiff")
REFUSED = {
    "no bytes": (field(NPY), announced("|V0", (2**60,)), "announces .* elements of 0 bytes"),
    "no letters": (field(NPY, dtype=np.str_), announced("<U0", (2**40,)), "elements of 0 bytes"),
    "empty texts": (field(NPY, dtype=np.bytes_), announced("|S0", (2**60,)), "elements of 0 bytes"),
    "a terabyte": (field(NPY), announced("<f4", (2**40,)), "announces .* has 0 bytes"),
    "beyond 64 bits": (field(NPY), announced("<f4", (2**62, 2**62)), "announces"),
    "negative": (field(NPY), announced("<f4", (-4,)), "shape"),
    "nested": (field(NPY), npy("-" * 90), "header of an .npy file cannot be read: ."),
    "zipped, no bytes": (field(NPZ), archive(announced("|V0", (2**60,))), "elements of 0 bytes"),
    "zipped, a terabyte": (field(NPZ), archive(announced("<f4", (2**40,))), "announces"),
    "declared": (
        field(NPZ, (4,)),
        zipped(np.zeros(30 * MEGABYTE, np.int8)),
        r"declares shape \(4,\)",
    ),
    "no npy": (field(NPZ), archive(bytes(20 * MEGABYTE)), "'arr.npy' that is no .npy file"),
    "size too small": (field(NPZ), lying(saved(np.zeros(20 * MEGABYTE, np.int8)), 200), "npz"),
    "size too large": (field(NPZ), lying(saved(np.zeros(9)), 2**31), "declares no size"),
    "another method": (field(NPZ), archive(saved(np.zeros(9)), zipfile.ZIP_BZIP2), "does not use"),
    "no archive": (field(NPZ), b"PK\x03\x04 no archive", "no .npz file"),
    "png": (field(PNG, (None, None, 3)), png(30000, 30000), "would become 2,700,000,000"),
    "png declared": (field(PNG, (9, 9, 3)), png(3000, 3000), "declares shape"),
    "png cut off": (field(PNG, (9, 9, 3)), png(3000, 3000)[:20], "no PNG, JPEG"),
    "jpeg": (field(PNG, (None, None, 3)), jpeg(65000, 65000), "would become 12,675,000,000"),
    "webp": (field(PNG, (None, None, 3)), WEBP, "would become 805,"),
    "bmp": (field(PNG, (None, None, 3)), bmp(20000, 20000), "would become 1,200,000,000"),
    "tiff": (field(PNG, (None, None, 3)), tiff(20000, 20000), "would become 1,200,000,000"),
    "tiff, Motorola": (field(TIFF, (9, 9, 3)), tiff(9000, 9000, ">"), "declares shape"),
    "large tiff": (field(TIFF, (9, 9, 3)), tiff(9000, 9000, large=True), "declares shape"),
    "tiff without a size": (field(TIFF, (9, 9, 3)), b"II*\0" + bytes(99), "no PNG, JPEG"),
    "tiff cut off": (field(TIFF, (9, 9, 3)), tiff(9000, 9000)[:30], "no PNG, JPEG"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.difference("values-have-a-limit")
def test_refused_by_place(tmp_path, name):
    declared, cell, reason = REFUSED[name]
    whole = {NPY: saved, NPZ: zipped}.get(declared.codec)
    good = png_of(declared) if whole is None else whole(np.zeros(4, np.float32))
    cells = [good] * 6 + [cell] + [good]
    with pytest.raises(DecodeFieldError, match=reason) as caught:
        reading(tmp_path, declared, cells)
    assert 'Decoding field "value" failed in row 2 of row group 1' in str(caught.value)
    tracemalloc.start()
    try:
        for decode in (
            lambda: decode_column(declared, pa.array(cells, pa.binary())),
            lambda: decode_row({"value": cell}, Unischema("B", [declared])),
        ):
            with pytest.raises(DecodeFieldError, match=reason):
                decode()
        assert tracemalloc.get_traced_memory()[1] < 12 * MEGABYTE
    finally:
        tracemalloc.stop()


def png_of(declared):
    image = np.zeros((9, 9, 3), np.uint8)
    return bytes(PNG.encode(UnischemaField("value", np.uint8, declared.shape, PNG, True), image))


def test_what_bzip2_could_hide_is_not_unpacked():
    content = bz2.compress(bytes(50 * MEGABYTE))
    packed = archive(saved(np.zeros(9)), zipfile.ZIP_BZIP2)
    assert len(content) < 1000
    with pytest.raises(ValueError, match="does not use"):
        NPZ.decode(field(NPZ), packed)


@pytest.mark.parametrize("codec", [NPY, NPZ], ids=["npy", "npz"])
def test_small_values_of_other_shapes_are_read(tmp_path, codec):
    """As Petastorm reads them."""
    whole = saved if codec is NPY else zipped
    arrays = [
        np.zeros((2, 3), np.float32), np.zeros(7, np.int64), np.array(3.5), np.zeros((0, 4)),
        np.asfortranarray(np.arange(6).reshape(2, 3)), np.array(["ä", "b"]), np.zeros(3, "V0"),
        np.zeros(2, [("a", "<i4"), ("ä", "<f8", (2,))]), np.zeros((0, 2**40)),
    ]  # fmt: skip
    found = reading(tmp_path, field(codec, (4,)), [whole(array) for array in arrays])
    for value, array in zip(found, arrays, strict=True):
        assert (value.shape, value.dtype) == (array.shape, array.dtype)
        assert np.array_equal(value, array)
        assert value.flags.f_contiguous == array.flags.f_contiguous


def test_what_is_declared_may_be_large():
    array = np.zeros((3000, 2000), np.float32)
    assert NPZ.decode(field(NPZ, array.shape), zipped(array)).shape == array.shape
    with pytest.raises(ValueError, match="would become"):
        NPZ.decode(field(NPZ, (2900, 2000)), zipped(array))


def test_noise_may_be_as_large_as_it_is():
    """What hardly compresses is explained by its own bytes, whatever an image is."""
    image = np.random.default_rng(0).integers(0, 255, (2600, 2600, 3)).astype(np.uint8)
    declared = field(PNG, (None, None, 3), np.uint8)
    assert np.array_equal(PNG.decode(declared, bytes(PNG.encode(declared, image))), image)


def test_the_limit_can_be_raised(monkeypatch):
    cell, declared = zipped(np.zeros(30 * MEGABYTE, np.int8)), field(NPZ, (4,))
    with pytest.raises(ValueError, match="LARGEST_VALUE=") as caught:
        NPZ.decode(declared, cell)
    variable, value = re.search(r"(PETASTORM_\w+)=(\d+)", str(caught.value)).groups()
    monkeypatch.setenv(variable, value)
    assert NPZ.decode(declared, cell).shape == (30 * MEGABYTE,)
    monkeypatch.setenv(variable, "much")
    with pytest.raises(ValueError, match="has to be a number of bytes"):
        NPZ.decode(declared, cell)


@pytest.mark.parametrize("format_", ["png", "jpeg", "webp", "bmp", "tiff"])
@pytest.mark.parametrize("shape", [(40, 60), (40, 60, 3)])
def test_images_of_all_formats_are_measured(format_, shape):
    from petastorm_bridge.codecs._images import _decoded_size

    codec = CompressedImageCodec(format_)
    declared = field(codec, shape, np.uint8)
    data = bytes(codec.encode(declared, np.full(shape, 7, np.uint8)))
    size = _decoded_size(data)
    decoded = PNG.decode(declared, data)
    assert decoded.shape[:2] == shape[:2]
    assert size == decoded.nbytes


def test_nine_thousand_signs_have_a_reason():
    text = b"{'descr': " + b"-" * 9000 + b"}\n"
    cell = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    with pytest.raises(ValueError, match=r"cannot be read: \w"):
        NPY.decode(field(NPY), cell)


def test_errors_without_words_are_called_by_their_type():
    class Wordless(NdarrayCodec):
        def decode(self, unischema_field, value):
            raise MemoryError

    with pytest.raises(DecodeFieldError, match="failed: MemoryError"):
        decode_row({"value": b""}, Unischema("B", [field(Wordless())]))
