"""Checks of snapshots and transaction logs: readable, not exchanged, and consistent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import ne
from typing import Any, Final

import numpy as np

from frazil.errors import ErrorKind, IcechunkError
from frazil.format.columns import Ragged
from frazil.format.ids import (
    INITIAL_SNAPSHOT_ID,
    NODE_ID_BYTES,
    OBJECT_ID_BYTES,
    id_keys,
    id_list,
)
from frazil.format.keys import manifest_key, snapshot_key, transaction_key
from frazil.format.nodes import NodeTable
from frazil.format.snapshot import ManifestFiles, Snapshot
from frazil.format.transaction_log import TransactionLog
from frazil.maintenance.verification.uses import Uses
from frazil.repository.catalog.assets import Assets, CacheLimits
from frazil.repository.catalog.findings import Finding
from frazil.storage.base import Storage

#: The parent is mostly the snapshot that was checked before.
_CACHED: Final = CacheLimits(snapshot_nodes=50_000, chunk_refs=0)


@dataclass(frozen=True, slots=True)
class Version:
    """A snapshot to check.

    parent     the snapshot that its transaction log compares it with; None if it is not known
    pruned     expired snapshots between the two, whose logs may exist
    is_needed  whether a branch or tag leads to it. Garbage collection may have deleted files of other
               snapshots
    """

    id: bytes
    parent: bytes | None
    pruned: tuple[bytes, ...]
    is_needed: bool


@dataclass(frozen=True, slots=True, eq=False)
class CheckedVersion:
    """The findings of a snapshot, its manifests, and the arrays that use them."""

    id: bytes
    findings: list[Finding]
    manifests: ManifestFiles
    uses: Uses


def check_versions(storage: Storage, versions: Sequence[Version]) -> Iterator[CheckedVersion]:
    """Check snapshots, best in the order of their history. This is a piece of work."""
    assets = Assets(storage, _CACHED)
    return (_checked(assets, version) for version in versions)


def _checked(assets: Assets, version: Version) -> CheckedVersion:
    try:
        return _check(assets, version)
    except IcechunkError as error:  # some columns are decoded only when they are used
        finding = Finding("unreadable", snapshot_key(version.id), detail=error.message)
        return CheckedVersion(version.id, [finding], ManifestFiles.empty(), Uses.union([]))


def _check(assets: Assets, version: Version) -> CheckedVersion:
    findings: list[Finding] = []
    for id_ in version.pruned:
        _read_log(assets, id_, findings, may_be_gone=True)
    parent = _parent(assets, version)  # first, because the cache may only hold this snapshot
    try:
        snapshot = assets.snapshot(version.id)
    except IcechunkError as error:
        _read_log(assets, version.id, findings, may_be_gone=not version.is_needed)
        if version.is_needed or error.kind != ErrorKind.OBJECT_NOT_FOUND:
            findings.append(Finding("unreadable", snapshot_key(version.id), detail=error.message))
        return CheckedVersion(version.id, findings, ManifestFiles.empty(), Uses.union([]))
    # In spec version 1 the first snapshot has no log, and old writers gave it a random id.
    first = snapshot.spec_version < 2 and snapshot.parent_id is None
    log = _read_log(assets, version.id, findings, may_be_gone=first or not version.is_needed)
    if log is not None:
        findings += _log_findings(version, parent, snapshot, log)
    if not version.is_needed:
        return CheckedVersion(version.id, findings, ManifestFiles.empty(), Uses.union([]))
    uses = _uses(snapshot.nodes)
    listed = snapshot.manifests
    unlisted = uses.manifests[~np.isin(id_keys(uses.manifests), id_keys(listed.ids))]
    findings += [
        Finding("unreadable", manifest_key(each), detail=f"{snapshot_key(version.id)} does not list it")
        for each in id_list(np.unique(unlisted, axis=0))
    ]
    return CheckedVersion(version.id, findings, listed, uses)


def _read_log(
    assets: Assets, id_: bytes, findings: list[Finding], *, may_be_gone: bool
) -> TransactionLog | None:
    try:
        return assets.transaction_log(id_)
    except IcechunkError as error:
        if not may_be_gone or error.kind != ErrorKind.OBJECT_NOT_FOUND:
            findings.append(Finding("unreadable", transaction_key(id_), detail=error.message))
        return None


def _uses(nodes: NodeTable) -> Uses:
    counts = nodes.manifests.lengths
    owners = np.repeat(np.arange(len(nodes)), counts)
    ids = nodes.manifests.compact().values.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    sizes = 2 * nodes.array_length.lengths[owners]
    extents = Ragged.from_lengths(nodes.extents.compact().values, sizes)
    return Uses.union([Uses(ids, nodes.ids[owners], extents)])


# Logs against snapshots


def _parent(assets: Assets, version: Version) -> Snapshot | None:
    """Return the snapshot that the log of a version compares it with.

    The result is None if it is not known, or not readable, which is another finding.
    """
    try:
        return None if version.parent is None else assets.snapshot(version.parent)
    except IcechunkError:
        return None


def _log_findings(
    version: Version, parent: Snapshot | None, snapshot: Snapshot, log: TransactionLog
) -> Iterator[Finding]:
    key = transaction_key(version.id)
    before = NodeTable.from_nodes([]) if version.id == INITIAL_SNAPSHOT_ID else None
    # Expiration in spec version 1 changes parents and leaves no trace.
    if parent is not None and snapshot.spec_version > 1:
        before = parent.nodes
    differences = [
        f"{what}: {expected} by the snapshots, {logged} in the log"
        for what, expected, logged in _differences(before, snapshot.nodes, log)
    ]
    if differences:
        yield Finding("log", key, detail="; ".join(differences))


def _differences(
    before: NodeTable | None, after: NodeTable, log: TransactionLog
) -> Iterator[tuple[str, int, int]]:
    """Yield contradictions between a log and the two snapshots, with the number of nodes in each.

    Without ``before``, only the later snapshot is compared. A node that is written again with the same
    content is updated only in the log. The reference joins the logs of a commit and of its amendment.
    Then a node that the commit created and the amendment deleted is in both lists of the log, and in
    neither snapshot.
    """
    passing: list[Any] = []
    for kind, arrays in (("arrays", True), ("groups", False)):
        after_keys = id_keys(after.ids[after.is_array == arrays])
        new, deleted, updated = (
            id_keys(getattr(log, f"{name}_{kind}")) for name in ("new", "deleted", "updated")
        )
        passing.append(np.intersect1d(new, deleted))
        new, deleted = np.setdiff1d(new, passing[-1]), np.setdiff1d(deleted, passing[-1])
        if before is None:
            if not np.isin(new, after_keys).all():
                yield f"new {kind}", int(np.isin(new, after_keys).sum()), len(new)
            continue
        before_keys = id_keys(before.ids[before.is_array == arrays])
        for name, expected, logged in (
            ("new", np.setdiff1d(after_keys, before_keys), new),
            ("deleted", np.setdiff1d(before_keys, after_keys), deleted),
        ):
            if not np.array_equal(expected, logged):
                yield f"{name} {kind}", len(expected), len(logged)
        changed = _changed(before, after, arrays=arrays)
        if not np.isin(changed, updated).all():
            yield f"updated {kind}", len(changed), len(updated)
    if before is not None:
        ids = id_keys(np.frombuffer(b"".join(log.updated_chunks), np.uint8).reshape(-1, NODE_ID_BYTES))
        arrays_of = [id_keys(table.ids[table.is_array]) for table in (before, after)]
        is_array = np.isin(ids, np.concatenate([*arrays_of, *passing]))
        if not is_array.all():
            yield "arrays with updated chunks", int(is_array.sum()), len(ids)


def _changed(before: NodeTable, after: NodeTable, *, arrays: bool) -> Any:
    """Return ids of nodes that are in both snapshots with different metadata."""
    keys, old = id_keys(after.ids), id_keys(before.ids)
    _, rows, old_rows = np.intersect1d(keys, old, assume_unique=True, return_indices=True)
    some = after.is_array[rows] == arrays
    rows, old_rows = rows[some], old_rows[some]
    documents = after.user_data.take(rows).blobs(), before.user_data.take(old_rows).blobs()
    return keys[rows[np.fromiter(map(ne, *documents), bool, len(rows))]]


__all__ = ["CheckedVersion", "Version", "check_versions"]
