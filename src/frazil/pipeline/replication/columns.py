"""The references of an array as columns, which exports and imports of references share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import chunk_key
from frazil.format.manifest import ChunkKind
from frazil.repository.session.session import Session
from frazil.storage.foreign_objects import address_of

#: The row of ``urls`` of an inline reference.
INLINE: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """References, n rows: ranges of the objects ``urls[source]``, or inline bytes.

    ``index`` has the coordinates of chunks, uint32 of shape (n, ndim). ``source``, ``offset`` and ``length``
    have shape (n,). ``inline`` has the bytes of the rows whose source is ``INLINE``, in their order.
    """

    index: NDArray[np.uint32]
    urls: list[str]
    source: NDArray[np.int64]
    offset: NDArray[np.uint64]
    length: NDArray[np.uint64]
    inline: list[bytes]

    def __len__(self) -> int:
        return len(self.source)

    def inline_rows(self) -> list[int]:
        """Return the rows of inline references."""
        return np.flatnonzero(self.source == INLINE).tolist()

    def positions(self, grid: tuple[int, ...]) -> NDArray[np.int64]:
        """Return the positions of the chunks in a grid, in C order."""
        if not grid:
            return np.zeros(len(self), np.int64)
        return np.asarray(np.ravel_multi_index(tuple(self.index.T.astype(np.int64)), grid), np.int64)


def references_of(session: Session, path: str) -> References:
    """Return the references of an array. Native chunks are ranges of chunk files, which must have a URL."""
    table = session.chunk_table(path).prune()
    context = session.workspace.context
    is_native, is_virtual = table.kind == ChunkKind.NATIVE, table.kind == ChunkKind.VIRTUAL
    urls = context.virtual.urls(table.foreign.locations.texts())
    source = np.where(is_virtual, table.source.astype(np.int64), INLINE)
    if is_native.any():
        address = address_of(context.storage, "")
        if address is None:
            raise InvalidInputError(
                f"the chunks of `{path}` must have URLs, but {int(is_native.sum())} are in "
                f"{context.storage.label()}. Copy the repository to a folder or a bucket first",
                ErrorKind.UNSUPPORTED_ARRAY,
            )
        source[is_native] = len(urls) + table.source[is_native]
        root = address[0].rstrip("/") + "/"
        urls += [root + chunk_key(each.tobytes()) for each in table.chunk_ids]
    inline = table.inline.take(table.source[table.kind == ChunkKind.INLINE]).blobs()
    return References(table.index, urls, source, table.offset, table.length, inline)
