"""Pickles functions and values for tasks.

Plain pickle sends a function as its name, and the worker has to import its module. ``cloudpickle`` can also
send the code of functions of a notebook or a script. Then the worker needs that package too.
"""

from __future__ import annotations

from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it ships no types


def dumps(value: Any) -> bytes:
    """Return a value as a pickle. Raises the error of a part that cannot be pickled.

    >>> import pickle
    >>> pickle.loads(dumps(lambda x: x + 1))(2)
    3
    """
    data: bytes = cloudpickle.dumps(value)
    return data
