"""The versions that a repository has at a moment, as far as they can be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Final

import numpy as np

from frazil.errors import FormatError, IcechunkError
from frazil.format.columns import I64, Ragged
from frazil.format.ids import INITIAL_SNAPSHOT_ID, OBJECT_ID_BYTES, id_keys, id_list
from frazil.format.keys import CONFIG, OVERWRITTEN, REPO
from frazil.format.repo_info import RepoInfo, SnapshotEntry, SnapshotTable, decode_repo_info
from frazil.maintenance.verification.files import check_file
from frazil.maintenance.verification.findings import Finding
from frazil.maintenance.verification.snapshots import Version
from frazil.repository.catalog.catalog_v1 import read_config_v1
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.refs_v1 import RefKind, list_refs, read_ref, ref_key
from frazil.repository.catalog.snapshots_v1 import read_all_snapshots
from frazil.storage.base import Storage
from frazil.storage.outages import is_outage
from frazil.survey.survey import reachable

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
