"""The chunks of one array of a session: their references as columns, and the reader of their bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from frazil.format.manifest import ChunkKind

if TYPE_CHECKING:
    from frazil.chunks.reader import ChunkReader
    from frazil.format.columns import I64, U32
    from frazil.format.manifest import ChunkTable
    from frazil.repository.session.workspace import Workspace

#: The largest offset and length. The sum of two of them is a number of 64 bits with a sign.
_LARGEST: Final = np.uint64(1 << 61)


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
        """Return the references of chunks, in the order of ``index``, and the rows of impossible references.

        A damaged manifest may contain ranges of bytes that no object has. Their rows are ``ABSENT``.
        """
        self._workspace.note_chunks(self._path, index)
        refs = self._workspace.refs_at(self._path, index)
        is_wrong = (refs.kind != ChunkKind.ABSENT) & (
            (refs.length == 0) | (refs.length > _LARGEST) | (refs.offset > _LARGEST)
        )
        if is_wrong.any():
            refs = replace(refs, kind=np.where(is_wrong, np.uint8(ChunkKind.ABSENT), refs.kind))
        return refs, np.flatnonzero(is_wrong)
