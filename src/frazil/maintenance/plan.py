"""The plans and the results of upkeep, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from functools import cached_property
from operator import add
from typing import Any, ClassVar, Final, overload

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import check_fields, wrong_type
from frazil.display import Record, Shown, counted, literal
from frazil.errors import InvalidInputError
from frazil.format.columns import I64, U8
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, ids_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.repo_changes import require_online
from frazil.repository.catalog.repo_update import RepoUpdate, newest_update
from frazil.repository.catalog.version_info import LeaseInfo
from frazil.repository.clock import from_datetime, to_datetime
from frazil.survey.columns import ObjectColumns, joined_columns

#: The number of files whose texts are made at a time.
_BLOCK: Final = 10_000


class GarbageReason(StrEnum):
    """Why a file is garbage.

    Examples:
        >>> GarbageReason.EXPIRED == "expired"
        True
    """

    #: It belongs to a version that was removed from a history.
    EXPIRED = "expired"
    #: It belongs to a version that is listed, but no branch and no tag leads to it.
    UNREACHABLE = "unreachable"
    #: It belongs to no version.
    UNREFERENCED = "unreferenced"
    #: A backup that neither the ops log nor a recovery needs.
    OLD_BACKUP = "old-backup"


_REASONS: Final = list(GarbageReason)


@dataclass(frozen=True, slots=True, eq=False)
class GarbageFolder:
    """The garbage of one folder."""

    kind: str
    files: ObjectColumns
    reasons: U8


@dataclass(frozen=True, slots=True, repr=False)
class GarbageFile(Record, shown_as="ops.GarbageFile"):
    """A file that a garbage collection would delete.

    Attributes:
        key: The key in the storage.
        kind: ``"snapshots"``, ``"transaction_logs"``, ``"statistics"``, ``"manifests"``, ``"chunks"`` or
            ``"backups"``.
        size_bytes: The size in bytes.
        modified_at: The time of the last modification, by the clock of the storage.
        reason: Why the file is garbage.
    """

    key: str
    kind: str
    size_bytes: int
    modified_at: datetime
    reason: GarbageReason


class LazyRows[T](Sequence[T]):
    """Rows of a table. A row becomes an object when it is read."""

    __slots__ = ()
    noun: ClassVar[str]

    def _made(self, start: int, stop: int) -> Iterator[T]:
        """Yield the rows from ``start`` to ``stop``."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{counted(len(self), self.noun)}>"

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> list[T]: ...

    def __getitem__(self, at: int | slice) -> T | list[T]:
        rows = range(len(self))[at]
        return [self[row] for row in rows] if isinstance(rows, range) else next(self._made(rows, rows + 1))

    def __iter__(self) -> Iterator[T]:
        for start in range(0, len(self), _BLOCK):
            yield from self._made(start, min(start + _BLOCK, len(self)))


class GarbageFiles(LazyRows[GarbageFile]):
    """The files that a garbage collection would delete.

    Examples:
        >>> import frazil
        >>> from datetime import UTC, datetime
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> repo.garbage_collect(datetime.now(UTC), dry_run=True).files
        <0 files>
    """

    __slots__ = ("_folders",)
    noun = "file"

    def __init__(self, folders: Sequence[GarbageFolder] = ()) -> None:
        self._folders = folders

    def __len__(self) -> int:
        return sum(len(folder.reasons) for folder in self._folders)

    def _made(self, start: int, stop: int) -> Iterator[GarbageFile]:
        for folder in self._folders:
            low, high = max(start, 0), min(stop, len(folder.reasons))
            if low < high:
                part = folder.files.part(low, high)
                columns = (part.keys(), part.sizes.tolist(), part.modified.tolist(), folder.reasons[low:high])
                for key, size, modified, reason in zip(*columns, strict=True):
                    yield GarbageFile(key, folder.kind, size, to_datetime(modified), _REASONS[reason])
            start, stop = start - len(folder.reasons), stop - len(folder.reasons)

    def count_by_reason(self) -> dict[GarbageReason, int]:
        """Return the number of files for each reason.

        Returns:
            The numbers by reason, without reasons that no file has.

        Examples:
            >>> GarbageFiles().count_by_reason()
            {}
        """
        counts = np.zeros(len(_REASONS), np.int64)
        for folder in self._folders:
            counts += np.bincount(folder.reasons, minlength=len(_REASONS))
        return {reason: int(count) for reason, count in zip(_REASONS, counts.tolist(), strict=True) if count}


