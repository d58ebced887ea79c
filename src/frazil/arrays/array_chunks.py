"""The chunks of one array of a session: their references as columns, and the reader of their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from frazil.chunks.reader import ChunkReader
    from frazil.format.columns import I64, U32
    from frazil.format.manifest import ChunkTable
    from frazil.repository.session.workspace import Workspace


class ArrayChunks:
    """The chunks of the array at ``path``.

    Attributes:
        reader: The reader of the bytes of chunks.
    """

    def __init__(self, workspace: Workspace, path: str) -> None:
        self._workspace = workspace
        self._path = path
        self.reader: ChunkReader = workspace.reader

    def refs(self, index: U32) -> tuple[ChunkTable, I64]:
        """Return the references of chunks, in the order of ``index``, and no failed rows."""
        self._workspace.notes.note_chunks(self._path, index)
        return self._workspace.chunks.refs_at(self._path, index), np.zeros(0, np.int64)
