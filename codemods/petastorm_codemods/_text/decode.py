"""Bytes of a file ⇄ text, without losing encoding, byte order mark or newlines."""

from __future__ import annotations

import codecs
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
        mark: Whether the file begins with UTF-8's byte order mark.
    """

    text: str
    encoding: str
    mark: bool

    def encode(self, text: str) -> bytes:
        """Return the bytes of another text in the encoding of this one."""
        data = text.encode(self.encoding)
        return codecs.BOM_UTF8 + data if self.mark else data


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
    mark = data.startswith(codecs.BOM_UTF8)
    text = data[len(codecs.BOM_UTF8) :].decode(encoding) if mark else data.decode(encoding)
    return Decoded(text, encoding, mark)


def newline_of(text: str) -> str:
    """Return the newline of the first line; a line feed if there is none."""
    end = text.find("\n")
    if end > 0 and text[end - 1] == "\r":
        return "\r\n"
    return "\r" if end < 0 and "\r" in text else "\n"


def write_atomically(path: str, data: bytes) -> None:
    """Replace a file's content in one step, keeping its permissions; links are followed.

    A file that does not exist is made.

    Raises:
        OSError: The directory cannot be written to, or the file is read-only, for its owner too.
    """
    target = os.path.realpath(path)
    mode = stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else 0o644
    if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} is read-only")  # another one could still take its place
    handle, temporary = tempfile.mkstemp(
        prefix=f".{os.path.basename(target)[:40]}.", suffix=".tmp", dir=os.path.dirname(target)
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
