"""How values lie in the columns of Petastorm's own datasets (``petastorm/codecs.py``).

A codec turns one value of a field into what Spark stores, and back. Reading whole row groups at once
is the business of ``reader/_rows/decoding.py``; what a codec's ``decode`` gives is its measure.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from petastorm_bridge._tables.spark_types import as_type, is_named, to_pyspark
from petastorm_bridge.errors import missing_extra

from ._array_files import load_npy, load_npz
from ._images import check_image

__all__ = [
    "CompressedImageCodec",
    "CompressedNdarrayCodec",
    "DataframeColumnCodec",
    "NdarrayCodec",
    "ScalarCodec",
]

_ABSTRACT = "Abstract method was called"


class DataframeColumnCodec:
    """Base of all codecs, also of users' own."""

    @abstractmethod
    def encode(self, unischema_field: Any, value: Any) -> Any:
        """Return what is stored for a value of the field."""
        raise RuntimeError(_ABSTRACT)

    @abstractmethod
    def decode(self, unischema_field: Any, value: Any) -> Any:
        """Return the value of what is stored."""
        raise RuntimeError(_ABSTRACT)

    @abstractmethod
    def spark_dtype(self) -> Any:
        """Return the Spark type of what is stored."""
        raise RuntimeError(_ABSTRACT)

    @abstractmethod
    def __str__(self) -> str:
        """Return the call that makes an equal codec."""
        raise RuntimeError(_ABSTRACT)


class CompressedImageCodec(DataframeColumnCodec):
    """Images of shape (height, width) or (height, width, 3), RGB, as PNG or JPEG.

    Args:
        image_codec: What OpenCV calls the format: ``'png'`` (8 or 16 bits, exact) or ``'jpeg'``.
        quality: Of a JPEG, 0 to 100.

    Raises:
        ImportError: OpenCV is not installed.
    """

    def __init__(self, image_codec: str = "png", quality: int = 80) -> None:
        import_opencv()
        self._image_codec = "." + image_codec
        self._quality = quality

    @property
    def image_codec(self) -> str:
        """The format, ``'png'`` or ``'jpeg'``."""
        return self._image_codec[1:]

    @property
    def quality(self) -> int:
        """Quality of a JPEG, 0 to 100."""
        return self._quality

    def encode(self, unischema_field: Any, value: npt.NDArray[Any]) -> bytearray:
        """Return the bytes of an image file.

        Raises:
            ValueError: The array's dtype or shape is not the field's, or it is no image.
        """
        _check_array(unischema_field, value, value.dtype)
        _check_planes(value)
        cv2 = import_opencv()
        # OpenCV 5 prints a warning for every image whose format has no such option.
        is_jpeg = self._image_codec.lower() in {".jpeg", ".jpg"}
        options = [int(cv2.IMWRITE_JPEG_QUALITY), self._quality] if is_jpeg else []
        done, contents = cv2.imencode(self._image_codec, _reversed_planes(value), options)
        if not done:
            raise ValueError(
                f"OpenCV cannot write the {value.dtype} image of {unischema_field.name} "
                f"as {self.image_codec}."
            )
        return bytearray(contents)

    def decode(self, unischema_field: Any, value: bytes) -> npt.NDArray[Any]:
        """Return the image, shape (height, width) or (height, width, 3), RGB.

        Raises:
            ValueError: OpenCV cannot read the bytes, they hold a fourth plane, or the image would be
                larger than the field and they explain.
        """
        cv2 = import_opencv()
        check_image(unischema_field, value, self._image_codec)
        image = cv2.imdecode(np.frombuffer(value, np.uint8), cv2.IMREAD_UNCHANGED)
        if image is None:
            raise ValueError(
                f"{unischema_field.name} holds {len(value)} bytes that are no image OpenCV can read."
            )
        _check_planes(image)
        return _reversed_planes(image)

    def spark_dtype(self) -> Any:
        """Return Spark's ``BinaryType``."""
        return to_pyspark(as_type("BinaryType"))

    def __str__(self) -> str:
        return f"{type(self).__name__}('{self.image_codec}', {self._quality})"


class _ArrayFileCodec(DataframeColumnCodec):
    """Arrays as the bytes of a file of NumPy's."""

    @abstractmethod
    def _save(self, file: io.BytesIO, value: npt.NDArray[Any]) -> None:
        """Write the file."""

    def encode(self, unischema_field: Any, value: npt.NDArray[Any]) -> bytearray:
        """Return the bytes of the file.

        Raises:
            ValueError: The value is no array, or its dtype or shape is not the field's.
        """
        _check_ndarray(unischema_field, value)
        file = io.BytesIO()
        self._save(file, value)
        return bytearray(file.getvalue())

    def spark_dtype(self) -> Any:
        """Return Spark's ``BinaryType``."""
        return to_pyspark(as_type("BinaryType"))

    def __str__(self) -> str:
        return f"{type(self).__name__}()"


class NdarrayCodec(_ArrayFileCodec):
    """Arrays as the bytes of an ``.npy`` file."""

    def _save(self, file: io.BytesIO, value: npt.NDArray[Any]) -> None:
        np.save(file, value)

    def decode(self, unischema_field: Any, value: bytes) -> npt.NDArray[Any]:  # noqa: ARG002
        """Return the array; its dtype and shape are the stored ones.

        Raises:
            ValueError: The bytes are no such file.
        """
        return load_npy(value)


