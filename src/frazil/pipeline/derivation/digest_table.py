"""Tables of digests: what is known of each chunk of a result, as an array in ``/.frazil/derived``.

For each chunk, a table has the digest of what the chunk was computed from (`relations`), and a hash of the
reference to the chunk. So neither the version that was read nor the way to the present version is needed to
find what has changed, and a result that somebody has edited is found too.
"""

from __future__ import annotations

import functools
import json
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.arrays.array import Array
from frazil.format.chunk_table import ChunkTable, ascending, within
from frazil.format.ids import id_matrix, id_to_text
from frazil.jobs.blocks import I64, block_shape, cells, split
from frazil.pipeline.derivation.definition import Definition
from frazil.pipeline.derivation.relations import (
    U64,
    Read,
    StoredChunks,
    Window,
    extend_hash,
    json_hash,
    prefix_hashes,
    reference_hashes,
    relation_fields,
)
from frazil.pipeline.transform.arrays import (
    TABLES,
    ArrayInfo,
    Json,
    Shape,
    array_info,
    clipped_chunks,
    open_array,
)
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session
from frazil.zarr_store.arrays import array_at

_TABLE_BYTES: Final = 1 << 19


def table_path(session: Session, path: str) -> str:
    """Return the path of the table of a result. It has the id of the node, so that results may move."""
    return f"{TABLES}/{id_to_text(session.workspace.require_array(path).id)}"


@dataclass(frozen=True, slots=True, eq=False)
class DigestTable:
    """What is stored of a result: its definition, and for each of its chunks a digest and its reference.

    The array has the shape (*chunks, 3): two words of the digest, and a hash of the reference to the chunk,
    which is 0 if the result does not have the chunk. ``place`` is the path of the result below the target of
    the operation. ``key`` is a hash of what all chunks depend on, ``basis`` the JSON of a `Basis`.
    ``parts`` has the rows of the array that were read, by the first of them.
    """

    array: Array
    shape: Shape
    definition: Definition
    place: str
    key: str
    basis: Any
    parts: dict[int, U64] = field(default_factory=dict)

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
        place, key = (str(attributes.get(name, "")) for name in ("place", "key"))
        array, basis = open_array(session, at), attributes.get("basis")
        return DigestTable(array, info.shape, definition, place, key, basis)

    def at(self, counts: Shape, first: int = 0) -> U64:
        """Return the words of a grid of chunks, which begins at ``first`` along the first dimension.

        They are zeros where the table has none.
        """
        if first not in self.parts:
            self.parts[first] = np.asarray(self.array[first:] if first else self.array[...])
        words = self.parts[first]
        if words.shape[:-1] == counts:
            return words
        out = np.zeros((*counts, 3), np.uint64)
        if words.ndim == out.ndim:
            both = tuple(slice(0, min(pair)) for pair in zip(words.shape, out.shape, strict=True))
            out[both] = words[both]
        return out


def write_table(
    session: Session, path: str, attributes: Json, words: U64, first: int, former: DigestTable | None
) -> None:
    """Store the table of a result in place of the former one, and only those of its chunks that change.

    ``words`` are those of the chunks from the coordinate ``first`` of the first dimension on.
    """
    at, shape = table_path(session, path), (first + len(words), *words.shape[1:])
    before = None
    if former is not None and len(former.shape) == len(shape):
        before = former.at(words.shape[:-1], first)
    else:
        ones = (1,) * (len(shape) - 1)
        zarr.create_array(
            session.store,
            name=at.strip("/"),
            shape=shape,
            chunks=clipped_chunks(block_shape(shape, (*ones, 3), 8, _TABLE_BYTES), shape),
            dtype=np.uint64,
            attributes=attributes,
            # xarray opens all groups of a tree.
            dimension_names=[*(f"{at.rpartition('/')[2]}_{axis}" for axis in range(len(ones))), "word"],
            overwrite=session.workspace.node(at) is not None,
        )
    info = array_info(session, at)
    if any(map(operator.lt, shape, info.shape)):
        array_at(session, at, "r+").resize(shape)
    document = {**info.document, "shape": list(shape), "attributes": attributes}
    if document != info.document:
        session.workspace.set_node(at, json.dumps(document).encode())
    stored, origin = open_array(session, at), np.array([first, *(0 for _ in shape[1:])])
    for starts, stops in zip(*split(shape, info.grid), strict=True):
        low = np.maximum(starts, origin)
        part = tuple(map(slice, low.tolist(), stops.tolist()))
        new = words[tuple(map(slice, (low - origin).tolist(), (stops - origin).tolist()))]
        old = (
            None
            if before is None
            else before[tuple(map(slice, (low - origin).tolist(), (stops - origin).tolist()))]
        )
        if (low < stops).all() and (old is None or not np.array_equal(old, new)):
            stored[part] = new


