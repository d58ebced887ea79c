"""The results of a garbage collection: a summary, and a table of the garbage; statistics of chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol, overload

import numpy as np

from frazil.display import Record, Shown, counted, literal, utc
from frazil.format.columns import I64, U8
from frazil.repository.catalog.version_info import LeaseInfo
from frazil.repository.clock import to_datetime

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


class Files(Protocol):
    """Files of one folder as columns: sizes in bytes, and times in microseconds since 1970."""

    @property
    def sizes(self) -> I64:
        """Sizes in bytes, int64 (n,)."""

    @property
    def modified(self) -> I64:
        """Times of the last modification, int64 (n,)."""

    def keys(self) -> list[str]:
        """Return the keys of the files."""

    def part(self, start: int, stop: int) -> Any:
        """Return the files from ``start`` to ``stop``."""


@dataclass(frozen=True, slots=True, eq=False)
class GarbageFolder:
    """The garbage of one folder.

    Attributes:
        kind: The kind of the files, as the fields of ``GCSummary`` name it.
        files: The files.
        reasons: The number of the reason of each file, uint8 (n,).
    """

    kind: str
    files: Files
    reasons: U8


@dataclass(frozen=True, slots=True, repr=False)
class GarbageFile(Record):
    """A file that a garbage collection would delete.

    Attributes:
        key: The key in the storage.
        kind: ``"snapshots"``, ``"transaction_logs"``, ``"manifests"``, ``"chunks"`` or ``"backups"``.
        size_bytes: The size in bytes.
        modified_at: The time of the last modification, by the clock of the storage.
        reason: Why the file is garbage.
    """

    key: str
    kind: str
    size_bytes: int
    modified_at: datetime
    reason: GarbageReason

    shown_as: ClassVar[str] = "ops.GarbageFile"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "key", self.key
        yield "kind", self.kind
        yield "size_bytes", literal(self.size_bytes)
        yield "modified_at", utc(self.modified_at)
        yield "reason", str(self.reason)


class GarbageFiles(Sequence[GarbageFile]):
    """The files that a garbage collection would delete. A row becomes an object when it is read.

    Examples:
        >>> import frazil
        >>> from datetime import UTC, datetime
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> repo.garbage_collect(datetime.now(UTC), dry_run=True).files
        <0 files>
    """

    __slots__ = ("_folders",)

    def __init__(self, folders: Sequence[GarbageFolder] = ()) -> None:
        self._folders = folders

    def __len__(self) -> int:
        return sum(len(folder.reasons) for folder in self._folders)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'file')}>"

    @overload
    def __getitem__(self, at: int) -> GarbageFile: ...

    @overload
    def __getitem__(self, at: slice) -> list[GarbageFile]: ...

    def __getitem__(self, at: int | slice) -> GarbageFile | list[GarbageFile]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        number = at + len(self) if at < 0 else at
        for folder in self._folders:
            if 0 <= number < len(folder.reasons):
                return next(_rows_of(folder, number, number + 1))
            number -= len(folder.reasons)
        raise IndexError(f"row must be one of {len(self)} rows, got {at}")

    def __iter__(self) -> Iterator[GarbageFile]:
        for folder in self._folders:
            for start in range(0, len(folder.reasons), _BLOCK):
                yield from _rows_of(folder, start, start + _BLOCK)

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


def _rows_of(folder: GarbageFolder, start: int, stop: int) -> Iterator[GarbageFile]:
    part = folder.files.part(start, stop)
    columns = (part.keys(), part.sizes.tolist(), part.modified.tolist(), folder.reasons[start:stop].tolist())
    for key, size, modified, reason in zip(*columns, strict=True):
        yield GarbageFile(key, folder.kind, size, to_datetime(modified), _REASONS[reason])


@dataclass(frozen=True, slots=True, repr=False)
class GCSummary(Record):
    """The result of a garbage collection.

    Attributes:
        bytes_deleted: The total size of the deleted snapshots, transaction logs, manifests and chunks.
        chunks_deleted: The number of deleted chunk files.
        manifests_deleted: The number of deleted manifests.
        snapshots_deleted: The number of deleted snapshots.
        attributes_deleted: The number of deleted attributes files.
        transaction_logs_deleted: The number of deleted transaction logs.
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
    leases_respected: int = 0
    spared_since: datetime | None = None
    leases: list[LeaseInfo] = field(default_factory=list, hash=False)
    files: Sequence[GarbageFile] = field(default_factory=GarbageFiles, compare=False)

    shown_as: ClassVar[str] = "ops.GCSummary"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        values = [(each.name, getattr(self, each.name)) for each in fields(self) if each.name != "leases"]
        for name, value in values:
            if value or name not in _SHOWN_IF_SET:
                yield name, repr(value) if name == "files" else literal(value)
        if self.leases:
            yield "leases", "; ".join(lease.holder() for lease in self.leases)


#: Fields of ``GCSummary`` that the reference does not have.
_SHOWN_IF_SET: Final = {
    *("backups_deleted", "backup_bytes_deleted", "leases_respected", "spared_since", "files"),
}


@dataclass(frozen=True, slots=True, repr=False)
class ChunkStorageStats(Record):
    """The number of bytes of chunks by their location. Statistics can be added with ``+``.

    Attributes:
        native_bytes: The bytes in chunk files.
        virtual_bytes: The bytes that virtual references point to.
        inlined_bytes: The bytes in manifests.
    """

    native_bytes: int = 0
    virtual_bytes: int = 0
    inlined_bytes: int = 0

    shown_as: ClassVar[str] = "ops.ChunkStorageStats"

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
        return ChunkStorageStats(
            self.native_bytes + other.native_bytes,
            self.virtual_bytes + other.virtual_bytes,
            self.inlined_bytes + other.inlined_bytes,
        )
