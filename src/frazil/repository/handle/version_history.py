"""The methods of ``Repository`` for its history: snapshots, operations, differences between versions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from frazil.format.ids import id_to_text
from frazil.repository.asynchronous import SyncAsyncIterator, awaitable
from frazil.repository.catalog import presentation, repo_requirements
from frazil.repository.catalog.expired_versions import files_of, snapshots_wanted
from frazil.repository.catalog.ops_history import entries_of, ops_parts, ops_start
from frazil.repository.catalog.ops_values import Update, UpdateType
from frazil.repository.catalog.snapshot_block import history_infos
from frazil.repository.catalog.snapshot_presentation import snapshot_info
from frazil.repository.catalog.version_info import Diff, ManifestFileInfo, SnapshotInfo
from frazil.repository.catalog.version_names import snapshot_id as resolve_id
from frazil.repository.clock import to_datetime
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.graph import AncestryGraph, ancestry_graph
from frazil.repository.handle.history_tables import snapshots_table, updates_table
from frazil.repository.handle.version_argument import snapshot_of_version
from frazil.repository.session.differences import difference


class VersionHistory(RepositoryBase):
    """Methods of ``Repository`` that read its history."""

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Return the time, message, metadata and parent of a snapshot.

        Args:
            snapshot_id: The id of the snapshot, or the first characters of an id (4 or more, if only one id
                begins with them).

        Returns:
            What the repository records of the snapshot.

        Raises:
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            InvalidInputError: ``invalid-snapshot-id`` if ``snapshot_id`` is not an id, or if several ids
                begin with it.

        Specification: *SnapshotInfo*.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.lookup_snapshot(repo.lookup_branch("main")).message
            'Repository initialized'
        """
        info = self._info()
        row = repo_requirements.require_snapshot(info, resolve_id(snapshot_id, lambda: info))
        return snapshot_info(info.snapshots.entry(row))

    def ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> SyncAsyncIterator[SnapshotInfo]:
        """Return a snapshot and all its ancestors, newest first.

        Exactly one of the arguments names the snapshot. Consoles and notebooks show the result as a table of
        the newest snapshots.

        Args:
            branch: The name of a branch, to begin at its tip.
            tag: The name of a tag.
            snapshot_id: The id of a snapshot, or the first characters of an id.

        Returns:
            An iterator for ``for`` and for ``async for``. The fields of a snapshot are decoded when the
            program reads them. If the repository is damaged, such a read raises ``FormatError``.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            ValueError: If none or several of the arguments are given.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> [snapshot.message for snapshot in repo.ancestry(branch="main")]
            ['Repository initialized']
        """
        info = self._info()
        tip = snapshot_of_version(info, branch, tag, snapshot_id)

        ref = f"branch {branch}" if branch else f"tag {tag}" if tag else f"snapshot {snapshot_id}"
        table = snapshots_table(f"history of {ref}, newest first", partial(history_infos, info, tip))
        return SyncAsyncIterator(history_infos(info, tip), table)

    def ancestry_graph(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        plain: bool = False,
    ) -> AncestryGraph:
        """Draw the history of all branches, or of one version.

        At most one of ``branch``, ``tag`` and ``snapshot_id`` names the version. Without any of them, the
        graph shows all branches.

        Args:
            branch: The name of a branch.
            tag: The name of a tag.
            snapshot_id: The id of a snapshot, or the first characters of an id.
            plain: Whether to draw without colours.

        Returns:
            The graph: text for ``print``, an SVG image in notebooks.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            ValueError: If several of the arguments are given.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> print(repo.ancestry_graph(plain=True), end="")
            ● 1CECHNKR (main) Repository initialized
        """
        info = self._info()
        if (branch, tag, snapshot_id) == (None, None, None):
            return ancestry_graph(info, info.branches, plain=plain)
        branches = {} if branch is None else {branch: repo_requirements.branch_tip(info, branch)}
        return ancestry_graph(
            info, branches, snapshot_of_version(info, branch, tag, snapshot_id), plain=plain
        )

    def ops_log(self) -> SyncAsyncIterator[Update]:
        """Return all operations on the repository, newest first.

        Consoles and notebooks show the result as a table of the newest operations. If a garbage collection
        has removed older operations (``keep_ops``), the last entry is ``UpdateType.LogStart``.

        Returns:
            An iterator for ``for`` and for ``async for``. It reads older operations from the storage when
            they are needed.

        Raises:
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Specification: *Update*.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.create_branch("dev", "main")
            >>> [type(update.kind).__name__ for update in repo.ops_log()]
            ['BranchCreated', 'RepoInitialized']
        """
        info = self._info_v2()

        def updates() -> Iterator[Update]:
            part = info
            for name, part in ops_parts(self.storage, info):  # the last part is needed below
                yield from map(presentation.update, entries_of(name, part))
            if (start := ops_start(part)) is not None:
                yield Update(UpdateType.LogStart(), to_datetime(start), None)

        return SyncAsyncIterator(updates(), updates_table("operations, newest first", updates))

    def diff(
        self,
        *,
        from_branch: str | None = None,
        from_tag: str | None = None,
        from_snapshot_id: str | None = None,
        to_branch: str | None = None,
        to_tag: str | None = None,
        to_snapshot_id: str | None = None,
    ) -> Diff:
        """Return the differences between two versions.

        Exactly one of the ``from_`` arguments and one of the ``to_`` arguments name the versions. If the
        first version is an ancestor of the second, the result contains all that the commits between them did.
        Otherwise (for example on two branches, or backwards), the method compares the two versions. It
        identifies nodes by their ids, so moved nodes are recognised.

        Args:
            from_branch: The branch of the first version.
            from_tag: The tag of the first version.
            from_snapshot_id: The snapshot id of the first version, or the first characters of an id.
            to_branch: The branch of the second version.
            to_tag: The tag of the second version.
            to_snapshot_id: The snapshot id of the second version, or the first characters of an id.

        Returns:
            The paths of changed nodes and the indices of changed chunks.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            ValueError: If none or several of the arguments of one version are given.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.create_tag("empty", "main")
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="g")
            >>> sorted(repo.diff(from_tag="empty", to_branch="main").new_groups)
            ['/', '/g']
        """
        info = self._info()
        before = snapshot_of_version(info, from_branch, from_tag, from_snapshot_id)
        after = snapshot_of_version(info, to_branch, to_tag, to_snapshot_id)
        with snapshots_wanted():
            return presentation.diff(difference(self._context, info, before, after))

    def list_manifest_files(self, snapshot_id: str) -> list[ManifestFileInfo]:
        """Return the manifest files of a snapshot.

        Args:
            snapshot_id: The id of the snapshot, or the first characters of an id.

        Returns:
            The id, the size in bytes and the number of chunk references of each file.

        Raises:
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            InvalidInputError: ``invalid-snapshot-id`` if ``snapshot_id`` is not an id, or if several ids
                begin with it.

        Specification: *ManifestFileInfo*.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", shape=(2,), dtype="i4")
            ...     array[:] = [1, 2]
            >>> [file.num_chunk_refs for file in repo.list_manifest_files(repo.lookup_branch("main"))]
            [1]
        """
        id_ = resolve_id(snapshot_id, self._info)
        with files_of(self._context, id_):
            files = self._context.assets.snapshot(id_).manifests
        return [
            ManifestFileInfo(id_to_text(id_.tobytes()), int(size), int(count))
            for id_, size, count in zip(files.ids, files.size_bytes, files.num_chunk_refs, strict=True)
        ]

    def async_ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> SyncAsyncIterator[SnapshotInfo]:
        """Return the result of ``ancestry``, for ``async for``."""
        return self.ancestry(branch=branch, tag=tag, snapshot_id=snapshot_id)

    def ops_log_async(self) -> SyncAsyncIterator[Update]:
        """Return the result of ``ops_log``, for ``async for``."""
        return self.ops_log()

    lookup_snapshot_async = awaitable(lookup_snapshot)
    ancestry_graph_async = awaitable(ancestry_graph)
    diff_async = awaitable(diff)
    list_manifest_files_async = awaitable(list_manifest_files)