# What digests are computed from

#: A coordinate behind those of all chunks.
LAST: Final = 1 << 32


def _leading(index: NDArray[Any]) -> I64:
    """Return the coordinates along the first dimension; zeros for arrays without dimensions."""
    return index[:, 0].astype(np.int64) if index.shape[1] else np.zeros(len(index), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ManifestOrder:
    """The n manifests of an array, in the order of their boxes along the first dimension.

    ``hashes`` are those of the first 0, 1, ... and all n manifests, ``starts`` where each of them begins,
    and `LAST`; ``stops`` where each ends. The session has changed no chunk before ``edited``.
    """

    hashes: U64
    starts: I64
    stops: I64
    edited: int

    @staticmethod
    def of(session: Session, path: str) -> ManifestOrder:
        """Return the manifests of an array of a session."""
        entry = session.workspace.array_entry(path)
        assert entry is not None
        boxes = entry.boxes.astype(np.int64)
        order = np.argsort(_leading(boxes[:, :, 0]), kind="stable")
        boxes, count = boxes[order], len(order)
        ids = np.zeros((count, 24), np.uint8)
        ids[:, :8], ids[:, 8:20] = np.frombuffer(entry.node.id, np.uint8), id_matrix(entry.ids)[order]
        rows = np.repeat(np.array([[1], [2]], np.uint64), count, axis=1)
        for column in (*ids.view(np.uint64).T, *boxes.reshape(count, 2 * boxes.shape[1]).T):
            rows = extend_hash(rows, column)
        edited = [_leading(each.table().index).min(initial=LAST) for each in entry.edits]
        return ManifestOrder(
            prefix_hashes(rows),
            np.append(_leading(boxes[:, :, 0]), LAST),
            _leading(boxes[:, :, 1]),
            int(min(edited, default=LAST)),
        )

    def marks(self, end: int = LAST) -> list[tuple[int, int, str]]:
        """Return what a table stores of the manifests that end before ``end``, where changes begin.

        These are hashes of all of them, of all but one, but two, but four, and so on, each with the number of
        manifests, and with the coordinate where the next one begins. A commit writes a manifest with changes
        again.
        """
        end = min(end, self.edited)
        count = int(np.searchsorted(np.maximum.accumulate(self.stops), end, side="right"))
        numbers = [count, *(count - (1 << bit) for bit in range(count.bit_length()))]
        return [
            (each, min(int(self.starts[each]), end), self.hashes[each].tobytes().hex()) for each in numbers
        ]

    def first_change(self, marks: Sequence[tuple[int, int, str]]) -> int:
        """Return a coordinate before which all chunks are those of ``marks``."""
        for count, start, text in marks:
            if count < len(self.hashes) and self.hashes[count].tobytes().hex() == text:
                return min(start, int(self.starts[count]), self.edited)
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """What the digests of a result are computed from: a later run finds out which of them still hold.

    ``form`` is a hash of the lengths and relations that must be equal. An input that is read in windows along
    the first dimension may have another length there: ``windows`` has the relation, or None, the length and
    the chunk length of each input. ``length`` and ``step`` are those of the result. ``manifests`` are those
    of the inputs.
    """

    form: str
    length: int
    step: int
    windows: Sequence[tuple[Window | None, int, int]]
    manifests: Sequence[ManifestOrder]

    @staticmethod
    def of(
        shape: Shape, grid: Shape, reads: Sequence[Read], inputs: Sequence[tuple[ArrayInfo, ManifestOrder]]
    ) -> Basis | None:
        """Return what a result reads; None if that cannot be compared."""
        windows, form, is_known = list[tuple[Window | None, int, int]](), list[Any](), bool(shape)
        for read, (array, _) in zip(reads, inputs, strict=True):
            axis, relation = read.axes[0] if read.axes else (None, None)
            is_moving = axis == 0 and isinstance(relation, Window) and not relation.periodic
            window = relation if is_moving and isinstance(relation, Window) else None
            ends = (array.shape[0], array.grid[0]) if array.ndim else (1, 1)
            windows.append((window, *ends))
            relations = [[axis, type(each).__name__, relation_fields(each)] for axis, each in read.axes]
            is_known &= all(each is not None for _, _, each in relations)
            form.append([array.shape[window is not None :], array.grid, relations])
        if not is_known:
            return None
        text = json_hash([shape[1:], grid, form]).tobytes().hex()
        return Basis(text, shape[0], grid[0], windows, [manifests for _, manifests in inputs])

    def as_json(self, marks: Sequence[tuple[int, int, str]]) -> Json:
        """Return what a table stores. ``marks`` are those of the manifests of the result."""
        inputs = [
            [length, each.marks()] for (_, length, _), each in zip(self.windows, self.manifests, strict=True)
        ]
        return {"form": self.form, "length": self.length, "inputs": inputs, "result": marks}

    def first_change(self, stored: Any, result: ManifestOrder) -> int:
        """Return a coordinate before which the stored digests hold, and the chunks are those of the run."""
        try:
            form, length, own = str(stored["form"]), int(stored["length"]), _marks(stored["result"])
            inputs = [(int(former), _marks(marks)) for former, marks in stored["inputs"]]
        except (LookupError, TypeError, ValueError):  # it has another form, or others have changed it
            return 0
        if form != self.form or len(inputs) != len(self.manifests):
            return 0
        first = min(result.first_change(own), -(-self.length // self.step))
        if length != self.length:
            first = min(first, min(length, self.length) // self.step)
        for (window, now, grid), order, (former, marks) in zip(
            self.windows, self.manifests, inputs, strict=True
        ):
            end = order.first_change(marks)
            if window is not None:
                end = end * grid if now == former else min(end * grid, now, former)
                first = min(first, window.count_before(end) // self.step)
            elif end != LAST:
                return 0
        return first


def _marks(stored: Any) -> list[tuple[int, int, str]]:
    """Return marks of manifests from JSON."""
    return [(int(count), int(start), str(text)) for count, start, text in stored]


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


def own_hashes(session: Session, path: str, counts: Shape, first: int = 0) -> U64:
    """Return the hashes of the references of a result in a grid, shape (*counts); 0 for no chunk.

    The grid begins at ``first`` along the first dimension.
    """
    table = table_from(session, path, first)
    index = table.index
    if first:
        index = index - np.array([first, *(0 for _ in counts[1:])], np.uint32)
    return hash_grid(index, reference_hashes(table, lanes=1), counts)[..., 0]


def table_from(session: Session, path: str, first: int) -> ChunkTable:
    """Return the references of the chunks of an array from a coordinate of its first dimension on."""
    session.workspace.note_tree(absolute(path))
    return session.workspace.ref_table(absolute(path), first=first)


@dataclass(slots=True, eq=False)
class ChunkHashes:
    """The hashes of references of the arrays of a session. Each array is read once.

    A run that only plans sets those of arrays that it would compute. ``changes`` make them at the first need.
    ``predicted`` are the arrays of which it would compute some chunks. ``chunks`` begin at a coordinate.
    """

    session: Session
    chunks: dict[str, tuple[int, StoredChunks]] = field(default_factory=dict)
    changes: dict[str, tuple[Callable[[], tuple[I64, U64]], int | None]] = field(default_factory=dict)
    predicted: set[str] = field(default_factory=set)

    def of(self, path: str, first: int = 0) -> StoredChunks:
        """Return the chunks of an array, as they were at the first call, or those from a coordinate on."""
        if path not in self.chunks or self.chunks[path][0] > first:
            read = self._predicted if path in self.changes else self.read
            self.chunks[path] = first, read(path, first)
        return self.chunks[path][1]

    def manifests(self, path: str) -> ManifestOrder:
        """Return the manifests of an array. Chunks that a run would compute count as changes."""
        order = ManifestOrder.of(self.session, path)
        if path not in self.changes:
            return order
        info, changed = array_info(self.session, path), self.changes[path][0]()[0]
        later = _leading(chunk_index(changed, cells(info.shape, info.grid)))
        return replace(order, edited=min(order.edited, int(later.min(initial=LAST))))

    def predict(self, path: str, change: Callable[[], tuple[I64, U64]], length: int | None = None) -> None:
        """Set what ``change`` returns: the numbers of chunks, and their hashes, shape (n, 2).

        ``length`` is the number of bytes of each of them. Without it, the bytes of chunks that the array
        does not have yet are 0.
        """
        self.chunks.pop(path, None)
        self.changes[path] = functools.cache(change), length

    def _predicted(self, path: str, first: int) -> StoredChunks:
        change, length = self.changes[path]
        changed, words = change()
        info, stored = array_info(self.session, path), self.read(path, first)
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

    def read(self, path: str, first: int = 0) -> StoredChunks:
        """Return the chunks of an array, as they are now, from a coordinate of its first dimension on."""
        info, table = array_info(self.session, path), table_from(self.session, path, first)
        return StoredChunks(info.shape, info.grid, table.index, reference_hashes(table), table.length)
