"""Functions and values as bytes, on their way to a task.

Plain pickle sends a function as its name, and a worker has to import its module. ``cloudpickle`` also
sends the functions of a notebook or a script, by value. The worker needs that package to read them.
"""

from __future__ import annotations

from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it ships no types


def dumps(value: Any) -> bytes:
    """A value as a pickle. Raises the error of a part that cannot be pickled.

    >>> import pickle
    >>> pickle.loads(dumps(lambda x: x + 1))(2)
    3
    """
    data: bytes = cloudpickle.dumps(value)
    return data
