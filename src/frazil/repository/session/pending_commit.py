"""The value that carries all that a commit needs, from the session to the files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from frazil.changes.change_set import ChangeSet
from frazil.format.snapshot import Snapshot
from frazil.repository.catalog.collection_guard import SessionStart
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_changes import Note
from frazil.repository.session.earlier_manifests import EarlierManifests


@dataclass(frozen=True, slots=True)
class CommitKind:
    """How changes become a version."""

    name: str
    #: The branch has to be at the parent, and moves to the new snapshot.
    moves_branch: bool = True
    #: The new snapshot replaces the parent, instead of following it.
    replaces_parent: bool = False
    #: Without changes there is no commit, unless the caller allows an empty one.
    needs_changes: bool = True
    #: Every manifest is written again, as the configuration splits manifests now.
    rewrites_manifests: bool = False


COMMIT: Final = CommitKind("commit")
AMEND: Final = CommitKind("amend", replaces_parent=True)
FLUSH: Final = CommitKind("flush", moves_branch=False, needs_changes=False)
REWRITE: Final = CommitKind("rewrite", needs_changes=False, rewrites_manifests=True)
REWRITE_AMEND: Final = CommitKind(
    "rewrite", replaces_parent=True, needs_changes=False, rewrites_manifests=True
)


def _flush_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class PendingCommit:
    """Changes that are about to become a version.

    branch              the branch that moves; a flush has perhaps none
    parent              the snapshot that the changes were made on
    session_start       tells collections that may have deleted files of the session from others
    flush_chunks        makes the chunks of the changes durable
    earlier_manifests   manifests that earlier attempts of this commit have stored
    note                changes the metadata of the repository in the same update (spec version 2)
    """

    context: Context
    kind: CommitKind
    branch: str | None
    parent: Snapshot
    changes: ChangeSet
    message: str
    metadata: dict[str, Any]
    session_start: SessionStart
    flush_chunks: Callable[[], None] = _flush_nothing
    earlier_manifests: EarlierManifests = field(default_factory=EarlierManifests)
    note: Note | None = None

    @property
    def target_branch(self) -> str | None:
        """The branch that moves with this commit; None if none does."""
        return self.branch if self.kind.moves_branch else None

    @property
    def is_unconditional(self) -> bool:
        """Whether no conditional write follows that fails because of a garbage collection, or because the
        parent was dropped.
        """
        return self.context.spec_version == 1 and not self.kind.moves_branch
