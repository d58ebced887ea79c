"""Tables of digests: what is known of each chunk of a result, as an array in ``/.frazil/derived``.

For each chunk, a table has the digest of what the chunk was computed from (`relations`), and a hash of the
reference to the chunk. So neither the version that was read nor the way to the present version is needed to
find what has changed, and a result that somebody has edited is found too.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.format.chunk_table import ascending, within
from frazil.format.ids import id_to_text
from frazil.jobs.blocks import I64, block_shape, cells, split
from frazil.pipeline.derivation.definition import Definition
from frazil.pipeline.derivation.relations import U64, StoredChunks, reference_hashes
from frazil.pipeline.transform.arrays import TABLES, Shape, array_info, clipped_chunks, open_array
from frazil.repository.session.session import Session
from frazil.zarr_store.arrays import array_at

_TABLE_BYTES: Final = 1 << 19


def table_path(session: Session, path: str) -> str:
    """Return the path of the table of a result. It has the id of the node, so that results may move."""
    return f"{TABLES}/{id_to_text(session.workspace.require_array(path).id)}"


@dataclass(frozen=True, slots=True, eq=False)
class DigestTable:
    """What is known of a result: its definition, and for each of its chunks a digest and its reference.

    ``words`` have the shape (*chunks, 3): two words of the digest, and a hash of the reference to the chunk,
    which is 0 if the result does not have the chunk. ``place`` is the path of the result below the target of
    the operation. ``key`` is a hash of what all chunks depend on.
    """

    words: U64
    definition: Definition
    place: str
    key: str

    @staticmethod
    def read(session: Session, path: str) -> DigestTable | None:
        """Return the table of a result; None if it has none, or one of a later form."""
        at = table_path(session, path) if session.workspace.is_array(path) else ""
        if not at or not session.workspace.is_array(at):
            return None
        info = array_info(session, at)
        attributes, definition = info.attributes, Definition.parse(info.attributes)
        if definition is None or info.document["data_type"] != "uint64" or info.shape[-1:] != (3,):
            return None
        texts = (str(attributes.get(name, "")) for name in ("place", "key"))
        return DigestTable(np.asarray(open_array(session, at)[...]), definition, *texts)

    def write(self, session: Session, path: str, old: DigestTable | None) -> None:
        """Store the table in place of ``old``, and only those of its chunks that change."""
        at = table_path(session, path)
        attributes = {"path": path, "place": self.place, "key": self.key, **self.definition.as_json()}
        if old is None or old.words.ndim != self.words.ndim:
            rows = (1,) * (self.words.ndim - 1)
            zarr.create_array(
                session.store,
                name=at.strip("/"),
                shape=self.words.shape,
                chunks=clipped_chunks(
                    block_shape(self.words.shape, (*rows, 3), 8, _TABLE_BYTES), self.words.shape
                ),
                dtype=np.uint64,
                attributes=attributes,
                # xarray opens all groups of a tree.
                dimension_names=[*(f"{at.rpartition('/')[2]}_{axis}" for axis in range(len(rows))), "word"],
                overwrite=session.workspace.node(at) is not None,
            )
            old = None
        info = array_info(session, at)
        if any(map(operator.lt, self.words.shape, info.shape)):
            array_at(session, at, "r+").resize(self.words.shape)
        document = {**info.document, "shape": list(self.words.shape), "attributes": attributes}
        if document != info.document:
            session.workspace.set_node(at, json.dumps(document).encode())
        stored = open_array(session, at)
        for starts, stops in zip(*split(self.words.shape, info.grid), strict=True):
            part = tuple(map(slice, starts.tolist(), stops.tolist()))
            if old is None or not np.array_equal(old.words[part], self.words[part]):
                stored[part] = self.words[part]

    def at(self, counts: Shape) -> U64:
        """Return the words in a grid of other lengths; zeros where the table has none."""
        if self.words.shape[:-1] == counts:
            return self.words
        out = np.zeros((*counts, 3), np.uint64)
        if self.words.ndim == out.ndim:
            both = tuple(slice(0, min(pair)) for pair in zip(self.words.shape, out.shape, strict=True))
            out[both] = self.words[both]
        return out


def chunk_rows(index: NDArray[np.uint32], counts: Shape) -> I64:
    """Return the numbers of chunks in the C order of their grid."""
    if not counts:
        return np.zeros(len(index), np.int64)
    return np.asarray(np.ravel_multi_index(tuple(index.T.astype(np.int64)), counts), np.int64)


def chunk_index(rows: I64, counts: Shape) -> I64:
    """Return the coordinates of chunks by their numbers, shape (chunks, dimensions)."""
    return (
        np.array(np.unravel_index(rows, counts), np.int64).T if counts else np.zeros((len(rows), 0), np.int64)
    )


def hash_grid(index: NDArray[np.uint32], hashes: U64, counts: Shape) -> U64:
    """Return hashes (lanes, n) of chunks in their grid, shape (*counts, lanes); 0 for no chunk."""
    lanes = len(hashes)
    inside = within(index, counts)
    if inside.all() and len(index) == math.prod(counts) and ascending(index):
        return hashes.T.reshape(*counts, lanes)
    out = np.zeros((*counts, lanes), np.uint64)
    out.reshape(-1, lanes)[chunk_rows(index[inside], counts)] = hashes.T[inside]
    return out


def own_hashes(session: Session, path: str, counts: Shape) -> U64:
    """Return the hashes of the references of a result in its grid, shape (*counts); 0 for no chunk."""
    table = session.chunk_table(path)
    return hash_grid(table.index, reference_hashes(table, lanes=1), counts)[..., 0]


@dataclass(slots=True, eq=False)
class ChunkHashes:
    """The hashes of references of the arrays of a session. Each array is read once.

    A run that only plans sets those of arrays that it would compute. ``later`` makes them at the first need.
    ``predicted`` are the arrays of which it would compute some chunks.
    """

    session: Session
    chunks: dict[str, StoredChunks] = field(default_factory=dict)
    later: dict[str, Callable[[], StoredChunks]] = field(default_factory=dict)
    predicted: set[str] = field(default_factory=set)

    def of(self, path: str) -> StoredChunks:
        """Return the chunks of an array, as they were at the first call."""
        if path not in self.chunks:
            make = self.later.pop(path, None)
            self.chunks[path] = self.read(path) if make is None else make()
        return self.chunks[path]

    def predict(self, path: str, change: Callable[[], tuple[I64, U64]], length: int | None = None) -> None:
        """Set what ``change`` returns: the numbers of chunks, and their hashes, shape (n, 2).

        ``length`` is the number of bytes of each of them. Without it, the bytes of chunks that the array
        does not have yet are 0.
        """
        self.chunks.pop(path, None)
        self.later[path] = lambda: self._predicted(path, *change(), length)

    def _predicted(self, path: str, changed: I64, words: U64, length: int | None) -> StoredChunks:
        info, stored = array_info(self.session, path), self.read(path)
        counts = cells(info.shape, info.grid)
        rows = chunk_rows(stored.index, counts)
        grid = hash_grid(stored.index, stored.hashes, counts).reshape(-1, 2)
        lengths = np.zeros(len(grid), np.uint64)
        lengths[rows] = stored.lengths
        grid[changed] = words
        if length is not None:
            lengths[changed] = length
        both = np.union1d(rows, changed)
        index = chunk_index(both, counts).astype(np.uint32)
        return StoredChunks(info.shape, info.grid, index, grid[both].T, lengths[both])

    def read(self, path: str) -> StoredChunks:
        """Return the chunks of an array, as they are now."""
        info, table = array_info(self.session, path), self.session.chunk_table(path)
        return StoredChunks(info.shape, info.grid, table.index, reference_hashes(table), table.length)
