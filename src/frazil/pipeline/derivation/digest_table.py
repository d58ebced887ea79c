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
from collections.abc import Callable, Iterable, Sequence
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
    ROWS,
    U64,
    Intervals,
    Read,
    StoredChunks,
    Window,
    extend_hash,
    json_hash,
    prefix_hashes,
    reference_hashes,
    relation_fields,
    span_hashes,
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
        part, rows = (
            tuple(map(slice, (low - base).tolist(), (stops - base).tolist())) for base in (0, origin)
        )
        is_stored = before is not None and np.array_equal(before[rows], words[rows])
        if (low < stops).all() and not is_stored:
            stored[part] = words[rows]


# What digests are computed from

#: A coordinate behind those of all chunks.
LAST: Final = 1 << 32


def _leading(index: NDArray[Any]) -> I64:
    """Return the coordinates along the first dimension; zeros for arrays without dimensions."""
    return index[:, 0].astype(np.int64) if index.shape[1] else np.zeros(len(index), np.int64)


type Mark = tuple[int, int, str]


def _marks(stored: Any) -> list[Mark]:
    """Return marks from JSON."""
    return [(int(count), int(start), str(text)) for count, start, text in stored]


@dataclass(frozen=True, slots=True, eq=False)
class Prefixes:
    """Hashes of the first 0, 1, ... and all n rows, and the coordinates where the rest begins."""

    hashes: U64
    starts: I64

    @staticmethod
    def of(columns: Iterable[NDArray[Any]], starts: I64) -> Prefixes:
        """Return the prefixes of the rows of columns."""
        rows = np.repeat(np.array([[1], [2]], np.uint64), len(starts) - 1, axis=1)
        for column in columns:
            rows = extend_hash(rows, column)
        return Prefixes(prefix_hashes(rows), starts)

    def marks(self, count: int, end: int = LAST) -> list[Mark]:
        """Return what a table stores of the first rows: hashes of ``count``, one less, two, four, and so on.

        Each has the number of rows, and the coordinate where the rest begins, ``end`` at the latest.
        """
        numbers = [count, *(count - (1 << bit) for bit in range(count.bit_length()))]
        return [
            (each, min(int(self.starts[each]), end), self.hashes[each].tobytes().hex()) for each in numbers
        ]

    def first_change(self, marks: Sequence[Mark]) -> int:
        """Return a coordinate before which the rows are those of the marks."""
        for count, start, text in marks:
            if count < len(self.hashes) and self.hashes[count].tobytes().hex() == text:
                return min(start, int(self.starts[count]))
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class ManifestOrder:
    """The manifests of an array, in the order of their boxes along the first dimension.

    ``stops`` are where they end. The session has changed no chunk before ``edited``.
    """

    prefixes: Prefixes
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
        columns = (*ids.view(np.uint64).T, *boxes.reshape(count, 2 * boxes.shape[1]).T)
        prefixes = Prefixes.of(columns, np.append(_leading(boxes[:, :, 0]), LAST))
        edited = [_leading(each.table().index).min(initial=LAST) for each in entry.edits]
        return ManifestOrder(prefixes, _leading(boxes[:, :, 1]), int(min(edited, default=LAST)))

    def marks(self, end: int = LAST) -> list[Mark]:
        """Return the marks of manifests before ``end``, where changes begin: a commit writes others again."""
        end = min(end, self.edited)
        count = np.searchsorted(np.maximum.accumulate(self.stops), end, side="right")
        return self.prefixes.marks(int(count), end)

    def first_change(self, marks: Sequence[Mark]) -> int:
        """Return a coordinate before which all chunks are those of the marks."""
        return min(self.prefixes.first_change(marks), self.edited)


