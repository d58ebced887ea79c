"""Type checks of the arguments of public functions, from their annotations.

A check runs before the function does anything. It covers text, numbers, dates, containers (without their
items), and the classes that the module of the function imports. A wrong argument raises a ``TypeError``:
"NAME must be EXPECTED, got VALUE", followed by advice.

The wrappers also convert defects: an error such as ``KeyError`` that Frazil itself raises becomes an
``InternalError``. Errors from the user's callables are not converted.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import itertools
import numbers
import pkgutil
import re
import sys
import typing
from collections.abc import Callable, Collection, Container, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np

from frazil.display import suggest
from frazil.errors import ErrorKind, IcechunkError, InternalError, InvalidInputError

_CLASSES: Final[Mapping[str, tuple[type, ...]]] = {
    "None": (type(None),),
    "str": (str,),
    "bool": (bool, np.bool_),
    "int": (numbers.Integral,),
    "float": (numbers.Real,),
    "bytes": (bytes,),
    **dict.fromkeys(("dict", "Mapping"), (collections.abc.Mapping,)),
    "list": (list, tuple),
    "set": (collections.abc.Set,),
    "tuple": (tuple, list),
    **dict.fromkeys(("Sequence", "Iterable"), (collections.abc.Iterable,)),
    "datetime": (datetime,),
    "timedelta": (timedelta,),
    "Callable": (collections.abc.Callable,),  # type: ignore[dict-item]  # isinstance accepts it
}
#: Text and bytes are sequences in Python. A caller that passes one made a mistake.
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

#: Advice for common mix-ups, by the class of the argument and the expected class.
_REMEDIES: Final = {
    ("Session", "Repository"): "Pass the repository, and select the version with the arguments for it",
    ("Session", "Version"): "Pass the repository or `Version.of(repo, branch=...)`",
    ("Session", "IcechunkStore"): "Pass session.store",
    ("IcechunkStore", "Session"): "Pass store.session",
    ("Repository", "Session"): "Pass repo.writable_session(branch) or repo.readonly_session(branch)",
    ("Repository", "Target"): "Pass Target(repo, branch, group)",
    ("Repository", "Storage"): "Pass repo.storage",
    ("Storage", "Repository"): "Open it first: Repository.open(storage)",
    ("str", "Repository"): "Open it first: Repository.open(path)",
    ("Path", "Repository"): "Open it first: Repository.open(path)",
    ("type", "Engine"): "Pass an instance, such as Inline()",
    ("type", "Progress"): "Pass an instance, such as Progress('write', 0)",
    ("SparkSession", "Engine"): "Pass OnSpark(spark)",
    ("str", "Storage"): "Pass local_filesystem_storage(path), or s3_storage(bucket=..., prefix=...)",
    ("Path", "Storage"): "Pass local_filesystem_storage(path)",
    ("str", "Sequence"): "Pass a list with one text",
    ("str", "datetime"): "Pass datetime.fromisoformat(text), with a time zone",
    ("int", "timedelta"): "Pass timedelta(seconds=...)",
}


def wrong_type(name: str, value: object, *expected: str) -> TypeError:
    """Return the error for an argument of the wrong class, with advice for common mix-ups."""
    text = f"{name} must be {' or '.join(expected)}, got {type(value).__name__}"
    class_names = [each.__name__ for each in type(value).__mro__]
    remedies = (_REMEDIES.get(pair) for pair in itertools.product(class_names, expected))
    remedy = next(filter(None, remedies), None)
    return TypeError(text if remedy is None else f"{text}. {remedy}")


def misfit(text: str) -> InvalidInputError:
    """Return the error for an array, or arguments about it, that do not fit: ``invalid-array-metadata``."""
    return InvalidInputError(text, ErrorKind.INVALID_ARRAY_METADATA)


def is_name(name: str) -> bool:
    """Return whether an array of a group can have this name: a slash separates groups."""
    return "/" not in name and name not in ("", ".", "..", "zarr.json")


def require_column_name(name: str) -> None:
    """Raise ``InvalidInputError`` (``invalid-key``) for a column whose name no array can have."""
    if not is_name(name):
        raise InvalidInputError(
            f"A column must have a name that an array can have, without `/`, got {name!r}. Choose another",
            ErrorKind.INVALID_KEY,
        )


def named_function(text: str) -> Any:
    """Return what the text ``module:name`` names, or raise ``InvalidInputError``."""
    try:
        return pkgutil.resolve_name(text)
    except (ValueError, ImportError, AttributeError) as error:
        raise misfit(f"the function `{text}` cannot be imported: {error}") from error


def conflicting(text: str) -> InvalidInputError:
    """Return the error for arguments that exclude each other, or earlier ones: ``conflicting-arguments``."""
    return InvalidInputError(text, ErrorKind.CONFLICTING_ARGUMENTS)


def require_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise ``InvalidInputError`` (``unknown-choice``) for an argument that is not among the choices."""
    if not any(isinstance(value, type(each)) and value == each for each in choices):
        raise InvalidInputError(
            f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}", ErrorKind.UNKNOWN_CHOICE
        )


