"""Forms: how values of one type are written as JSON and read back.

One table of forms describes both directions. Readers ignore unknown keys, and read missing keys as null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from frazil.errors import ErrorKind, FormatError, InvalidInputError


@dataclass(frozen=True, slots=True)
class Form:
    """How values of one type are written as JSON and read back. Every form writes None as null."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class Variant(dict[str, Any]):
    """A map with one key, the tag of a variant. YAML has a special form for it."""


def unexpected(text: str) -> FormatError:
    """Return the error for a value of a wrong form. Readers put the path of keys before the text."""
    return FormatError(text, ErrorKind.CONFIG_DESERIALIZATION)


def write_optional(form: Form, value: Any) -> Any:
    """Write a value; None becomes null."""
    return None if value is None else form.write(value)


def read_optional(form: Form, key: str, value: Any) -> Any:
    """Read the value of a key; null becomes None."""
    if value is None:
        return None
    try:
        return form.read(value)
    except (FormatError, InvalidInputError, TypeError) as error:
        raise unexpected(f"{key}: {error}") from None


def as_map(value: Any) -> dict[str, Any]:
    """Return the value, which must be a map."""
    if not isinstance(value, dict):
        raise unexpected(f"expected a map, got {type(value).__name__}")
    return value


def as_list(value: Any) -> list[Any]:
    """Return the value, which must be a list."""
    if not isinstance(value, list):
        raise unexpected(f"expected a list, got {type(value).__name__}")
    return value


def as_text(value: Any) -> str:
    """Return the value, which must be text."""
    if not isinstance(value, str):
        raise unexpected(f"expected text, got {type(value).__name__}")
    return value


#: The unchanged value. The classes of the configuration check their own fields.
PLAIN: Final = Form(lambda value: value, lambda value: value)


def struct(build: type, forms: Mapping[str, Form]) -> Form:
    """Return the form of a class: a map with a key for each field."""

    def write(value: Any) -> dict[str, Any]:
        return {name: write_optional(form, getattr(value, name)) for name, form in forms.items()}

    def read(value: Any) -> Any:
        document = as_map(value)
        fields = {name: read_optional(form, name, document.get(name)) for name, form in forms.items()}
        return build(**{name: field for name, field in fields.items() if field is not None})

    return Form(write, read)


def enumeration(names: Mapping[Any, str]) -> Form:
    """Return the form of an enumeration: the name of the value."""
    values = {name: value for value, name in names.items()}

    def read(value: Any) -> Any:
        name = next(iter(value)) if isinstance(value, dict) and [*value.values()] == [None] else value
        if not isinstance(name, str) or name not in values:
            raise unexpected(f"expected one of {', '.join(values)}, got {value!r:.80}")
        return values[name]

    return Form(lambda value: names[value], read)


def variants(table: Mapping[str, tuple[type, Form | None]]) -> Form:
    """Return the form of one of several classes: its tag, or a map from its tag to its content."""
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
            raise unexpected(f"expected a name or a map of one key, got {value!r:.80}")
        if tag not in table:
            raise unexpected(f"expected one of {', '.join(table)}, got {tag!r:.80}")
        variant, form = table[tag]
        if form is None:
            return variant()
        instance = read_optional(form, tag, content)
        if instance is None:
            raise unexpected(f"{tag}: expected a value, got null")
        return instance

    return Form(write, read)


def single_field(build: Callable[[Any], Any], name: str, form: Form = PLAIN) -> Form:
    """Return the form of a class with one field: the form of that field."""
    return Form(lambda value: form.write(getattr(value, name)), lambda value: build(form.read(value)))


def plain_struct(build: type, *names: str, **forms: Form) -> Form:
    """Return ``struct`` with unchanged values for ``names``."""
    return struct(build, dict.fromkeys(names, PLAIN) | forms)
