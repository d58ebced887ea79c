"""The changes of a repository, as pure functions for the loop in ``repo_update``.

Each function of this module returns a ``RepoChange``. It gets the current repo info and the time, and returns
the next repo info with its ops log entry. It raises an error if the change is not possible any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from frazil.errors import AlreadyExistsError, ConflictError, ErrorKind, SessionStateError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import (
    Availability,
    OpsEntry,
    RepoInfo,
    SnapshotEntry,
    Status,
    UpdateKind,
)
from frazil.repository.catalog.files_v1 import with_ref
from frazil.repository.catalog.repo_requirements import (
    branch_tip,
    existing_tip,
    require_base,
    require_flag,
    require_name,
    require_online,
    require_snapshot,
    require_tip,
    tag_target,
)
from frazil.repository.catalog.repo_update import RepoChange, RepoUpdate
from frazil.repository.settings.resolved import CREATE_TAG, DELETE_TAG, Flag

MAIN = "main"


def _change(kind: UpdateKind, make: Callable[[RepoInfo, int], RepoInfo], **fields: Any) -> RepoChange:
    """Return a change of an online repository. Its ops log entry has this ``kind`` and these ``fields``."""

    def change(info: RepoInfo, now: int) -> RepoUpdate:
        require_online(info)
        return RepoUpdate(make(info, now), OpsEntry(kind, now, **fields))

    return change


# Branches


def create_branch(name: str, snapshot: bytes) -> RepoChange:
    """Return the change that creates a branch."""

    def make(info: RepoInfo, now: int) -> RepoInfo:
        require_name(name)
        require_snapshot(info, snapshot)
        if name in info.branches:
            if info.spec_version == 1:  # the reference has this error for version 1
                actual = id_to_text(info.branches[name])
                raise ConflictError(None, actual, kind=ErrorKind.BRANCH_UPDATE_CONFLICT)
            raise AlreadyExistsError(
                f"branch `{name}` already exists. Use another name, or move the branch with reset_branch",
                ErrorKind.BRANCH_ALREADY_EXISTS,
            )
        return replace(info, branches=with_ref(info.branches, name, snapshot))

    return _change(UpdateKind.BRANCH_CREATED, make, name=name)


def reset_branch(name: str, snapshot: bytes, expected: bytes | None) -> RepoChange:
    """Return the change that moves a branch. With ``expected``, the branch must be at this snapshot now."""

    def change(info: RepoInfo, now: int) -> RepoUpdate:
        require_online(info)
        if expected is None:
            tip = branch_tip(info, name)
            require_snapshot(info, snapshot)
        else:
            tip = existing_tip(info, name)
            require_snapshot(info, snapshot)
            if tip != expected:
                expects, finds = id_to_text(expected), id_to_text(tip)
                raise ConflictError(expects, finds, kind=ErrorKind.BRANCH_UPDATE_CONFLICT)
        after = replace(info, branches=with_ref(info.branches, name, snapshot))
        return RepoUpdate(after, OpsEntry(UpdateKind.BRANCH_RESET, now, name=name, previous_snapshot=tip))

    return change


def delete_branch(name: str) -> RepoChange:
    """Return the change that deletes a branch."""

    def change(info: RepoInfo, now: int) -> RepoUpdate:
        require_online(info)
        if name == MAIN:
            raise SessionStateError(
                "the branch `main` cannot be deleted, because every repository has it",
                ErrorKind.CANNOT_DELETE_MAIN,
            )
        tip = branch_tip(info, name)
        branches = with_ref(info.branches, name, None)
        entry = OpsEntry(UpdateKind.BRANCH_DELETED, now, name=name, previous_snapshot=tip)
        return RepoUpdate(replace(info, branches=branches), entry)

    return change


# Tags


def create_tag(name: str, snapshot: bytes) -> RepoChange:
    """Return the change that creates a tag."""

    def make(info: RepoInfo, now: int) -> RepoInfo:
        require_name(name)
        require_flag(info, CREATE_TAG)
        require_snapshot(info, snapshot)
        if name in info.tags:
            raise AlreadyExistsError(
                f"tag `{name}` already exists, and tags cannot be moved. Use another name",
                ErrorKind.TAG_ALREADY_EXISTS,
            )
        if name in info.deleted_tags:
            raise AlreadyExistsError(
                f"tag `{name}` was deleted, and the name of a tag cannot be used again. Use another name",
                ErrorKind.TAG_ALREADY_EXISTS if info.spec_version == 1 else ErrorKind.TAG_PREVIOUSLY_DELETED,
            )
        return replace(info, tags=with_ref(info.tags, name, snapshot))

    return _change(UpdateKind.TAG_CREATED, make, name=name)


def delete_tag(name: str) -> RepoChange:
    """Return the change that deletes a tag."""

    def change(info: RepoInfo, now: int) -> RepoUpdate:
        require_online(info)
        require_flag(info, DELETE_TAG)
        target = tag_target(info, name)
        tags = with_ref(info.tags, name, None)
        after = replace(info, tags=tags, deleted_tags=info.deleted_tags | {name})
        return RepoUpdate(after, OpsEntry(UpdateKind.TAG_DELETED, now, name=name, previous_snapshot=target))

    return change


# The repository itself


def set_metadata(edit: Callable[[dict[str, Any]], dict[str, Any]]) -> RepoChange:
    """Return the change of the metadata. ``edit`` gets the current metadata and returns the next."""
    return _change(
        UpdateKind.METADATA_CHANGED, lambda info, now: replace(info, metadata=edit(dict(info.metadata)))
    )


def save_config(document: dict[str, Any]) -> RepoChange:
    """Return the change that replaces the saved configuration."""
    return _change(UpdateKind.CONFIG_CHANGED, lambda info, now: replace(info, config=document))


def set_flag(flag: Flag, setting: bool | None) -> RepoChange:
    """Return the change of a feature flag: on, off, or None for the default."""

    def make(info: RepoInfo, now: int) -> RepoInfo:
        enabled, disabled = info.enabled_flags - {flag.id}, info.disabled_flags - {flag.id}
        if setting is True:
            enabled |= {flag.id}
        if setting is False:
            disabled |= {flag.id}
        return replace(info, enabled_flags=enabled, disabled_flags=disabled)

    return _change(UpdateKind.FEATURE_FLAG_CHANGED, make, flag=(flag.id, bool(setting), setting is not None))


def set_status(availability: Availability, reason: str | None) -> RepoChange:
    """Return the change of the status, the only change that is possible in every status."""

    def change(info: RepoInfo, now: int) -> RepoUpdate:
        status = Status(availability, now, reason)
        entry = OpsEntry(UpdateKind.REPO_STATUS_CHANGED, now, status=status)
        return RepoUpdate(replace(info, status=status), entry)

    return change


# Commits


def new_snapshot(
    entry: SnapshotEntry, branch: str | None, base: bytes, flag: Flag | None = None
) -> RepoChange:
    """Return the change that lists the snapshot ``entry`` and makes it the tip of ``branch``.

    The change raises ``ConflictError`` with both ids unless ``base`` is the tip. If the parent of ``entry``
    is not ``base``, the snapshot replaces ``base``, and gets the current parent of ``base``. Without
    ``branch``, no ref is moved. ``flag`` is the feature flag that the snapshot needs.
    """

    def change(info: RepoInfo, now: int) -> RepoUpdate:
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
        snapshots = info.snapshots.added(listed)
        if branch is None:
            after = replace(info, snapshots=snapshots)
            return RepoUpdate(after, OpsEntry(UpdateKind.NEW_DETACHED_SNAPSHOT, now, new_snapshot=entry.id))
        after = replace(info, snapshots=snapshots, branches=with_ref(info.branches, branch, entry.id))
        ops_entry = OpsEntry(UpdateKind.NEW_COMMIT, now, name=branch, new_snapshot=entry.id)
        if entry.parent != base:
            ops_entry = replace(ops_entry, kind=UpdateKind.COMMIT_AMENDED, previous_snapshot=base)
        return RepoUpdate(after, ops_entry)

    return change


#: A function from the repo info and the id of its new snapshot to the metadata of the repository.
MetadataEdit = Callable[[RepoInfo, bytes], dict[str, Any]]


def with_metadata(change: RepoChange, note: MetadataEdit, id_: bytes) -> RepoChange:
    """Return a change that makes ``change`` and sets the metadata that ``note`` returns, in one update.

    ``change`` lists the snapshot ``id_``.
    """

    def both(info: RepoInfo, now: int) -> RepoUpdate:
        changed = change(info, now)
        metadata = note(changed.info, id_)
        return replace(changed, info=replace(changed.info, metadata=metadata))

    return both
