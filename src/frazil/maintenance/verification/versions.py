"""Checks of snapshots and transaction logs: readable, not exchanged, by the rules, and consistent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from frazil.errors import IcechunkError
from frazil.format.columns import Ragged
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.keys import snapshot_key
from frazil.format.rules.snapshot import snapshot_violations
from frazil.format.rules.transaction_log import transaction_log_violations
from frazil.format.snapshot import ManifestFiles, Snapshot
from frazil.format.snapshot_table import SnapshotEntry
from frazil.format.transaction_log import TransactionLog
from frazil.maintenance.verification.file_checks import check_kind, read_finding
from frazil.maintenance.verification.findings import Finding
from frazil.maintenance.verification.log_chunks import ChangedArray, LoggedChanges, changed_arrays
from frazil.maintenance.verification.logs import log_findings
from frazil.maintenance.verification.uses import Uses
from frazil.repository.catalog.assets import Assets, CacheLimits
from frazil.repository.catalog.files import SNAPSHOT, TRANSACTION_LOG
from frazil.repository.catalog.lineage import is_of_compaction
from frazil.storage.base import Storage
from frazil.storage.outages import skip_damage

#: The parent is mostly the snapshot that was checked before.
_CACHED: Final = CacheLimits(snapshot_nodes=50_000, chunk_refs=0)


@dataclass(frozen=True, slots=True)
class Version:
    """A snapshot to check.

    parent        the snapshot that its transaction log compares it with; None if it is not known
    pruned        expired snapshots between the two, whose logs may exist. Another version can have them too,
                  and then only one of both lists them here
    is_needed     whether a branch or tag leads to it. Other snapshots may have lost files in a garbage
                  collection
    is_root       whether it may have no parent
    spec_version  that of the repository
    entry         its summary in the repo info, or None
    """

    id: bytes
    parent: bytes | None
    pruned: tuple[bytes, ...]
    is_needed: bool
    is_root: bool = True
    spec_version: int = 2
    entry: SnapshotEntry | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CheckedVersion:
    """The findings of a snapshot, its manifests, and the arrays that use them."""

    id: bytes
    findings: list[Finding]
    manifests: ManifestFiles
    uses: Uses
    changes: LoggedChanges


def check_versions(storage: Storage, versions: Sequence[Version]) -> Iterator[CheckedVersion]:
    """Check snapshots, best in the order of their history. This is a piece of work."""
    reader = _Reader(storage, Assets(storage, _CACHED))
    return (_checked(reader, version) for version in versions)


@dataclass(slots=True)
class _Reader:
    """The storage, a cache of parents, and the snapshot that was checked last."""

    storage: Storage
    assets: Assets
    last: Snapshot | None = None

    def parent(self, version: Version) -> Snapshot | None:
        """Return the snapshot that the log of a version compares it with.

        The result is None if it is not known, or not readable, which is another finding.
        """
        if self.last is not None and self.last.id == version.parent:
            return self.last
        with skip_damage():
            return None if version.parent is None else self.assets.snapshot(version.parent)
        return None


def _nothing(id_: bytes, findings: list[Finding]) -> CheckedVersion:
    return CheckedVersion(id_, findings, ManifestFiles.empty(), Uses.union([]), LoggedChanges(id_, ()))


def _checked(reader: _Reader, version: Version) -> CheckedVersion:
    try:
        return _check(reader, version)
    except IcechunkError as error:  # some columns are decoded only when they are used
        return _nothing(version.id, [read_finding(error, snapshot_key(version.id))])


def _check(reader: _Reader, version: Version) -> CheckedVersion:
    findings: list[Finding] = []
    for id_ in version.pruned:
        _read_log(reader, replace(version, id=id_), findings, may_be_gone=True)
    rules = partial(
        snapshot_violations, id_=version.id, spec_version=version.spec_version, is_root=version.is_root
    )
    file = check_kind(reader.storage, SNAPSHOT, version.id, rules)
    if version.is_needed or not file.is_missing:
        findings += file.findings
    snapshot = file.value
    if snapshot is None:
        _read_log(reader, version, findings, may_be_gone=not version.is_needed)
        return _nothing(version.id, findings)
    # In spec version 1 the first snapshot has no log, and old writers gave it a random id.
    first = snapshot.spec_version < 2 and snapshot.parent_id is None
    log = _read_log(reader, version, findings, may_be_gone=first or not version.is_needed)
    parent = reader.parent(version)
    arrays: tuple[ChangedArray, ...] = ()
    if log is not None:
        findings += log_findings(version.id, parent, snapshot, log)
        if parent is not None and snapshot.spec_version > 1:
            arrays = changed_arrays(parent.nodes, snapshot.nodes)
    findings += _summary_findings(version, snapshot)
    reader.last = snapshot
    changes = LoggedChanges(version.id, arrays, bool(arrays) and is_of_compaction(snapshot.metadata))
    return CheckedVersion(version.id, findings, snapshot.manifests, _uses(snapshot), changes)


def _summary_findings(version: Version, snapshot: Snapshot) -> Iterator[Finding]:
    entry = version.entry
    if entry is None:
        return
    pairs = {
        "time": (entry.flushed_at, snapshot.flushed_at),
        "message": (entry.message, snapshot.message),
        "metadata": (entry.metadata, snapshot.metadata),
    }
    different = [name for name, (listed, stored) in pairs.items() if listed != stored]
    if different:
        detail = f"the file `repo` has another {' and '.join(different)} than the snapshot"
        yield Finding("snapshot-summary", snapshot_key(version.id), detail=detail)


def _read_log(
    reader: _Reader, version: Version, findings: list[Finding], *, may_be_gone: bool
) -> TransactionLog | None:
    rules = partial(transaction_log_violations, id_=version.id, spec_version=version.spec_version)
    file = check_kind(reader.storage, TRANSACTION_LOG, version.id, rules)
    if not (may_be_gone and file.is_missing):
        findings += file.findings
    return file.value


def _uses(snapshot: Snapshot) -> Uses:
    nodes = snapshot.nodes
    counts = nodes.manifests.lengths
    owners = np.repeat(np.arange(len(nodes)), counts)
    ids = nodes.manifests.compact().values.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    sizes = 2 * nodes.array_length.lengths[owners]
    extents = Ragged.from_lengths(nodes.extents.compact().values, sizes)
    snapshots = np.tile(np.frombuffer(snapshot.id, np.uint8), (len(owners), 1))
    return Uses.union([Uses(ids, nodes.ids[owners], extents, snapshots)])


__all__ = ["CheckedVersion", "Version", "check_versions"]
