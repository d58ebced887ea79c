"""A storage with faults: lost writes, lost answers, and refusals."""

from __future__ import annotations

from collections.abc import Buffer, Callable
from enum import Enum
from typing import Any, override

from frazil.errors import StorageError
from frazil.storage.base import ALWAYS, Condition, Refused, Storage, Stored, Version
from frazil.storage.settings import StorageSettings
from frazil.testing import StorageOver


class Fault(Enum):
    """The fate of one ``put``."""

    #: The write does not reach the storage. The caller gets an error.
    LOST = "lost"
    #: The write takes effect. The caller gets an error.
    ANSWER_LOST = "answer-lost"
    #: The write takes effect. The client retries and finds its own write, so the caller gets ``Refused``.
    MET_ITSELF = "met-itself"
    #: The write does not take effect. The caller gets ``Refused``.
    REFUSED = "refused"


class FaultyStorage(StorageOver):
    """A storage over another storage, with faults.

    Args:
        inner: Storage that gets all requests.
        choose: Function of key and condition that returns the fault of a ``put``, or None for no fault.
    """

    def __init__(self, inner: Storage, choose: Callable[[str, Condition], Fault | None]) -> None:
        self.inner = inner
        self.choose = choose
        self.is_local: bool = inner.is_local
        self.is_whole_bucket: bool = inner.is_whole_bucket
        self.puts: list[str] = []
        self.gets: list[str] = []

    def __repr__(self) -> str:
        return f"<FaultyStorage over {self.inner!r}>"

    @override
    def _before(self, request: str, key: Any) -> None:
        if request == "get":
            self.gets.append(key)

    @override
    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        self.puts.append(key)
        fault = self.choose(key, condition)
        if fault is Fault.REFUSED:
            return Refused()
        if fault is Fault.LOST:
            raise StorageError(f"injected: put `{key}` was lost")
        answer = self.inner.put(key, data, condition)
        if fault is Fault.ANSWER_LOST:
            raise StorageError(f"injected: the answer to put `{key}` was lost")
        return Refused() if fault is Fault.MET_ITSELF else answer

    @override
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        data: Buffer = self.get(key, start, stop)
        return data

    @override
    async def put_async(self, key: str, data: Buffer) -> Stored:
        answer = self.put(key, data)
        return answer if isinstance(answer, Stored) else Stored(Version())

    @override
    def with_settings(self, settings: StorageSettings) -> Storage:
        return self