@dataclass(frozen=True, slots=True, repr=False)
class GCSummary(Record, shown_as="ops.GCSummary"):
    """The result of a garbage collection.

    Attributes:
        bytes_deleted: The total size of the deleted snapshots, transaction logs, manifests and chunks.
        chunks_deleted: The number of deleted chunk files.
        manifests_deleted: The number of deleted manifests.
        snapshots_deleted: The number of deleted snapshots.
        attributes_deleted: The number of deleted attributes files.
        transaction_logs_deleted: The number of deleted transaction logs.
        statistics_deleted: The number of deleted files with statistics of chunks.
        objects_failed_to_delete: The number of objects that the storage did not delete.
        throttled_batches: The number of requests that the storage throttled.
        delete_errors: The texts of errors.
        skipped_phases: The parts of the collection that were skipped.
        backups_deleted: The number of deleted backups of the file ``repo`` in ``overwritten/``.
        backup_bytes_deleted: The total size of the deleted backups in bytes.
        leases_respected: The number of leases, of sessions with forks and of jobs, that protected files older
            than the cut-off. ``Repository.upkeep.leases`` shows leases.
        spared_since: Because of these leases, files that are not older than this time of the storage's clock
            were spared. None without such leases.
        leases: These leases. In a dry run, each with the number and size of the files that it holds back.
        files: The files that the collection would delete, with reasons. Only a dry run lists them.
    """

    bytes_deleted: int = 0
    chunks_deleted: int = 0
    manifests_deleted: int = 0
    snapshots_deleted: int = 0
    attributes_deleted: int = 0
    transaction_logs_deleted: int = 0
    objects_failed_to_delete: int = 0
    throttled_batches: int = 0
    delete_errors: list[str] = field(default_factory=list, hash=False)
    skipped_phases: list[str] = field(default_factory=list, hash=False)
    backups_deleted: int = 0
    backup_bytes_deleted: int = 0
    statistics_deleted: int = 0
    leases_respected: int = 0
    spared_since: datetime | None = None
    leases: list[LeaseInfo] = field(default_factory=list, hash=False)
    files: Sequence[GarbageFile] = field(default_factory=GarbageFiles, compare=False)

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        values = [(each.name, getattr(self, each.name)) for each in fields(self) if each.name != "leases"]
        for name, value in values:
            if value or name not in _SHOWN_IF_SET:
                yield name, repr(value) if name == "files" else literal(value)
        if self.leases:
            yield "leases", "; ".join(lease.holder() for lease in self.leases)


#: Fields of ``GCSummary`` that the reference does not have.
_SHOWN_IF_SET: Final = {
    *("backups_deleted", "backup_bytes_deleted", "statistics_deleted"),
    *("leases_respected", "spared_since", "files"),
}


@dataclass(frozen=True, slots=True, repr=False)
class ChunkStorageStats(Record, shown_as="ops.ChunkStorageStats"):
    """The number of bytes of chunks by their location. Statistics can be added with ``+``.

    Attributes:
        native_bytes: The bytes in chunk files.
        virtual_bytes: The bytes that virtual references point to.
        inlined_bytes: The bytes in manifests.
    """

    native_bytes: int = 0
    virtual_bytes: int = 0
    inlined_bytes: int = 0

    def non_virtual_bytes(self) -> int:
        """Return the number of bytes that the repository itself stores.

        Returns:
            The sum of the native and the inline bytes.

        Examples:
            >>> ChunkStorageStats(native_bytes=10, virtual_bytes=5, inlined_bytes=1).non_virtual_bytes()
            11
        """
        return self.native_bytes + self.inlined_bytes

    def total_bytes(self) -> int:
        """Return the number of bytes of all chunks.

        Returns:
            The sum of the native, virtual and inline bytes.

        Examples:
            >>> ChunkStorageStats(native_bytes=10, virtual_bytes=5, inlined_bytes=1).total_bytes()
            16
        """
        return self.native_bytes + self.virtual_bytes + self.inlined_bytes

    def __add__(self, other: ChunkStorageStats) -> ChunkStorageStats:
        return ChunkStorageStats(*map(add, astuple(self), astuple(other)))


#: The largest pack. A reader may have to fetch a whole pack.
_MAX_PACK: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """Which chunk files and manifests a compaction writes again. Sizes are in bytes.

    Attributes:
        live_fraction: A chunk file is written again if less than this fraction of its bytes is live, which
            means that the newest version of a chosen branch refers to them. 0 chooses no file. Default: 0.5.
        small_size: Chunk files below this size are merged into packs, if that makes four files or more into
            one. 0 merges no files. Default: 1 MiB.
        pack_size: The largest size of a new pack. Default: 16 MiB.
        arrays: Path patterns of the arrays whose chunks are moved, as in ``fnmatch``: ``*`` matches any text.
            A file is only written again if no other array needs it. Default: all arrays.
        manifests: Whether manifests are written again with the splitting of the configuration, as
            ``rewrite_manifests`` does. Default: None, which means if the branch has four times as many
            manifests as it needs.

    Raises:
        InvalidInputError: ``invalid-argument`` for a value outside of its range.
        TypeError: For a value of another type.

    Examples:
        >>> import frazil
        >>> frazil.CompactionLimits(live_fraction=0.3).small_size
        1048576
    """

    live_fraction: float = 0.5
    small_size: int = 1 << 20
    pack_size: int = 16 << 20
    arrays: tuple[str, ...] = ("*",)
    manifests: bool | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name, low, high in (
            ("live_fraction", 0, 1),
            ("small_size", 0, None),
            ("pack_size", 1, _MAX_PACK),
        ):
            value = getattr(self, name)
            if not (low <= value and (high is None or value <= high)):
                expected = f"at least {low}" if high is None else f"from {low} to {high}"
                raise InvalidInputError(f"{name} must be {expected}, got {value}")
        if not all(isinstance(pattern, str) for pattern in self.arrays):
            raise wrong_type("arrays", self.arrays, "tuple[str, ...]")


