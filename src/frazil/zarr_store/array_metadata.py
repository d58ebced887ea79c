"""The metadata of arrays: data types that zarr lacks, and errors for types and codecs that no package knows.

The package ``ml_dtypes`` gives numpy the data types bfloat16, float8_e4m3fn, int4 and others of the Zarr
registry. zarr asks each registered class whether it knows a data type of a ``zarr.json``. The classes here
answer by the name, so only an array with such elements imports ``ml_dtypes``.
"""

from __future__ import annotations

import importlib
import json
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Self, override

import numpy as np
from zarr.core.dtype import ZDType, data_type_registry
from zarr.core.dtype.common import HasEndianness, HasItemSize
from zarr.core.metadata.v3 import ArrayV3Metadata

from frazil.errors import ErrorKind, InvalidInputError, MissingExtraError
from frazil.extras import missing_codec, needs
from frazil.zarr_names import DataTypeValidationError, UnknownCodecError

#: How zarr says that no package has a data type. It quotes the name of an unknown codec.
_UNKNOWN_TYPE: Final = "No Zarr data type found that matches "
_QUOTED: Final = re.compile(r"['\"`]([^\s'\"`]+)['\"`]")

#: The data types of one byte. Small integers and floats have a byte of their own, too.
_OF_ONE_BYTE: Final = (
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "float6_e2m3fn"),
    *("float6_e3m2fn", "int2", "int4", "uint2", "uint4"),
)


def _dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of numpy. Raises ``MissingExtraError`` without ``ml_dtypes``."""
    with needs(f"the data type {name}"):
        dtype: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    return dtype


@dataclass(frozen=True)
class SmallNumber(ZDType[Any, Any], HasItemSize):
    """A data type of one byte."""

    dtype_cls: ClassVar[Any] = np.dtypes.VoidDType
    _zarr_v3_name: ClassVar[Any] = "ml_dtypes"
    names: ClassVar[tuple[str, ...]] = _OF_ONE_BYTE

    name: str = ""

    @classmethod
    @override
    def from_native_dtype(cls, dtype: Any) -> Self:
        """Return the data type of a dtype of numpy."""
        if dtype.name not in cls.names:
            raise DataTypeValidationError(f"a data type must be one of {', '.join(cls.names)}, got {dtype}")
        return cls(name=dtype.name)

    @classmethod
    @override
    def _from_json_v2(cls, data: Any) -> Self:
        raise DataTypeValidationError(f"a data type of Zarr format 2 must be one of numpy, got {data!r}")

    @classmethod
    @override
    def _from_json_v3(cls, data: Any) -> Self:
        if not isinstance(data, str) or data not in cls.names:
            raise DataTypeValidationError(f"a data type must be one of {', '.join(cls.names)}, got {data!r}")
        _dtype(data)
        return cls(name=data)

    @property
    @override
    def item_size(self) -> int:
        """The number of bytes of an element."""
        return _dtype(self.name).itemsize

    @override
    def to_native_dtype(self) -> Any:
        """Return the dtype of numpy."""
        return _dtype(self.name)

    @override
    def to_json(self, zarr_format: Any) -> Any:
        """Return the name."""
        return self.name

    @override
    def _check_scalar(self, data: object) -> Any:
        return isinstance(data, int | float | np.generic)

    @override
    def cast_scalar(self, data: object) -> Any:
        """Return a number as an element."""
        return self.to_native_dtype().type(data)

    @override
    def default_scalar(self) -> Any:
        """Return zero."""
        return self.cast_scalar(0)

    @override
    def from_json_scalar(self, data: Any, *, zarr_format: Any) -> Any:
        """Return the element of a fill value: a number, its name, or bits as ``"0x7fc0"``."""
        dtype = self.to_native_dtype()
        if isinstance(data, str) and data.startswith("0x"):
            return np.frombuffer(int(data, 16).to_bytes(dtype.itemsize, "little"), dtype)[0]
        return dtype.type(data if isinstance(data, int) else float(data))

    @override
    def to_json_scalar(self, data: object, *, zarr_format: Any) -> Any:
        """Return an element as a fill value in JSON."""
        if "int" in self.name:
            return int(self.cast_scalar(data))
        number = float(self.cast_scalar(data))
        if math.isfinite(number):
            return number
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


@dataclass(frozen=True)
class BrainFloat(SmallNumber, HasEndianness):
    """The data type bfloat16, whose two bytes have an order."""

    names: ClassVar[tuple[str, ...]] = ("bfloat16",)

    @override
    def to_native_dtype(self) -> Any:
        """Return the dtype of numpy."""
        dtype = super().to_native_dtype()
        return dtype.newbyteorder(">") if self.endianness == "big" else dtype


for _each in (SmallNumber, BrainFloat):
    data_type_registry.register(f"ml_dtypes.{_each.__name__}", _each)


def array_metadata(document: bytes, path: str) -> ArrayV3Metadata:
    """Return the metadata of an array.

    Raises ``MissingExtraError`` for a data type or codec whose package is not installed, and
    ``InvalidInputError`` (``unsupported-array``) for one that no package knows.
    """
    try:
        metadata = ArrayV3Metadata.from_dict(json.loads(document))
        if metadata.storage_transformers:
            raise ValueError(f"zarr applies no storage transformers, got {metadata.storage_transformers}")
    except Exception as error:  # zarr refuses documents with errors of any class
        names = _QUOTED.findall(str(error)) if isinstance(error, UnknownCodecError) else []
        missing = next(filter(None, map(missing_codec, names)), error)
        if isinstance(missing, ImportError):
            extra = getattr(missing, "extra", None)
            raise MissingExtraError(f"`{path}`: {missing}", missing.name, extra=extra) from error
        message = f"`{path}` must have metadata that zarr reads: {error}"
        unknown = repr(names[0]) if names else str(error).removeprefix(_UNKNOWN_TYPE)
        if unknown != str(error):
            part = "codecs" if names else "a data type"
            message = (
                f"`{path}` must have {part} of installed packages, got {unknown}. Install the package, or "
                "leave the array out"
            )
        raise InvalidInputError(message, ErrorKind.UNSUPPORTED_ARRAY) from error
    return metadata


#: The metadata of documents that were read before. Nobody may change their attributes.
stored_metadata: Final = lru_cache(256)(array_metadata)
