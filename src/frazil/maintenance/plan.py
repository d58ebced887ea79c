"""The plan of an operation of upkeep that deletes or changes, and the change of ``repo`` that it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, ClassVar, Final

from frazil.display import Record, Shown
from frazil.format.repo_info import RepoInfo
from frazil.maintenance.compaction_info import LiveFiles
from frazil.repository.catalog.repo_changes import require_online
from frazil.repository.catalog.repo_update import RepoUpdate, newest_update

_UNSEEN: Final = object()


class UpkeepPlan[P: Record, R](Record):
    """What an operation of ``repo.upkeep`` would do. `apply` does it.

    The plan reads the repository when it is printed, or when ``report`` is used, and writes nothing. `apply`
    decides on the state of the repository at its own time, because other processes may have changed it.

    Examples:
        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> _ = repo.writable_session("main").commit("first", allow_empty=True)
        >>> plan = repo.upkeep.retain(frazil.Retention(last=1))
        >>> len(plan.report.removed), len(plan.apply().removed)
        (0, 0)
    """

    __slots__ = ("_operation", "_perform", "_preview", "_seen")

    shown_as: ClassVar[str] = "UpkeepPlan"

    def __init__(self, operation: str, preview: Callable[[], P], perform: Callable[[], R]) -> None:
        self._operation = operation
        self._preview = preview
        self._perform = perform
        self._seen: Any = _UNSEEN

    @property
    def report(self) -> P:
        """What the operation would do. It is computed once."""
        if self._seen is _UNSEEN:
            self._seen = self._preview()
        seen: P = self._seen
        return seen

    def apply(self) -> R:
        """Do the operation.

        Returns:
            The result: what was done.

        Raises:
            IcechunkError: See the method that made the plan.

        Examples:
            >>> import frazil
            >>> from datetime import UTC, datetime
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.upkeep.collect(datetime.now(UTC)).apply().chunks_deleted
            0
        """
        return self._perform()

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as values that JSON has.

        Returns:
            The operation, and the fields of ``report``.

        Examples:
            >>> import frazil
            >>> from datetime import UTC, datetime
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> plan = repo.upkeep.collect(datetime.now(UTC)).as_dict()
            >>> plan["operation"], plan["files"]
            ('collect', [])
        """
        return {"operation": self._operation, **plain(self.report)}

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "operation", self._operation
        yield from self.report._rows()


class RecordedChange[T]:
    """A change of ``repo`` that remembers the result of each attempt, because an update may need several."""

    def __init__(self, change: Callable[[RepoInfo, int], tuple[RepoUpdate, T]]) -> None:
        self._change = change
        self._results: dict[int, T] = {}

    def __call__(self, info: RepoInfo, now: int) -> RepoUpdate:
        """Return the repo info after the change."""
        require_online(info)
        changed, self._results[now] = self._change(info, now)
        return changed

    def result(self, after: RepoInfo) -> T:
        """Return the result of the attempt that led to the repo info ``after``."""
        return self._results[newest_update(after)]


def plain(value: Any) -> Any:
    """Return a value of a report as values that JSON has."""
    if isinstance(value, Record):
        return {name: plain(getattr(value, name)) for name in getattr(value, "__dataclass_fields__", ())}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, LiveFiles):
        return list(value.rows())
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, Sequence | set) and not isinstance(value, str):
        return [plain(each) for each in value]
    return value
