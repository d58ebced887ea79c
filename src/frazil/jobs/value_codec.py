"""Pickles the values of tasks, and reads them safely from a storage where others have write access.

    from the engine     a pickle of any value, including classes that a notebook defines
    from storage        the same bytes, but only with allowed types: plain types of Python and numpy,
                        dataclasses of the pipeline packages of Frazil, and of one more module

Arrays are pickled as a dtype, a shape and bytes. The pickles of numpy itself are not safe: a dtype with wrong
flags would turn bytes into pointers.
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
    """Return a value as bytes. Raises the error of a part that cannot be pickled."""
    with io.BytesIO() as out:
        _Pickler(out).dump(value)
        return out.getvalue()


def loaded(data: bytes, module: str | None = None) -> Any:
    """Return the value in ``data``.

    With a ``module`` the bytes are not trusted, and the value may have dataclasses of this module.
    """
    return pickle.loads(data) if module is None else _Unpickler(data, module).load()


class _Pickler(CloudPickler):  # type: ignore[misc]  # for the same reason
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.dtype) and (descr := _descr_of(obj)) is not None:
            return dtype_of, (descr,)
        if type(obj) is np.ma.MaskedArray:
            # Not ``fill_value``, which would make a default value that some dtypes cannot hold.
            return masked_of, (obj.data, obj.mask, vars(obj).get("_fill_value"))
        if type(obj) is np.ndarray and obj.dtype.kind == "O":
            return objects_of, (obj.shape, obj.ravel().tolist())
        if type(obj) is np.ndarray and (descr := _descr_of(obj.dtype)) is not None:
            return array_of, (descr, obj.shape, obj.tobytes())
        if isinstance(obj, np.generic) and (descr := _descr_of((one := np.asarray(obj)).dtype)) is not None:
            return scalar_of, (descr, one.tobytes())
        return super().reducer_override(obj)


def _descr_of(dtype: np.dtype[Any]) -> Any:
    """Return the description of a dtype for ``dtype_of``; None for dtypes that it cannot make."""
    if dtype.hasobject or dtype.metadata or dtype.kind not in "biufcmMSUV":
        return None
    descr = dtype_to_descr(dtype)
    return descr if descr_to_dtype(descr) == dtype else None


def dtype_of(descr: Any) -> np.dtype[Any]:
    """Return a dtype of plain values from its description."""
    if not isinstance(descr, str | list | tuple):
        raise pickle.UnpicklingError(f"a dtype of {type(descr).__name__}")
    descr_value: Any = descr
    dtype: np.dtype[Any] = descr_to_dtype(descr_value)
    if dtype.hasobject:
        raise pickle.UnpicklingError(f"a dtype with objects, {dtype}")
    return dtype


def array_of(descr: Any, shape: tuple[int, ...], data: bytes) -> NDArray[Any]:
    """Return an array of plain values from bytes in C order."""
    dtype = dtype_of(descr)
    if not isinstance(data, bytes) or min(shape, default=0) < 0 or len(data) != prod(shape) * dtype.itemsize:
        raise pickle.UnpicklingError(f"an array of shape {shape} with a wrong number of bytes")
    return np.ndarray(shape, dtype, bytearray(data))


def scalar_of(descr: Any, data: bytes) -> Any:
    """Return a numpy scalar from its bytes."""
    return array_of(descr, (), data)[()]


def objects_of(shape: tuple[int, ...], items: list[Any]) -> NDArray[Any]:
    """Return an array of objects from a list of them."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


def masked_of(data: Any, mask: Any, fill_value: Any) -> Any:
    """Return a masked array from its parts."""
    return np.ma.MaskedArray(data, mask, fill_value=fill_value)


def _bytes_of(*parts: Any) -> bytes:
    """Return bytes from bytes or text. A number is refused, because it would be a length."""
    if not all(isinstance(part, bytes | bytearray | str) for part in parts):
        raise pickle.UnpicklingError("bytes from a value that is neither bytes nor text")
    return bytes(*parts)


def _bytearray_of(*parts: Any) -> bytearray:
    return bytearray(_bytes_of(*parts))


def _range_of(*ends: Any) -> range:
    """Return a range of limited length: a list of a long range would take much memory."""
    numbers = range(*ends)
    if len(numbers) > _LONGEST_RANGE:
        raise pickle.UnpicklingError(f"a range of more than {_LONGEST_RANGE}")
    return numbers


def _decimal_of(value: Any) -> Decimal:
    """Return a decimal with a limited exponent: its integer would take much time and memory."""
    number = Decimal(value)
    if number.is_finite() and abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise pickle.UnpicklingError(f"a decimal number with an exponent beyond {_LARGEST_EXPONENT}")
    return number


def _fraction_of(*parts: Any) -> Fraction:
    if any(isinstance(part, str) and "e" in part.lower() for part in parts):
        raise pickle.UnpicklingError("a fraction with an exponent")
    return Fraction(*parts)


#: Types that may take much memory or time for a few bytes of arguments, with safe replacements.
_GUARDED: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    (builtins.__name__, "bytes"): _bytes_of,
    (builtins.__name__, "bytearray"): _bytearray_of,
    (builtins.__name__, "range"): _range_of,
    ("decimal", "Decimal"): _decimal_of,
    ("fractions", "Fraction"): _fraction_of,
}
#: Packages whose dataclasses may be values of tasks.
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
        # A name with dots could reach other modules.
        if "." not in name and (module == self._module or f"{module}.".startswith(_ROOMS)):
            allowed = super().find_class(module, name)
            if isinstance(allowed, type) and allowed.__module__ == module and is_dataclass(allowed):
                return allowed
            if module == __name__ and allowed in _OWN:
                return allowed
        raise pickle.UnpicklingError(f"a value of the type {module}.{name}, which is not allowed")
