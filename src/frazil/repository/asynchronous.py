"""The asynchronous twins of the public methods: the same call on a thread.

The core is synchronous. Where a method has to be awaited, the twin is made from it, so that there is one
implementation and one docstring. The threads are Frazil's own: the loop's default executor has a few threads
for each processor, which is little for requests that wait for a network, and other people's calls in it.

Cancelling the await does not undo the call: what has not begun never begins, what has begun goes on. A commit
whose await was cancelled has happened or not, and the session is as it is then.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Concatenate, Final, Protocol

from frazil.threads import Purpose, shared_pool


def begin[**P, R](function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
    """Call on a thread, in the caller's context."""
    context = contextvars.copy_context()
    call = functools.partial(context.run, function, *args, **kwargs)
    return shared_pool(Purpose.ASYNC_CALLS).submit(call)


async def on_thread[**P, R](function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call on a thread, and await what it returns."""
    return await asyncio.wrap_future(begin(function, *args, **kwargs))


def awaitable[S, **P, R](
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """``commit_async = awaitable(commit)``"""

    async def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await on_thread(method, self, *args, **kwargs)

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
        return await on_thread(method, *args, **kwargs)

    functools.update_wrapper(twin, method)
    return staticmethod(twin)


class Table(Protocol):
    """Something with a text, and with HTML for notebooks."""

    def html(self) -> str: ...


class BothWays[T]:
    """An iterator for ``for`` as well as for ``async for``: each step of the latter is made on a thread.

    A step whose await was cancelled is not lost: the next one gets its value. Close it with ``aclose`` (or
    ``contextlib.aclosing``), or leave it: no thread and no task stays behind.

    ``table`` is what consoles and notebooks show; showing it takes nothing from the iterator.

    >>> list(BothWays(iter([1, 2])))
    [1, 2]
    """

    def __init__(self, values: Iterator[T], table: Table | None = None) -> None:
        self._values = values
        self._step: Future[Any] | None = None
        self._table = table

    def __repr__(self) -> str:
        return "<frazil: an iterator>" if self._table is None else str(self._table)

    def _repr_html_(self) -> str | None:
        return None if self._table is None else self._table.html()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        running, self._step = self._step, None
        if running is None:
            return next(self._values)
        step = running.result()
        if step is _END:
            raise StopIteration
        return step  # type: ignore[no-any-return]  # not the end, so a T

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        running = self._step
        if running is None:
            running = self._step = begin(next, self._values, _END)
        try:
            step = await asyncio.shield(asyncio.wrap_future(running))
        except Exception:  # being cancelled is none
            self._step = None
            raise
        self._step = None
        if step is _END:
            raise StopAsyncIteration
        return step  # type: ignore[no-any-return]  # not the end, so a T

    async def aclose(self) -> None:
        """Nothing is asked for any more."""
        self._values, self._step = iter(()), None


_END: Final = object()
