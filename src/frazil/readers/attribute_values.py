"""Converts values of attributes to JSON, and texts of unknown encoding to strings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def json_value(value: Any) -> Any:
    """Return the value of an attribute as JSON can hold it.

    One element becomes a scalar, several elements a list, characters a string. Other values become text: the
    fields of a compound type, references, times.
    """
    match value:
        case bytes():
            return text(value)
        case np.ndarray() if value.size == 1:
            return json_value(value.reshape(-1)[0])
        case np.ndarray():
            return list(map(json_value, value if value.dtype.kind in "OV" else value.tolist()))
        case np.generic():
            return _json_scalar(value)
        case None | bool() | int() | float() | str():
            return value
        case complex():
            return [value.real, value.imag]
        case list() | tuple():
            return list(map(json_value, value))
        case Mapping():
            return {str(name): json_value(each) for name, each in value.items()}
        case _:
            return str(value)


def _json_scalar(value: np.generic) -> Any:
    match value:
        case np.void() if value.dtype.names is not None:
            fields = {name: json_value(value[name]) for name in value.dtype.names}
            return json.dumps(fields, ensure_ascii=False)
        case np.void():
            return value.tobytes().hex()
        case np.datetime64() | np.timedelta64():
            return str(value)
        case np.floating():
            return float(value)
        case np.complexfloating():
            return json_value(complex(value))
        case _:
            return json_value(value.item())


def decoded(values: NDArray[Any]) -> NDArray[Any]:
    """Decode each text of an array of bytes as UTF-8, or else as Latin-1."""
    if values.dtype.kind == "S":
        try:
            return np.asarray(np.strings.decode(values, "utf-8")).astype(np.dtypes.StringDType())
        except UnicodeDecodeError:
            pass
    texts = [text(each) if isinstance(each, bytes) else str(each) for each in values.ravel().tolist()]
    return np.array(texts, np.dtypes.StringDType()).reshape(values.shape)


def text(data: bytes) -> str:
    """Return bytes as text, without zeros at the end: UTF-8, or else Latin-1, as in old files."""
    data = data.rstrip(b"\0")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
