"""Descriptions of arguments that several functions share, in the docstrings of these functions.

Each shared argument is described once: in one function (``Args:``) or class (``Attributes:``). The decorators
add the description to the docstrings of other functions, so ``help()`` shows every argument of a function.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from functools import cache
from types import get_original_bases
from typing import Final, Protocol

#: The section with the descriptions, and its content: indented lines.
_SECTION: Final = re.compile(r"^(?:Args|Attributes):\n((?:[ ]+.*\n)*)", re.MULTILINE)
#: An entry of a section: the name, its description, and the lines that continue the description.
_ENTRY: Final = re.compile(r"^[ ]{4}\**(\w+):.*\n(?:[ ]{5,}.*\n)*", re.MULTILINE)
#: The sections that follow the arguments.
_LATER: Final = re.compile(r"^(?:Returns|Yields|Raises|Specification|Examples):|\Z", re.MULTILINE)


class Decorator(Protocol):
    """The type of a decorator that preserves the type of its function."""

    def __call__[**P, R](self, function: Callable[P, R], /) -> Callable[P, R]:
        """Return the decorated function."""
        ...


def with_argument_docs(*sources: object) -> Decorator:
    """Return a decorator that adds descriptions to the docstring of a function.

    It describes each argument that the docstring does not describe, by the first of ``sources`` (functions or
    classes) that has the argument. Apply it below all other decorators.
    """

    def decorate[**P, R](function: Callable[P, R], /) -> Callable[P, R]:
        function.__doc__ = complete_doc(function.__doc__, inspect.signature(function).parameters, sources)
        return function

    return decorate


def with_keywords(keywords: type, *sources: object, **defaults: object) -> Decorator:
    """Return a decorator that lists the keywords of ``**name: Unpack[keywords]``.

    They stand in the signature and, with the descriptions of the ``TypedDict``, in the docstring. ``sources``
    describe the other arguments, as in `with_argument_docs`. ``defaults`` are those that are neither None
    nor, for flags, False.
    """

    def decorate[**P, R](function: Callable[P, R], /) -> Callable[P, R]:
        own = inspect.signature(function)
        parameters = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        for name, annotation in keywords.__annotations__.items():
            text = getattr(annotation, "__forward_arg__", annotation)
            default = defaults.get(name, False if text == "bool" else None)
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=text))
        listed = own.replace(parameters=parameters)
        function.__signature__ = listed  # type: ignore[attr-defined]  # `inspect` reads it
        function.__doc__ = complete_doc(function.__doc__, listed.parameters, [keywords, *sources])
        return function

    return decorate


def complete_doc(doc: str | None, arguments: Iterable[str], sources: Iterable[object]) -> str | None:
    """Return a docstring whose section ``Args:`` describes these arguments, in this order.

    ``sources`` describe the arguments that the docstring does not. With ``python -OO``, it is None and stays
    None.
    """
    if doc is None:
        return None
    clean = inspect.cleandoc(doc) + "\n"
    section = _SECTION.search(clean)
    entries = _entries(section)
    for source in sources:
        entries = _entries_of(source) | entries
    text = "Args:\n" + "".join(entries[name] for name in arguments if name in entries)
    if section is not None:
        return clean[: section.start()] + text + clean[section.end() :]
    later = _LATER.search(clean)
    assert later is not None  # the pattern also matches the end of the text
    start = clean[: later.start()].rstrip("\n")
    return f"{start}\n\n{text}\n{clean[later.start() :]}"


def _entries(section: re.Match[str] | None) -> dict[str, str]:
    return {} if section is None else {entry[1]: entry[0] for entry in _ENTRY.finditer(section[1])}


@cache
def _entries_of(source: object) -> dict[str, str]:
    """Return the entries of a function, or of a class and its bases."""
    entries = _entries(_SECTION.search(inspect.cleandoc(source.__doc__ or "") + "\n"))
    # The bases of a `TypedDict` are not in `__bases__`.
    bases = get_original_bases(source) if isinstance(source, type) else ()
    for base in bases:
        if isinstance(base, type):
            entries = _entries_of(base) | entries
    return entries
