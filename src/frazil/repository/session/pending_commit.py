"""The pending commit: one value with the inputs of a commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from frazil.changes.change_set import ChangeSet
from frazil.chunks.writer import ChunkFlush, ChunkWriter
from frazil.format.snapshot import Snapshot
from frazil.repository.catalog.collection_guard import SessionStart
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_changes import MetadataEdit
from frazil.repository.session.earlier_manifests import EarlierManifests


@dataclass(frozen=True, slots=True)
class CommitKind:
    """A kind of commit: commit, amend, flush, or a rewrite of manifests."""

    name: str
    #: The branch must be at the parent, and moves to the new snapshot.
    moves_branch: bool = True
    #: The new snapshot replaces the parent. Otherwise it follows the parent.
    replaces_parent: bool = False
    #: A commit without changes fails, unless the caller allows it.
    needs_changes: bool = True
    #: All manifests are written again with the current split of the configuration.
    rewrites_manifests: bool = False


COMMIT: Final = CommitKind("commit")
AMEND: Final = CommitKind("amend", replaces_parent=True)
FLUSH: Final = CommitKind("flush", moves_branch=False, needs_changes=False)
REWRITE: Final = CommitKind("rewrite", needs_changes=False, rewrites_manifests=True)
REWRITE_AMEND: Final = CommitKind(
    "rewrite", replaces_parent=True, needs_changes=False, rewrites_manifests=True
)


@dataclass(frozen=True, slots=True, eq=False)
class PendingCommit:
    """The inputs of a commit.

    Attributes:
        branch: The branch of the session. It can be None for a flush.
        parent: The snapshot that the changes are relative to.
        session_start: When the session started. Only a later garbage collection can have deleted its files.
        writer: The writer of the chunks of the changes. None if all of them are durable.
        earlier_manifests: Manifests that earlier attempts of this commit have stored.
        note: Changes the metadata of the repository in the same update (spec version 2).
    """

    context: Context
    kind: CommitKind
    branch: str | None
    parent: Snapshot
    changes: ChangeSet
    message: str
    metadata: dict[str, Any]
    session_start: SessionStart
    writer: ChunkWriter | None = None
    earlier_manifests: EarlierManifests = field(default_factory=EarlierManifests)
    note: MetadataEdit | None = None

    def begin_flush(self, *, is_joint: bool) -> ChunkFlush:
        """Begin to make the chunks of the changes durable.

        With ``is_joint``, the caller stores the files of the flush together with its own files.
        """
        if self.writer is None:
            return ChunkFlush()
        return self.writer.begin_joint_flush() if is_joint else self.writer.begin_uploads()

    @property
    def target_branch(self) -> str | None:
        """The branch that this commit moves. None for a flush."""
        return self.branch if self.kind.moves_branch else None

    @property
    def is_unconditional(self) -> bool:
        """Whether the commit makes no conditional write.

        Such a write fails after a garbage collection, or if the parent was dropped.
        """
        return self.context.spec_version == 1 and not self.kind.moves_branch
