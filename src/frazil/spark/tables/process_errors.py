"""Errors in the processes of Spark, without traceback and causes.

Spark shows users the whole traceback of its Python process, with those of all causes, before the message. The
text of an error of Frazil is enough, so it leaves the entry points of a data source or function without a
traceback, and Spark's error begins with it. The log has the tracebacks at the level ``debug``. Other errors
are defects, and keep their tracebacks.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from frazil.errors import IcechunkError

_log: Final = logging.getLogger(__name__)
#: The methods that Spark calls.
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
    "getDefaultReadLimit",
    "prepareForTriggerAvailableNow",
    "reportLatestOffset",
    "analyze",
    "eval",
)


def causes_only[C: type](cls: C) -> C:
    """Return a class for Spark whose entry points raise errors of Frazil without traceback and causes."""
    for name in _ENTRIES:
        method = vars(cls).get(name)
        if isinstance(method, staticmethod):
            setattr(cls, name, staticmethod(_guarded(method.__func__)))
        elif inspect.isfunction(method):
            setattr(cls, name, _guarded(method))
    return cls


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    def bare() -> Iterator[None]:
        try:
            yield
        except IcechunkError as error:
            raise _bare(error) from None

    @functools.wraps(method)
    def generating(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with bare():
            yield from method(*args, **kwargs)

    @functools.wraps(method)
    def calling(*args: Any, **kwargs: Any) -> Any:
        with bare():
            return method(*args, **kwargs)

    return generating if inspect.isgeneratorfunction(method) else calling


def _bare(error: IcechunkError) -> IcechunkError:
    _log.debug("an error in a process of Spark", exc_info=error)
    if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        # Spark begins its text with the traceback of its own frames. The worker ends with this error.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    return error.with_traceback(None)
