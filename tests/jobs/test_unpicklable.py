"""What cannot be sent to a task is named."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from frazil.errors import InvalidInputError
from frazil.jobs.task_failures import unsendable
from frazil.spark import Local

LOCK: Final = threading.Lock()


@dataclass
class _Holder:
    inner: dict[str, Any] = field(default_factory=lambda: {"a": [1, LOCK]})

    def method(self, shared: bytes, task: bytes) -> bytes:
        return task


def _closure() -> Callable[[bytes, bytes], bytes]:
    lock = threading.Lock()

    def work(shared: bytes, task: bytes) -> bytes:
        with lock:
            return task

    return work


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_closure(), "because of the variable `lock` of the function `work`, of the type lock: "),
        (functools.partial(max, LOCK), "because of the argument 0, of the type lock: "),
        (functools.partial(max, key=LOCK), "because of the argument `key`, of the type lock: "),
        (
            _Holder().method,
            "because of the item 1 of the item 'a' of the attribute `inner` of the object of the method",
        ),
    ],
    ids=["closure", "argument", "keyword", "method"],
)
def test_the_part_is_named(function: Any, message: str) -> None:
    with pytest.raises(
        InvalidInputError, match="the function of the tasks cannot be sent to a task"
    ) as caught:
        list(Local(1, processes=True).run(function, [b""], b""))
    assert message in caught.value.message


def test_a_value_without_parts_is_not_named_twice() -> None:
    assert "because of" not in unsendable("the item", LOCK, TypeError("no")).message
