"""The methods of ``Repository`` that tell where data come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.format.ids import id_to_text
from frazil.lazy_names import value_of
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.expired_versions import snapshots_wanted
from frazil.repository.handle.sessions import Sessions
from frazil.repository.handle.version_argument import snapshot_of_version
from frazil.repository.history import blame as blaming
from frazil.repository.history.blame import Blame, ChunkCommit
from frazil.repository.paths import absolute

#: The values of the methods are public, so that `frazil.snapshots` imports them from this room.
__all__ = ["Blame", "ChunkCommit", "Provenance"]


#: Functions of the extra `pipeline`.
_ARRAY_INFO: Final = "frazil.pipeline.transform.array_info:array_info"
_POSITIONS: Final = "frazil.pipeline.transform.positions:positions_by_label"


class Provenance(Sessions):
    """Methods of ``Repository`` that tell which commits wrote the chunks of arrays."""

    def blame(
        self,
        path: str,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
    ) -> Blame:
        """Return the commit that wrote each chunk of an array last.

        The method reads transaction logs, the newest first, until each chunk has its commit. It reads no
        chunks. Moved and renamed arrays have one history. Chunks of a merge have the commits of the merged
        branch. Chunks of expired versions are reported as written before the oldest commit that is left.

        At most one of ``branch``, ``tag`` and ``snapshot_id`` names the version.

        Args:
            path: The path of the array in this version.
            branch: The name of a branch. Default: ``main``, if no other version is named.
            tag: The name of a tag.
            snapshot_id: The id of a snapshot, or the first characters of an id.

        Returns:
            The commits, and the number of the commit of each chunk.

        Raises:
            NodeNotFoundError: ``node-not-found`` if there is no such array.
            InvalidInputError: ``not-an-array`` if ``path`` is a group.
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            ValueError: If several versions are named.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="create") as store:
            ...     array = zarr.create_array(store, name="t", shape=(6,), chunks=(2,), dtype="i4")
            ...     array[:] = 1
            >>> with repo.transaction("main", message="correct") as store:
            ...     zarr.open_array(store, path="t")[3] = 5
            >>> blame = repo.blame("/t")
            >>> [commit.message for commit in blame.commits], blame.grid().tolist()
            (['correct', 'create'], [1, 0, 1])
        """
        info = self._info()
        if (branch, tag, snapshot_id) == (None, None, None):
            branch = "main"
        snapshot = snapshot_of_version(info, branch, tag, snapshot_id)
        with snapshots_wanted():
            return blaming.blame(self._context, info, snapshot, path)

    def history_of(
        self,
        path: str,
        index: Sequence[int] | Mapping[str, Any],
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
    ) -> list[ChunkCommit]:
        """Return all commits that wrote or deleted the chunk of one cell of an array, newest first.

        At most one of ``branch``, ``tag`` and ``snapshot_id`` names the version.

        Args:
            path: The path of the array in this version.
            index: The index of the cell along each dimension; a negative index counts from the end. Or its
                label for each dimension name, such as ``{"time": "2026-11-01", "lat": 10}``, as in ``sel`` of
                xarray. Labels need the extra ``pipeline``.
            branch: The name of a branch. Default: ``main``, if no other version is named.
            tag: The name of a tag.
            snapshot_id: The id of a snapshot, or the first characters of an id.

        Returns:
            The commits. The last one has ``is_before`` if expired versions wrote the chunk before.

        Raises:
            InvalidInputError: ``invalid-chunk-index`` if the array has no such cell, or if the labels do not
                name one cell. ``invalid-array-metadata`` if a dimension has no coordinate. ``not-an-array``
                if ``path`` is a group.
            TypeError: If an index is not an integer.
            MissingExtraError: ``missing-extra`` for labels without the extra ``pipeline``.
            IcechunkError: The other errors of ``blame``.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="create") as store:
            ...     array = zarr.create_array(store, name="t", shape=(6,), chunks=(2,), dtype="i4")
            ...     array[:] = 1
            >>> with repo.transaction("main", message="correct") as store:
            ...     zarr.open_array(store, path="t")[3] = 5
            >>> [commit.message for commit in repo.history_of("/t", (2,))]
            ['correct', 'create']
        """
        info = self._info()
        if (branch, tag, snapshot_id) == (None, None, None):
            branch = "main"
        snapshot = snapshot_of_version(info, branch, tag, snapshot_id)
        with snapshots_wanted():
            cell = self._cell_at(snapshot, path, index) if isinstance(index, Mapping) else index
            return blaming.history_of(self._context, info, snapshot, path, cell)

    def _cell_at(self, snapshot: bytes, path: str, labels: Mapping[str, Any]) -> list[int]:
        """Return the index of the cell that labels name, for each dimension."""
        session = self.readonly_session(snapshot_id=id_to_text(snapshot))
        with needs("frazil.Repository.history_of with labels", extra="pipeline"):
            array_info, positions = map(value_of, (_ARRAY_INFO, _POSITIONS))
        array = array_info(session, absolute(path))
        if set(labels) != set(array.dims):
            raise InvalidInputError(
                f"index must have a label for each dimension of `{array.path}`, {tuple(array.dims)}, got "
                f"{tuple(labels)}",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        cell = [positions(session, array, dim, labels[dim], None) for dim in array.dims]
        several = [
            dim for dim, at in zip(array.dims, cell, strict=True) if not isinstance(at, int) and len(at) != 1
        ]
        if several:
            raise InvalidInputError(
                f"index must name one cell, got {labels[several[0]]!r} for {several[0]!r}, which selects "
                "another number of cells",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        return [at if isinstance(at, int) else at[0] for at in cell]

    blame_async = awaitable(blame)
    history_of_async = awaitable(history_of)
