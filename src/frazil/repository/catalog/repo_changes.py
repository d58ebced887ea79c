"""The changes of a repository, as pure functions for the loop in ``repo_update``, and their requirements.

A function that returns a ``RepoChange`` does nothing else. The change gets the current repo info and the
time, and returns the next repo info with its ops log entry. It raises an error if it is not possible any
more. The requirements return a value that a change needs, or raise the error why the change is not possible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from frazil import errors
from frazil.display import some_of, suggest
from frazil.format.ids import (
    ID_TEXT_LENGTH,
    SHORTEST_ID_START,
    id_from_text,
    id_list,
    id_matrix,
    id_to_text,
    is_id_text,
    prefix_bounds,
)
from frazil.format.nodes import NodeTable
from frazil.format.repo_info import Availability, OpsEntry, RepoInfo, SnapshotEntry, Status, UpdateKind
from frazil.remedies import argument, call
from frazil.repository.catalog.files_v1 import V1Refs
from frazil.repository.catalog.repo_update import RepoChange, RepoUpdate
from frazil.repository.paths import utf8
from frazil.repository.settings.config import CREATE_TAG, DELETE_TAG, Flag, setting_of

#: A message for a missing path compares at most this number of nodes.
_MOST_NODES: Final = 10_000


def no_branch(
    info: RepoInfo, name: str, kind: errors.ErrorKind = errors.ErrorKind.REF_NOT_FOUND
) -> errors.RefNotFoundError:
    """Return the error for an unknown branch."""
    if name in info.tags:
        error = errors.RefNotFoundError(f"no branch `{name}`, but a tag `{name}` exists", kind)
        return error.with_remedy("Use {}", argument(tag=name), shell="")
    return errors.RefNotFoundError(_unknown("branch", "branches", name, info.branches), kind)


def no_version(info: RepoInfo, name: str) -> errors.RefNotFoundError:
    """Return the error for a text that is not a branch, a tag or the id of a snapshot."""
    near = suggest(name, [*_names(info.branches), *_names(info.tags)])
    text = (
        f"the version must be a branch, a tag, or the id of a snapshot (or its first {SHORTEST_ID_START} or "
        f"more characters), got `{name}`{near}"
    )
    return errors.RefNotFoundError(text)


def no_node(path: str, nodes: NodeTable, changed: Collection[str]) -> errors.NodeNotFoundError:
    """Return the error for a path without a node. ``nodes`` and ``changed`` have the existing paths."""
    few = len(nodes) + len(changed) <= _MOST_NODES
    near = suggest(path, [*changed, *nodes.paths_list()]) if few else ""
    return errors.NodeNotFoundError(f"no group or array at `{path}`{near}")


def _unknown(one: str, many: str, name: str, refs: Mapping[str, bytes]) -> str:
    names = _names(refs)
    return f"no {one} `{name}`{suggest(name, names) or f'; {many}: {some_of(sorted(names))}'}"


def _names(refs: Mapping[str, bytes]) -> list[str]:
    """Return the names of refs. Empty if the storage cannot list them."""
    try:
        return list(refs)
    except errors.IcechunkError:
        return []


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
        raise errors.ReadOnlyError(
            f"the repository is {status.availability.name.lower().replace('_', '-')}{reason}",
            errors.ErrorKind.READ_ONLY_REPOSITORY,
        ).with_remedy("`{}` makes it writable again", call("set_status"))


def branch_tip(info: RepoInfo, branch: str, kind: errors.ErrorKind = errors.ErrorKind.REF_NOT_FOUND) -> bytes:
    """Return the tip of a branch. Raises ``RefNotFoundError`` if there is no such branch."""
    if branch not in info.branches:
        raise no_branch(info, branch, kind)
    return info.branches[branch]


def tag_target(info: RepoInfo, tag: str) -> bytes:
    """Return the snapshot of a tag. Raises ``RefNotFoundError`` if there is no such tag."""
    kind = errors.ErrorKind.REF_NOT_FOUND
    if tag in info.tags:
        return info.tags[tag]
    if tag in info.branches:
        error = errors.RefNotFoundError(f"no tag `{tag}`, but a branch `{tag}` exists", kind)
        raise error.with_remedy("Use {}", argument(branch=tag), shell="")
    if tag in info.deleted_tags:
        raise errors.RefNotFoundError(
            f"no tag `{tag}`: it was deleted, and its name cannot be used again", kind
        )
    raise errors.RefNotFoundError(_unknown("tag", "tags", tag, info.tags), kind)


def require_snapshot(info: RepoInfo, id_: bytes) -> int:
    """Return the row of a snapshot. Raises ``SnapshotNotFoundError`` if the repository does not list it."""
    row = info.snapshots.find_snapshot(id_)
    if row < 0:
        raise snapshot_not_found(id_to_text(id_))
    return row


def snapshot_not_found(text: str) -> errors.SnapshotNotFoundError:
    """Return the error for an id, or the first characters of an id, that no snapshot has."""
    return errors.SnapshotNotFoundError(
        f"no snapshot `{text}` in this repository: it was expired or dropped, or is of another repository"
    ).with_remedy("`{}` lists the snapshots of a branch or tag", call("ancestry"))


def require_base(info: RepoInfo, id_: bytes) -> int:
    """Return the row of the snapshot that a session started from, which may have expired since."""
    row = info.snapshots.find_snapshot(id_)
    if row < 0:
        raise base_not_found(id_)
    return row


def base_not_found(id_: bytes) -> errors.SnapshotNotFoundError:
    """Return the error for a session whose own snapshot was expired or dropped."""
    return errors.SnapshotNotFoundError(
        f"snapshot `{id_to_text(id_)}`, from which the session started, was expired or dropped"
    ).with_remedy(
        "Move the changes onto the tip of the branch with `session.rebase(solver)`, then commit or flush",
        shell="Run the command again",
    )


def require_flag(info: RepoInfo, flag: Flag) -> None:
    """Raise ``SessionStateError`` (``feature-flag-disabled``) if the feature is disabled."""
    setting = setting_of(info, flag)
    if not (flag.default_enabled if setting is None else setting):
        raise errors.SessionStateError(
            f"the feature `{flag.name}` is disabled in this repository",
            errors.ErrorKind.FEATURE_FLAG_DISABLED,
        ).with_remedy("Enable it with Repository.set_feature_flag", shell="Its owner can enable it in Python")


def require_tip(info: RepoInfo, branch: str, parent: bytes) -> None:
    """Raise ``ConflictError`` unless ``parent`` is the tip of the branch."""
    tip = info.branches.get(branch)
    if tip is None and info.spec_version == 1:
        raise errors.ConflictError(id_to_text(parent))
    if tip is None:
        raise no_branch(info, branch, errors.ErrorKind.BRANCH_NOT_FOUND)
    if tip != parent:
        expects, finds = id_to_text(parent), id_to_text(tip)
        raise errors.ConflictError(
            expects, finds, f"another writer updated `{branch}`: expected parent {expects}, found {finds}"
        ).with_remedy(CHANGES_STAY, shell="Run the command again")


#: The most characters of a name, and characters that no name has: they would change what a terminal shows.
_LONGEST_NAME: Final = 1000
_control_character = re.compile(r"[\x00-\x1f\x7f-\x9f]").search


def require_name(name: str) -> None:
    """Raise ``InvalidInputError`` (``invalid-ref-name``) for a name that no new branch or tag can have.

    Other implementations accept such names, so an existing branch or tag may have one.
    """
    if len(name) > _LONGEST_NAME or _control_character(name):
        raise errors.InvalidInputError(
            f"a ref name must have at most {_LONGEST_NAME} printable characters, got {name!r:.80}",
            errors.ErrorKind.INVALID_REF_NAME,
        )
    if not name:
        raise errors.InvalidInputError(
            "the name of a branch or tag must not be empty, got ''", errors.ErrorKind.INVALID_REF_NAME
        )
    utf8("the name of a branch or tag", name, errors.ErrorKind.INVALID_REF_NAME)


#: An error names this number of candidates.
_SHOWN: Final = 5


def resolve_id(text: str, info: Callable[[], RepoInfo]) -> bytes:
    """Return the id for a text: an id, which is not looked up, or its first characters in ``info``."""
    if len(text) == ID_TEXT_LENGTH:
        return id_from_text(text)
    candidates = _beginning(text, info)
    if candidates is None:
        raise errors.InvalidInputError(
            f"the snapshot id must be {ID_TEXT_LENGTH} characters of Crockford base32, or the first "
            f"{SHORTEST_ID_START} or more of them, got {text!r}",
            errors.ErrorKind.INVALID_SNAPSHOT_ID,
        )
    if not candidates:
        raise snapshot_not_found(text)
    return _only(text, candidates)


def find_snapshot(text: str, info: Callable[[], RepoInfo]) -> bytes | None:
    """Return the snapshot for an id, its first characters, or the name of a ref. None without one."""
    if len(text) == ID_TEXT_LENGTH and is_id_text(text.upper()):
        return id_from_text(text)
    now = info()
    candidates: dict[str, bytes] = {}
    for kind, refs in (("branch", now.branches), ("tag", now.tags)):
        if text in refs:
            candidates[f"the {kind} `{text}`"] = refs[text]
    candidates |= _beginning(text, lambda: now) or {}
    return _only(text, candidates) if candidates else None


def snapshot_named(info: RepoInfo, name: str) -> bytes:
    """Return ``find_snapshot``. Raises ``RefNotFoundError`` if there is no such snapshot."""
    id_ = find_snapshot(name, lambda: info)
    if id_ is None:
        raise no_version(info, name)
    require_snapshot(info, id_)
    return id_


def _beginning(text: str, info: Callable[[], RepoInfo]) -> dict[str, bytes] | None:
    """Return the ids that begin with a text, by their text. None for a text that cannot begin an id."""
    bounds = prefix_bounds(text) if SHORTEST_ID_START <= len(text) < ID_TEXT_LENGTH else None
    if bounds is None:
        return None
    return {id_to_text(id_): id_ for id_ in id_list(info().snapshots.between(*bounds))}


def _only(text: str, candidates: dict[str, bytes]) -> bytes:
    if len(set(candidates.values())) > 1:
        names = list(candidates)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise errors.InvalidInputError(
            f"`{text}` can mean {', '.join(names[:_SHOWN])}{more}. Pass the whole snapshot id, or more of it",
            errors.ErrorKind.INVALID_SNAPSHOT_ID,
        )
    return next(iter(candidates.values()))


MAIN = "main"


def with_ref(refs: Mapping[str, bytes], name: str, snapshot: bytes | None) -> Mapping[str, bytes]:
    """Return ``refs`` after one of them has moved to ``snapshot``, or was deleted (None)."""
    if isinstance(refs, V1Refs):  # spec version 1: an update needs only the changed ref, and reads no others
        return {} if snapshot is None else {name: snapshot}
    others = {other: id_ for other, id_ in refs.items() if other != name}
    return others if snapshot is None else others | {name: snapshot}


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
                raise errors.ConflictError(None, actual, kind=errors.ErrorKind.BRANCH_UPDATE_CONFLICT)
            raise errors.AlreadyExistsError(
                f"branch `{name}` already exists. Use another name, or move the branch with reset_branch",
                errors.ErrorKind.BRANCH_ALREADY_EXISTS,
            )
        return replace(info, branches=with_ref(info.branches, name, snapshot))

    return _change(UpdateKind.BRANCH_CREATED, make, name=name)


def reset_branch(name: str, snapshot: bytes, expected: bytes | None) -> RepoChange:
    """Return the change that moves a branch. With ``expected``, the branch must be at this snapshot now."""

    def change(info: RepoInfo, now: int) -> RepoUpdate:
        require_online(info)
        kind = errors.ErrorKind.REF_NOT_FOUND if expected is None else errors.ErrorKind.BRANCH_NOT_FOUND
        tip = branch_tip(info, name, kind)
        require_snapshot(info, snapshot)
        if expected is not None and tip != expected:
            expects, finds = id_to_text(expected), id_to_text(tip)
            raise errors.ConflictError(expects, finds, kind=errors.ErrorKind.BRANCH_UPDATE_CONFLICT)
        after = replace(info, branches=with_ref(info.branches, name, snapshot))
        return RepoUpdate(after, OpsEntry(UpdateKind.BRANCH_RESET, now, name=name, previous_snapshot=tip))

    return change


def delete_branch(name: str) -> RepoChange:
    """Return the change that deletes a branch."""

    def change(info: RepoInfo, now: int) -> RepoUpdate:
        require_online(info)
        if name == MAIN:
            raise errors.SessionStateError(
                "every repository has the branch `main`, which stays", errors.ErrorKind.CANNOT_DELETE_MAIN
            )
        tip = branch_tip(info, name)
        after = replace(info, branches=with_ref(info.branches, name, None))
        return RepoUpdate(after, OpsEntry(UpdateKind.BRANCH_DELETED, now, name=name, previous_snapshot=tip))

    return change


# Tags


def create_tag(name: str, snapshot: bytes) -> RepoChange:
    """Return the change that creates a tag."""

    def make(info: RepoInfo, now: int) -> RepoInfo:
        require_name(name)
        require_flag(info, CREATE_TAG)
        require_snapshot(info, snapshot)
        if name in info.tags:
            raise errors.AlreadyExistsError(
                f"tag `{name}` already exists. Use another name", errors.ErrorKind.TAG_ALREADY_EXISTS
            )
        if name in info.deleted_tags:
            raise errors.AlreadyExistsError(
                f"tag `{name}` was deleted, and the name of a tag cannot be used again. Use another name",
                errors.ErrorKind.TAG_ALREADY_EXISTS
                if info.spec_version == 1
                else errors.ErrorKind.TAG_PREVIOUSLY_DELETED,
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
    """Return a change that makes ``change`` and sets the metadata that ``note`` returns, in one update."""

    def both(info: RepoInfo, now: int) -> RepoUpdate:
        changed = change(info, now)
        metadata = note(changed.info, id_)
        return replace(changed, info=replace(changed.info, metadata=metadata))

    return both


#: A function from the id of a new snapshot to changes of refs in the same update.
RefEdit = Callable[[bytes], Sequence[RepoChange]]


def in_one_update(*changes: RepoChange) -> RepoChange:
    """Return a change that makes several changes, one after the other, in one update."""

    def every(info: RepoInfo, now: int) -> RepoUpdate:
        entries = list[OpsEntry]()
        for change in changes:
            changed = change(info, now + len(entries))
            info = changed.info
            entries += [*changed.earlier, changed.entry]
        return RepoUpdate(info, entries[-1], tuple(entries[:-1]))

    return every


def require_detached(info: RepoInfo, ids: Sequence[bytes]) -> None:
    """Raise an error for a snapshot that is not listed, or that a ref or another snapshot needs."""
    table = info.table
    rows = table.find_snapshots(id_matrix([*ids]))
    for id_, row in zip(ids, rows.tolist(), strict=True):
        if row < 0:
            raise snapshot_not_found(id_to_text(id_))
    tips = table.find_snapshots(id_matrix([*info.branches.values(), *info.tags.values()]))
    is_needed = table.reachable(tips)
    is_needed[table.parents()[table.parents() >= 0]] = True
    if is_needed[rows].any():
        needed = id_to_text(ids[int(np.argmax(is_needed[rows]))])
        raise errors.InvalidInputError(
            f"the snapshot must be detached, got `{needed}`, which is in the history of a branch, a tag or "
            "another snapshot",
            errors.ErrorKind.INVALID_SNAPSHOT_ID,
        ).with_remedy("Merge the branch or tag with Repository.merge, or delete it first", shell="")


def without_detached(change: RepoChange, ids: Sequence[bytes]) -> RepoChange:
    """Return a change that makes ``change`` and removes detached snapshots from the list, in one update.

    It also leaves the entries of the snapshots in the ops log to the backups, so that ``repo`` is small.
    """

    def both(info: RepoInfo, now: int) -> RepoUpdate:
        require_detached(info, ids)
        changed = change(info, now)
        keep = np.ones(len(changed.info.table), np.bool_)
        keep[changed.info.table.find_snapshots(id_matrix([*ids]))] = False
        snapshots = changed.info.table.select_snapshots(keep, {}, {})
        return replace(changed, info=replace(changed.info, snapshots=snapshots).with_short_log(1))

    return both
