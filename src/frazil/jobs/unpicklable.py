"""Finds the part of a value that cannot be sent to a task.

An error of pickle, such as ``cannot pickle '_thread.lock' object``, does not say which variable has the lock.
So after a failure the parts of the value are pickled one by one, down to the smallest part that fails.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import FunctionType, MethodType
from typing import Any, Final

from frazil.errors import ErrorKind, InvalidInputError

#: The depth of the search, and the number of items of a list.
_DEPTH: Final = 8
_ITEMS: Final = 1_000


def culprit(value: Any, dumps: Callable[[Any], bytes]) -> str:
    """Return the path to the smallest part that ``dumps`` refuses, as text; empty for the value itself.

    >>> import pickle, threading
    >>> culprit({"a": 1, "lock": threading.Lock()}, pickle.dumps)
    "the item 'lock', of the type lock"
    """
    names: list[str] = []
    for _ in range(_DEPTH):
        unsendable_part = next(((name, part) for name, part in _parts(value) if not _can(part, dumps)), None)
        if unsendable_part is None:
            break
        names.append(unsendable_part[0])
        value = unsendable_part[1]
    return f"{' of '.join(reversed(names))}, of the type {type(value).__name__}" if names else ""


def unsendable(name: str, value: Any, dumps: Callable[[Any], bytes], error: Exception) -> InvalidInputError:
    """Return the error for a value that ``dumps`` refused with ``error``. ``name`` describes the value."""
    part = culprit(value, dumps)
    because = f" because of {part}" if part else ""
    return InvalidInputError(
        f"{name} cannot be sent to a task{because}: {error}. Create such objects inside of the function",
        ErrorKind.INVALID_ARGUMENT,
    )


def sendable(task: Any, value: Any, dumps: Callable[[Any], bytes]) -> bytes:
    """Return ``value`` as bytes."""
    try:
        return dumps(value)
    except Exception as error:
        raise unsendable("the function of the tasks", task, dumps, error) from error


def _can(value: Any, dumps: Callable[[Any], bytes]) -> bool:
    try:
        dumps(value)
    except Exception:  # a part may raise any error
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value, each with its name."""
    if isinstance(value, functools.partial):
        yield "the function", value.func
        yield from ((f"the argument {number}", each) for number, each in enumerate(value.args))
        yield from ((f"the argument `{name}`", each) for name, each in value.keywords.items())
    elif isinstance(value, MethodType):
        yield f"the object of the method `{value.__name__}`", value.__self__
    elif isinstance(value, FunctionType):
        yield from _of_function(value)
    elif isinstance(value, Mapping):
        yield from ((f"the item {key!r}", each) for key, each in islice(value.items(), _ITEMS))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"the item {number}", each) for number, each in enumerate(islice(value, _ITEMS)))
    elif not isinstance(value, type):
        yield from (
            (f"the attribute `{name}`", each) for name, each in getattr(value, "__dict__", {}).items()
        )
        for name in getattr(type(value), "__slots__", ()):
            if hasattr(value, name):
                yield f"the attribute `{name}`", getattr(value, name)


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    variables = inspect.getclosurevars(function)
    for name, each in {**variables.nonlocals, **variables.globals}.items():
        yield f"the variable `{name}` of the function `{function.__name__}`", each
    for number, each in enumerate(function.__defaults__ or ()):
        yield f"the default {number} of the function `{function.__name__}`", each
