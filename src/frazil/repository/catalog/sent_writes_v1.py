"""The writes of one update in spec version 1 that were not answered by "stored": did one of them take effect?

As in ``sent_updates``, neither a refusal nor an error proves that a write had no effect. What Frazil writes
to a ref is recognised (``refs_v1``), and a commit also where other writers have built on it: its id is then
among the ancestors of the branch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from frazil.errors import ErrorKind, StorageError
from frazil.format.repo_info import UpdateKind
from frazil.repository.catalog.file_writes_v1 import DeleteFile, FileWrite, NoFile, PutFile, condition_of
from frazil.repository.catalog.refs_v1 import decode_ref
from frazil.repository.catalog.repo_update import Changed
from frazil.repository.catalog.snapshots_v1 import SnapshotsV1
from frazil.repository.outcome import outcome_unknown
from frazil.repository.retries import RetryPolicy, retried
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage, Version


class WriteOutcome(Enum):
    """What became of a write that was not answered by "stored"."""

    APPLIED = "the file is as written"
    REFUSED = "the write never took effect"
    PENDING = "the write has not taken effect, and still can"
    OVERWRITTEN = "the file is another writer's, from before or after the write"


@dataclass(frozen=True, slots=True)
class SentWrite:
    """A write that was sent; ``is_answered`` if the storage answered that the condition did not hold.

    ``version`` is that of the file with the written bytes, if they are there.
    """

    write: FileWrite
    changed: Changed
    is_answered: bool

    @property
    def key(self) -> str:
        return "" if isinstance(self.write, NoFile) else self.write.key


@dataclass(frozen=True, slots=True)
class AppliedWrite:
    """A write that took effect, and the version of its file if that is known."""

    sent: SentWrite
    version: Version | None = None


@dataclass(slots=True)
class SentWrites:
    """See the module."""

    storage: Storage
    snapshots: SnapshotsV1
    policy: RetryPolicy
    _writes: list[SentWrite] = field(default_factory=list)

    @property
    def first_condition(self) -> Condition | None:
        """The condition of the first write; None if nothing was sent, or without condition."""
        return condition_of(self._writes[0].write) if self._writes else None

    def __bool__(self) -> bool:
        return bool(self._writes)

    def add_write(self, write: FileWrite, changed: Changed, *, is_answered: bool) -> None:
        self._writes.append(SentWrite(write, changed, is_answered))

    def applied(self, *, is_last: bool = False) -> AppliedWrite | None:
        """Return the write that took effect, or None if there is none.

        Raises ``OutcomeUnknownError`` where a write may have taken effect, or still can: ``is_last`` says
        that no other attempt follows, whose success would keep it from that.
        """
        for sent in self._writes:
            try:
                outcome, version = retried(partial(self._outcome, sent), self.policy)
            except StorageError as error:
                why = f"an answer of the storage was lost, and what would tell cannot be read ({error})"
                raise outcome_unknown(sent.changed.entry, why) from error
            if outcome is WriteOutcome.APPLIED:
                return AppliedWrite(sent, version)
            if outcome is WriteOutcome.OVERWRITTEN and not sent.is_answered:
                why = f"an answer of the storage was lost, and others have changed `{sent.key}` since"
                raise outcome_unknown(sent.changed.entry, why)
            is_pending = outcome is WriteOutcome.PENDING and not sent.is_answered
            if is_pending and is_last and not self.storage.is_local:
                why = "the storage did not answer, and may still carry out what it was asked for"
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

    def _outcome_of_put(self, put: PutFile, changed: Changed) -> tuple[WriteOutcome, Version | None]:
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
                return WriteOutcome.REFUSED, None  # a tag is written once
        return WriteOutcome.OVERWRITTEN, None

    def _outcome_of_commit(self, tip: bytes, changed: Changed) -> WriteOutcome:
        """Whether the new snapshot is in the history of a branch that other writers have moved. The search
        goes back to the parent of the new snapshot. Where the history does not lead to the parent nothing
        tells: the branch was reset, or the versions since the parent were expired.
        """
        id_ = changed.entry.new_snapshot or b""
        try:
            new = self.snapshots.entry(self.snapshots.find_snapshot(id_))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return WriteOutcome.OVERWRITTEN  # no branch led to it when garbage was collected
        row = self.snapshots.find_snapshot(tip)
        for rows in self.snapshots.parts(row) if row >= 0 else ():
            for entry in self.snapshots.entries(rows):
                if entry.id == id_:
                    return WriteOutcome.APPLIED
                if entry.id == new.parent:
                    return WriteOutcome.REFUSED
        return WriteOutcome.OVERWRITTEN
