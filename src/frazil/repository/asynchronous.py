"""The asynchronous twins of the public methods: the same call on a thread.

The core is synchronous. Where a method has to be awaited, the twin is made from it, so that
there is one implementation and one docstring. Cancelling the await does not undo the call.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
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


def awaitable_class(method: Any) -> Any:
    """``awaitable`` for a class method. Types cannot say "the same, awaited" of one that returns Self."""
    return classmethod(awaitable(method.__func__))


def awaitable_static[**P, R](method: Callable[P, R]) -> staticmethod[P, Coroutine[Any, Any, R]]:
    """``awaitable`` for a static method."""

    async def twin(*args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, *args, **kwargs)

    functools.update_wrapper(twin, method)
    return staticmethod(twin)


class BothWays[T]:
    """An iterator for ``for`` as well as for ``async for``: each step of the latter is made on a thread.

    >>> list(BothWays(iter([1, 2])))
    [1, 2]
    """

    def __init__(self, values: Iterator[T]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return next(self._values)

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        step = await asyncio.to_thread(next, self._values, _END)
        if step is _END:
            raise StopAsyncIteration
        return step  # type: ignore[return-value]  # not the end, so a T

    async def aclose(self) -> None:
        """Nothing is asked for any more."""
        self._values = iter(())


_END = object()
