"""Options of streams: text, by names in lower case."""

from __future__ import annotations

from collections.abc import Mapping

from frazil.errors import ErrorKind, InvalidInputError

type Options = Mapping[str, str]

_FLAGS = {"true": True, "false": False}


def count(options: Options, name: str) -> int | None:
    """A number above zero, if there is one."""
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise _unexpected(name, "a number above 0", text)
    return int(text)


def flag(options: Options, name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in _FLAGS:
        raise _unexpected(name, "true or false", text)
    return _FLAGS[text]


def choice(options: Options, name: str, allowed: tuple[str, ...]) -> str:
    """One of some words, the first unless told otherwise."""
    text = options.get(name, allowed[0])
    if text not in allowed:
        raise _unexpected(name, f"one of {', '.join(allowed)}", text)
    return text


def listed(options: Options, name: str) -> list[str]:
    """Words with commas between."""
    return [word.strip() for word in options.get(name, "").split(",") if word.strip()]


def _unexpected(name: str, expected: str, found: str) -> InvalidInputError:
    return InvalidInputError(f"option `{name}`: expected {expected}, found {found!r}", ErrorKind.NOT_ALLOWED)
