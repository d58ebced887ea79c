"""The decorator ``dataclass`` of the standard library, with methods that are made on their first use.

Most of the time of ``dataclasses.dataclass`` goes into the source text of ``__init__``, ``__repr__``,
``__eq__`` and ``__hash__``, which it compiles for each class. A program that opens a repository imports some
hundreds of these classes, and uses a few of them. So this decorator does the rest, and leaves a ``_Deferred``
in the place of each of the four methods. The first use of one makes all of them, by ``dataclasses.dataclass``
on a class with the same fields, and stores them in the class. They are the same functions as always: fields,
signatures, errors, pickles and speed are those of the standard library.

A class that defines ``__init__``, ``__eq__`` or ``__hash__``, or asks for more (``order``, no slots), goes to
the standard library at once. Type checkers see ``dataclasses.dataclass``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

#: Option -> the methods that it asks for.
_METHODS: Final = {"init": ("__init__",), "repr": ("__repr__",), "eq": ("__eq__", "__hash__")}
_OPTIONS: Final = _METHODS.keys() | {"frozen", "slots", "kw_only"}
#: A class with one of these methods goes to the standard library.
_OWN: Final = frozenset(("__init__", "__eq__", "__hash__", "__setattr__", "__delattr__"))


class _Deferred:
    """One of the methods, until its first use."""

    __slots__ = ("_name", "_owner")

    def __init__(self, owner: type, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        _make_methods(self._owner)
        method = vars(self._owner)[self._name]
        return method if instance is None else method.__get__(instance, owner)


def _make_methods(owner: type) -> None:
    """Store the four methods in a class of ``_dataclass``. Several threads may do so at the same time."""
    fields = vars(owner)["__dataclass_fields__"]
    namespace: dict[str, Any] = {
        "__module__": owner.__module__,
        "__qualname__": owner.__qualname__,
        "__doc__": owner.__doc__,
        "__annotations__": {name: field.type for name, field in fields.items()},
        **fields,
    }
    if hasattr(owner, "__post_init__"):
        namespace["__post_init__"] = owner.__post_init__
    frozen = vars(owner)["__dataclass_params__"].frozen
    model: type = dataclasses.dataclass(type(owner.__name__, (), namespace), frozen=frozen, slots=True)
    for name, method in vars(owner).copy().items():
        if isinstance(method, _Deferred):
            setattr(owner, name, vars(model)[name])


def _dataclass(cls: type | None = None, /, **options: Any) -> Any:
    """Make a class a dataclass. See ``dataclasses.dataclass``."""
    if cls is None:
        return lambda decorated: _dataclass(decorated, **options)
    own = vars(cls).keys()
    if options.keys() - _OPTIONS or not options.get("slots") or not own.isdisjoint(_OWN):
        return dataclasses.dataclass(cls, **options)
    # Without a docstring, the standard library makes one, of a signature that does not exist yet.
    cls.__doc__ = cls.__doc__ or cls.__name__
    methods = [name for option, names in _METHODS.items() if options.get(option, True) for name in names]
    frozen = options.get("frozen", False)
    # A class that inherits from a dataclass must freeze as its base does.
    freezes = frozen and not any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
    changed = dict.fromkeys(_METHODS, False) | {"frozen": frozen and not freezes}
    make: Callable[..., Any] = dataclasses.dataclass(**options | changed)
    record = make(cls)
    for name in methods:
        if name not in own:
            setattr(record, name, _Deferred(record, name))
    if freezes:
        _freeze(record)
    elif not frozen and "__hash__" in methods:
        record.__hash__ = None
    return record


def _freeze(record: Any) -> None:
    """Make a class with slots refuse changes, as ``dataclasses.dataclass(frozen=True)`` does."""
    names = frozenset(each.name for each in dataclasses.fields(record))

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807  # of the class
        if type(self) is record or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(record, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if type(self) is record or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(record, self).__delattr__(name)

    record.__dataclass_params__.frozen = True
    record.__setattr__ = __setattr__
    record.__delattr__ = __delattr__
    if "__getstate__" not in vars(record):
        record.__getstate__ = _state_of
    if "__setstate__" not in vars(record):
        record.__setstate__ = _set_state


def _state_of(record: Any) -> list[Any]:
    """Return the state for a pickle: slots have no ``__dict__``."""
    return [getattr(record, each.name) for each in dataclasses.fields(record)]


def _set_state(record: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(record), state, strict=True):
        object.__setattr__(record, each.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass
