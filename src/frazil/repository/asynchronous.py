"""The asynchronous twins of the public methods: they run the same method on a thread of Frazil's own pool.

Cancelling the await does not undo the call: a call that has started continues.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Final

from frazil.lazy_names import asyncio
from frazil.threads import Purpose, shared_pool


def begin[**P, R](function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
    """Call a function on a thread, in the context of the caller. Return the future of its result."""
    context = contextvars.copy_context()
    call = functools.partial(context.run, function, *args, **kwargs)
    return shared_pool(Purpose.ASYNC_CALLS).submit(call)


async def on_thread[**P, R](function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function on a thread, and await its result."""
    return await asyncio.wrap_future(begin(function, *args, **kwargs))


def awaitable[**P, R](method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return the asynchronous twin of a method, for example of ``commit``."""

    async def twin(*args: P.args, **kwargs: P.kwargs) -> R:
        return await on_thread(method, *args, **kwargs)

    functools.update_wrapper(twin, method)
    twin.__name__ = f"{method.__name__}_async"
    twin.__qualname__ = f"{method.__qualname__}_async"
    twin.__doc__ = f"Run ``{method.__name__}`` on a thread, to be awaited."
    return twin


def awaitable_class(method: Any) -> Any:
    """Return the asynchronous twin of a class method."""
    return classmethod(awaitable(method.__func__))


class SyncAsyncIterator[T]:
    """An iterator for ``for`` and for ``async for``. Each asynchronous step runs on a thread.

    If the await of a step is cancelled, its value is not lost: the next step returns it. ``aclose`` or
    ``contextlib.aclosing`` closes the iterator. An iterator that is not closed leaves no thread and no task
    behind.

    ``table`` is the text that consoles and notebooks show. Showing it does not advance the iterator.

    >>> list(SyncAsyncIterator(iter([1, 2])))
    [1, 2]
    """

    def __init__(self, values: Iterator[T], table: object = None) -> None:
        self._values = values
        self._step: Future[Any] | None = None
        self._table = table

    def __repr__(self) -> str:
        return "<frazil: an iterator>" if self._table is None else str(self._table)

    def _repr_html_(self) -> str | None:
        """Return the table as HTML, for notebooks. None, for the text, without one."""
        html = getattr(self._table, "_repr_html_", None)
        return None if html is None else str(html())

    def __iter__(self) -> Iterator[T]:
        # The loop calls `next` of the values themselves, unless an await has a step of them.
        return self if self._step is not None else self._values

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
        except Exception:  # a cancellation is not an Exception
            self._step = None
            raise
        self._step = None
        if step is _END:
            raise StopAsyncIteration
        return step  # type: ignore[no-any-return]  # not the end, so a T

    async def aclose(self) -> None:
        """Close the iterator: it has no more values."""
        self._values, self._step = iter(()), None


_END: Final = object()
