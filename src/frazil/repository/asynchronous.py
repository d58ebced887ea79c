"""The asynchronous twins of the public methods: the same call on a thread.

The core is synchronous. Where a method has to be awaited, the twin is made from it, so that
there is one implementation and one docstring. Cancelling the await does not undo the call.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate


def awaitable[S, **P, R](
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """``commit_async = awaitable(commit)``"""

    async def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self, *args, **kwargs)

    functools.update_wrapper(twin, method)
    twin.__name__ = f"{method.__name__}_async"
    twin.__qualname__ = f"{method.__qualname__}_async"
    twin.__doc__ = f"``{method.__name__}``, to be awaited."
    return twin