class CompressedNdarrayCodec(_ArrayFileCodec):
    """Arrays as the bytes of an ``.npz`` file, which is a compressed ``.npy`` file in a zip archive."""

    def _save(self, file: io.BytesIO, value: npt.NDArray[Any]) -> None:
        np.savez_compressed(file, arr=value)

    def decode(self, unischema_field: Any, value: bytes) -> npt.NDArray[Any]:
        """Return the array; its dtype and shape are the stored ones.

        Raises:
            ValueError: The bytes are no such file, or would unpack to more than the field and they
                explain.
        """
        return load_npz(value, unischema_field)


class ScalarCodec(DataframeColumnCodec):
    """Single values in a column of a Spark type.

    Args:
        spark_type: An instance of a type of ``pyspark.sql.types``.
    """

    def __init__(self, spark_type: Any) -> None:
        self._spark_type = spark_type

    @property
    def spark_type(self) -> Any:
        """The Spark type; a stand-in where the codec was read without pyspark."""
        return self._spark_type

    def encode(self, unischema_field: Any, value: Any) -> Any:
        """Return the value as Python's int, float, bool or str where the Spark type is one of these.

        Raises:
            TypeError: The value has a length.
            ValueError: The field has a shape, or holds texts and the value is none.
        """
        is_text = isinstance(value, str)
        is_array_of_one = isinstance(value, np.ndarray) and value.shape == ()
        if hasattr(value, "__len__") and not is_text and not is_array_of_one:
            raise TypeError(
                f"Expected a scalar as a value for field '{unischema_field.name}'. "
                f"Got a non-numpy type'{type(value)}'"
            )
        if unischema_field.shape:
            raise ValueError(
                f"The shape field of unischema_field '{unischema_field.name}' must be an empty tuple "
                f"(i.e. '()' to indicate a scalar). However, the actual shape is "
                f"{unischema_field.shape}"
            )
        spark_type = self._spark_type
        if is_named(spark_type, "ByteType", "ShortType", "IntegerType", "LongType"):
            return int(value)
        if is_named(spark_type, "FloatType", "DoubleType"):
            return float(value)
        if is_named(spark_type, "BooleanType"):
            return bool(value)
        if is_named(spark_type, "StringType"):
            if not is_text:
                raise ValueError(
                    f"Expected a string value for field {unischema_field.name}. Got type {type(value)}"
                )
            return str(value)
        return value

    def decode(self, unischema_field: Any, value: Any) -> Any:
        """Return the value as the field's NumPy type, or as ``decimal.Decimal``."""
        return unischema_field.numpy_dtype(value)

    def spark_dtype(self) -> Any:
        """Return the Spark type given; pyspark's own where a stand-in was read."""
        return to_pyspark(self._spark_type)

    def __str__(self) -> str:
        return f"{type(self).__name__}({type(self._spark_type).__name__}())"


def import_opencv() -> Any:
    """Return the module ``cv2``.

    Raises:
        ImportError: OpenCV is not installed.
    """
    try:
        import cv2
    except ImportError:
        raise missing_extra("opencv-python-headless", "images") from None
    return cv2


def _reversed_planes(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return RGB as BGR or the other way round; a grey image as it is."""
    if image.ndim == 2:
        return image
    cv2 = import_opencv()
    if image.dtype in {np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.float32)}:
        reversed_: npt.NDArray[Any] = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        return reversed_
    return np.ascontiguousarray(image[:, :, ::-1])


def _check_planes(image: npt.NDArray[Any]) -> None:
    if image.ndim != 2 and (image.ndim != 3 or image.shape[2] != 3):
        raise ValueError(
            "Unexpected image dimensions. Supported dimensions are (H, W) or (H, W, 3). "
            f"Got {image.shape}"
        )


def _check_ndarray(field: Any, value: Any) -> None:
    if not isinstance(value, np.ndarray):
        raise ValueError(  # noqa: TRY004 – the type Petastorm raises
            f"Unexpected type of {field.name} feature. "
            f"Expected ndarray of {field.numpy_dtype}. Got {type(value)}"
        )
    _check_array(field, value, value.dtype.type)


def _check_array(field: Any, value: npt.NDArray[Any], dtype: Any) -> None:
    if field.numpy_dtype != dtype:
        raise ValueError(
            f"Unexpected type of {field.name} feature. "
            f"Expected {field.numpy_dtype}. Got {value.dtype}"
        )
    if not is_compliant_shape(value.shape, field.shape):
        raise ValueError(
            f"Unexpected dimensions of {field.name} feature. "
            f"Expected {field.shape}. Got {value.shape}"
        )


def is_compliant_shape(shape: Sequence[int | None], expected: Sequence[int | None]) -> bool:
    """Return whether two shapes agree; None, and 0 as in Petastorm, stand for any length."""
    if len(shape) != len(expected):
        return False
    return all(a == b for a, b in zip(shape, expected, strict=True) if a and b)