@dataclass(frozen=True, slots=True, eq=False)
class InputReads:
    """What the rows of chunks of a result, along its first dimension, read of an input.

    ``length`` and ``grid`` are those of the first dimension of the input. If the rows read it in windows,
    there is a ``window``; else ``rows`` are the spans that they read, and ``ends`` where the first 0, 1, ...
    and all rows end to read. With neither, each row may read everything.
    """

    manifests: ManifestOrder
    length: int = 1
    grid: int = 1
    window: Window | None = None
    rows: Prefixes | None = None
    ends: I64 = field(default_factory=lambda: np.zeros(0, np.int64))

    @staticmethod
    def of(read: Read, array: ArrayInfo, manifests: ManifestOrder, shape: Shape, grid: Shape) -> InputReads:
        """Return the reads of an input. ``shape`` and ``grid`` are those of the result."""
        if not read.axes or read.axes[0][0] != 0:
            return InputReads(manifests)
        relation, lengths = read.axes[0][1], (array.shape[0], array.grid[0])
        if isinstance(relation, Window) and not relation.periodic:
            return InputReads(manifests, *lengths, relation)
        intervals = Intervals(relation, shape[0], grid[0], array.shape[0])
        if intervals.count > ROWS:
            return InputReads(manifests)
        spans = intervals.spans(0, ROWS)
        rows = Prefixes.of([span_hashes(spans)], np.arange(intervals.count + 1))
        ends = np.maximum.accumulate(np.append(0, spans.high))[spans.offsets]
        return InputReads(manifests, *lengths, None, rows, ends)

    def form(self, read: Read, array: ArrayInfo) -> list[Any]:
        """Return what must be equal: lengths, relations, chunks. A relation that is no dataclass is None."""
        is_free = self.window is not None or self.rows is not None
        fixed = read.axes[1:] if self.rows is not None else read.axes
        axes = [[axis, type(each).__name__, each.moves] for axis, each in read.axes]
        return [array.shape[is_free:], array.grid, axes, *(relation_fields(each) for _, each in fixed)]

    def as_json(self) -> list[Any]:
        """Return what a table stores: the length, marks of the manifests, and of the rows."""
        rows = [] if self.rows is None else self.rows.marks(len(self.ends) - 1)
        return [self.length, self.manifests.marks(), rows]

    def first_change(self, length: int, marks: Sequence[Mark], rows: Sequence[Mark], step: int) -> int:
        """Return a row: those before it read the same chunks at the same places as the rows of a table.

        ``step`` is the length of a row.
        """
        end = self.manifests.first_change(marks)
        if self.rows is not None:
            inside = int(np.searchsorted(self.ends, end * self.grid, side="right")) - 1
            return min(inside, self.rows.first_change(rows))
        if self.window is None:
            return LAST if end == LAST else 0
        end *= self.grid
        return (
            self.window.count_before(end if length == self.length else min(end, length, self.length)) // step
        )


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """What the digests of a result are computed from: a later run finds out which of them still hold.

    ``form`` is a hash of the lengths and relations that must be equal. ``length`` is that of the result along
    its first dimension, and ``step`` that of its chunks.
    """

    form: str
    length: int
    step: int
    inputs: Sequence[InputReads]

    @staticmethod
    def of(
        shape: Shape, grid: Shape, reads: Sequence[Read], inputs: Sequence[tuple[ArrayInfo, ManifestOrder]]
    ) -> Basis | None:
        """Return what a result reads; None if it has no dimensions, or relations that cannot be compared."""
        if not shape:
            return None
        several, form = list[InputReads](), list[Any]()
        for read, (array, manifests) in zip(reads, inputs, strict=True):
            several.append(InputReads.of(read, array, manifests, shape, grid))
            form.append(several[-1].form(read, array))
        if any(None in each for each in form):
            return None
        return Basis(json_hash([shape[1:], grid, form]).tobytes().hex(), shape[0], grid[0], several)

    def as_json(self, marks: Sequence[Mark]) -> Json:
        """Return what a table stores. ``marks`` are those of the manifests of the result."""
        inputs = [each.as_json() for each in self.inputs]
        return {"form": self.form, "length": self.length, "inputs": inputs, "result": marks}

    def first_changes(self, stored: Any, result: ManifestOrder) -> tuple[int, int]:
        """Return two rows of chunks: before the first, the stored digests hold.

        Before the second, which is not behind the first, the chunks are also those of the run.
        """
        try:
            form, length, own = str(stored["form"]), int(stored["length"]), _marks(stored["result"])
            inputs = [(int(size), _marks(one), _marks(rows)) for size, one, rows in stored["inputs"]]
        except (LookupError, TypeError, ValueError):  # it has another form, or others have changed it
            return 0, 0
        if form != self.form or len(inputs) != len(self.inputs):
            return 0, 0
        first = -(-self.length // self.step)
        if length != self.length:
            first = min(length, self.length) // self.step
        pairs = zip(self.inputs, inputs, strict=True)
        first = min([first, *(each.first_change(*former, self.step) for each, former in pairs)])
        return first, min(first, result.first_change(own))


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
