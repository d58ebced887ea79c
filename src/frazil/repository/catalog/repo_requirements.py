"""The requirements of changes and commits on a repo info.

Each function returns a value that the change needs, or raises the error why the change is not possible.
"""

from __future__ import annotations

from typing import Final

from frazil.errors import (
    ConflictError,
    ErrorKind,
    InvalidInputError,
    ReadOnlyError,
    SessionStateError,
    SnapshotNotFoundError,
)
from frazil.format.ids import id_to_text
from frazil.format.repo_info import Availability, RepoInfo
from frazil.remedies import call
from frazil.repository.catalog.missing_names import no_branch, no_tag
from frazil.repository.settings.feature_flags import Flag, is_enabled

#: Advice in the errors of a refused commit or rebase.
CHANGES_STAY: Final = (
    "The session keeps its changes. `session.rebase(solver)` moves them onto the tip of the branch, and "
    "`session.flush(message)` saves them as a snapshot without a branch"
)


def require_online(info: RepoInfo) -> None:
    """Raise ``ReadOnlyError`` (``read-only-repository``) unless the status of the repository is online."""
    status = info.status
    if status.availability is not Availability.ONLINE:
        reason = f": {status.reason}" if status.reason else ""
        raise ReadOnlyError(
            f"the repository is {status.availability.name.lower().replace('_', '-')}{reason}",
            ErrorKind.READ_ONLY_REPOSITORY,
        ).with_remedy("`{}` makes it writable again", call("set_status"))


def branch_tip(info: RepoInfo, branch: str) -> bytes:
    """Return the tip of a branch. Raises ``RefNotFoundError`` if there is no such branch."""
    if branch not in info.branches:
        raise no_branch(info, branch)
    return info.branches[branch]


def tag_target(info: RepoInfo, tag: str) -> bytes:
    """Return the snapshot of a tag. Raises ``RefNotFoundError`` if there is no such tag."""
    if tag not in info.tags:
        raise no_tag(info, tag)
    return info.tags[tag]


def require_snapshot(info: RepoInfo, id_: bytes) -> int:
    """Return the row of a snapshot. Raises ``SnapshotNotFoundError`` if the repository does not list it."""
    row = info.snapshots.find_snapshot(id_)
    if row < 0:
        raise snapshot_not_found(id_to_text(id_))
    return row


def snapshot_not_found(text: str) -> SnapshotNotFoundError:
    """Return the error for an id, or the first characters of an id, that no snapshot has."""
    return SnapshotNotFoundError(
        f"no snapshot `{text}` in this repository: it was expired or dropped, or belongs to another "
        "repository"
    ).with_remedy("`{}` lists the snapshots of a branch or tag", call("ancestry"))


def require_base(info: RepoInfo, id_: bytes) -> int:
    """Return the row of the snapshot that a session started from.

    Raises ``SnapshotNotFoundError`` if the snapshot was expired or dropped since.
    """
    row = info.snapshots.find_snapshot(id_)
    if row < 0:
        raise base_not_found(id_)
    return row


def base_not_found(id_: bytes) -> SnapshotNotFoundError:
    """Return the error for a session whose own snapshot was expired or dropped."""
    return SnapshotNotFoundError(
        f"snapshot `{id_to_text(id_)}`, from which the session started, was expired or dropped"
    ).with_remedy(
        "Move the changes onto the tip of the branch with `session.rebase(solver)`, then commit or flush",
        shell="Run the command again",
    )


def require_flag(info: RepoInfo, flag: Flag) -> None:
    """Raise ``SessionStateError`` (``feature-flag-disabled``) if the feature is disabled."""
    if not is_enabled(info, flag):
        raise SessionStateError(
            f"the feature `{flag.name}` is disabled in this repository",
            ErrorKind.FEATURE_FLAG_DISABLED,
        ).with_remedy(
            "Its owner can enable it with Repository.set_feature_flag",
            shell="Its owner can enable it in Python",
        )


def require_tip(info: RepoInfo, branch: str, parent: bytes) -> None:
    """Raise ``ConflictError`` unless ``parent`` is the tip of the branch."""
    tip = info.branches.get(branch)
    if tip is None and info.spec_version == 1:
        raise ConflictError(id_to_text(parent))
    if tip is None:
        raise no_branch(info, branch, ErrorKind.BRANCH_NOT_FOUND)
    if tip != parent:
        expects, finds = id_to_text(parent), id_to_text(tip)
        raise ConflictError(
            expects,
            finds,
            f"another writer updated the branch `{branch}`: expected parent {expects}, found {finds}",
        ).with_remedy(CHANGES_STAY, shell="Run the command again")


def existing_tip(info: RepoInfo, branch: str) -> bytes:
    """Return the tip of a branch that existed before. The kind of the error is ``branch-not-found``."""
    tip = info.branches.get(branch)
    if tip is None:
        raise no_branch(info, branch, ErrorKind.BRANCH_NOT_FOUND)
    return tip


def require_name(name: str) -> None:
    """Raise ``InvalidInputError`` (``invalid-ref-name``) for a name that a branch or tag cannot have."""
    if not name:
        raise InvalidInputError(
            "the name of a branch or tag must not be empty, got ''", ErrorKind.INVALID_REF_NAME
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"the name of a branch or tag must be text that UTF-8 can encode, got {name!r:.80}",
            ErrorKind.INVALID_REF_NAME,
        ) from None
