"""Values whose fields are decoded at the first use.

A program that opens a repository with 100,000 versions and reads one chunk needs a few numbers of the file
``repo``. The bytes of the file stay in memory, and each group of fields is decoded when the program reads one
of its fields. The fields are slots without a value until then, so later reads cost nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

#: The function that decodes a group of fields, by the name of each field of the group.
type Decoders = Mapping[str, Callable[[], Mapping[str, Any]]]

_NO_DECODERS: Final[Decoders] = {}


class LateFields:
    """The base of slotted dataclasses some of whose fields may be decoded at the first use.

    Threads may share a value. Two threads may decode the same fields at once, with the same result.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, slots=True)
    ... class Pair(LateFields):
    ...     first: int
    ...     second: int
    >>> with_late_fields(Pair, {"first": 1}, {"second": lambda: {"second": 2}})
    Pair(first=1, second=2)
    """

    __slots__ = ("_decoders",)

    _decoders: Decoders

    if not TYPE_CHECKING:  # for type checkers, the class has only its fields

        def __getattr__(self, name: str) -> Any:
            """Decode the group of a field that has no value yet. Python calls this for no other field."""
            decoders = _NO_DECODERS if name == "_decoders" else getattr(self, "_decoders", _NO_DECODERS)
            if name not in decoders:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
                )
            _set_fields(self, decoders[name]())
            return getattr(self, name)


#: Sets the functions of a value, for calls with ``map``.
set_decoders: Final[Callable[[LateFields, Decoders], None]] = LateFields.__dict__["_decoders"].__set__


def with_late_fields[T: LateFields](cls: type[T], fields: Mapping[str, Any], decoders: Decoders) -> T:
    """Return a value with some fields, and with functions that decode the others.

    A function may also set the fields itself, or replace the functions of the value, and return no fields.
    """
    value = object.__new__(cls)
    _set_fields(value, {**fields, "_decoders": decoders})
    return value


def complete[T: LateFields](value: T) -> T:
    """Decode all fields of a value, and return it. Raises the errors of the functions that decode them."""
    for name in getattr(value, "_decoders", _NO_DECODERS):
        inner = getattr(value, name)
        if isinstance(inner, LateFields):
            complete(inner)
    return value


def _set_fields(value: object, fields: Mapping[str, Any]) -> None:
    for name, each in fields.items():
        object.__setattr__(value, name, each)
