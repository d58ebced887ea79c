"""The staged results of one round of tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from frazil.errors import IcechunkError
from frazil.jobs.staging_folder import Folder
from frazil.jobs.task_results import Result, decode_result
from frazil.repository.clock import now_us
from frazil.threads import Purpose, thread_pool

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StagedRound:
    """The results of tasks, by the number of the task. It can be pickled, because tasks write to it."""

    folder: Folder

    def put_result(self, number: int, data: bytes) -> None:
        """Stage the result of one task, unless another attempt has staged it."""
        self.folder.put(str(number), data)

    def get_result(self, number: int, module: str) -> bytes | None:
        """Return the result of one task; None if it is missing or unusable.

        ``module`` is the module of the work function.
        """
        data = self.folder.get(str(number))
        return None if data is None or _usable(number, data, module) is None else data

    def results(self, module: str) -> Iterator[tuple[int, Result]]:
        """Yield the usable results, with the numbers of their tasks."""
        numbers = [int(name) for name in self.folder.names() if name.isdecimal()]
        with thread_pool(Purpose.STAGED_READS) as pool:
            for number, data in zip(numbers, pool.map(self.folder.get, map(str, numbers)), strict=True):
                result = None if data is None else _usable(number, data, module)
                if result is not None:
                    yield number, result


def _usable(number: int, data: bytes, module: str) -> Result | None:
    try:
        result = decode_result(data, module)
    except IcechunkError as error:
        _log.warning("task %d runs again: %s", number, error)
        return None
    return result if result.ends > now_us() else None
