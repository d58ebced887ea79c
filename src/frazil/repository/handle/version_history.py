"""The history of a repository: snapshots, operations, differences between versions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from frazil.format.ids import id_to_text
from frazil.repository.asynchronous import BothWays, awaitable
from frazil.repository.catalog import presentation, repo_requirements
from frazil.repository.catalog.expired_versions import files_of, snapshots_wanted
from frazil.repository.catalog.history import ancestry, ops_log
from frazil.repository.catalog.ops_values import Update
from frazil.repository.catalog.version_info import Diff, ManifestFileInfo, SnapshotInfo
from frazil.repository.catalog.version_names import snapshot_id as resolve_id
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.graph import AncestryGraph, ancestry_graph
from frazil.repository.handle.history_tables import snapshots_table, updates_table
from frazil.repository.handle.version_argument import snapshot_of_version
from frazil.repository.session.differences import difference


class VersionHistory(RepositoryBase):
    """The methods of ``Repository`` that read its history."""

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """The time, message, metadata and parent of a snapshot.

        Raises ``SnapshotNotFoundError`` if there is none with this id, ``InvalidInputError``
        (``invalid-snapshot-id``) for a text that is not an id.
        """
        info = self._info()
        row = repo_requirements.require_snapshot(info, resolve_id(snapshot_id, lambda: info))
        return presentation.snapshot_info(info.snapshots.entry(row))

    def ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> BothWays[SnapshotInfo]:
        """A snapshot and all before it, newest first. One of the three arguments says which.

        Consoles and notebooks show the result as a table of the newest ones.

        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> [snapshot.message for snapshot in repo.ancestry(branch="main")]
        ['Repository initialized']
        """
        info = self._info()
        tip = snapshot_of_version(info, branch, tag, snapshot_id)

        def snapshots() -> Iterator[SnapshotInfo]:
            return chain.from_iterable(map(presentation.snapshot_infos, ancestry(info, tip)))

        ref = f"branch {branch}" if branch else f"tag {tag}" if tag else f"snapshot {snapshot_id}"
        return BothWays(snapshots(), snapshots_table(f"history of {ref}, newest first", snapshots))

    def ancestry_graph(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        plain: bool = False,
    ) -> AncestryGraph:
        """The history as a picture of text: of all branches, or of one ref."""
        info = self._info()
        if (branch, tag, snapshot_id) == (None, None, None):
            return ancestry_graph(info, info.branches, plain=plain)
        branches = {} if branch is None else {branch: repo_requirements.branch_tip(info, branch)}
        return ancestry_graph(
            info, branches, snapshot_of_version(info, branch, tag, snapshot_id), plain=plain
        )

    def ops_log(self) -> BothWays[Update]:
        """Everything that was ever done to the repository, newest first.

        Consoles and notebooks show the result as a table of the newest operations.
        """
        info = self._info_v2()

        def updates() -> Iterator[Update]:
            return map(presentation.update, ops_log(self.storage, info))

        return BothWays(updates(), updates_table("operations, newest first", updates))

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
        """What changed from one version to another.

        From an ancestor: all that the commits since have done. Between any others, on two branches say or
        backwards: what is different, nodes known by their ids, wherever they were moved.
        """
        info = self._info()
        before = snapshot_of_version(info, from_branch, from_tag, from_snapshot_id)
        after = snapshot_of_version(info, to_branch, to_tag, to_snapshot_id)
        with snapshots_wanted():
            return presentation.diff(difference(self._context, info, before, after))

    def list_manifest_files(self, snapshot_id: str) -> list[ManifestFileInfo]:
        """The manifest files of a snapshot."""
        id_ = resolve_id(snapshot_id, self._info)
        with files_of(self._context, id_):
            files = self._context.assets.snapshot(id_).manifests
        return [
            ManifestFileInfo(id_to_text(id_.tobytes()), int(size), int(count))
            for id_, size, count in zip(files.ids, files.size_bytes, files.num_chunk_refs, strict=True)
        ]

    def async_ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> BothWays[SnapshotInfo]:
        """``ancestry``, for ``async for``."""
        return self.ancestry(branch=branch, tag=tag, snapshot_id=snapshot_id)

    def ops_log_async(self) -> BothWays[Update]:
        """``ops_log``, for ``async for``."""
        return self.ops_log()

    lookup_snapshot_async = awaitable(lookup_snapshot)
    ancestry_graph_async = awaitable(ancestry_graph)
    diff_async = awaitable(diff)
    list_manifest_files_async = awaitable(list_manifest_files)
