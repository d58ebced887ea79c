"""Mutable options, with one declaration for each field: ``level: int | None = option(3, unsigned(8))``.

``option`` has the default that a record shows for None, and a check. Without a check, every assignment is
compared with the annotation. The saved form and the values with all defaults come from the same declarations.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import numpy as np

from frazil.arguments import checks_of_fields
from frazil.display import Record, Shown, call, literal, suggest
from frazil.errors import ErrorKind, InvalidInputError

Check = Callable[[str, Any], None]


def unsigned(bits: int, *, zero: bool = True) -> Check:
    """Return a check that accepts None and unsigned integers of ``bits`` bits. ``zero``: whether also 0."""
    low = 0 if zero else 1

    def check(name: str, value: Any) -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise TypeError(f"{name} must be an integer or None, got {type(value).__name__}")
        if not low <= int(value) < 1 << bits:
            raise InvalidInputError(
                f"{name} must be between {low} and {(1 << bits) - 1}, got {value}", ErrorKind.STORAGE_CONFIG
            )

    return check


@dataclass(frozen=True, slots=True)
class Option:
    """A field of ``Settings``: what None stands for (None if nothing does), and the check of its values."""

    implied: Any
    check: Check


def option(implied: Any = None, check: Check | None = None) -> Any:
    """Return a field that is None by default, which stands for ``implied``."""
    return dataclasses.field(default=None, metadata={"implied": implied, "check": check})


_DECLARED: Final[dict[type, Mapping[str, Option]]] = {}


def options_of(cls: type[Settings]) -> Mapping[str, Option]:
    """Return the fields of a class, in the order of printing."""
    if cls not in _DECLARED:
        checks = checks_of_fields(cls)  # type: ignore[arg-type]  # classes can be hashed
        declared = {
            each.name: Option(each.metadata.get("implied"), each.metadata.get("check") or checks[each.name])
            for each in dataclasses.fields(cls)  # type: ignore[arg-type]  # every subclass is a dataclass
            if each.init
        }
        _DECLARED[cls] = {name: declared[name] for name in dict.fromkeys((*cls.order, *declared))}
    return _DECLARED[cls]


class Settings(Record):
    """The base of mutable options, which are slotted dataclasses.

    ``repr`` is a call, ``str`` is a record with defaults. ``order`` has the fields that are printed first, if
    they are not the first fields. ``whole`` says that a merge takes the value as a whole from one side.
    """

    __slots__ = ()
    shown_as: ClassVar[str]
    order: ClassVar[tuple[str, ...]] = ()
    whole: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Name the class in ``frazil.config``, unless it has another public name."""
        super().__init_subclass__()
        if "shown_as" not in vars(cls):
            cls.shown_as = f"config.{cls.__qualname__}"

    def __setattr__(self, name: str, value: Any) -> None:
        declared = options_of(type(self)).get(name)
        if declared is not None:
            declared.check(name, value)
        elif not hasattr(type(self), name):
            raise AttributeError(
                f"{self._title()} has no field `{name}`{suggest(name, options_of(type(self)))}"
            )
        if not isinstance(value, int) and isinstance(value, numbers.Integral | np.bool_):
            value = value.item() if isinstance(value, np.generic) else int(value)
        object.__setattr__(self, name, value)

    def _displayed(self, name: str) -> Any:
        """Return the printable value of a field. Subclasses hide secrets here."""
        return getattr(self, name)

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for name, declared in options_of(type(self)).items():
            yield name, self._shown(self._displayed(name), declared.implied)

    @staticmethod
    def _shown(value: Any, implied: Any) -> Shown:
        if value is None and implied is not None:
            if isinstance(implied, Record):
                return implied
            text = str(implied) if isinstance(implied, str | timedelta) else literal(implied)
            return f"{text} (default)"
        if isinstance(value, dict) and any(isinstance(v, Record) for v in value.values()):
            return value
        return value if isinstance(value, Record) else literal(value)

    def __repr__(self) -> str:
        return call(self._title(), ((name, self._displayed(name)) for name in options_of(type(self))))


def merged[T](over: T | None, under: T | None) -> T | None:
    """Return ``over``, with its None fields taken from ``under``. Nested settings are merged, too."""
    if over is None:
        return under
    if not isinstance(over, Settings) or over.whole or type(over) is not type(under):
        return over
    names = options_of(type(over))
    return type(over)(**{name: merged(getattr(over, name), getattr(under, name)) for name in names})


def with_defaults(settings: Settings) -> SimpleNamespace:
    """Return the values of all fields, with what None stands for. Nested settings become namespaces, too."""
    values = SimpleNamespace()
    for name, declared in options_of(type(settings)).items():
        value = declared.implied if getattr(settings, name) is None else getattr(settings, name)
        setattr(values, name, with_defaults(value) if isinstance(value, Settings) else value)
    return values
