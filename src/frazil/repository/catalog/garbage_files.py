"""The files that a garbage collection would delete, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol, overload

import numpy as np

from frazil.display import Record, Shown, counted, literal, utc
from frazil.format.columns import I64, U8
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
