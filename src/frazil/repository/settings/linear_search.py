r"""Regular expressions of saved configurations, matched in linear time.

Anyone who can write to a repository chooses these expressions. Python's ``re`` needs exponential time for
some of them. RE2 needs time in proportion to the length of the text, and its memory has a limit. So it has
neither references back to groups nor conditions on the text around a match. The reference implementation
has the same limits.

RE2 knows ``\d``, ``\s`` and ``\w`` for ASCII alone. For a text with other characters, an expression gets the
classes of Unicode in their place, as in the reference. For ASCII texts both are the same, and the short form
needs less memory. In other texts, ``\b`` takes only ASCII for letters; so do ``\D``, ``\S`` and ``\W`` in
brackets.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import re2  # type: ignore[import-untyped]  # it ships no types

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A longer expression matches nothing.
LONGEST: Final = 1000
#: The most memory for one expression, in bytes. One that needs more matches nothing.
_MEMORY: Final = 1 << 18
#: An escape, a bracket of a class, or one character.
_TOKENS: Final = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|\[\^?\]?|\[:\^?\w+:\]|.", re.DOTALL)
#: The classes of Unicode. In brackets they stand without their own brackets.
_CLASSES: Final[Mapping[str, str]] = {
    r"\d": r"\p{Nd}",
    r"\s": r"\s\v\p{Z}\x{85}",
    r"\w": r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}",
}
_NEGATED: Final[Mapping[str, str]] = {name.upper(): members for name, members in _CLASSES.items()}


@lru_cache(maxsize=1)
def _options() -> Any:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.never_capture = True
    options.log_errors = False
    return options


@lru_cache(maxsize=1024)
def _compiled(regex: str, is_ascii: bool) -> Any:
    """Return the expression for texts of ASCII, or for others; None if it does not compile."""
    try:
        return re2.compile(_translated(regex, is_ascii), _options()) if len(regex) <= LONGEST else None
    except (re2.error, UnicodeEncodeError):  # half of a surrogate pair is no character
        return None


def _translated(regex: str, is_ascii: bool) -> str:
    """Return an expression of RE2 with the same meaning."""
    parts = []
    is_inside = False
    for token in _TOKENS.findall(regex):
        if token.startswith(r"\u") and len(token) > 2:
            parts.append(rf"\x{{{token[2:]}}}")
        elif not is_ascii and token in _CLASSES:
            parts.append(_CLASSES[token] if is_inside else f"[{_CLASSES[token]}]")
        elif not is_ascii and not is_inside and token in _NEGATED:
            parts.append(f"[^{_NEGATED[token]}]")
        else:
            parts.append(token)
            is_inside = token != "]" if is_inside else token.startswith("[")
    return "".join(parts)


def search(regex: str, text: str) -> bool:
    """Return whether an expression matches any part of a text."""
    pattern = _compiled(regex, text.isascii())
    try:
        return pattern is not None and pattern.search(text) is not None
    except UnicodeEncodeError:
        return False