@dataclass(frozen=True, slots=True, eq=False)
class LiveFiles:
    """k chunk files with their sizes and live bytes, as columns sorted by id.

    Attributes:
        ids: uint8 of shape (k, 12).
        sizes: The sizes of the files in bytes, int64 of shape (k,).
        live: The live bytes of the files, int64 of shape (k,).
    """

    ids: U8 = field(default_factory=lambda: np.zeros((0, OBJECT_ID_BYTES), np.uint8))
    sizes: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    live: I64 = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.sizes)

    def select_files(self, rows: NDArray[np.bool_]) -> LiveFiles:
        """Return some of the files."""
        return LiveFiles(self.ids[rows], self.sizes[rows], self.live[rows])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a dictionary for each file."""
        for start in range(0, len(self), _BLOCK):
            part = slice(start, start + _BLOCK)
            names, sizes = ids_to_text(self.ids[part]), self.sizes[part].tolist()
            for name, size, live in zip(names, sizes, self.live[part].tolist(), strict=True):
                fraction = live / size if size else 0.0
                yield {"file": name, "size": size, "live_bytes": live, "live_fraction": fraction}

    @staticmethod
    def union(parts: Sequence[LiveFiles]) -> LiveFiles:
        """Return the files of several parts, each once."""
        whole = [LiveFiles(), *parts]
        ids, sizes, live = joined_columns(whole, "ids", "sizes", "live")
        first = np.unique(id_keys(ids), return_index=True)[1]
        return LiveFiles(ids[first], sizes[first], live[first])


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CompactionReport(Record, shown_as="CompactionReport"):
    """The plan or the result of a compaction. Sizes are in bytes.

    Attributes:
        files: The chunk files that are written again, with sizes and live bytes. ``rows`` lists them.
        new_files: The number of new chunk files.
        bytes_moved: The number of bytes that are read from old files and written to new ones.
        bytes_freed: The size of the old files, which garbage collection can delete when no older version, and
            no other branch or tag, needs them.
        manifests: The number of manifests of the branches before the compaction.
        new_manifests: The number of manifests that are written.
        snapshots: The new snapshot of each branch. Empty for a plan, and if there was nothing to do.
    """

    files: LiveFiles = field(default_factory=LiveFiles)
    new_files: int = 0
    bytes_moved: int = 0
    bytes_freed: int = 0
    manifests: int = 0
    new_manifests: int = 0
    snapshots: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (len(self.files) or self.new_manifests or self.snapshots)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Return one dictionary for each chunk file that is written again, for example for a data frame.

        Returns:
            The values ``file``, ``size``, ``live_bytes`` and ``live_fraction``.

        Examples:
            >>> list(CompactionReport().rows())
            []
        """
        return self.files.rows()

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "state", "done" if self.snapshots else "nothing to do" if self.is_empty else "plan"
        yield "files", f"{counted(len(self.files), 'file')} -> {counted(self.new_files, 'file')}"
        yield "bytes_moved", f"{self.bytes_moved:,}"
        yield "bytes_freed", f"{self.bytes_freed:,}"
        yield "manifests", f"{self.manifests:,} before, {self.new_manifests:,} new"
        for branch, id_ in self.snapshots.items():
            yield f"branch {branch}", id_


class UpkeepPlan[P: Record, R](Record, shown_as="UpkeepPlan"):
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

    def __init__(self, operation: str, preview: Callable[[], P], perform: Callable[[], R]) -> None:
        self._operation = operation
        self._preview = preview
        self._perform = perform

    @cached_property
    def report(self) -> P:
        """What the operation would do. It is computed once."""
        return self._preview()

    def apply(self) -> R:
        """Do the operation.

        Returns:
            The result: what was done.

        Raises:
            IcechunkError: See the method that made the plan.

        Examples:
            >>> import frazil
            >>> from datetime import UTC, datetime, timedelta
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
            >>> from datetime import UTC, datetime, timedelta
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
        names: list[str] = [each.name for each in fields(value)] if is_dataclass(value) else []
        return {name: plain(getattr(value, name)) for name in names}
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


def require_age(call: str, value: object) -> None:
    """Check the argument ``newer_than`` of a call."""
    if value is not None and not isinstance(value, timedelta | datetime):
        raise TypeError(
            f"{call}: newer_than must be a timedelta, a datetime or None, got {type(value).__name__}"
        )
    if isinstance(value, datetime):
        from_datetime(value, "newer_than")
