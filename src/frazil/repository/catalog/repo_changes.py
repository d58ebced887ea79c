"""Every change of a repository, as a pure function for the loop in ``update``.

Each returns a ``Change``: it gets the current repo info and the time, and gives the next one with its ops
log entry, or raises because the change is not possible any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from frazil.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    InvalidInputError,
    ReadOnlyError,
    SessionStateError,
    SnapshotNotFoundError,
)
from frazil.format.ids import id_to_text
from frazil.format.repo_info import (
    Availability,
    OpsEntry,
    RepoInfo,
    SnapshotEntry,
    Status,
    UpdateKind,
)
from frazil.repository.catalog.missing_names import no_branch, no_tag
from frazil.repository.catalog.refs_v1 import with_ref
from frazil.repository.catalog.repo_update import Change, Changed
from frazil.repository.settings.feature_flags import CREATE_TAG, DELETE_TAG, Flag, is_enabled

MAIN = "main"

#: For errors of a commit or a rebase that is refused.
CHANGES_STAY: Final = (
    "A session that is refused keeps its changes: `session.rebase(solver)` takes them to the tip of the "
    "branch, and `session.flush(message)` saves them as a snapshot to read, and returns its id"
)


def _change(kind: UpdateKind, make: Callable[[RepoInfo, int], RepoInfo], **told: Any) -> Change:
    """A change of an online repository, told in the ops log as ``kind`` with the fields ``told``."""

    def change(info: RepoInfo, now: int) -> Changed:
        require_online(info)
        return Changed(make(info, now), OpsEntry(kind, now, **told))

    return change


def require_online(info: RepoInfo) -> None:
    """``ReadOnlyError`` (``read-only-repository``) unless the repository takes changes."""
    status = info.status
    if status.availability is not Availability.ONLINE:
        reason = f": {status.reason}" if status.reason else ""
        raise ReadOnlyError(
            f"the repository is {status.availability.name.lower().replace('_', '-')}{reason}. "
            "Repository.set_status makes it writable again",
            ErrorKind.READ_ONLY_REPOSITORY,
        )


def branch_tip(info: RepoInfo, branch: str) -> bytes:
    if branch not in info.branches:
        raise no_branch(info, branch)
    return info.branches[branch]


def tag_target(info: RepoInfo, tag: str) -> bytes:
    if tag not in info.tags:
        raise no_tag(info, tag)
    return info.tags[tag]


def require_snapshot(info: RepoInfo, id_: bytes) -> int:
    """The snapshot's row; ``SnapshotNotFoundError`` if the repository does not have it."""
    row = info.snapshots.find_snapshot(id_)
    if row < 0:
        raise snapshot_not_found(id_to_text(id_))
    return row


def snapshot_not_found(text: str) -> SnapshotNotFoundError:
    """The error for an id, or the first characters of one, that no snapshot has."""
    return SnapshotNotFoundError(
        f"no snapshot `{text}` in this repository: it was expired or dropped, or belongs to another one. "
        "`Repository.ancestry` lists the snapshots of a branch or tag"
    )


def require_base(info: RepoInfo, id_: bytes) -> int:
    """The row of the snapshot that a session started from; ``SnapshotNotFoundError`` if it was expired or
    dropped since.
    """
    row = info.snapshots.find_snapshot(id_)
    if row < 0:
        raise base_not_found(id_)
    return row


def base_not_found(id_: bytes) -> SnapshotNotFoundError:
    """The error for a session whose own snapshot is gone."""
    return SnapshotNotFoundError(
        f"snapshot `{id_to_text(id_)}`, from which the session started, was expired or dropped since: "
        "take the changes to the tip of the branch with `session.rebase(solver)`, then commit or flush"
    )


def _require_name(name: str) -> None:
    if not name:
        raise InvalidInputError("the name of a branch or tag must not be empty", ErrorKind.INVALID_REF_NAME)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"a name of a branch or tag: expected text that UTF-8 can encode, found {name!r:.80}",
            ErrorKind.INVALID_REF_NAME,
        ) from None


