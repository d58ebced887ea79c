"""Moving nodes in the hierarchy, and chunks in the grid of an array."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from frazil.changes.shift import reindexed, shifted
from frazil.errors import ErrorKind, InvalidInputError, SessionStateError
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.paths import absolute
from frazil.repository.session.session_state import Permissions


class Rearranging(Permissions):
    """Methods of ``Session``."""

    def move(self, from_path: str, to_path: str) -> None:
        """Move or rename a node and all below it: nothing is copied, and node ids stay.

        Only in a session of ``Repository.rearrange_session``, which can do nothing else: else
        ``SessionStateError`` (``non-rearrange-session``). Paths start with ``/``: else ``InvalidInputError``
        (``invalid-path``). Raises ``NodeNotFoundError``; ``AlreadyExistsError`` (``move-wont-overwrite``);
        ``SessionStateError`` (``move-into-self-or-descendant``, ``move-destination-parent-missing``,
        ``move-destination-parent-not-group``).

        >>> import frazil, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a group") as store:
        ...     _ = zarr.group(store).create_group("data").create_group("raw")
        >>> session = repo.rearrange_session("main")
        >>> session.move("/data/raw", "/data/v1")
        >>> session.status().moved_nodes
        [('/data/raw', '/data/v1')]
        """
        self._state.workspace.context.require_version_2()
        self._require_not_reading()
        if self.mode is not SessionMode.rearrange:
            raise SessionStateError(
                "this session cannot move nodes: commit or discard its changes, and open one with "
                "Repository.rearrange_session",
                ErrorKind.NON_REARRANGE_SESSION,
            )
        self._require_not_ended()
        self._state.workspace.nodes.move_node(_from_root(from_path), _from_root(to_path))

    def shift_array(self, array_path: str, chunk_offset: Iterable[int]) -> None:
        """Move all chunks of an array by so many chunks along each dimension; no bytes are copied.

        What leaves the grid is deleted: resize the array first to keep it. Where chunks came from and none
        arrived, there is the fill value. In a rectilinear grid a chunk goes only where chunks have its
        lengths. Raises ``NodeNotFoundError``; ``InvalidInputError`` (``invalid-path``, ``not-an-array``;
        ``invalid-chunk-index`` for an offset of another rank; ``invalid-array-metadata`` where chunks do not
        fit); as a write does in a session that cannot.

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
            node = workspace.nodes.require_array(path)
            workspace.notes.note_tree(path)
            workspace.chunks.set_refs(path, shifted(node, workspace.chunks.ref_table(path), chunk_offset))

    def reindex_array(
        self,
        array_path: str,
        forward: Callable[[list[int]], Iterable[int] | None],
        backward: Callable[[list[int]], Iterable[int] | None] | None = None,
    ) -> None:
        """Put every chunk of an array where ``forward`` says; no bytes are copied.

        ``forward`` gets the coordinates of each chunk that is there, and gives those where it goes, or None
        to leave it. A place that gets no chunk keeps what it has, unless ``backward`` says where its chunk
        would come from, and there is none: None, or coordinates without a chunk. Of several chunks for one
        place the last counts.

        Raises as ``shift_array`` does, ``InvalidInputError`` (``invalid-chunk-index``) for coordinates
        outside of the grid, and ``IcechunkError`` when a function raises: nothing is changed then.

        >>> import frazil, zarr
        >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
        >>> array = zarr.create_array(session.store, name="t", shape=(6,), chunks=(2,), dtype="i4")
        >>> array[:] = range(6)
        >>> session.reindex_array("/t", lambda at: [2 - at[0]])
        >>> array[:].tolist()
        [4, 5, 2, 3, 0, 1]
        """
        for function in (forward, backward):
            if function is not None and not callable(function):
                raise TypeError(f"expected a function, found {type(function).__name__}")
        path = self._to_change(array_path)
        workspace = self._state.workspace
        with workspace.commit_lock:
            node = workspace.nodes.require_array(path)
            workspace.notes.note_tree(path)
            edits = reindexed(node, workspace.chunks.ref_table(path), forward, backward)
            workspace.chunks.set_refs(path, edits)

    def _to_change(self, path: str) -> str:
        self._require_not_reading()
        self.require_writable()
        return _from_root(path)

    move_async = awaitable(move)


def _from_root(path: str) -> str:
    if not path.startswith("/"):
        raise InvalidInputError(
            f"expected a path from the root, such as '/{path}', found {path!r}", ErrorKind.INVALID_PATH
        )
    return absolute(path)
