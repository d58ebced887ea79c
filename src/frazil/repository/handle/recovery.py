"""Recovery: restore a lost or damaged ``repo`` from a backup, and snapshots that the backup does not know."""

from __future__ import annotations

from frazil.format.ids import id_to_text
from frazil.repository.asynchronous import awaitable, awaitable_static
from frazil.repository.catalog.backups import Backup, backups
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.restoration import RestoreReport, restore_repository
from frazil.repository.handle.snapshot_recovery import relist_snapshot
from frazil.storage.base import Storage


class Recovery(RepositoryBase):
    """Methods of ``Repository``."""

    @staticmethod
    def list_backups(storage: Storage) -> list[Backup]:
        """The backups of the file ``repo``, newest first: every update of the repository leaves one.

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
        """Put a lost or damaged ``repo`` back: the repository is then as it was at the time of a backup.

        ``backup`` is a name from ``list_backups``; None is the latest state that can be read. Updates that
        came later are lost; their snapshots are in ``unlisted`` of the report. A damaged ``repo`` is kept
        among the backups. ``dry_run`` changes nothing. A ``repo`` that can be read is replaced only with
        ``overwrite``: that takes the whole repository back, the work of others included.

        Do this while nobody writes. The ops log shows it as a reset of ``main`` to where the backup has it.
        If garbage collection has deleted backups with older parts of the log, the log ends with the entries
        that ``backup`` itself holds.

        Raises ``AlreadyExistsError`` (``not-allowed``) for a ``repo`` that can be read;
        ``RepositoryNotFoundError`` if there is no backup that can be read; ``FormatError`` or
        ``StorageError`` for a ``backup`` that cannot, and for a ``repo`` of a later format;
        ``ConflictError`` if another writer changed ``repo`` meanwhile.

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
        """List a snapshot again that has files, but is on no list: one that ``restore`` has reported. The
        branch ``branch`` is then on it; its id.

        An existing branch has to be on the snapshot's parent; a new name makes a branch. ``parent`` is the id
        of that snapshot, which is otherwise found among the tips of branches and tags by the transaction log.

        Raises ``SnapshotNotFoundError`` if there is no such file; ``StorageError`` (``object-not-found``) if
        one of its manifests is gone; ``AlreadyExistsError`` if the snapshot is listed;
        ``InvalidInputError`` if its transaction log does not fit the parent, or no tip; ``ConflictError`` if
        the branch is elsewhere, and (``garbage-collection-running``) while garbage is collected. Chunks are
        not looked at: ``Repository.verify`` does that.
        """
        self._context.require_version_2()
        return id_to_text(relist_snapshot(self._context, snapshot_id, branch, parent))

    list_backups_async = awaitable_static(list_backups)
    restore_async = awaitable_static(restore)
    recover_snapshot_async = awaitable(recover_snapshot)
