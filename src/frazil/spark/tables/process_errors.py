"""Errors in the processes of Spark: the cause alone.

Spark puts what its Python process prints in front of the message that reaches the user: each frame of the
traceback, and before that those of every error that this one came from. Our errors say what is wrong in their
own text, so they leave the entry points of a source without all that. A log at the level ``debug`` has it.
Other errors, which are defects, stay as they are.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

from frazil.errors import IcechunkError

_log: Final = logging.getLogger(__name__)
#: What Spark calls.
_ENTRIES: Final = (
    "schema",
    "reader",
    "writer",
    "streamReader",
    "streamWriter",
    "partitions",
    "read",
    "write",
    "commit",
    "abort",
    "initialOffset",
    "latestOffset",
)


def causes_only[C: type](cls: C) -> C:
    """A class for Spark whose own entry points raise our errors without traceback and causes."""
    for name in _ENTRIES:
        method = vars(cls).get(name)
        if inspect.isgeneratorfunction(method):
            setattr(cls, name, _generating(method))
        elif inspect.isfunction(method):
            setattr(cls, name, _calling(method))
    return cls


def _calling(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def calling(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except IcechunkError as error:
            raise _bare(error) from None

    return calling


def _generating(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @functools.wraps(method)
    def generating(*args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            yield from method(*args, **kwargs)
        except IcechunkError as error:
            raise _bare(error) from None

    return generating


def _bare(error: IcechunkError) -> IcechunkError:
    _log.debug("an error in a process of Spark", exc_info=error)
    return error.with_traceback(None)
