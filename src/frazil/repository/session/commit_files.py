"""The files of a new version except ``repo``: manifests, transaction log and snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.changes.log import amended_log, transaction_log
from frazil.format.columns import U8
from frazil.format.ids import id_matrix
from frazil.format.keys import snapshot_key, transaction_key
from frazil.format.repo_info import SnapshotEntry
from frazil.format.snapshot import Snapshot, encode_snapshot
from frazil.format.transaction_log import TransactionLog, encode_transaction_log
from frazil.repository.catalog.assets import Assets
from frazil.repository.clock import now_us
from frazil.repository.ids import new_object_id
from frazil.repository.session.earlier_manifests import NewManifest
from frazil.repository.session.manifest_files import referenced_files, with_prepared_files, write_manifests
from frazil.repository.session.pending_commit import PendingCommit
from frazil.repository.session.uploads import Uploads


@dataclass(frozen=True, slots=True)
class CommitFiles:
    """The new snapshot and its new manifests."""

    snapshot: Snapshot
    manifests: list[NewManifest]

    @property
    def manifest_ids(self) -> U8:
        """The ids of the new manifest files, shape (k, 12)."""
        return id_matrix([each.ref.id for each in self.manifests])

    def store_in_cache(self, assets: Assets) -> None:
        """Put the files into the cache of the repository, so that the next session does not read them."""
        assets.store_snapshot(self.snapshot)
        for manifest in {each.manifest.id: each.manifest for each in self.manifests}.values():
            assets.store_manifest(manifest)


def write_commit_files(
    pending: PendingCommit, uploads: Uploads, before: SnapshotEntry, replaced: TransactionLog | None
) -> CommitFiles:
    """Put all files of the new version except ``repo``.

    ``before`` is the entry of the parent. ``replaced`` is the transaction log of the commit that the new
    commit replaces.
    """
    context, parent = pending.context, pending.parent
    id_ = new_object_id()
    nodes, manifests = write_manifests(pending, uploads)
    snapshot = Snapshot(
        id=id_,
        # Later than the parent, even if the clock of this host is late.
        flushed_at=max(now_us(), before.flushed_at + 1),
        message=pending.message,
        metadata=pending.metadata,
        nodes=nodes,
        manifests=referenced_files(with_prepared_files(parent.manifests, pending.changes), nodes, manifests),
        parent_id=parent.id,
        spec_version=context.spec_version,
    )
    level = context.settings.compression_level
    log = transaction_log(pending.changes, id_)
    if replaced is not None:
        log = amended_log(replaced, log)
    uploads.put(snapshot_key(id_), lambda: encode_snapshot(snapshot, level=level))
    uploads.put(
        transaction_key(id_),
        lambda: encode_transaction_log(log, level=level, spec_version=context.spec_version),
    )
    return CommitFiles(snapshot, manifests)
