"""How work grows with its rows, told so that a busy machine cannot make a test fail.

*Steps* are the rounds of Python loops and the Python functions entered (comprehensions and generators
too). They are counted by the interpreter, not timed: the same on every machine. What numpy, ``map`` or
``join`` do in C is no step, so work on columns takes as many steps for many rows as for few.

*Time* tells what steps cannot: work that is in C, but grows with the square of the rows. A try that some
other process has disturbed proves nothing, so the best of several counts.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest

_events = sys.monitoring.events
#: Every loop jumps back once a round.
_STEPS: Final = (_events.JUMP, _events.PY_START, _events.PY_RESUME)

#: Ten times the rows may take a fifth more steps, and these: blocks of compressed files, digits of the
#: number of rows, a thread that waits once more. A step for each row would be thousands.
MORE_STEPS: Final = 1.2
A_FEW_STEPS: Final = 400


def python_steps(call: Callable[[], object], *, all_threads: bool = False) -> int:
    """How many steps ``call`` takes, in its thread and in those that it starts; with ``all_threads`` also in
    those that run already, as the one in which zarr reads and lists does.
    """
    steps = 0
    running = () if all_threads else threading.enumerate()
    others = {thread.ident for thread in running} - {threading.get_ident()}
    thread = threading.get_ident

    def step(*_: Any) -> None:
        nonlocal steps
        steps += thread() not in others

    with _no_collection(), _monitor(step):
        call()
    return steps


@contextmanager
def keys_read(storage: type[Any], *methods: str) -> Iterator[list[str]]:
    """Yield the keys with which methods of a class of storages (by default `get`) are called in a block."""
    keys: list[str] = []

    def recording(method: Callable[..., Any]) -> Callable[..., Any]:
        def read(self: Any, key: str, *more: Any, **options: Any) -> Any:
            keys.append(key)
            return method(self, key, *more, **options)

        return read

    with pytest.MonkeyPatch.context() as patch:
        for name in methods or ("get",):
            patch.setattr(storage, name, recording(getattr(storage, name)))
        yield keys


def cpu_ratio(make: Callable[[int], Any], call: Callable[[Any], object], few: int, tries: int = 3) -> float:
    """Processor time of ``call(make(10 * few))`` over that of ``call(make(few))``, the best of each."""
    arguments = make(few), make(10 * few)
    taken: tuple[list[float], list[float]] = ([], [])
    with _no_collection():
        for _ in range(tries):
            for argument, times in zip(arguments, taken, strict=True):
                started = time.process_time()
                call(argument)
                times.append(time.process_time() - started)
    short, long = map(min, taken)
    return long / max(short, 1e-9)


def assert_no_step_for_each_row(
    make: Callable[[int], Any], call: Callable[[Any], object], few: int = 2_000
) -> None:
    """Ten times the rows take about as many steps."""
    call(make(few // 10))  # what is done once: imports, caches of layouts
    short, long = [python_steps(partial(call, make(rows))) for rows in (few, 10 * few)]
    limit = MORE_STEPS * short + A_FEW_STEPS
    assert long <= limit, f"{few} rows: {short} steps, {10 * few} rows: {long}, at most {limit:.0f} expected"


def assert_time_grows_with_the_rows(
    make: Callable[[int], Any],
    call: Callable[[Any], object],
    few: int,
    *,
    limit: float = 30,
    attempts: int = 6,
) -> None:
    """Ten times the rows take at most ``limit`` times the processor time, in one attempt of several.

    Ten times is what steps in C take, with sorting and full caches up to twenty; a hundred times is what is
    to be found.
    """
    seen: list[float] = []
    while len(seen) < attempts:
        seen.append(cpu_ratio(make, call, few))
        if seen[-1] <= limit:
            return
    raise AssertionError(f"{few} and {10 * few} rows: times {seen}, at most {limit} expected")


@contextmanager
def _monitor(step: Callable[..., None]) -> Iterator[None]:
    monitoring = sys.monitoring
    tool = next(number for number in range(6) if monitoring.get_tool(number) is None)
    monitoring.use_tool_id(tool, "steps")
    try:
        for event in _STEPS:
            monitoring.register_callback(tool, event, step)
        monitoring.set_events(tool, sum(_STEPS))
        yield
    finally:
        monitoring.set_events(tool, 0)
        for event in _STEPS:
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection: its callbacks take steps, and its time depends on all that is in memory."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
