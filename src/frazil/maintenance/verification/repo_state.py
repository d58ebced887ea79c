"""The versions that a repository has at a moment, as far as they can be read, and its ops log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError, IcechunkError
from frazil.format.columns import Ragged
from frazil.format.ids import CONFIG, INITIAL_SNAPSHOT_ID, OBJECT_ID_BYTES, REPO, backup_key, id_keys, id_list
from frazil.format.repo_info import OpsLog, RepoInfo, SnapshotEntry, UpdateKind, decode_repo_info
from frazil.maintenance.verification.files import ListedVersion, check_file, read_finding
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.catalog_v1 import read_config_v1
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files_v1 import RefKind, list_refs, read_all_snapshots, read_ref, ref_key
from frazil.repository.catalog.repo_update import latest_backup, older_ops_backup
from frazil.storage.base import Storage
from frazil.storage.checks import is_outage
from frazil.survey.survey import reachable
from frazil.threads import Purpose, map_bounded


@dataclass(frozen=True, slots=True, eq=False)
class RepositoryState:
    """All versions, the oldest first where this is known, and findings of the files that name them.

    ``info`` is None in spec version 1, and if it cannot be read.
    """

    versions: tuple[ListedVersion, ...]
    findings: tuple[Finding, ...]
    info: RepoInfo | None = None
    branches: Mapping[str, bytes] = field(default_factory=dict)
    tags: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def needed(self) -> set[bytes]:
        """Ids of the versions that a branch or tag leads to."""
        return {version.id for version in self.versions if version.is_needed}


def state_of(context: Context) -> RepositoryState:
    """Return the current state. Raises errors of the storage, but no errors of damaged files."""
    if context.spec_version < 2:
        return _version_1(context.storage)
    file = check_file(context.storage, REPO, lambda data, broken: decode_repo_info(data, REPO, broken))
    if file.outage is not None:
        raise file.outage
    info = file.value
    if info is not None:
        return RepositoryState(tuple(versions_of(info)), tuple(file.findings), info, *_refs(info))
    backup = latest_backup(context.storage)
    newest = "no backup" if backup is None else f"of the backups {backup_key(backup.name)} is the latest that"
    findings = [
        replace(each, detail=f"{each.detail}; {newest} can be read", is_unreadable=True)
        for each in file.findings
    ]
    # The backup has most versions.
    if backup is None:
        return RepositoryState((), tuple(findings))
    return RepositoryState(tuple(versions_of(backup.info)), tuple(findings), None, *_refs(backup.info))


def _refs(info: RepoInfo) -> tuple[Mapping[str, bytes], Mapping[str, bytes]]:
    """Return branches and tags, or nothing if they cannot be decoded, which is another finding."""
    try:
        return info.branches, info.tags
    except FormatError:
        return {}, {}


def versions_of(info: RepoInfo) -> Iterator[ListedVersion]:
    """Yield all versions of a repository of spec version 2, the oldest first."""
    table, needed = info.table, reachable(info)
    ids, parents = id_list(table.ids()), table.parents().tolist()
    has_expired = (table.pruned().lengths > 0).tolist()
    # After an expiration, all branches list the same expired versions. Their logs are read once, for the
    # newest version that is needed, because this version stays longest.
    newest_first = np.lexsort((-table.flushed_at(), ~needed))
    listed = table.pruned().take(newest_first).compact()
    keys = id_keys(listed.values.view(np.uint8).reshape(-1, OBJECT_ID_BYTES))
    first = np.sort(np.unique(keys, return_index=True)[1])
    owners = np.repeat(newest_first, listed.lengths)[first]
    values = listed.values[first][np.argsort(owners, kind="stable")]
    pruned = Ragged.from_lengths(values, np.bincount(owners, minlength=len(ids)))
    order = np.argsort(table.flushed_at(), kind="stable")
    # The older part of the ops log is in other files.
    ran = info.ops.updated_at[info.ops.kinds == UpdateKind.EXPIRATION_RAN]
    limit = ran.max(initial=0) if info.repo_before_updates is None else _LAST
    may_be_expired = (table.parents() >= 0) & (table.flushed_at() <= limit) & ~np.array(has_expired, bool)
    may_be_expired[may_be_expired] = table.parents()[table.parents()[may_be_expired]] < 0
    is_needed = needed.tolist()
    entries: list[SnapshotEntry | None] = [None] * len(order)
    with suppress(FormatError):  # the rules of ``repo`` report it
        entries = list(table.entries(order))
    for row, entry in zip(order.tolist(), entries, strict=True):
        # The log of a version with an expired parent contains the difference to this parent.
        parent = None if parents[row] < 0 or has_expired[row] else ids[parents[row]]
        logs = tuple(pruned.row(row).tolist()) if has_expired[row] else ()
        is_root, expired = parents[row] < 0, bool(may_be_expired[row])
        yield ListedVersion(ids[row], parent, logs, is_needed[row], is_root, entry, expired)


def _version_1(storage: Storage) -> RepositoryState:
    """Return snapshots that refs lead to. Expiration changes parents and leaves no trace of the old ones."""
    findings: list[Finding] = []
    try:
        read_config_v1(storage)
    except IcechunkError as error:
        check = "unavailable" if is_outage(error) else "config-file"
        findings.append(Finding(check, CONFIG, detail=error.message))
    tips: dict[RefKind, dict[str, bytes]] = {kind: {} for kind in RefKind}
    names, _ = list_refs(storage)
    for kind, name in [(each, name) for each in RefKind for name in sorted(names[each])]:
        try:
            if (ref := read_ref(storage, kind, name)) is not None:
                tips[kind][name] = ref.snapshot
        except FormatError as error:
            findings.append(Finding("ref-file", ref_key(storage, kind, name), detail=error.message))
    if "main" not in names[RefKind.BRANCH]:
        detail = "a repository must have the branch `main`"
        findings.append(Finding("main-branch", ref_key(storage, RefKind.BRANCH, "main"), detail=detail))
    entries = read_all_snapshots(storage)
    for entry in entries.values():
        if isinstance(entry, IcechunkError) and is_outage(entry):
            raise entry
    # The tips and all snapshots before them, as far as files can be read.
    reached: dict[bytes, None] = {}
    for tip in chain.from_iterable(each.values() for each in tips.values()):
        id_: bytes | None = tip
        while id_ is not None and id_ not in reached:
            reached[id_] = None
            record = entries.get(id_)
            id_ = record.parent if isinstance(record, SnapshotEntry) else None
    # Old writers gave the first snapshot a random id.
    is_root = INITIAL_SNAPSHOT_ID not in entries
    versions = [ListedVersion(each, None, (), is_needed=True, is_root=is_root) for each in reversed(reached)]
    return RepositoryState(tuple(versions), tuple(findings), None, tips[RefKind.BRANCH], tips[RefKind.TAG])


class OpsChain(NamedTuple):
    """The parts of the ops log, the newest first, findings, and the backup of each update with its time."""

    logs: list[OpsLog]
    named: list[tuple[str, int]]
    findings: list[Finding]


def check_chain(storage: Storage, info: RepoInfo) -> OpsChain:
    """Read all parts of the ops log."""
    read = OpsChain([], [], [])
    part: RepoInfo | None = info
    key, name = REPO, ""
    while part is not None:
        try:
            # The newest update in a file names no backup, because this would be the file itself.
            names = [name, *part.ops.backups.texts()[1:]]
            read.named.extend(zip(names, part.ops.updated_at.tolist(), strict=False))
            read.logs.append(part.ops)
            name = part.repo_before_updates or ""
            key = backup_key(name)
            part = older_ops_backup(storage, part)
        except IcechunkError as error:
            read.findings.append(read_finding(error, key))
            break
    return read


def check_backups(context: Context, item: Any) -> Iterator[list[Finding]]:
    """Yield findings of backups: existing ones must be readable and not exchanged."""

    def check(pair: tuple[tuple[str, int], tuple[str, int]]) -> list[Finding]:
        (name, time), (older, older_time) = pair
        key = backup_key(name)
        file = check_file(context.storage, key, lambda data, broken: decode_repo_info(data, key, broken))
        if file.value is None:
            return [] if file.is_missing else file.findings
        times = file.value.ops.updated_at[:2].tolist()
        expected, stored = time, times[:1]
        if stored == [time]:
            # A backup that continues the log has no name in the log. Only the backup itself has its time.
            key, expected, stored = backup_key(older), times[-1], [older_time]
            if not older or len(times) < 2 or stored == [expected]:
                return file.findings
        detail = f"the newest update is at {stored} us, not {expected} us"
        return [*file.findings, Finding("exchanged", key, detail=detail)]

    yield from map_bounded(Purpose.VERIFICATION_READS, check, item[1])


# The log against the refs

_BRANCH: Final = "branch"
_TAG: Final = "tag"
#: The state of a ref: absent, on a snapshot that is not known, or on a snapshot that the update names.
_ABSENT, _PRESENT, _PREVIOUS, _NEW = range(4)
#: What an update says about its ref: the kind of the ref, and the state before and after it.
_EFFECTS: Final = {
    UpdateKind.TAG_CREATED: (_TAG, _ABSENT, _PRESENT),
    UpdateKind.TAG_DELETED: (_TAG, _PREVIOUS, _ABSENT),
    UpdateKind.BRANCH_CREATED: (_BRANCH, _ABSENT, _PRESENT),
    UpdateKind.BRANCH_DELETED: (_BRANCH, _PREVIOUS, _ABSENT),
    UpdateKind.BRANCH_RESET: (_BRANCH, _PREVIOUS, _PRESENT),
    UpdateKind.NEW_COMMIT: (_BRANCH, _PRESENT, _NEW),
    UpdateKind.COMMIT_AMENDED: (_BRANCH, _PREVIOUS, _NEW),
}
_LAST: Final = np.iinfo(np.uint64).max
#: One update of a ref: its number, the time, whether the ref exists before and after it, and its snapshot
#: before and after it, zeros if it is not known.
_UPDATE: Final = np.dtype(
    [("ref", "i8"), ("time", "u8"), ("before", "?"), ("after", "?"), ("found", "S12"), ("left", "S12")]
)

type _Numbers = dict[tuple[str, str], int]


def ops_findings(info: RepoInfo, logs: Sequence[OpsLog]) -> Iterator[Finding]:
    """Yield refs that the ops log does not explain.

    What one update of a ref leaves is what the next one finds. What the last one leaves is the present state.
    An expiration deletes refs without an update for each. A migration writes entries that are not exact, so
    older entries are not compared.
    """
    numbers: _Numbers = {}
    parts: list[NDArray[Any]] = []
    expirations = [np.zeros(0, np.uint64)]
    oldest = logs[-1].kinds
    is_complete = len(oldest) > 0 and int(oldest[-1]) == UpdateKind.REPO_INITIALIZED
    for log in logs:
        migrations = np.flatnonzero(log.kinds == UpdateKind.REPO_MIGRATED)
        exact = log.newest(int(migrations[0])) if len(migrations) else log
        parts += _updates(exact, numbers)
        expirations.append(exact.updated_at[exact.kinds == UpdateKind.EXPIRATION_RAN])
        if len(migrations):
            is_complete = False
            break
    refs = {(_BRANCH, name): id_ for name, id_ in info.branches.items()}
    refs |= {(_TAG, name): id_ for name, id_ in info.tags.items()}
    for key in refs:
        numbers.setdefault(key, len(numbers))
    parts.append(_state_at(_LAST, refs, numbers))
    if is_complete:
        parts.append(_state_at(0, {(_BRANCH, "main"): INITIAL_SNAPSHOT_ID}, numbers))
    updates = np.concatenate(parts)
    updates = updates[np.lexsort((updates["time"], updates["ref"]))]
    one, two = updates[:-1], updates[1:]
    expired_at = np.sort(np.concatenate(expirations))
    has_expired = np.searchsorted(expired_at, two["time"]) > np.searchsorted(expired_at, one["time"])
    wrong = one["after"] != two["before"]
    wrong &= ~(one["after"] & ~two["before"] & has_expired)  # an expiration has deleted the ref
    known = (one["left"] != b"") & (two["found"] != b"") & one["after"] & two["before"]
    wrong |= known & (one["left"] != two["found"])
    names = list(numbers)
    for row in np.flatnonzero(wrong & (one["ref"] == two["ref"])).tolist():
        kind, name = names[int(updates["ref"][row])]
        time = int(two["time"][row])
        what = f"the present state of the {kind} `{name}`"
        what = what if time == _LAST else f"the {kind} `{name}` before {time} us"
        yield Finding("ops-refs", REPO, detail=f"the ops log does not explain {what}")


def _updates(log: OpsLog, numbers: _Numbers) -> Iterator[NDArray[Any]]:
    """Yield the updates of refs in a log, for each kind. New refs get numbers."""
    ids = {_PREVIOUS: log.previous, _NEW: log.new}
    for kind, (ref, before, after) in _EFFECTS.items():
        rows = np.flatnonzero(log.kinds == kind)
        updates = np.zeros(len(rows), _UPDATE)
        names = log.names.take(rows).texts()
        updates["ref"] = [numbers.setdefault((ref, name), len(numbers)) for name in names]
        updates["time"] = log.updated_at[rows]
        updates["before"], updates["after"] = before != _ABSENT, after != _ABSENT
        for column, state in (("found", before), ("left", after)):
            if state in ids:
                updates[column] = id_keys(ids[state][rows])
        yield updates


def _state_at(time: int, refs: Mapping[tuple[str, str], bytes], numbers: _Numbers) -> NDArray[Any]:
    """Return the state of all refs at a time, as an update of each that changes nothing."""
    states = np.zeros(len(numbers), _UPDATE)
    states["ref"], states["time"] = np.arange(len(numbers)), time
    states["before"] = states["after"] = [key in refs for key in numbers]
    states["found"] = states["left"] = [refs.get(key, b"") for key in numbers]
    return states
