"""The search for a write in spec version 1 that took effect, although it did not report success.

As in ``sent_updates``, neither a refusal nor an error proves that a write had no effect. Frazil recognises
its own ref files (``refs_v1``). It also recognises its commit if other writers have committed after it: its
id is then among the ancestors of the branch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from frazil.errors import ErrorKind, StorageError
from frazil.format.repo_info import UpdateKind
from frazil.repository.catalog.file_writes_v1 import DeleteFile, FileWrite, NoFile, PutFile, condition_of
from frazil.repository.catalog.refs_v1 import decode_ref
from frazil.repository.catalog.repo_update import RepoUpdate
from frazil.repository.catalog.snapshots_v1 import SnapshotsV1
from frazil.repository.outcome import outcome_unknown
from frazil.repository.retries import RetryPolicy, retried
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage, Version


class WriteOutcome(Enum):
    """The outcome of a write that did not report success."""

    APPLIED = "the file is as written"
    REFUSED = "the write never took effect"
    PENDING = "the write has not taken effect, and still can"
    OVERWRITTEN = "the file is another writer's, from before or after the write"


@dataclass(frozen=True, slots=True)
class SentWrite:
    """A write that did not report success.

    ``is_answered`` says that the storage answered that the condition was not met.
    """

    write: FileWrite
    changed: RepoUpdate
    is_answered: bool

    @property
    def key(self) -> str:
        """The key of the file, empty if no file is written."""
        return "" if isinstance(self.write, NoFile) else self.write.key


@dataclass(frozen=True, slots=True)
class AppliedWrite:
    """A write that took effect, with the version of its file if it is known."""

    sent: SentWrite
    version: Version | None = None


@dataclass(slots=True)
class SentWrites:
    """The writes of one update that did not report success."""

    storage: Storage
    snapshots: SnapshotsV1
    policy: RetryPolicy
    _writes: list[SentWrite] = field(default_factory=list)

    @property
    def first_condition(self) -> Condition | None:
        """The condition of the first write. None if there was no write, or if it had no condition."""
        return condition_of(self._writes[0].write) if self._writes else None

    def __bool__(self) -> bool:
        return bool(self._writes)

    def add_write(self, write: FileWrite, changed: RepoUpdate, *, is_answered: bool) -> None:
        """Record a write that did not report success."""
        self._writes.append(SentWrite(write, changed, is_answered))

    def applied(self, *, is_last: bool = False) -> AppliedWrite | None:
        """Return the write that took effect, or None if there is none.

        Raises ``OutcomeUnknownError`` if a write may have taken effect, or may still take effect. The latter
        is only possible with ``is_last``: otherwise another attempt follows, whose success prevents it.
        """
        for sent in self._writes:
            try:
                outcome, version = retried(partial(self._outcome, sent), self.policy)
            except StorageError as error:
                why = f"an answer of the storage was lost, and the repository cannot be read ({error})"
                raise outcome_unknown(sent.changed.entry, why) from error
            if outcome is WriteOutcome.APPLIED:
                return AppliedWrite(sent, version)
            if outcome is WriteOutcome.OVERWRITTEN and not sent.is_answered:
                why = f"an answer of the storage was lost, and another writer has changed `{sent.key}` since"
                raise outcome_unknown(sent.changed.entry, why)
            is_pending = outcome is WriteOutcome.PENDING and not sent.is_answered
            if is_pending and is_last and not self.storage.is_local:
                why = "the storage did not answer, and may still execute the request"
                raise outcome_unknown(sent.changed.entry, why)
        return None

    def _outcome(self, sent: SentWrite) -> tuple[WriteOutcome, Version | None]:
        match sent.write:
            case PutFile():
                return self._outcome_of_put(sent.write, sent.changed)
            case DeleteFile(key):
                is_deleted = self.storage.head(key) is None
                return WriteOutcome.APPLIED if is_deleted else WriteOutcome.PENDING, None
        return WriteOutcome.APPLIED, None

    def _outcome_of_put(self, put: PutFile, changed: RepoUpdate) -> tuple[WriteOutcome, Version | None]:
        try:
            stored, version = self.storage.get_versioned(put.key)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            is_new = put.condition == IfAbsent()
            return WriteOutcome.PENDING if is_new else WriteOutcome.OVERWRITTEN, None
        if bytes(stored) == put.data:
            return WriteOutcome.APPLIED, version
        if put.condition == IfVersion(version):
            return WriteOutcome.PENDING, None
        match changed.entry.kind:
            case UpdateKind.NEW_COMMIT:
                return self._outcome_of_commit(decode_ref(bytes(stored), put.key), changed), None
            case UpdateKind.TAG_CREATED:
                return WriteOutcome.REFUSED, None  # a tag is only written once
        return WriteOutcome.OVERWRITTEN, None

    def _outcome_of_commit(self, tip: bytes, changed: RepoUpdate) -> WriteOutcome:
        """Return whether the new snapshot is in the history of a branch that other writers have moved.

        The search ends at the parent of the new snapshot. If the history does not contain the parent, the
        outcome is unknown: the branch was reset, or the versions since the parent were expired.
        """
        id_ = changed.entry.new_snapshot or b""
        try:
            new = self.snapshots.entry(self.snapshots.find_snapshot(id_))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return WriteOutcome.OVERWRITTEN  # a garbage collection deleted it, so no branch contained it
        row = self.snapshots.find_snapshot(tip)
        for rows in self.snapshots.parts(row) if row >= 0 else ():
            for entry in self.snapshots.entries(rows):
                if entry.id == id_:
                    return WriteOutcome.APPLIED
                if entry.id == new.parent:
                    return WriteOutcome.REFUSED
        return WriteOutcome.OVERWRITTEN
