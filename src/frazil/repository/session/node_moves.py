"""Methods that move nodes in the hierarchy, and chunks in the grid of an array."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from frazil.changes.shift import reindexed, shifted
from frazil.errors import ErrorKind, InvalidInputError, SessionStateError
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.paths import absolute
from frazil.repository.session.session_state import Permissions


class Rearranging(Permissions):
    """The methods of ``Session`` that move nodes and chunks."""

    def move(self, from_path: str, to_path: str) -> None:
        """Move or rename a node and all nodes below it.

        A move copies nothing, and nodes keep their ids. Only a session of ``Repository.rearrange_session``
        can move nodes; such a session can do nothing else.

        Specification: *MoveOperation*.

        Args:
            from_path: The path of a group or array. It starts with ``/``.
            to_path: The new path. It starts with ``/``. Its parent must be a group.

        Raises:
            NodeNotFoundError: There is no node at ``from_path``.
            AlreadyExistsError: There is a node at ``to_path`` (``move-wont-overwrite``).
            InvalidInputError: A path is not valid (``invalid-path``).
            SessionStateError: The session cannot move nodes (``non-rearrange-session``), ``to_path`` is the
                node itself or below it (``move-into-self-or-descendant``), or the parent of ``to_path`` does
                not exist or is not a group (``move-destination-parent-missing``,
                ``move-destination-parent-not-group``).
            FormatError: The repository has spec version 1 (``unsupported-spec-version``).

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="a group") as store:
            ...     raw = zarr.group(store).create_group("data").create_group("raw")
            >>> session = repo.rearrange_session("main")
            >>> session.move("/data/raw", "/data/v1")
            >>> session.status().moved_nodes
            [('/data/raw', '/data/v1')]
        """
        self._state.workspace.context.require_version_2()
        self._require_not_reading()
        if self.mode is not SessionMode.rearrange:
            raise SessionStateError(
                "this session cannot move nodes", ErrorKind.NON_REARRANGE_SESSION
            ).with_remedy(
                "Commit or discard its changes, and open a session with Repository.rearrange_session",
                shell="",
            )
        self._require_not_ended()
        self._state.workspace.move_node(_from_root(from_path), _from_root(to_path))

    def shift_array(self, array_path: str, chunk_offset: Iterable[int]) -> None:
        """Move all chunks of an array by a number of chunks along each dimension.

        The method changes references only, and copies no bytes. A chunk that leaves the grid is deleted:
        resize the array first to keep it. Chunks that get no new content have the fill value afterwards. In a
        rectilinear grid, a chunk can only move to a place where chunks have the same lengths.

        Args:
            array_path: The path of the array. It starts with ``/``.
            chunk_offset: The number of chunks along each dimension. Negative numbers move chunks towards the
                start.

        Raises:
            NodeNotFoundError: There is no node at ``array_path``.
            InvalidInputError: The path is not valid (``invalid-path``), the node is a group
                (``not-an-array``), the offset has another rank than the array (``invalid-chunk-index``), or a
                chunk does not fit where it goes (``invalid-array-metadata``).
            ReadOnlyError: The session is read-only (``read-only-session``).
            SessionStateError: The session can only move nodes (``rearrange-session-only``), or has expired
                (``session-expired``).

        Examples:
            >>> import frazil, zarr
            >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
            >>> array = zarr.create_array(session.store, name="t", shape=(6,), chunks=(2,), dtype="i4")
            >>> array[:] = range(6)
            >>> session.shift_array("/t", [1])
            >>> array[:].tolist()
            [0, 0, 0, 1, 2, 3]
        """
        path = self._to_change(array_path)
        workspace = self._state.workspace
        with workspace.commit_lock:
            node = workspace.require_array(path)
            workspace.note_tree(path)
            workspace.set_refs(path, shifted(node, workspace.ref_table(path), chunk_offset))

    def reindex_array(
        self,
        array_path: str,
        forward: Callable[[list[int]], Iterable[int] | None],
        backward: Callable[[list[int]], Iterable[int] | None] | None = None,
    ) -> None:
        """Move every chunk of an array to the coordinates that ``forward`` returns.

        The method changes references only, and copies no bytes. If an error is raised, nothing changes.

        Args:
            array_path: The path of the array. It starts with ``/``.
            forward: Called with the coordinates of each stored chunk. It returns the new coordinates, or None
                to leave the chunk where it is. If several chunks get the same coordinates, the last one is
                used.
            backward: The inverse of ``forward``. It is called with the coordinates of each stored chunk whose
                place gets no new chunk, and returns where a new chunk would come from. If it returns None, or
                the coordinates of a missing chunk, the old chunk is deleted. Otherwise, and without
                ``backward``, the old chunk stays.

        Raises:
            NodeNotFoundError: There is no node at ``array_path``.
            InvalidInputError: The path is not valid (``invalid-path``), the node is a group
                (``not-an-array``), coordinates are outside of the grid or have another rank
                (``invalid-chunk-index``), or a chunk does not fit where it goes (``invalid-array-metadata``).
            IcechunkError: One of the functions raised an error.
            ReadOnlyError: As in `shift_array`.
            SessionStateError: As in `shift_array`.

        Examples:
            >>> import frazil, zarr
            >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
            >>> array = zarr.create_array(session.store, name="t", shape=(6,), chunks=(2,), dtype="i4")
            >>> array[:] = range(6)
            >>> session.reindex_array("/t", lambda at: [2 - at[0]])
            >>> array[:].tolist()
            [4, 5, 2, 3, 0, 1]
        """
        for name, function in (("forward", forward), ("backward", backward)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function, got {type(function).__name__}")
        path = self._to_change(array_path)
        workspace = self._state.workspace
        with workspace.commit_lock:
            node = workspace.require_array(path)
            workspace.note_tree(path)
            edits = reindexed(node, workspace.ref_table(path), forward, backward)
            workspace.set_refs(path, edits)

    def _to_change(self, path: str) -> str:
        self._require_not_reading()
        self.require_writable()
        return _from_root(path)

    move_async = awaitable(move)


def _from_root(path: str) -> str:
    if not path.startswith("/"):
        raise InvalidInputError(
            f"the path must start with '/', such as '/{path}', got {path!r}", ErrorKind.INVALID_PATH
        )
    return absolute(path)
