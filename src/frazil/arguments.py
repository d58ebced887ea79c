"""Arguments of public functions are checked before anything happens, by what their annotations say.

Only what can be looked at in no time: text, numbers, dates, containers as such, and classes that the module
of the function knows. A parameter with any other annotation is left to the function. Nothing is checked below
the top: not the items of a list.

What a defect of Frazil raises (``KeyError``, ``AssertionError`` and the like) reaches nobody as it is: it
becomes an ``InternalError`` that asks to be reported. What a user's own callable raised passes.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import itertools
import numbers
import re
import sys
import typing
from collections.abc import Callable, Container, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np

from frazil.display import suggest
from frazil.errors import ErrorKind, IcechunkError, InternalError

_CLASSES: Final[Mapping[str, tuple[type, ...]]] = {
    "None": (type(None),),
    "str": (str,),
    "bool": (bool, np.bool_),
    "int": (numbers.Integral,),
    "float": (numbers.Real,),
    "bytes": (bytes,),
    "dict": (collections.abc.Mapping,),
    "Mapping": (collections.abc.Mapping,),
    "list": (list, tuple),
    "set": (collections.abc.Set,),
    "tuple": (tuple, list),
    "Sequence": (collections.abc.Iterable,),
    "Iterable": (collections.abc.Iterable,),
    "datetime": (datetime,),
    "timedelta": (timedelta,),
    "Callable": (collections.abc.Callable,),  # type: ignore[dict-item]  # as good as a type here
}
#: Text and bytes are sequences to Python, and never what is meant.
_NO_SEQUENCE: Final = (str, bytes)
_VARIOUS: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_GENERIC: Final = re.compile(r"\[[^\[\]]*\]")
_DEFECTS: Final = (
    AssertionError,
    AttributeError,
    LookupError,
    ArithmeticError,
    NameError,
    RecursionError,
    UnicodeError,
    StopIteration,
)

#: What to do with a value of a class that is often given in place of another: by what was given and expected.
_REMEDIES: Final = {
    ("Session", "Repository"): "pass the repository, and name the version in the arguments for it",
    ("Session", "Version"): "pass the repository or `Version.of(repo, branch=...)`",
    ("Session", "IcechunkStore"): "pass session.store",
    ("IcechunkStore", "Session"): "pass store.session",
    (
        "Repository",
        "Session",
    ): "pass a session: repo.writable_session(branch) or repo.readonly_session(branch)",
    ("Repository", "Target"): "pass Target(repo, branch, group)",
    ("Repository", "Storage"): "pass repo.storage",
    ("Storage", "Repository"): "open it first: Repository.open(storage)",
    ("str", "Repository"): "open it first: Repository.open(local_filesystem_storage(path))",
    ("Path", "Repository"): "open it first: Repository.open(local_filesystem_storage(path))",
    ("type", "Engine"): "pass an instance, such as Inline()",
    ("SparkSession", "Engine"): "pass OnSpark(spark)",
    ("str", "Storage"): "pass local_filesystem_storage(path), or s3_storage(bucket=..., prefix=...)",
    ("Path", "Storage"): "pass local_filesystem_storage(path)",
    ("str", "Sequence"): "pass a list of one text",
    ("str", "datetime"): "pass datetime.fromisoformat(text), with a time zone",
    ("int", "timedelta"): "pass timedelta(seconds=...)",
}
_UNEXPECTED: Final = re.compile(r"unexpected keyword argument '(\w+)'$")


def wrong_type(name: str, value: object, *expected: str) -> TypeError:
    """The error for an argument of another class than the ones with these names, with what to do.

    >>> print(wrong_type("to", 3, "Target", "None"))
    to: expected Target or None, found int
    """
    text = f"{name}: expected {' or '.join(expected)}, found {type(value).__name__}"
    given = [each.__name__ for each in type(value).__mro__]
    remedies = (_REMEDIES.get(pair) for pair in itertools.product(given, expected))
    remedy = next(filter(None, remedies), None)
    return TypeError(text if remedy is None else f"{text}: {remedy}")


#: What a parameter may be, and how to say so; None if it is not looked at.
type _Expected = tuple[tuple[type, ...], str, bool] | None


class _ArgumentCheck:
    """The check of the arguments of one function.

    Its signature and annotations are read at the first call: hundreds of functions would make the import
    slow.
    """

    __slots__ = ("_expected", "_function", "_only", "_signature")

    def __init__(self, function: Callable[..., Any], only: Container[str] | None) -> None:
        self._function = function
        self._only = only
        self._signature: inspect.Signature | None = None
        self._expected: dict[str, _Expected] = {}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """``TypeError`` if an argument is unknown, missing, or of the wrong type."""
        signature = self._signature or self._read_signature()
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            self._raise_as_python_does(signature, args, kwargs)
            raise
        for name, value in given.arguments.items():
            wanted = self._expected[name]
            if wanted is not None and not _is_one(value, wanted):
                raise wrong_type(f"{self._function.__name__}: {name}", value, *wanted[1].split(" or "))

    def _read_signature(self) -> inspect.Signature:
        signature = inspect.signature(self._function)
        module = inspect.unwrap(self._function).__globals__
        only = self._only
        self._expected = {
            name: None
            if parameter.kind in _VARIOUS or (only is not None and name not in only)
            else _expected(parameter.annotation, module)
            for name, parameter in signature.parameters.items()
        }
        self._signature = signature
        return signature

    def _raise_as_python_does(
        self, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Call the function: Python's own message names the function and the wrong argument."""
        try:
            inspect.unwrap(self._function)(*args, **kwargs)
        except TypeError as error:
            unknown = _UNEXPECTED.search(str(error))
            if unknown is None:
                raise
            raise TypeError(f"{error}{suggest(unknown[1], signature.parameters)}") from None


