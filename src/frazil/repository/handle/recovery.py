"""The methods of ``Repository`` that restore a lost or damaged file ``repo`` and lost snapshots."""

from __future__ import annotations

from frazil.format.ids import id_to_text
from frazil.repository.asynchronous import awaitable, awaitable_static
from frazil.repository.catalog.backups import Backup, backups
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.restoration import RestoreReport, restore_repository
from frazil.repository.handle.snapshot_recovery import relist_snapshot
from frazil.storage.base import Storage


class Recovery(RepositoryBase):
    """Methods of ``Repository`` that restore a lost or damaged repository."""

    @staticmethod
    def list_backups(storage: Storage) -> list[Backup]:
        """Return the backups of the file ``repo``, newest first.

        Every update of the repository leaves one backup.

        Args:
            storage: The storage of the repository.

        Returns:
            The backups.

        Examples:
            >>> import frazil
            >>> storage = frazil.in_memory_storage()
            >>> repo = frazil.Repository.create(storage)
            >>> repo.create_branch("dev", repo.lookup_branch("main"))
            >>> len(frazil.Repository.list_backups(storage))
            1
        """
        return backups(storage)

    @staticmethod
    def restore(
        storage: Storage, backup: str | None = None, *, dry_run: bool = False, overwrite: bool = False
    ) -> RestoreReport:
        """Restore a lost or damaged file ``repo`` from a backup.

        Afterwards the repository has the state of the backup. Later updates are lost; the report lists their
        snapshots in ``unlisted``, and ``recover_snapshot`` can bring them back. A damaged file ``repo`` is
        saved among the backups.

        Restore only while no other process writes to the repository. The ops log shows the restoration as a
        reset of ``main`` to its snapshot in the backup. If garbage collection has deleted backups with older
        parts of the ops log, the log ends with the entries that the backup itself contains.

        Args:
            storage: The storage of the repository.
            backup: The name of a backup from ``list_backups``. Default: the latest readable backup.
            dry_run: Whether to change nothing, and only to report.
            overwrite: Whether to replace a readable file ``repo``. This resets the whole repository to the
                backup, including the work of others.

        Returns:
            The report: branches, tags, and snapshots that are missing or not listed.

        Raises:
            AlreadyExistsError: ``not-allowed`` if ``repo`` is readable, without ``overwrite`` and
                ``dry_run``.
            RepositoryNotFoundError: ``repository-not-found`` if there is no readable backup.
            FormatError: If ``backup`` is damaged. ``unsupported-spec-version`` if ``repo`` has a later
                format.
            StorageError: If ``backup`` cannot be read.
            ConflictError: ``repo-info-updated`` if another writer changed ``repo`` at the same time.

        Examples:
            >>> import frazil
            >>> storage = frazil.in_memory_storage()
            >>> repo = frazil.Repository.create(storage)
            >>> repo.create_branch("dev", repo.lookup_branch("main"))
            >>> storage.delete(["repo"])
            >>> frazil.Repository.restore(storage).branches
            {'main': '1CECHNKREP0F1RSTCMT0'}
        """
        return restore_repository(storage, backup, dry_run=dry_run, overwrite=overwrite)

    def recover_snapshot(self, snapshot_id: str, branch: str, *, parent: str | None = None) -> str:
        """List a snapshot again whose files exist, but which the restored repository does not know.

        ``restore`` reports such snapshots in ``unlisted``. The method does not check the chunks of the
        snapshot: see ``verify``.

        Args:
            snapshot_id: The whole id of the snapshot.
            branch: The branch to put on the snapshot. An existing branch must be on the parent of the
                snapshot. A new name creates a branch.
            parent: The id of the parent snapshot. Default: the only tip of a branch or tag that the
                transaction log of the snapshot fits.

        Returns:
            The id of the snapshot.

        Raises:
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no file of this snapshot.
            StorageError: ``object-not-found`` if one of its manifests is gone.
            AlreadyExistsError: ``not-allowed`` if the snapshot is already listed.
            InvalidInputError: ``invalid-snapshot-id`` if the transaction log does not fit the parent, or does
                not fit exactly one tip.
            ConflictError: If the branch is on another snapshot. ``garbage-collection-running`` during a
                garbage collection.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil, zarr
            >>> storage = frazil.in_memory_storage()
            >>> repo = frazil.Repository.create(storage)
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="g")
            >>> storage.delete(["repo"])
            >>> lost = frazil.Repository.restore(storage).unlisted[0]
            >>> restored = frazil.Repository.open(storage)
            >>> restored.recover_snapshot(lost.id, "main") == lost.id
            True
        """
        self._context.require_version_2()
        return id_to_text(relist_snapshot(self._context, snapshot_id, branch, parent))

    list_backups_async = awaitable_static(list_backups)
    restore_async = awaitable_static(restore)
    recover_snapshot_async = awaitable(recover_snapshot)
