"""The memory that a decoded file needs, for the limits of caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np


def held_bytes(value: object) -> int:
    """Return the number of bytes of the arrays and texts in a value of dataclasses and mappings.

    Many columns are views of one decompressed file. The file counts once, as a whole. The overhead of Python
    objects is not counted, and neither are fields that are not decoded yet.

    Examples:
        >>> whole = np.zeros(1000, np.uint8)
        >>> held_bytes({"column": whole[10:20], "other": whole[20:30]})
        1000
    """
    buffers: dict[int, int] = {}
    pending: list[Any] = [value]
    total = 0
    while pending:
        each = pending.pop()
        if isinstance(each, np.ndarray):
            owner, size = _owner(each)
            buffers[id(owner)] = size
        elif names := _names_of_fields(_class_of(each)):
            pending += [_decoded(each, name) for name in names]
        elif isinstance(each, Mapping):
            first = next(iter(each.values()), None)
            if _names_of_fields(_class_of(first)) or isinstance(first, np.ndarray):
                pending += each.values()
            else:
                total += len(str(each))
        elif isinstance(each, str | bytes):
            total += len(each)
    return total + sum(buffers.values())


@cache
def _names_of_fields(cls: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass. Other classes have none."""
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else ()


def _decoded(value: object, name: str) -> Any:
    """Return a field of a value, or None if it is decoded later."""
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None


def _class_of(value: object) -> Any:
    return type(value)


def _owner(array: np.ndarray[Any, Any]) -> tuple[object, int]:
    """Return the object that owns the memory of an array, and its size in bytes."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if isinstance(owner, bytes):
        return owner, len(owner)
    return owner, owner.nbytes if isinstance(owner, np.ndarray) else memoryview(owner).nbytes