def checked[**P, R](function: Callable[P, R], only: Container[str] | None = None) -> Callable[P, R]:
    """A function that looks at its arguments first; ``TypeError`` if one is of the wrong type.

    ``only``: the names of the parameters to look at, all of them unless given.

    >>> @checked
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> double("3")
    Traceback (most recent call last):
    TypeError: double: number: expected int, found str
    """
    check = _ArgumentCheck(function, only)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaiting(*args: Any, **kwargs: Any) -> Any:
            check(args, kwargs)
            try:
                return await function(*args, **kwargs)
            except _DEFECTS as error:
                if not _is_defect(error):
                    raise
                raise _explained(error, function) from error

        return typing.cast("Callable[P, R]", awaiting)

    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        def generating(*args: Any, **kwargs: Any) -> Any:
            check(args, kwargs)
            return function(*args, **kwargs)

        return typing.cast("Callable[P, R]", generating)

    @functools.wraps(function)
    def calling(*args: P.args, **kwargs: P.kwargs) -> R:
        check(args, kwargs)
        try:
            return function(*args, **kwargs)
        except _DEFECTS as error:
            if not _is_defect(error):
                raise
            raise _explained(error, function) from error

    return calling


def unchecked[F: Callable[..., Any]](method: F) -> F:
    """A method that ``checks_arguments`` leaves as it is: it is called for every chunk, and checks itself."""
    method.__dict__["unchecked"] = True
    return method


def check_fields(value: Any) -> None:
    """``checked`` for the fields of a dataclass: to be called by its ``__post_init__``."""
    cls = type(value)
    for name, wanted in _fields_of(cls):  # type: ignore[arg-type]  # classes can be hashed
        given = getattr(value, name)
        if wanted is not None and not _is_one(given, wanted):
            raise wrong_type(f"{cls.__name__}: {name}", given, *wanted[1].split(" or "))


@functools.cache
def _fields_of(cls: type) -> list[tuple[str, _Expected]]:
    module = vars(sys.modules[cls.__module__])
    return [(field.name, _expected(field.type, module)) for field in dataclasses.fields(cls)]


def checks_arguments[C: type](cls: C) -> C:
    """``checked`` for the public methods of a class and of its bases here, and for its constructor."""
    ours = [base for base in reversed(cls.__mro__) if base.__module__.startswith("frazil.")]
    for name, value in {name: value for base in ours for name, value in vars(base).items()}.items():
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(value, classmethod | staticmethod):
            if inspect.isfunction(value.__func__):
                setattr(cls, name, type(value)(checked(value.__func__)))
        elif inspect.isfunction(value) and not getattr(value, "unchecked", False):
            setattr(cls, name, checked(value))
    return cls


def _expected(annotation: object, module: Mapping[str, Any]) -> _Expected:
    if not isinstance(annotation, str) or annotation in ("Any", "object"):
        return None
    text = annotation
    while (shorter := _GENERIC.sub("", text)) != text:
        text = shorter
    names = [name.strip() for name in text.split("|")]
    classes: list[type] = []
    for name in names:
        named = _CLASSES.get(name) or _class(module.get(name))
        if named is None:
            return None
        classes += named
    sequence = any(name in ("Sequence", "Iterable") for name in names) and "str" not in names
    members = [
        each.__name__ for name in names if _is_alias(module.get(name)) for each in _class(module[name]) or ()
    ]
    names = [name for name in names if not _is_alias(module.get(name))]
    return tuple(classes), " or ".join([*members, *names]), sequence


def _is_alias(value: object) -> bool:
    return isinstance(value, typing.TypeAliasType)


def _class(value: object) -> tuple[type, ...] | None:
    """The classes behind a name in an annotation; None if there is something else behind it."""
    if isinstance(value, typing.TypeAliasType):
        # A union of classes: ``type Source = Repository | Version``.
        members = typing.get_args(value.__value__)
        return members if members and all(isinstance(each, type) for each in members) else None
    # A protocol can be asked only if it says so.
    is_protocol = getattr(value, "_is_protocol", False) and not getattr(value, "_is_runtime_protocol", False)
    return (value,) if isinstance(value, type) and not is_protocol else None


def _is_one(value: Any, expected: tuple[tuple[type, ...], str, bool]) -> bool:
    types, _, sequence = expected
    # An array without dimensions is iterable by its type only.
    if sequence and (isinstance(value, _NO_SEQUENCE) or getattr(value, "ndim", 1) == 0):
        return False
    if type(value) is bool and bool not in types:
        return any(each not in (numbers.Integral, numbers.Real) and isinstance(value, each) for each in types)
    return isinstance(value, types)


def _explained(error: Exception, function: Callable[..., Any]) -> InternalError:
    return InternalError(
        f"{function.__name__}: unexpected {type(error).__name__}: {error}. This is a defect in Frazil: "
        "please report it, with the whole traceback",
        ErrorKind.UNKNOWN,
    )


def _is_defect(error: Exception) -> bool:
    """Whether it is no error of Frazil's own, but was raised in Frazil, not in a callable of the user."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return where.startswith("frazil.") and not isinstance(error, IcechunkError | OSError)
