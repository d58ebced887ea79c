"""Forms: how one type of value becomes JSON, and how it is read back.

A table of forms describes both directions. Reading ignores unknown keys and takes missing ones for null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from frazil.errors import ErrorKind, FormatError, InvalidInputError


@dataclass(frozen=True, slots=True)
class Form:
    """How one type of value is written as JSON, and read back. None is null in every form."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class Variant(dict[str, Any]):
    """A map of one key, the tag of a variant. YAML writes it in another form than other maps."""


def unexpected(text: str) -> FormatError:
    """The error for a value of a wrong form; readers put the path of its keys in front of the text."""
    return FormatError(text, ErrorKind.CONFIG_DESERIALIZATION)


def write_optional(form: Form, value: Any) -> Any:
    """Write a value; None is null."""
    return None if value is None else form.write(value)


def read_optional(form: Form, key: str, value: Any) -> Any:
    """Read the value of a key; null is None."""
    if value is None:
        return None
    try:
        return form.read(value)
    except (FormatError, InvalidInputError, TypeError) as error:
        raise unexpected(f"{key}: {error}") from None


def as_map(value: Any) -> dict[str, Any]:
    """The value, which has to be a map."""
    if not isinstance(value, dict):
        raise unexpected(f"expected a map, found {type(value).__name__}")
    return value


def as_list(value: Any) -> list[Any]:
    """The value, which has to be a list."""
    if not isinstance(value, list):
        raise unexpected(f"expected a list, found {type(value).__name__}")
    return value


def as_text(value: Any) -> str:
    """The value, which has to be text."""
    if not isinstance(value, str):
        raise unexpected(f"expected text, found {type(value).__name__}")
    return value


#: A value as it is: the classes of the configuration check their own fields.
PLAIN: Final = Form(lambda value: value, lambda value: value)


def struct(build: type, forms: Mapping[str, Form]) -> Form:
    """A map with these keys, for a class with these fields."""

    def write(value: Any) -> dict[str, Any]:
        return {name: write_optional(form, getattr(value, name)) for name, form in forms.items()}

    def read(value: Any) -> Any:
        document = as_map(value)
        fields = {name: read_optional(form, name, document.get(name)) for name, form in forms.items()}
        return build(**{name: field for name, field in fields.items() if field is not None})

    return Form(write, read)


def enumeration(names: Mapping[Any, str]) -> Form:
    """One of several values, by its name."""
    values = {name: value for value, name in names.items()}

    def read(value: Any) -> Any:
        name = next(iter(value)) if isinstance(value, dict) and [*value.values()] == [None] else value
        if not isinstance(name, str) or name not in values:
            raise unexpected(f"expected one of {', '.join(values)}, found {value!r:.80}")
        return values[name]

    return Form(lambda value: names[value], read)


def variants(table: Mapping[str, tuple[type, Form | None]]) -> Form:
    """One of several classes: its tag, or a map of one key if it holds something."""
    tags = {variant: tag for tag, (variant, _) in table.items()}

    def write(value: Any) -> Any:
        tag = tags[type(value)]
        form = table[tag][1]
        return tag if form is None else Variant({tag: form.write(value)})

    def read(value: Any) -> Any:
        if isinstance(value, str):
            tag, content = value, None
        elif isinstance(value, bool):  # the conditions "true" and "false", without quotes
            tag, content = str(value).lower(), None
        elif isinstance(value, dict) and len(value) == 1:
            tag, content = next(iter(value.items()))
        else:
            raise unexpected(f"expected a name, or a map of one key, found {value!r:.80}")
        if tag not in table:
            raise unexpected(f"expected one of {', '.join(table)}, found {tag!r:.80}")
        variant, form = table[tag]
        if form is None:
            return variant()
        instance = read_optional(form, tag, content)
        if instance is None:
            raise unexpected(f"{tag}: expected a value, found null")
        return instance

    return Form(write, read)


def single_field(build: Callable[[Any], Any], name: str, form: Form = PLAIN) -> Form:
    """A class with one field, written as that field alone."""
    return Form(lambda value: form.write(getattr(value, name)), lambda value: build(form.read(value)))


def plain_struct(build: type, *names: str, **forms: Form) -> Form:
    """``struct`` with plain values for ``names``."""
    return struct(build, dict.fromkeys(names, PLAIN) | forms)
