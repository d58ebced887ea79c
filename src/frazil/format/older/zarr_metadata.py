"""Array and group metadata of the older formats, converted to ``zarr.json`` documents.

    meta   0 shape  1 data_type  2 chunk_shape  3 chunk_key_encoding  4 fill_value  5 codecs
           6 storage_transformers  7 dimension_names

The draft writes a map with these names instead. A codec is a pair of name and configuration, in the draft a
map of both.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any, Final

from frazil.errors import FormatError
from frazil.format.older.elements import mapping, text, variant

FIELDS: Final = (
    "shape",
    "data_type",
    "chunk_shape",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "storage_transformers",
    "dimension_names",
)

#: The separators in the keys of chunks. Later formats find chunks by coordinates, with one form of keys.
_SEPARATORS: Final = {"Slash": "/", "Default": "/", "Dot": "/"}
_SIGNED: Final = ("Int8", "Int16", "Int32", "Int64")
_TYPES: Final = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "string",
        "bytes",
    ]
)


def group_document(attributes: dict[str, Any] | None) -> dict[str, Any]:
    """Return the document of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes or {}}


def array_document(meta: Any, attributes: dict[str, Any] | None) -> dict[str, Any]:
    """Return the document of an array. Raise ``FormatError`` if its metadata are not Zarr metadata.

    >>> meta = [[4], "float32", [2], "Slash", {"Float32": float("nan")}, [["bytes", None]], [], ["x"]]
    >>> document = array_document(meta, None)
    >>> document["fill_value"], document["codecs"], document["dimension_names"]
    ('NaN', [{'name': 'bytes'}], ['x'])
    """
    given = meta if isinstance(meta, dict) else _with_names(meta)
    names = given.get("dimension_names")
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": _whole(given["shape"]),
        "data_type": _data_type(given["data_type"]),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": _whole(given["chunk_shape"])}},
        "chunk_key_encoding": {
            "name": "default",
            "configuration": {"separator": _SEPARATORS[text(given["chunk_key_encoding"])]},
        },
        "fill_value": _fill_value(given["fill_value"]),
        "codecs": [_named_configuration(each) for each in given["codecs"]],
        "storage_transformers": [
            _named_configuration(each) for each in given.get("storage_transformers") or ()
        ],
        "attributes": attributes or {},
    }
    if names is not None:
        document["dimension_names"] = [None if name is None else text(name) for name in names]
    return document


def _with_names(meta: Any) -> dict[str, Any]:
    if not isinstance(meta, list) or len(meta) != len(FIELDS):
        raise FormatError(f"expected {len(FIELDS)} fields of an array, got {meta!r:.80}")
    return dict(zip(FIELDS, meta, strict=True))


def _whole(values: Any) -> list[int]:
    if not isinstance(values, list) or not all(type(value) is int and value >= 0 for value in values):
        raise FormatError(f"expected a shape, got {values!r:.80}")
    return values


def _data_type(value: Any) -> str | dict[str, Any]:
    if isinstance(value, dict):
        name, bits = variant(value)
        if name == "rawbits" and type(bits) is int and 0 < bits < 1 << 32 and not bits % 8:
            # The present name in zarr. No reader knows the old name, such as r16.
            return {"name": "raw_bytes", "configuration": {"length_bytes": bits // 8}}
    elif value in _TYPES:
        return text(value)
    raise FormatError(f"expected a data type, got {value!r:.80}")


def _named_configuration(value: Any) -> dict[str, Any]:
    name, configuration = (
        (value["name"], value.get("configuration")) if isinstance(value, dict) else tuple(value)
    )
    if configuration is None:
        return {"name": text(name)}
    return {"name": text(name), "configuration": mapping(configuration)}


def _number(value: Any) -> float | str:
    """Return a float as JSON, which has no numbers for three values. The draft's JSON had null."""
    if value is None:
        return "NaN"
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"expected a number, got {value!r:.80}")
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _integer(value: Any) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 64:
        raise FormatError(f"expected a whole number, got {value!r:.80}")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise FormatError(f"expected true or false, got {value!r:.80}")
    return value


def _complex(value: Any) -> list[float | str]:
    real, imaginary = value
    return [_number(real), _number(imaginary)]


def _base64(value: Any) -> str:
    return base64.b64encode(bytes(value)).decode()


_FILLS: Final[dict[str, Callable[[Any], Any]]] = {
    "Bool": _boolean,
    **dict.fromkeys(_SIGNED, _integer),
    **dict.fromkeys((f"U{name}" for name in _SIGNED), _integer),
    **dict.fromkeys(("Float16", "Float32", "Float64"), _number),
    **dict.fromkeys(("Complex64", "Complex128"), _complex),
    "String": text,
    "Bytes": _base64,
    "RawBits": _base64,
}


def _fill_value(value: Any) -> Any:
    name, content = variant(value)
    return _FILLS[name](content)
