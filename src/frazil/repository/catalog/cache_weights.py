"""The memory that a decoded file needs, for the limits of caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache, partial
from operator import attrgetter
from typing import Any

import numpy as np


def held_bytes(value: object) -> int:
    """Return the number of bytes of the arrays and texts in a value of dataclasses and mappings.

    Many columns are views of one decompressed file. The file counts once, as a whole. The overhead of Python
    objects is not counted, and neither are fields that are not decoded yet.
    """
    buffers: dict[int, int] = {}
    pending: list[Any] = [value]
    total = 0
    while pending:
        each = pending.pop()
        if isinstance(each, np.ndarray):
            owner, size = _owner(each)
            buffers[id(owner)] = size
        elif isinstance(each, str | bytes):
            total += len(each)
        elif fields_of := _fields_of(each.__class__):
            pending += fields_of(each)
        elif isinstance(each, Mapping):
            first: Any = next(iter(each.values()), None)
            if _fields_of(first.__class__) or isinstance(first, np.ndarray):
                pending += each.values()
            else:
                total += len(str(each))
    return total + sum(buffers.values())


@cache
def _fields_of(cls: type) -> Callable[[Any], Iterable[Any]] | None:
    """Return the function that returns the decoded fields of a dataclass. None for other classes."""
    names = [field.name for field in fields(cls)] if is_dataclass(cls) else []
    if not names:
        return None
    if hasattr(cls, "__getattr__"):  # some fields are decoded when they are read
        return partial(_decoded, names=names)
    # With two names or more, ``attrgetter`` returns a tuple.
    return attrgetter(*names, names[0])


def _decoded(value: object, names: Sequence[str]) -> Iterator[Any]:
    """Yield the fields of a value that are decoded."""
    for name in names:
        with suppress(AttributeError):
            yield object.__getattribute__(value, name)


def _owner(array: np.ndarray[Any, Any]) -> tuple[object, int]:
    """Return the object that owns the memory of an array, and its size in bytes."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.base is None:
            return owner, owner.nbytes
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if isinstance(owner, bytes):
        return owner, len(owner)
    return owner, owner.nbytes if isinstance(owner, np.ndarray) else memoryview(owner).nbytes