def require_flag(info: RepoInfo, flag: Flag) -> None:
    """``SessionStateError`` (``feature-flag-disabled``) if the owner has turned the feature off."""
    if not is_enabled(info, flag):
        raise SessionStateError(
            f"the feature `{flag.name}` is disabled in this repository: its owner can enable it with "
            "set_feature_flag",
            ErrorKind.FEATURE_FLAG_DISABLED,
        )


# Branches


def create_branch(name: str, snapshot: bytes) -> Change:
    def make(info: RepoInfo, now: int) -> RepoInfo:
        _require_name(name)
        require_snapshot(info, snapshot)
        if name in info.branches:
            if info.spec_version == 1:  # where the reference calls it so
                found = id_to_text(info.branches[name])
                raise ConflictError(None, found, kind=ErrorKind.BRANCH_UPDATE_CONFLICT)
            raise AlreadyExistsError(
                f"branch `{name}` already exists: use another name, or reset_branch to move it",
                ErrorKind.BRANCH_ALREADY_EXISTS,
            )
        return replace(info, branches=with_ref(info.branches, name, snapshot))

    return _change(UpdateKind.BRANCH_CREATED, make, name=name)


def reset_branch(name: str, snapshot: bytes, expected: bytes | None) -> Change:
    """``expected`` is where the branch has to point now, if that matters."""

    def change(info: RepoInfo, now: int) -> Changed:
        require_online(info)
        if expected is None:
            tip = branch_tip(info, name)
            require_snapshot(info, snapshot)
        else:
            tip = _known_tip(info, name)
            require_snapshot(info, snapshot)
            if tip != expected:
                expects, finds = id_to_text(expected), id_to_text(tip)
                raise ConflictError(expects, finds, kind=ErrorKind.BRANCH_UPDATE_CONFLICT)
        after = replace(info, branches=with_ref(info.branches, name, snapshot))
        return Changed(after, OpsEntry(UpdateKind.BRANCH_RESET, now, name=name, previous_snapshot=tip))

    return change


def delete_branch(name: str) -> Change:
    def change(info: RepoInfo, now: int) -> Changed:
        require_online(info)
        if name == MAIN:
            raise SessionStateError(
                "the branch `main` cannot be deleted: every repository has it", ErrorKind.CANNOT_DELETE_MAIN
            )
        tip = branch_tip(info, name)
        branches = with_ref(info.branches, name, None)
        entry = OpsEntry(UpdateKind.BRANCH_DELETED, now, name=name, previous_snapshot=tip)
        return Changed(replace(info, branches=branches), entry)

    return change


# Tags


def create_tag(name: str, snapshot: bytes) -> Change:
    def make(info: RepoInfo, now: int) -> RepoInfo:
        _require_name(name)
        require_flag(info, CREATE_TAG)
        require_snapshot(info, snapshot)
        if name in info.tags:
            raise AlreadyExistsError(
                f"tag `{name}` already exists, and tags cannot be moved: use another name",
                ErrorKind.TAG_ALREADY_EXISTS,
            )
        if name in info.deleted_tags:
            raise AlreadyExistsError(
                f"tag `{name}` was deleted, and the name of a tag cannot be used again: use another name",
                ErrorKind.TAG_ALREADY_EXISTS if info.spec_version == 1 else ErrorKind.TAG_PREVIOUSLY_DELETED,
            )
        return replace(info, tags=with_ref(info.tags, name, snapshot))

    return _change(UpdateKind.TAG_CREATED, make, name=name)


def delete_tag(name: str) -> Change:
    def change(info: RepoInfo, now: int) -> Changed:
        require_online(info)
        require_flag(info, DELETE_TAG)
        target = tag_target(info, name)
        tags = with_ref(info.tags, name, None)
        after = replace(info, tags=tags, deleted_tags=info.deleted_tags | {name})
        return Changed(after, OpsEntry(UpdateKind.TAG_DELETED, now, name=name, previous_snapshot=target))

    return change


