"""Values of tasks as bytes, which can be read back from a storage where others may write.

    from the engine     a pickle: of anything, also of what a notebook defines
    from storage        the same bytes, read with a list of what a value may be made of: Python's and numpy's
                        plain types, and dataclasses of Frazil's Spark pipeline and of one more module

Arrays are put in as a type, a shape and bytes, and made again here. numpy's own way to unpickle believes what
it reads: a dtype whose flags are wrong makes pointers of bytes.
"""

from __future__ import annotations

import builtins
import io
import pickle
from collections.abc import Callable
from dataclasses import is_dataclass
from decimal import Decimal
from fractions import Fraction
from math import prod
from typing import Any, Final

import numpy as np
from cloudpickle import CloudPickler  # type: ignore[import-untyped]  # it ships no types
from numpy.lib.format import descr_to_dtype, dtype_to_descr
from numpy.typing import NDArray

_BUILTINS: Final = {"bool", "complex", "dict", "float", "frozenset", "int", "list"} | {
    "set",
    "slice",
    "str",
    "tuple",
}
_ALLOWED: Final = {
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("collections", "deque"),
    ("datetime", "date"),
    ("datetime", "datetime"),
    ("datetime", "time"),
    ("datetime", "timedelta"),
    ("datetime", "timezone"),
}


def dumped(value: Any) -> bytes:
    """A value as bytes. Raises what its parts raise that cannot be pickled."""
    with io.BytesIO() as out:
        _Pickler(out).dump(value)
        return out.getvalue()


def loaded(data: bytes, module: str | None = None) -> Any:
    """The value. With a ``module`` the bytes are not trusted, and the value may be made of dataclasses of
    this module: raises ``UnpicklingError`` for what is not allowed, and nearly anything else for damaged
    bytes.
    """
    return pickle.loads(data) if module is None else _Unpickler(data, module).load()


class _Pickler(CloudPickler):  # type: ignore[misc]  # for the same reason
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.dtype) and (descr := _descr_of(obj)) is not None:
            return dtype_of, (descr,)
        if type(obj) is np.ma.MaskedArray:
            # Not ``fill_value``: that makes one where it is the default, which not every dtype can hold.
            return masked_of, (obj.data, obj.mask, vars(obj).get("_fill_value"))
        if type(obj) is np.ndarray and obj.dtype.kind == "O":
            return objects_of, (obj.shape, obj.ravel().tolist())
        if type(obj) is np.ndarray and (descr := _descr_of(obj.dtype)) is not None:
            return array_of, (descr, obj.shape, obj.tobytes())
        if isinstance(obj, np.generic) and (descr := _descr_of((one := np.asarray(obj)).dtype)) is not None:
            return scalar_of, (descr, one.tobytes())
        return super().reducer_override(obj)


def _descr_of(dtype: np.dtype[Any]) -> Any:
    """What ``dtype_of`` makes it of; None for those that it cannot."""
    if dtype.hasobject or dtype.metadata or dtype.kind not in "biufcmMSUV":
        return None
    descr = dtype_to_descr(dtype)
    return descr if descr_to_dtype(descr) == dtype else None


def dtype_of(descr: Any) -> np.dtype[Any]:
    """A type of plain values."""
    if not isinstance(descr, str | list | tuple):
        raise pickle.UnpicklingError(f"a dtype of {type(descr).__name__}")
    descr_value: Any = descr
    dtype: np.dtype[Any] = descr_to_dtype(descr_value)
    if dtype.hasobject:
        raise pickle.UnpicklingError(f"a dtype with objects, {dtype}")
    return dtype


def array_of(descr: Any, shape: tuple[int, ...], data: bytes) -> NDArray[Any]:
    """An array of plain values, in C order."""
    dtype = dtype_of(descr)
    if not isinstance(data, bytes) or min(shape, default=0) < 0 or len(data) != prod(shape) * dtype.itemsize:
        raise pickle.UnpicklingError(f"an array of shape {shape} that has not the bytes for it")
    return np.ndarray(shape, dtype, bytearray(data))


def scalar_of(descr: Any, data: bytes) -> Any:
    return array_of(descr, (), data)[()]


def objects_of(shape: tuple[int, ...], items: list[Any]) -> NDArray[Any]:
    """An array of objects."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


def masked_of(data: Any, mask: Any, fill_value: Any) -> Any:
    return np.ma.MaskedArray(data, mask, fill_value=fill_value)


def _bytes_of(*parts: Any) -> bytes:
    """Not from a number, which would be a length."""
    if not all(isinstance(part, bytes | bytearray | str) for part in parts):
        raise pickle.UnpicklingError("bytes that are made of something else than bytes or text")
    return bytes(*parts)


def _bytearray_of(*parts: Any) -> bytearray:
    return bytearray(_bytes_of(*parts))


def _range_of(*ends: Any) -> range:
    """A list of it would take memory."""
    numbers = range(*ends)
    if len(numbers) > _LONGEST_RANGE:
        raise pickle.UnpicklingError(f"a range of more than {_LONGEST_RANGE}")
    return numbers


def _decimal_of(value: Any) -> Decimal:
    """As a whole number it would take time and memory."""
    number = Decimal(value)
    if number.is_finite() and abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise pickle.UnpicklingError(f"a decimal number with an exponent beyond {_LARGEST_EXPONENT}")
    return number


def _fraction_of(*parts: Any) -> Fraction:
    if any(isinstance(part, str) and "e" in part.lower() for part in parts):
        raise pickle.UnpicklingError("a fraction with an exponent")
    return Fraction(*parts)


#: What takes memory or time by a few bytes of arguments, and what makes it instead.
_GUARDED: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    (builtins.__name__, "bytes"): _bytes_of,
    (builtins.__name__, "bytearray"): _bytearray_of,
    (builtins.__name__, "range"): _range_of,
    ("decimal", "Decimal"): _decimal_of,
    ("fractions", "Fraction"): _fraction_of,
}
#: Rooms whose dataclasses are values of tasks.
_ROOMS: Final = ("frazil.jobs.", "frazil.pipeline.", "frazil.readers.", "frazil.spark.")
_LONGEST_RANGE: Final = 1_000_000
_LARGEST_EXPONENT: Final = 1_000

_OWN: Final[frozenset[Callable[..., Any]]] = frozenset({dtype_of, array_of, scalar_of, objects_of, masked_of})


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, module: str) -> None:
        super().__init__(io.BytesIO(data))
        self._module = module

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _GUARDED:
            return _GUARDED[module, name]
        if (module == builtins.__name__ and name in _BUILTINS) or (module, name) in _ALLOWED:
            return super().find_class(module, name)
        # With its own name only: other modules can be reached by dots.
        if "." not in name and (module == self._module or f"{module}.".startswith(_ROOMS)):
            allowed = super().find_class(module, name)
            if isinstance(allowed, type) and allowed.__module__ == module and is_dataclass(allowed):
                return allowed
            if module == __name__ and allowed in _OWN:
                return allowed
        raise pickle.UnpicklingError(f"a value made with {module}.{name}")
