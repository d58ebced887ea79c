"""Changes of fields, applied to the current repository in one update.

Each changed field gets its own entry in the ops log, with the kind that every reader knows: a branch that
returns to an older snapshot is a ``BRANCH_RESET``. All entries are in one conditional write.

A field is only changed if it still has the value that the caller saw. If another writer changed it since, the
whole update is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from frazil.errors import ConflictError, ErrorKind, SessionStateError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import OpsEntry, RepoInfo, Status, UpdateKind
from frazil.repository.catalog.history_records import with_branch
from frazil.repository.catalog.refs_v1 import with_ref
from frazil.repository.catalog.repo_requirements import require_flag, require_online
from frazil.repository.catalog.repo_update import RepoUpdate
from frazil.repository.history.repo_state import REFS, FieldChange, Part, fields_of, shown_value
from frazil.repository.settings.feature_flags import DELETE_TAG, FLAGS

#: A step of an update: the repo info after one more change, and the entry of the ops log.
type Step = tuple[RepoInfo, OpsEntry]


def update_of(info: RepoInfo, changes: Iterable[FieldChange], now: int) -> RepoUpdate | None:
    """Return the update that makes all changes, or None if there are none."""
    ordered = sorted(changes, key=_order)
    require_possible(info, ordered)
    if not any(change.part is Part.STATUS for change in ordered):
        require_online(info)
    entries: list[OpsEntry] = []
    for change in ordered:
        info, entry = _STEPS[change.part](info, change, now + len(entries))
        # All items of the metadata are one update.
        if not (entries and entry.kind is entries[-1].kind is UpdateKind.METADATA_CHANGED):
            entries.append(entry)
    return RepoUpdate(info, entries[-1], tuple(entries[:-1])) if entries else None


def _order(change: FieldChange) -> tuple[int, str, str]:
    """Return the place of a change in the ops log: a repository opens first, and closes last."""
    opens = change.part is Part.STATUS and change.after[0] == 0
    closes = change.part is Part.STATUS and not opens
    return (-1 if opens else 1 if closes else 0, change.part, change.name)


def require_possible(info: RepoInfo, changes: Iterable[FieldChange]) -> None:
    """Raise the error why a change is not possible in the current repository, if one is not."""
    fields = fields_of(info)
    for change in changes:
        current = fields.get((change.part, change.name))
        if current != change.before:
            raise _conflict(change, current)
        if change.part in REFS and change.after is not None:
            _require_listed(info, change)
        if change.part is Part.TAG:
            _require_tag_change(info, change)


def _conflict(change: FieldChange, current: Any) -> ConflictError:
    expected, actual = (shown_value(change.part, each) for each in (change.before, current))
    return ConflictError(
        expected if change.part in REFS else None,
        actual if change.part in REFS else None,
        f"the {change.subject} has changed since: expected {expected}, found {actual}. Nothing was "
        "changed. Undo the later updates first, or make the change by hand",
        ErrorKind.REPO_INFO_UPDATED,
    )


def _require_listed(info: RepoInfo, change: FieldChange) -> None:
    if info.snapshots.find_snapshot(change.after) < 0:
        raise SessionStateError(
            f"the {change.subject} cannot return to snapshot {id_to_text(change.after)}, because the "
            "snapshot was expired or collected. Nothing was changed",
            ErrorKind.CANNOT_UNDO,
        )


def _require_tag_change(info: RepoInfo, change: FieldChange) -> None:
    if change.after is None:
        require_flag(info, DELETE_TAG)
    elif change.before is not None or change.name in info.deleted_tags:
        raise SessionStateError(
            f"the tag `{change.name}` was deleted, and the name of a deleted tag cannot be used again. "
            f"Nothing was changed. Create a tag with another name on {id_to_text(change.after)}",
            ErrorKind.CANNOT_UNDO,
        )


def _branch(info: RepoInfo, change: FieldChange, now: int) -> Step:
    after = replace(info, branches=with_ref(info.branches, change.name, change.after))
    if change.after is not None:
        after = replace(after, metadata=with_branch(after, change.after, change.name))
    if change.before is None:
        return after, OpsEntry(UpdateKind.BRANCH_CREATED, now, name=change.name)
    kind = UpdateKind.BRANCH_DELETED if change.after is None else UpdateKind.BRANCH_RESET
    return after, OpsEntry(kind, now, name=change.name, previous_snapshot=change.before)


def _tag(info: RepoInfo, change: FieldChange, now: int) -> Step:
    after = replace(info, tags=with_ref(info.tags, change.name, change.after))
    if change.after is not None:
        return after, OpsEntry(UpdateKind.TAG_CREATED, now, name=change.name)
    after = replace(after, deleted_tags=info.deleted_tags | {change.name})
    entry = OpsEntry(UpdateKind.TAG_DELETED, now, name=change.name, previous_snapshot=change.before)
    return after, entry


def _config(info: RepoInfo, change: FieldChange, now: int) -> Step:
    return replace(info, config=change.after), OpsEntry(UpdateKind.CONFIG_CHANGED, now)


def _metadata(info: RepoInfo, change: FieldChange, now: int) -> Step:
    metadata = {name: value for name, value in info.metadata.items() if name != change.name}
    if change.after is not None:
        metadata[change.name] = change.after[0]
    return replace(info, metadata=metadata), OpsEntry(UpdateKind.METADATA_CHANGED, now)


def _flag(info: RepoInfo, change: FieldChange, now: int) -> Step:
    ids = {flag.name: flag.id for flag in FLAGS}
    id_ = ids[change.name] if change.name in ids else int(change.name)
    sets = {True: info.enabled_flags - {id_}, False: info.disabled_flags - {id_}}
    if change.after is not None:
        sets[change.after] |= {id_}
    after = replace(info, enabled_flags=sets[True], disabled_flags=sets[False])
    flag = (id_, bool(change.after), change.after is not None)
    return after, OpsEntry(UpdateKind.FEATURE_FLAG_CHANGED, now, flag=flag)


def _status(info: RepoInfo, change: FieldChange, now: int) -> Step:
    availability, reason = change.after
    status = Status(availability, now, reason)
    entry = OpsEntry(UpdateKind.REPO_STATUS_CHANGED, now, status=status)
    return replace(info, status=status), entry


_STEPS: Final[dict[Part, Callable[[RepoInfo, FieldChange, int], Any]]] = {
    Part.BRANCH: _branch,
    Part.TAG: _tag,
    Part.CONFIG: _config,
    Part.METADATA: _metadata,
    Part.FLAG: _flag,
    Part.STATUS: _status,
}
