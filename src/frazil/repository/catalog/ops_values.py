"""The public values of the operations log: the updates of a repository, with their times and backups."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from frazil.display import PACKAGE, Family, Record, literal

if TYPE_CHECKING:
    from datetime import datetime

    from frazil.repository.catalog.version_info import RepoStatus


class _Kind:
    """The base of the kinds, which print as a call on one line."""

    __slots__ = ()

    def __repr__(self) -> str:
        values = ((f.name, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]  # a dataclass
        text = ", ".join(f"{name}={_one_line(value)}" for name, value in values)
        return f"{PACKAGE}.ops.{type(self).__qualname__}({text})"


def _one_line(value: object) -> str:
    if isinstance(value, Record):
        rows = ", ".join(f"{name}={text}" for name, text in value._rows())
        return f"{type(value).__name__}({rows})"
    return literal(value)


class UpdateType(metaclass=Family):
    """The kinds of updates of a repository. Ids of snapshots are texts of 20 characters.

    Specification: *Update*.
    """

    @dataclass(frozen=True, slots=True, repr=False)
    class RepoInitialized(_Kind):
        """The repository was created."""

    @dataclass(frozen=True, slots=True, repr=False)
    class RepoMigrated(_Kind):
        """The repository was upgraded to another spec version."""

        from_version: int
        to_version: int

    @dataclass(frozen=True, slots=True, repr=False)
    class RepoStatusChanged(_Kind):
        """The status of the repository changed, such as to online or read-only."""

        status: RepoStatus

    @dataclass(frozen=True, slots=True, repr=False)
    class ConfigChanged(_Kind):
        """The saved configuration was replaced."""

    @dataclass(frozen=True, slots=True, repr=False)
    class MetadataChanged(_Kind):
        """The metadata of the repository changed."""

    @dataclass(frozen=True, slots=True, repr=False)
    class FeatureFlagChanged(_Kind):
        """A feature flag was set. With ``new_value`` None, it was set back to its default."""

        id: int
        new_value: bool | None

    @dataclass(frozen=True, slots=True, repr=False)
    class TagCreated(_Kind):
        """A tag was created."""

        name: str

    @dataclass(frozen=True, slots=True, repr=False)
    class TagDeleted(_Kind):
        """A tag was deleted. It pointed to ``previous_snap_id``."""

        name: str
        previous_snap_id: str

    @dataclass(frozen=True, slots=True, repr=False)
    class BranchCreated(_Kind):
        """A branch was created."""

        name: str

    @dataclass(frozen=True, slots=True, repr=False)
    class BranchDeleted(_Kind):
        """A branch was deleted. It pointed to ``previous_snap_id``."""

        name: str
        previous_snap_id: str

    @dataclass(frozen=True, slots=True, repr=False)
    class BranchReset(_Kind):
        """A branch was moved to another snapshot. It pointed to ``previous_snap_id``."""

        name: str
        previous_snap_id: str

    @dataclass(frozen=True, slots=True, repr=False)
    class NewCommit(_Kind):
        """A commit was added to a branch."""

        branch: str
        new_snap_id: str

    @dataclass(frozen=True, slots=True, repr=False)
    class CommitAmended(_Kind):
        """The last commit of a branch was replaced."""

        branch: str
        previous_snap_id: str
        new_snap_id: str

    @dataclass(frozen=True, slots=True, repr=False)
    class NewDetachedSnapshot(_Kind):
        """A snapshot was written without a branch."""

        new_snap_id: str

    @dataclass(frozen=True, slots=True, repr=False)
    class GCRan(_Kind):
        """A garbage collection ran."""

    @dataclass(frozen=True, slots=True, repr=False)
    class ExpirationRan(_Kind):
        """An expiration ran."""

    @dataclass(frozen=True, slots=True, repr=False)
    class LogStart(_Kind):
        """The log starts here. A garbage collection has removed the updates up to this time.

        Only Frazil has this kind. It is the last entry of a log, and no update of the repository.
        """


AnyUpdateType = (
    UpdateType.RepoInitialized
    | UpdateType.RepoMigrated
    | UpdateType.RepoStatusChanged
    | UpdateType.ConfigChanged
    | UpdateType.MetadataChanged
    | UpdateType.FeatureFlagChanged
    | UpdateType.TagCreated
    | UpdateType.TagDeleted
    | UpdateType.BranchCreated
    | UpdateType.BranchDeleted
    | UpdateType.BranchReset
    | UpdateType.NewCommit
    | UpdateType.CommitAmended
    | UpdateType.NewDetachedSnapshot
    | UpdateType.GCRan
    | UpdateType.ExpirationRan
    | UpdateType.LogStart
)


@dataclass(frozen=True, slots=True, repr=False)
class Update(Record):
    """One entry of the operations log.

    Attributes:
        kind: The kind of the update, with its details.
        updated_at: The time of the update.
        backup_path: The file in ``overwritten/`` with the state of the repository after this update. None for
            the newest update. Garbage collection deletes old files that the operations log does not need.
    """

    kind: AnyUpdateType
    updated_at: datetime
    backup_path: str | None

    shown_as: ClassVar[str] = "ops.Update"
