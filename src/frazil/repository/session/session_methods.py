"""The methods of a session for forks, for looks at nodes and chunks, and for moves of both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from operator import index
from typing import Any, Final

import numpy as np

from frazil.changes.merge import check_forks
from frazil.changes.reads import ReadTracker
from frazil.changes.zarr_metadata import reindexed, shifted
from frazil.errors import ErrorKind, InvalidInputError, SessionStateError
from frazil.format.ids import id_to_text, ids_to_text
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.repository.asynchronous import awaitable, on_thread
from frazil.repository.catalog import presentation
from frazil.repository.catalog.collection_guard import Lease
from frazil.repository.catalog.version_info import ChunkType, SessionMode
from frazil.repository.paths import absolute
from frazil.repository.session.commit import PermissionChecks, SessionState
from frazil.repository.session.workspace import Workspace


def fork_state(state: SessionState) -> SessionState:
    """Return the state of a new fork, which contains all changes of the session until now."""
    workspace = state.workspace
    # Other threads wait for this lock. Their chunks are durable before the fork, or are written after it.
    with workspace.commit_lock:
        workspace.writer.flush()
        _seal_changes(state)
        if state.lease is None:
            since = state.session_start().since
            state.lease = Lease.take(workspace.context.storage, since, state.ends(), name=state.name)
        forked = Workspace(
            workspace.context,
            workspace.snapshot_id,
            workspace.all_changes(),
            reads=None if workspace.reads is None else ReadTracker(),
        )
    return SessionState(
        forked,
        None,
        state.mode,
        state.ends(),
        generation=state.generation,
        session_id=state.session_id,
        seen=state.seen,
        lease=state.lease,
    )


def merge_fork_states(state: SessionState, others: Sequence[SessionState]) -> None:
    """Merge the changes and the tracked reads of forks into a session. The caller holds its commit lock."""
    for other in others:
        _require_mergeable(state, other)
    # A repeated fork and the session itself add nothing.
    forks = list({id(other.workspace): other for other in others if other is not state}.values())
    trackers = [fork.workspace.reads for fork in forks]
    if forks := [fork for fork in forks if fork.workspace.has_changes]:
        changes = [fork.workspace.durable_changes() for fork in forks]
        _seal_changes(state)
        twins = check_forks(changes, state.merged, [fork.generation for fork in forks])
        state.workspace.merge_changes(changes, twins)
        state.expires_at = min(state.expires_at, *(fork.ends() for fork in forks))
        state.seen = min(state.seen, *(fork.seen for fork in forks))
        for each in changes:
            state.merged.add(state.generation, each)
        state.generation += 1
    if state.workspace.reads is not None:
        for tracker in filter(None, trackers):
            state.workspace.reads.add(tracker.reads())


def _seal_changes(state: SessionState) -> None:
    """Seal the changes since the last fork or merge. Earlier forks do not contain them."""
    if state.workspace.changes:
        state.merged.add(state.generation, state.workspace.changes)
        state.generation += 1
        state.workspace.seal_changes()


def _require_mergeable(state: SessionState, other: SessionState) -> None:
    if state.mode is not other.mode:
        kinds = {
            SessionMode.rearrange: ErrorKind.REARRANGE_SESSION_ONLY,
            SessionMode.writable: ErrorKind.NON_REARRANGE_SESSION,
        }
        raise SessionStateError(
            f"the fork must be of a {state.mode.name} session, got a fork of a {other.mode.name} session",
            kinds.get(state.mode, ErrorKind.MERGE_NOT_ALLOWED),
        )
    snapshot_id, workspace = state.workspace.snapshot_id, other.workspace
    if workspace.snapshot_id != snapshot_id:
        raise SessionStateError(
            f"the fork must be of snapshot {id_to_text(snapshot_id)}, as the session, got a fork of "
            f"{id_to_text(workspace.snapshot_id)}. Merge forks into their session, before a rebase",
            ErrorKind.MERGE_NOT_ALLOWED,
        )
    if other.generation < state.discarded_before and workspace.inherited:
        raise SessionStateError(
            "the session has discarded changes that this fork contains. Fork the session and write again",
            ErrorKind.MERGE_NOT_ALLOWED,
        )


def chunk_batches(workspace: Workspace, array_path: str, batch_size: int) -> Iterator[tuple[Any, ...]]:
    """Yield the batches of ``IcechunkStore.array_chunk_iterator``."""
    if batch_size < 1:
        raise InvalidInputError(f"batch_size must be at least 1, got {batch_size}")
    path = absolute(array_path)
    workspace.note_tree(path)
    node = workspace.node(path)
    if node is None or node.array is None:
        return
    table = workspace.ref_table(node.path)
    foreign = workspace.context.virtual.urls(table.foreign.locations.texts())
    names = {ChunkKind.NATIVE: ids_to_text(table.chunk_ids), ChunkKind.VIRTUAL: foreign}
    for start in range(0, len(table), batch_size):
        part = table.select_chunks(slice(start, start + batch_size))
        locations = np.full(len(part), "", object)
        for kind, texts in names.items():
            rows = part.kind == kind
            locations[rows] = list(map(texts.__getitem__, part.source[rows].tolist()))
        inline = np.flatnonzero(part.kind == ChunkKind.INLINE)
        blobs = part.inline.take(part.source[inline]).blobs()
        inlined = dict(zip(inline.tolist(), blobs, strict=True))
        yield part.index, part.kind, locations.tolist(), part.offset, part.length, inlined


class InspectMethods(PermissionChecks):
    """The methods of ``Session`` that look at nodes and chunks, without their bytes."""

    def get_node_id(self, path: str) -> str:
        """Return the id of a group or array.

        The id of a node stays the same when the node is moved.

        Args:
            path: The path of the node, such as ``"/data/t"`` or ``"data/t"``.

        Returns:
            The id as text.

        Raises:
            NodeNotFoundError: There is no node at ``path``.

        Examples:
            >>> import frazil, zarr
            >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
            >>> group = zarr.create_group(session.store, path="data")
            >>> len(session.get_node_id("/data"))
            13
        """
        workspace, path = self._state.workspace, absolute(path)
        workspace.note_document(path)
        return id_to_text(workspace.require_node(path).id)

    def chunk_type(self, array_path: str, chunk_coordinates: Sequence[int]) -> ChunkType:
        """Return where the bytes of a chunk are.

        Args:
            array_path: The path of the array.
            chunk_coordinates: The index of the chunk along each dimension.

        Returns:
            ``ChunkType.native`` (a chunk file), ``virtual`` (an object outside of the repository),
            ``inline`` (in the manifest), or ``uninitialized`` for a missing chunk.

        Raises:
            NodeNotFoundError: There is no node at ``array_path``.
            InvalidInputError: The node is a group (``not-an-array``).

        Examples:
            >>> import frazil, zarr
            >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
            >>> array = zarr.create_array(session.store, name="t", shape=(4,), chunks=(2,), dtype="i4")
            >>> array[:2] = 1
            >>> session.chunk_type("/t", [0]).name, session.chunk_type("/t", [1]).name
            ('inline', 'uninitialized')
        """
        workspace, path = self._state.workspace, absolute(array_path)
        try:
            coords = tuple(map(index, chunk_coordinates))
        except TypeError:
            raise TypeError(f"chunk_coordinates must be integers, got {chunk_coordinates!r}") from None
        workspace.note_chunk(path, coords)
        if workspace.array_entry(path) is None:
            workspace.require_array(path)
        return presentation.chunk_type(workspace.ref(path, coords))

    async def chunk_coordinates(
        self, array_path: str, batch_size: int = 1000
    ) -> AsyncIterator[tuple[int, ...]]:
        """Yield the coordinates of all stored chunks of an array.

        Args:
            array_path: The path of the array.
            batch_size: The number of chunks that are converted at a time, at least 1. Default: 1000.

        Yields:
            The index of one chunk along each dimension. Missing chunks are left out.

        Raises:
            NodeNotFoundError: There is no array at ``array_path``.
            InvalidInputError: ``batch_size`` is less than 1 (``invalid-argument``).

        Examples:
            >>> import asyncio, frazil, zarr
            >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
            >>> array = zarr.create_array(session.store, name="t", shape=(6,), chunks=(2,), dtype="i4")
            >>> array[2:] = 1
            >>> async def coordinates():
            ...     return [chunk async for chunk in session.chunk_coordinates("/t")]
            >>> asyncio.run(coordinates())
            [(1,), (2,)]
        """
        if batch_size < 1:
            raise InvalidInputError(f"batch_size must be at least 1, got {batch_size}")
        table = await on_thread(self.chunk_table, array_path)
        for start in range(0, len(table), batch_size):
            for coords in table.index[start : start + batch_size].tolist():
                yield tuple(coords)

    def chunk_table(self, array_path: str) -> ChunkTable:
        """Return all chunk references of an array as columns.

        Args:
            array_path: The path of the array.

        Returns:
            A table with a row for each stored chunk. ``index`` has the chunk coordinates, uint32 of shape
            (n, ndim); ``kind``, ``offset`` and ``length`` describe where the bytes are.

        Raises:
            NodeNotFoundError: There is no array at ``array_path``.

        Examples:
            >>> import frazil, zarr
            >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
            >>> array = zarr.create_array(session.store, name="t", shape=(4,), chunks=(2,), dtype="i4")
            >>> array[:] = 1
            >>> session.chunk_table("/t").index.tolist()
            [[0], [1]]
        """
        workspace, path = self._state.workspace, absolute(array_path)
        workspace.note_tree(path)
        return workspace.ref_table(path)

    def all_virtual_chunk_locations(self) -> list[str]:
        """Return the URLs of the virtual chunks of all arrays.

        Returns:
            One URL for each virtual chunk, repetitions included. A relative location is resolved with the
            URL of its virtual chunk container.

        Raises:
            InvalidInputError: A relative location has no container (``no-container-for-virtual-chunk``).

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.readonly_session("main").all_virtual_chunk_locations()
            []
        """
        workspace = self._state.workspace
        workspace.note_tree("/")
        nodes = workspace.node_table()
        urls: list[str] = []
        for path in np.array(nodes.paths_list(), object)[nodes.is_array].tolist():
            table = workspace.ref_table(path)
            rows = table.source[table.kind == ChunkKind.VIRTUAL]
            if len(rows):
                locations = workspace.context.virtual.urls(table.foreign.locations.texts())
                urls += np.array(locations, object)[rows].tolist()
        return urls

    get_node_id_async: Final = awaitable(get_node_id)
    chunk_type_async: Final = awaitable(chunk_type)
    all_virtual_chunk_locations_async: Final = awaitable(all_virtual_chunk_locations)


class RearrangeMethods(PermissionChecks):
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
            ).with_remedy("Commit its changes, and open Repository.rearrange_session", shell="")
        self._require_not_ended()
        self._state.workspace.move_node(_from_root(from_path), _from_root(to_path))

    def shift_array(self, array_path: str, chunk_offset: Iterable[int]) -> None:
        """Move all chunks of an array by a number of chunks along each dimension.

        The method changes references only, and copies no bytes. A chunk that leaves the grid is deleted:
        resize the array first to keep it. Chunks that get no new content have the fill value afterwards. If a
        chunk of a rectilinear grid does not fit where it goes, the chunk lengths of this dimension move with
        the chunks, and the lengths that leave the grid at one end enter it at the other one.

        Args:
            array_path: The path of the array. It starts with ``/``.
            chunk_offset: The number of chunks along each dimension. Negative numbers move chunks towards the
                start.

        Raises:
            NodeNotFoundError: There is no node at ``array_path``.
            InvalidInputError: The path is not valid (``invalid-path``), the node is a group
                (``not-an-array``), or the offset has another rank than the array (``invalid-chunk-index``).
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
            edits, document = shifted(node, workspace.ref_table(path, with_statistics=True), chunk_offset)
            workspace.set_refs(path, edits)
            if document is not None:
                workspace.set_node(path, document)

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
            edits = reindexed(node, workspace.ref_table(path, with_statistics=True), forward, backward)
            workspace.set_refs(path, edits)

    def _to_change(self, path: str) -> str:
        self._require_not_reading()
        self.require_writable()
        return _from_root(path)

    move_async: Final = awaitable(move)


def _from_root(path: str) -> str:
    if not path.startswith("/"):
        raise InvalidInputError(
            f"the path must start with '/', such as '/{path}', got {path!r}", ErrorKind.INVALID_PATH
        )
    return absolute(path)
