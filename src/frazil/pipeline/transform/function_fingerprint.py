"""The fingerprint of a function, which distinguishes it from other functions in the id of a job.

It covers the code of a function and the values that the function refers to: defaults, closures, the state of
an object, globals that are neither functions nor modules. It does not cover functions that the function calls
by a global name.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any, Final

import numpy as np

from frazil.jobs.pickles import dumps
from frazil.pipeline.transform.array_info import Json

#: Types whose pickle is complete, and the same in each process.
_IMMUTABLE: Final = (bool, int, float, complex, str, bytes, tuple, np.ndarray, np.generic)
_MUTABLE: Final = (list, dict)


def fingerprint(function: Any, outer: tuple[Any, ...] = ()) -> Json:
    """Return the name of a function and a hash of its code and values, as JSON.

    ``outer``: the functions that refer to this one, which end a recursion.

    >>> def shift(by):
    ...     return lambda values: values + by
    >>> fingerprint(shift(1)) == fingerprint(shift(1)), fingerprint(shift(1)) == fingerprint(shift(2))
    (True, False)
    """
    inner = getattr(function, "func", None)
    if inner is not None and hasattr(function, "keywords"):  # functools.partial
        given = [*function.args, *sorted(function.keywords.items())]
        return {**fingerprint(inner, outer), "given": _hash_values(given, outer)}
    owner = getattr(function, "__self__", None)
    if inspect.ismethod(function):
        return {**fingerprint(function.__func__, outer), "given": _hash_values([owner], outer)}
    kind = type(function)
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', kind.__qualname__)}"
    code = getattr(function, "__code__", None)
    if any(function is each for each in outer):
        return {"name": name}
    outer = (*outer, function)
    hashed = hashlib.sha256()
    if isinstance(code, CodeType):
        _hash_code(code, hashed.update)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
        hashed.update(_hash_values([*cells, *defaults, *_globals(function, code)], outer).encode())
    elif isinstance(getattr(kind.__call__, "__code__", None), CodeType):  # an object that can be called
        hashed.update(_hash_values([kind.__call__, function.__getstate__()], outer).encode())
    return {"name": name, "code": hashed.hexdigest()[:16]}


def _globals(function: Any, code: CodeType) -> list[Any]:
    """Return the values that a function uses of its module, or of the cells of a notebook."""
    kinds = _IMMUTABLE + _MUTABLE * (
        function.__module__ == "__main__"
    )  # mutable globals of a module may be caches
    names = sorted(set(_names(code)) & function.__globals__.keys())
    values = [(name, function.__globals__[name]) for name in names]
    return [each for each in values if isinstance(each[1], kinds)]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _hash_values(values: Sequence[Any], outer: tuple[Any, ...] = ()) -> str:
    """Return a hash of values: of functions by their fingerprint, of others by their pickle."""
    parts = [
        repr(fingerprint(value, outer)).encode() if _is_function(value) else _pickled(value)
        for value in values
    ]
    return hashlib.sha256(b"|".join(parts)).hexdigest()[:16]


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)


def _pickled(value: Any) -> bytes:
    if isinstance(value, set | frozenset):  # the order differs between processes
        return repr(sorted(map(repr, value))).encode()
    return dumps(value)


def _hash_code(code: CodeType, update: Callable[[bytes], Any]) -> None:
    update(code.co_code)
    update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _hash_code(constant, update)
        else:
            update(_pickled(constant) if isinstance(constant, frozenset) else repr(constant).encode())
