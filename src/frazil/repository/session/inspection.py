"""Methods that return ids of nodes, and the references of the chunks of an array."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from operator import index

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import id_to_text
from frazil.format.manifest import ChunkTable
from frazil.repository.asynchronous import awaitable, on_thread
from frazil.repository.catalog import presentation
from frazil.repository.catalog.version_info import ChunkType
from frazil.repository.paths import absolute
from frazil.repository.session.chunk_listing import virtual_chunk_locations
from frazil.repository.session.session_state import Permissions


class Inspection(Permissions):
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
        coords = _coordinates(chunk_coordinates)
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
            raise InvalidInputError(
                f"batch_size must be at least 1, got {batch_size}", ErrorKind.INVALID_ARGUMENT
            )
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
        return virtual_chunk_locations(self._state.workspace)

    get_node_id_async = awaitable(get_node_id)
    chunk_type_async = awaitable(chunk_type)
    all_virtual_chunk_locations_async = awaitable(all_virtual_chunk_locations)


def _coordinates(given: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(map(index, given))
    except TypeError:
        raise TypeError(f"chunk_coordinates must be integers, got {given!r}") from None
