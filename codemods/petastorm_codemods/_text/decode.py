"""Bytes of a file ⇄ text, without losing encoding, byte order mark or newlines."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import stat
import tempfile
import tokenize
from dataclasses import dataclass


@dataclass(frozen=True)
class Decoded:
    """The text of a file and how to get its bytes back.

    Attributes:
        text: The text with newlines as they are, without a byte order mark.
        encoding: Name of the codec.
        mark: The byte order mark that the file begins with.
    """

    text: str
    encoding: str
    mark: bytes

    def encode(self, text: str) -> bytes:
        """Return the bytes of another text in the encoding of this one."""
        return self.mark + text.encode(self.encoding)


def decode(path: str, data: bytes) -> Decoded:
    """Decode a Python file, or a list of dependencies: UTF-8, or UTF-16 with a mark, as pip reads it.

    Raises:
        SyntaxError: A Python file declares an encoding that is unknown.
        UnicodeDecodeError: The bytes are in no such encoding.
    """
    if path.endswith(".py"):
        return decode_python(data)
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if data.startswith(mark):
            return Decoded(data[len(mark) :].decode(encoding), encoding, mark)
    return decode_utf8(data)


def decode_python(data: bytes) -> Decoded:
    """Decode a Python file as Python does (PEP 263).

    Raises:
        SyntaxError: The declared encoding is unknown or contradicts the byte order mark.
        UnicodeDecodeError: The bytes are not in the declared encoding.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return _decode(data, "utf-8" if encoding == "utf-8-sig" else encoding)


def decode_utf8(data: bytes) -> Decoded:
    """Decode a file that is UTF-8 by its format.

    Raises:
        UnicodeDecodeError: It is not.
    """
    return _decode(data, "utf-8")


def _decode(data: bytes, encoding: str) -> Decoded:
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    return Decoded(data[len(mark) :].decode(encoding), encoding, mark)


def newline_of(text: str) -> str:
    """Return the newline of the first line; a line feed if there is none."""
    end = text.find("\n")
    if end > 0 and text[end - 1] == "\r":
        return "\r\n"
    return "\r" if end < 0 and "\r" in text else "\n"


def is_read_only(path: str) -> bool:
    """Say whether nobody may write a file; another one could still take its place."""
    return not os.stat(path).st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)


def write_atomically(path: str, data: bytes) -> None:
    """Replace a file's content in one step, keeping its permissions and owner; links are followed.

    A file that does not exist is made.

    Raises:
        OSError: The directory cannot be written to, or the file is read-only, for its owner too.
    """
    target = os.path.realpath(path)
    before = os.stat(target) if os.path.exists(target) else None
    if before is not None and is_read_only(target):
        raise PermissionError(f"{path} is read-only")
    handle, temporary = tempfile.mkstemp(
        prefix=f".{os.path.basename(target)[:40]}.", suffix=".tmp", dir=os.path.dirname(target)
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if before is None:
            mask = os.umask(0)  # which tells it only when it is set
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)
        else:
            with contextlib.suppress(OSError, AttributeError):  # only root may, and not on Windows
                os.chown(temporary, before.st_uid, before.st_gid)
            os.chmod(temporary, stat.S_IMODE(before.st_mode))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