# The repository itself


def set_metadata(edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """``edit`` gets the current metadata and gives the next."""
    return _change(
        UpdateKind.METADATA_CHANGED, lambda info, now: replace(info, metadata=edit(dict(info.metadata)))
    )


def save_config(document: dict[str, Any]) -> Change:
    return _change(UpdateKind.CONFIG_CHANGED, lambda info, now: replace(info, config=document))


def set_flag(flag: Flag, setting: bool | None) -> Change:
    """On, off, or None: back to the default."""

    def make(info: RepoInfo, now: int) -> RepoInfo:
        enabled, disabled = info.enabled_flags - {flag.id}, info.disabled_flags - {flag.id}
        if setting is True:
            enabled |= {flag.id}
        if setting is False:
            disabled |= {flag.id}
        return replace(info, enabled_flags=enabled, disabled_flags=disabled)

    return _change(UpdateKind.FEATURE_FLAG_CHANGED, make, flag=(flag.id, bool(setting), setting is not None))


def set_status(availability: Availability, reason: str | None) -> Change:
    """The one change that a repository takes in every status."""

    def change(info: RepoInfo, now: int) -> Changed:
        status = Status(availability, now, reason)
        entry = OpsEntry(UpdateKind.REPO_STATUS_CHANGED, now, status=status)
        return Changed(replace(info, status=status), entry)

    return change


# Commits


def new_snapshot(entry: SnapshotEntry, branch: str | None, base: bytes, flag: Flag | None = None) -> Change:
    """``entry`` is listed, and becomes the tip of ``branch`` if ``base`` still is: else ``ConflictError``
    with both.

    A snapshot that does not follow ``base`` takes its place, and follows what ``base`` follows by then.
    Without branch nothing leads to it. ``flag`` is the feature that it needs.
    """

    def change(info: RepoInfo, now: int) -> Changed:
        require_online(info)
        if flag is not None:
            require_flag(info, flag)
        if branch is not None:
            require_tip(info, branch, base)
        row = require_base(info, base)
        listed = entry
        if entry.parent != base:  # an expiration may have given ``base`` another parent
            before = info.snapshots.entry(row)
            listed = replace(
                entry, parent=before.parent, pruned_ancestor_tx_logs=before.pruned_ancestor_tx_logs
            )
        after = replace(info, snapshots=info.snapshots.added(listed))
        if branch is None:
            return Changed(after, OpsEntry(UpdateKind.NEW_DETACHED_SNAPSHOT, now, new_snapshot=entry.id))
        after = replace(after, branches=with_ref(info.branches, branch, entry.id))
        told = OpsEntry(UpdateKind.NEW_COMMIT, now, name=branch, new_snapshot=entry.id)
        if entry.parent != base:
            told = replace(told, kind=UpdateKind.COMMIT_AMENDED, previous_snapshot=base)
        return Changed(after, told)

    return change


#: Makes of the repository, and the id of a snapshot that is new in it, the metadata that go with that.
Note = Callable[[RepoInfo, bytes], dict[str, Any]]


def noted(change: Change, note: Note, id_: bytes) -> Change:
    """``change``, which lists the snapshot ``id_``, and what is noted of it, in one update."""

    def both(info: RepoInfo, now: int) -> Changed:
        changed = change(info, now)
        metadata = note(changed.info, id_)
        return replace(changed, info=replace(changed.info, metadata=metadata))

    return both


def require_tip(info: RepoInfo, branch: str, parent: bytes) -> None:
    """``ConflictError`` unless ``parent`` is the branch's tip."""
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
            f"the branch `{branch}` was updated by another writer: expected parent {expects}, found {finds}. "
            f"{CHANGES_STAY}",
        )


def _known_tip(info: RepoInfo, branch: str) -> bytes:
    """The tip of a branch that somebody knows to be there."""
    tip = info.branches.get(branch)
    if tip is None:
        raise no_branch(info, branch, ErrorKind.BRANCH_NOT_FOUND)
    return tip
