"""Calls in a forked child."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable

from frazil.errors import ErrorKind, StorageError


def in_child(work: Callable[[], bool]) -> bool:
    """Whether ``work`` is true in a forked child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: this is the test
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def is_refused_in_child(call: Callable[[], object]) -> bool:
    """Whether a forked child gets the error that its storage belongs to the parent."""

    def refused() -> bool:
        try:
            call()
        except StorageError as error:
            return error.kind is ErrorKind.FORKED_PROCESS
        return False

    return in_child(refused)
