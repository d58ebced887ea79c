"""How tests look at the text of an error: the words that it has, and those that no error has."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Final

import pytest

from frazil.errors import ErrorKind, IcechunkError

#: In no message: words of the client and of Python that say nothing to a user.
FORBIDDEN: Final = (
    "Generic",
    "169.254",
    "Some(",
    "Debug",
    "RetryError",
    "builder error",
    "<frazil.",
    "<Error>",
    "datetime.datetime(",
    "\n",
)


def check(
    call: Callable[[], object],
    of: type[BaseException],
    kind: ErrorKind | None,
    *words: str,
    without: str = "",
) -> BaseException:
    """``call`` raises exactly this, and says these words and none of the forbidden ones."""
    with pytest.raises(IcechunkError if kind is not None else of) as caught:
        call()
    error, text = caught.value, str(caught.value)
    assert isinstance(error, of), repr(error)
    if kind is not None:
        assert getattr(error, "kind", None) == kind, repr(error)
        assert str(pickle.loads(pickle.dumps(error))) == text
    for word in words:
        assert word in text, text
    for word in (*FORBIDDEN, *([without] if without else [])):
        assert word not in text, text
    # Microseconds since 1970, and lengths of time as Python prints them.
    assert not re.search(r"\d us\b|(?<!T\d)\b\d+:\d\d:\d\d\b", text), text
    return error