_BYTES: Final = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_bytes(size: int | str) -> int:
    """Return a number of bytes, from a number or a text with decimal (kB, MB) or binary (KiB, MiB) units."""
    match = _SIZE.fullmatch(str(size))
    unit = _BYTES.get(match[2].lower()) if match else None
    count = int(float(match[1]) * unit) if match and unit else 0
    if count < 1 or isinstance(size, bool):
        raise InvalidInputError(f"a size in bytes must be such as 1000, '256MB' or '1GiB', got {size!r}")
    return count


#: The classes that a parameter accepts, their names for the message, and whether the parameter is a sequence.
#: None if the parameter is not checked.
type _Expected = tuple[tuple[type, ...], str, bool] | None


class _ArgumentCheck:
    """The check of the arguments of one function. Its first call reads the annotations, not the import."""

    __slots__ = ("_expected", "_function", "_named", "_only", "_positional", "_required", "_signature")

    def __init__(self, function: Callable[..., Any], only: Container[str] | None) -> None:
        self._function = function
        self._only = only
        self._signature: inspect.Signature | None = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise ``TypeError`` if an argument is unknown, missing, or of the wrong type."""
        signature = self._signature or self._read_signature()
        arguments = dict(zip(self._positional, args, strict=False))
        is_plain = (
            len(args) == len(arguments)
            and kwargs.keys() <= self._named
            and kwargs.keys().isdisjoint(arguments)
            and self._required <= arguments.keys() | kwargs.keys()
        )
        if is_plain:  # most calls; ``bind`` takes ten times as long
            arguments.update(kwargs)
        else:
            try:
                arguments = signature.bind(*args, **kwargs).arguments
            except TypeError:
                unknown = next((name for name in kwargs if name not in signature.parameters), None)
                kinds = {each.kind for each in signature.parameters.values()}
                if unknown is not None and inspect.Parameter.VAR_KEYWORD not in kinds:
                    raise TypeError(
                        f"{self._function.__qualname__}() got an unexpected keyword argument {unknown!r}"
                        f"{suggest(unknown, signature.parameters)}"
                    ) from None
                inspect.unwrap(self._function)(*args, **kwargs)  # the error of Python names the function
                raise
        for name, value in arguments.items():
            expectation = self._expected[name]
            if expectation is None or (type(value) in expectation[0] and not expectation[2]):
                continue  # most arguments
            if not _is_one(value, expectation):
                _check(expectation, f"{_call(self._function)}: {name}", value)

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
        parameters = [each for each in signature.parameters.values() if each.kind not in _VARIOUS]
        self._positional = tuple(each.name for each in parameters if each.kind != each.KEYWORD_ONLY)
        self._named = frozenset(each.name for each in parameters if each.kind != each.POSITIONAL_ONLY)
        self._required = frozenset(each.name for each in parameters if each.default is each.empty)
        self._signature = signature
        return signature


def checked[**P, R](function: Callable[P, R], only: Container[str] | None = None) -> Callable[P, R]:
    """Return a function that raises ``TypeError`` for an argument of the wrong type.

    ``only`` has the names of the parameters to check. The default is all parameters.

    >>> @checked
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> double("3")
    Traceback (most recent call last):
    TypeError: double(): number must be int, got str
    """
    check = _ArgumentCheck(function, only)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaiting(*args: Any, **kwargs: Any) -> Any:
            check(args, kwargs)
            try:
                return await function(*args, **kwargs)
            except _DEFECTS as error:
                _raise_defect(error, function)
                raise

        return typing.cast("Callable[P, R]", awaiting)

    @functools.wraps(function)
    def calling(*args: P.args, **kwargs: P.kwargs) -> R:
        check(args, kwargs)
        try:
            return function(*args, **kwargs)
        except _DEFECTS as error:
            _raise_defect(error, function)
            raise

    return calling


def require_progress(progress: object, *methods: str) -> None:
    """Raise ``TypeError`` unless ``progress`` is None or an object with these methods, before any write."""
    lacking = [name for name in methods if not callable(getattr(progress, name, None))]
    if progress is not None and (lacking or isinstance(progress, type)):
        raise wrong_type("progress", progress, "Progress", "None")


def unchecked[F: Callable[..., Any]](method: F) -> F:
    """Exclude a method from ``checks_arguments``, for methods that are called for every chunk."""
    method.__dict__["unchecked"] = True
    return method


def check_fields(value: Any) -> None:
    """Raise ``TypeError`` for a field of the wrong type. A dataclass calls this in ``__post_init__``."""
    cls = type(value)
    for name, check in checks_of_fields(cls).items():  # type: ignore[arg-type]  # classes can be hashed
        check(f"{cls.__name__}(): {name}", getattr(value, name))


@functools.cache
def checks_of_fields(cls: type) -> dict[str, Callable[[str, Any], None]]:
    """Return the check of each field of a dataclass by its annotation. It gets a name for messages."""
    module = vars(sys.modules[cls.__module__])
    return {
        field.name: functools.partial(_check, _expected(field.type, module))
        for field in dataclasses.fields(cls)
    }


def _check(expectation: _Expected, name: str, value: Any) -> None:
    if expectation is not None and not _is_one(value, expectation):
        raise wrong_type(name, value, *expectation[1].split(" or "))


def checks_arguments[C: type](cls: C) -> C:
    """Apply ``checked`` to the constructor and the public methods of a class and of its Frazil bases."""
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
    members: list[str] = []
    for name in names:
        value = module.get(name)
        named = _CLASSES.get(name) or _class(value)
        if named is None:
            return None
        classes += named
        if isinstance(value, typing.TypeAliasType):
            members += [each.__name__ for each in named]
    sequence = any(name in ("Sequence", "Iterable") for name in names) and "str" not in names
    shown = [name for name in names if not isinstance(module.get(name), typing.TypeAliasType)]
    return tuple(classes), " or ".join([*members, *shown]), sequence


def _class(value: object) -> tuple[type, ...] | None:
    """Return the classes that a name in an annotation refers to, or None for any other object."""
    if isinstance(value, typing.TypeAliasType):
        # A union of classes, such as ``type Source = Repository | Version``.
        members = typing.get_args(value.__value__)
        return members if members and all(isinstance(each, type) for each in members) else None
    # isinstance accepts only protocols that are runtime checkable.
    is_protocol = getattr(value, "_is_protocol", False) and not getattr(value, "_is_runtime_protocol", False)
    return (value,) if isinstance(value, type) and not is_protocol else None


def _is_one(value: Any, expected: tuple[tuple[type, ...], str, bool]) -> bool:
    types, _, sequence = expected
    # An array without dimensions has a method __iter__ that fails.
    if sequence and (isinstance(value, _NO_SEQUENCE) or getattr(value, "ndim", 1) == 0):
        return False
    if type(value) is bool and bool not in types:
        return any(each not in (numbers.Integral, numbers.Real) and isinstance(value, each) for each in types)
    return isinstance(value, types)


def _call(function: Callable[..., Any]) -> str:
    """Return how a program calls the function: ``open()``, or ``Target()`` for a constructor."""
    return function.__qualname__.removesuffix(".__init__").rpartition(".")[2] + "()"


def _raise_defect(error: Exception, function: Callable[..., Any]) -> None:
    """Raise ``InternalError`` for an error that Frazil raised by accident.

    An ``IcechunkError`` or an ``OSError`` is deliberate. An error from a user's callable is not a defect.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    if where.startswith("frazil.") and not isinstance(error, IcechunkError | OSError):
        raise InternalError(
            f"{_call(function)} failed with {type(error).__name__}: {error}. This is a defect in Frazil: "
            "please report it, with the whole traceback"
        ) from error
