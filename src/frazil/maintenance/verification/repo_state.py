"""The versions that a repository has at a moment, and the objects that are no part of a version.

A file of the ops log names a backup for each of its updates except the newest one. The backup was written
directly after the update, so this update is the newest one in it. Most of these backups may be deleted. A
garbage collection keeps only the chain, in which each file names the file with the next older part of the
log.

Each update says how a ref was before and after it. All updates of one ref are compared in pairs: what one
update leaves is what the next one finds. What the last one leaves is the present state of the ref. An
expiration deletes refs without an update for each. A migration writes entries that are not exact, so older
entries are not compared.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import batched, chain, islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.display import counted
from frazil.errors import FormatError, IcechunkError, StorageError
from frazil.format.columns import I64, U8, Ragged
from frazil.format.ids import (
    CONFIG,
    INITIAL_SNAPSHOT_ID,
    OBJECT_ID_BYTES,
    OVERWRITTEN,
    REPO,
    backup_key,
    id_keys,
    id_list,
    ids_from_text,
    ids_to_text,
)
from frazil.format.ops_log import OpsLog, UpdateKind
from frazil.format.repo_info import RepoInfo, SnapshotEntry, SnapshotTable, decode_repo_info
from frazil.maintenance.verification.files import check_file, read_finding
from frazil.maintenance.verification.findings import Finding
from frazil.maintenance.verification.snapshots import Version
from frazil.repository.catalog.catalog_v1 import read_config_v1
from frazil.repository.catalog.collection_guard import COLLECTIONS
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files_v1 import RefKind, list_refs, read_all_snapshots, read_ref, ref_key
from frazil.repository.catalog.leases import LEASES, LONGEST, ROUNDING
from frazil.repository.catalog.repo_update import older_ops_backup
from frazil.repository.clock import from_datetime, now_us, to_datetime
from frazil.repository.session.staged_work import STAGING, place_of_lease
from frazil.storage.base import ObjectInfo, Storage
from frazil.storage.checks import is_outage, skip_damage
from frazil.survey.columns import ObjectListing, among, list_objects
from frazil.survey.survey import reachable
from frazil.threads import Purpose, thread_pool

#: Number of the newest backups that are tried to find a readable one.
_TRIED: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """All versions, the oldest first where this is known, and findings of the files that name them.

    ``info`` is the repo info. It is None in spec version 1, and if it cannot be read. ``branches`` and
    ``tags`` have the version of each.
    """

    versions: tuple[Version, ...]
    findings: tuple[Finding, ...]
    info: RepoInfo | None = None
    branches: Mapping[str, bytes] = field(default_factory=dict)
    tags: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def needed(self) -> set[bytes]:
        """Ids of the versions that a branch or tag leads to."""
        return {version.id for version in self.versions if version.is_needed}


def state_of(context: Context) -> State:
    """Return the current state. Raises errors of the storage, but no errors of damaged files."""
    if context.spec_version < 2:
        return _version_1(context.storage)
    file = check_file(context.storage, REPO, lambda data, broken: decode_repo_info(data, REPO, broken))
    if file.outage is not None:
        raise file.outage
    info = file.value
    if info is not None:
        return State(tuple(versions_of(info)), tuple(file.findings), info, *_refs(info))
    backup = newest_readable(context.storage)
    newest = "no backup" if backup is None else f"of the backups {backup[0]} is the newest one that"
    findings = [
        replace(each, detail=f"{each.detail}; {newest} can be read", is_unreadable=True)
        for each in file.findings
    ]
    # The backup has most versions.
    if backup is None:
        return State((), tuple(findings))
    return State(tuple(versions_of(backup[1])), tuple(findings), None, *_refs(backup[1]))


def _refs(info: RepoInfo) -> tuple[Mapping[str, bytes], Mapping[str, bytes]]:
    """Return branches and tags, or nothing if they cannot be decoded, which is another finding."""
    try:
        return info.branches, info.tags
    except FormatError:
        return {}, {}


def versions_of(info: RepoInfo) -> Iterator[Version]:
    """Yield all versions of a repository of spec version 2, the oldest first."""
    table, needed = info.table, reachable(info)
    ids, parents = id_list(table.ids()), table.parents().tolist()
    has_expired = (table.pruned().lengths > 0).tolist()
    pruned = _each_once(table.pruned(), np.lexsort((-table.flushed_at(), ~needed)))
    order = np.argsort(table.flushed_at(), kind="stable")
    is_needed = needed.tolist()
    for row, entry in zip(order.tolist(), _entries(table, order), strict=True):
        # The log of a version with an expired parent contains the difference to this parent.
        parent = None if parents[row] < 0 or has_expired[row] else ids[parents[row]]
        logs = tuple(pruned.row(row).tolist()) if has_expired[row] else ()
        yield Version(
            ids[row], parent, logs, is_needed[row], is_root=parents[row] < 0, spec_version=2, entry=entry
        )


def _each_once(pruned: Ragged, order: I64) -> Ragged:
    """Return the rows with each id only in the first row that has it, in the given order of the rows.

    After an expiration, all branches list the same expired versions. Their logs are read once, for the newest
    version that is needed, because this version stays longest.
    """
    rows = pruned.take(order).compact()
    _, first = np.unique(id_keys(rows.values.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)), return_index=True)
    is_first = np.zeros(len(rows.values), np.bool_)
    is_first[first] = True
    owners = np.repeat(order, rows.lengths)[is_first]
    values = rows.values[is_first][np.argsort(owners, kind="stable")]
    return Ragged.from_lengths(values, np.bincount(owners, minlength=len(pruned)))


def _entries(table: SnapshotTable, order: I64) -> Iterable[SnapshotEntry | None]:
    """Return the summaries of snapshots, or None for each if some cannot be decoded."""
    try:
        return list(table.entries(order))
    except FormatError:  # the rules of ``repo`` report it
        return [None] * len(order)


def _version_1(storage: Storage) -> State:
    """Return snapshots that refs lead to. Expiration changes parents and leaves no trace of the old ones."""
    findings: list[Finding] = list(_config_findings(storage))
    tips: dict[RefKind, dict[str, bytes]] = {kind: {} for kind in RefKind}
    names, _ = list_refs(storage)
    refs = [(kind, name) for kind in RefKind for name in sorted(names[kind])]
    for kind, name in refs:
        try:
            ref = read_ref(storage, kind, name)
        except FormatError as error:
            findings.append(Finding("ref-file", ref_key(storage, kind, name), detail=error.message))
            continue
        if ref is not None:
            tips[kind][name] = ref.snapshot
    if "main" not in names[RefKind.BRANCH]:
        detail = "a repository must have the branch `main`"
        findings.append(Finding("main-branch", ref_key(storage, RefKind.BRANCH, "main"), detail=detail))
    entries = read_all_snapshots(storage)
    for entry in entries.values():
        if isinstance(entry, IcechunkError) and is_outage(entry):
            raise entry
    # Old writers gave the first snapshot a random id.
    has_initial = INITIAL_SNAPSHOT_ID in entries
    versions = [
        Version(id_, None, (), is_needed=True, is_root=not has_initial, spec_version=1)
        for id_ in reversed(_reachable(entries, chain.from_iterable(each.values() for each in tips.values())))
    ]
    return State(tuple(versions), tuple(findings), None, tips[RefKind.BRANCH], tips[RefKind.TAG])


def _config_findings(storage: Storage) -> Iterator[Finding]:
    try:
        read_config_v1(storage)
    except IcechunkError as error:
        yield Finding("unavailable" if is_outage(error) else "config-file", CONFIG, detail=error.message)


def _reachable(entries: Mapping[bytes, SnapshotEntry | IcechunkError], tips: Iterable[bytes]) -> list[bytes]:
    """Return the tips and all snapshots before them, as far as files can be read."""
    out: dict[bytes, None] = {}
    for tip in tips:
        id_: bytes | None = tip
        while id_ is not None and id_ not in out:
            out[id_] = None
            entry = entries.get(id_)
            id_ = entry.parent if isinstance(entry, SnapshotEntry) else None
    return list(out)


def newest_readable(storage: Storage) -> tuple[str, RepoInfo] | None:
    """Return the newest backup of ``repo`` that can be read, with its key, or None."""
    keys = (each.key for each in storage.list(OVERWRITTEN))
    for key in islice(sorted(keys), _TRIED):  # newer backups have smaller names
        try:
            return key, decode_repo_info(storage.get(key), key)
        except FormatError:
            continue
    return None


@dataclass(frozen=True, slots=True)
class NamedBackup:
    """A backup that the ops log names, with the times of its newest update and of the update before.

    ``older`` is the backup that was written after the update before. It is None if no file names it.
    """

    name: str
    time: int
    older: str | None
    older_time: int


@dataclass(slots=True, eq=False)
class OpsChain:
    """The ops log: its parts, the newest first, with the findings of the files that contain them.

    ``is_complete`` says that the parts reach back to the first update.
    """

    findings: list[Finding] = field(default_factory=list)
    logs: list[OpsLog] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    is_complete: bool = False

    def named(self) -> Iterator[NamedBackup]:
        """Yield all backups that the log names."""
        if not self.names:  # the texts of `repo` are damaged
            return iter(())
        pairs = zip(self.names, self.times, [*self.names[1:], ""], [*self.times[1:], 0], strict=True)
        return (NamedBackup(name, time, older or None, at) for name, time, older, at in pairs if name)


def check_chain(storage: Storage, info: RepoInfo) -> OpsChain:
    """Read all parts of the ops log."""
    chain = OpsChain()
    part: RepoInfo | None = info
    name = ""
    while part is not None:
        key = backup_key(name) if name else REPO
        try:
            # The newest update in a file names no backup, because this would be the file itself.
            chain.names += [name, *part.ops.backups.texts()[1:]]
            chain.times += part.ops.updated_at.tolist()
            chain.logs.append(part.ops)
            name = part.repo_before_updates or ""
            key = backup_key(name)
            part = older_ops_backup(storage, part)
        except IcechunkError as error:
            chain.findings.append(read_finding(error, key))
            return chain
    oldest = chain.logs[-1].kinds
    chain.is_complete = len(oldest) > 0 and int(oldest[-1]) == UpdateKind.REPO_INITIALIZED
    return chain


def check_backups(context: Context, item: tuple[None, Sequence[NamedBackup]]) -> Iterator[list[Finding]]:
    """Yield findings of backups: existing ones must be readable and not exchanged."""

    def check(backup: NamedBackup) -> list[Finding]:
        key = backup_key(backup.name)
        file = check_file(context.storage, key, lambda data, broken: decode_repo_info(data, key, broken))
        if file.value is None:
            return [] if file.is_missing else file.findings
        return [*file.findings, *_exchanged(key, backup, file.value)]

    with thread_pool(Purpose.VERIFICATION_READS) as pool:
        yield from pool.map(check, item[1])


def _exchanged(key: str, backup: NamedBackup, info: RepoInfo) -> Iterator[Finding]:
    times = info.ops.updated_at[:2].tolist()
    if times[:1] != [backup.time]:
        yield Finding(
            "exchanged", key, detail=f"the newest update is at {times[:1]} us, not {backup.time} us"
        )
    elif backup.older is not None and times[1:] and times[1] != backup.older_time:
        # The name of this backup is in the chain. Only the backup itself has its time.
        detail = f"the newest update is at {backup.older_time} us, not {times[1]} us"
        yield Finding("exchanged", backup_key(backup.older), detail=detail)


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


def ops_findings(info: RepoInfo, chain: OpsChain) -> Iterator[Finding]:
    """Yield refs that the ops log does not explain."""
    numbers: _Numbers = {}
    parts: list[NDArray[Any]] = []
    expirations = [np.zeros(0, np.uint64)]
    is_complete = chain.is_complete
    for log in chain.logs:
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
    names = list(numbers)
    for row in _contradictions(updates, np.sort(np.concatenate(expirations))).tolist():
        kind, name = names[int(updates["ref"][row])]
        time = int(updates["time"][row + 1])
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


def _contradictions(updates: NDArray[Any], expirations: NDArray[np.uint64]) -> I64:
    """Return the rows whose state after the update is not that before the next update of the same ref."""
    one, two = updates[:-1], updates[1:]
    has_expired = np.searchsorted(expirations, two["time"]) > np.searchsorted(expirations, one["time"])
    wrong = one["after"] != two["before"]
    wrong &= ~(one["after"] & ~two["before"] & has_expired)  # an expiration has deleted the ref
    known = (one["left"] != b"") & (two["found"] != b"") & one["after"] & two["before"]
    wrong |= known & (one["left"] != two["found"])
    rows: I64 = np.flatnonzero(wrong & (one["ref"] == two["ref"]))
    return rows


_BATCH: Final = 1024
_SHOWN: Final = 3
_LIST_SUFFIX: Final = ".garbage"
_LONGEST_US: Final = LONGEST // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, eq=False)
class FolderFiles:
    """The files of a folder when the verification began, and names that are not ids."""

    listing: ObjectListing
    strange: tuple[str, ...]
    strange_count: int


def folder_files(storage: Storage, folder: str) -> FolderFiles:
    """List a folder."""
    strange: list[str] = []
    count = 0
    for part in batched(storage.list(folder), _BATCH):
        names = [info.key.removeprefix(f"{folder}/") for info in part]
        bad = np.flatnonzero(~ids_from_text(names)[1]).tolist()
        strange += [names[row] for row in bad[: _SHOWN - len(strange)]]
        count += len(bad)
    return FolderFiles(list_objects(storage, folder), tuple(strange), count)


def name_findings(files: FolderFiles) -> Iterator[Finding]:
    """Yield a finding if files of a folder have names that are not ids."""
    if files.strange_count:
        names = ", ".join(files.strange)
        detail = f"{counted(files.strange_count, 'file')} with other names, such as {names}"
        yield Finding("file-name", files.listing.folder, detail=detail)


def unreferenced(files: FolderFiles, ids: U8) -> Iterator[Finding]:
    """Yield a finding if files of a folder are not among the ids, (k, 12), that versions need."""
    rest = files.listing.select_files(~among(files.listing.ids, ids))
    if len(rest):
        names = ", ".join(ids_to_text(rest.ids[:_SHOWN]))
        detail = (
            f"{counted(len(rest), 'file')} with {int(rest.sizes.sum())} bytes belong to no version, such as "
            f"{names}. A session that has not committed may need them"
        )
        yield Finding("unreferenced", files.listing.folder, detail=detail)


# Markers


def marker_findings(storage: Storage) -> Iterator[Finding]:
    """Yield what holders of leases, collections and jobs have stored."""
    leases = list(storage.list(LEASES))
    yield from _leases(storage, leases)
    yield from _collections(storage)
    yield from _jobs(storage, {place_of_lease(info.key) for info in leases})


def _content(storage: Storage, key: str) -> dict[str, Any] | None:
    """Return the content of an object, or None if it is missing or damaged."""
    with skip_damage(), suppress(ValueError, RecursionError):
        content = json.loads(bytes(storage.get(key)))
        return content if isinstance(content, dict) else None
    return None


def _leases(storage: Storage, objects: list[ObjectInfo]) -> Iterator[Finding]:
    for info in objects:
        try:
            content = _content(storage, info.key)
        except StorageError as error:
            yield Finding("unavailable", info.key, detail=error.message)
            continue
        if content is None or not all(type(content.get(name)) is int for name in ("age", "left")):
            if storage.head(info.key) is not None:
                detail = "the lease must have the numbers age and left. It protects nothing"
                yield Finding("lease-unreadable", info.key, detail=detail)
            continue
        until = from_datetime(info.modified) + min(content["left"], _LONGEST_US) + ROUNDING
        text = f"{content.get('purpose') or 'a session'}, until {to_datetime(max(until, 0)).isoformat()}"
        yield Finding("lease", info.key, detail=text)


def _collections(storage: Storage) -> Iterator[Finding]:
    for info in storage.list(COLLECTIONS):
        if info.key.endswith(_LIST_SUFFIX):
            continue
        try:
            content = _content(storage, info.key) or {}
        except StorageError as error:
            yield Finding("unavailable", info.key, detail=error.message)
            continue
        if content.get("done"):
            continue  # the mark of a collection that has ended
        started = from_datetime(info.modified)
        detail = f"announced at {info.modified.isoformat()}"
        killed = started + _LONGEST_US < now_us()
        yield Finding("collection-killed" if killed else "collection-running", info.key, detail=detail)


def _jobs(storage: Storage, places: set[str | None]) -> Iterator[Finding]:
    sizes: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for info in storage.list(STAGING):
        total = sizes[info.key.split("/")[1]]
        total[0] += 1
        total[1] += info.size
    for place, (count, size) in sorted(sizes.items()):
        check = "job-staged" if place in places else "job-abandoned"
        yield Finding(check, f"{STAGING}/{place}", detail=f"{counted(count, 'file')} with {size} bytes")
