"""What is withdrawn: boxes of elements of arrays, and foreign objects. Which references are in the data.

An array is found by its path in every version, and then followed by its id. So a box also applies to versions
where the array has another path. An array that grew or shrank has the same elements at the same positions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from itertools import accumulate
from json import dumps, loads
from threading import Lock
from typing import Any, Final
from urllib.parse import unquote

import numpy as np

from frazil.arrays.box_writing import filled_chunk
from frazil.changes.zarr_metadata import chunk_lengths, same_encoding
from frazil.chunks.reader import ChunkReader
from frazil.chunks.writer import ChunkWriter
from frazil.display import some_of
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.format.columns import I64, U8, U32
from frazil.format.ids import NODE_ID_BYTES, id_list, id_matrix, ids_among
from frazil.format.manifest import ChunkTable, NativeRef
from frazil.format.nodes import NodeTable
from frazil.maintenance.withdrawal.copies import SOURCE
from frazil.maintenance.withdrawal.spans import Mask
from frazil.repository.paths import absolute

#: The elements of a box along each dimension: the first one, and the end.
type Box = tuple[tuple[int, int], ...]

#: The end of all elements, also of versions with more of them.
_ALL: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class DataSelection:
    """The data of a withdrawal: indices by path, none for the whole node; patterns of foreign objects."""

    boxes: Mapping[str, tuple[tuple[Any, ...], ...]]
    sources: tuple[str, ...]
    follow: bool = False

    @staticmethod
    def of(
        data: str | Sequence[str] | Mapping[str, Any], sources: str | Sequence[str], *, follow: bool
    ) -> DataSelection:
        """Return the checked arguments of `Upkeep.forget`."""
        names = [data] if isinstance(data, str) else data
        items = names if isinstance(names, Mapping) else dict.fromkeys(names)
        boxes: dict[str, tuple[tuple[Any, ...], ...]] = {}
        for path, value in items.items():
            every = value if isinstance(value, list) else [] if value is None else [value]
            boxes[absolute(path)] = tuple(each if isinstance(each, tuple) else (each,) for each in every)
        if not boxes and not sources:
            raise InvalidInputError("name the data: paths, or sources of virtual chunks, got none")
        return DataSelection(boxes, (sources,) if isinstance(sources, str) else tuple(sources), follow)

    def texts(self) -> tuple[str, ...]:
        """Return the data in words."""
        boxes = [(path, box) for path, own in self.boxes.items() for box in own or [None]]
        arrays = [path if box is None else f"{path}[{','.join(map(_text, box))}]" for path, box in boxes]
        return (*arrays, *(f"{SOURCE}{each}" for each in self.sources))

    def matches(self) -> Callable[[Sequence[str]], Mask]:
        """Return the function that tells which URLs the patterns match.

        A pattern with ``%`` is compared with the URL, another one with the URL without escapes.
        """
        match, match_plain = (
            re.compile(
                "|".join(translate(each) for each in self.sources if ("%" in each) == escaped) or "(?!)"
            ).match
            for escaped in (True, False)
        )
        return lambda urls: np.fromiter(
            (bool(match(each) or match_plain(unquote(each))) for each in urls), np.bool_, len(urls)
        )


def _text(item: Any) -> str:
    if not isinstance(item, slice):
        return "..." if item is ... else repr(item)
    ends = [item.start, item.stop] if item.step is None else [item.start, item.stop, item.step]
    return ":".join("" if each is None else repr(each) for each in ends)


def _box(path: str, index: tuple[Any, ...], ndim: int) -> Box:
    """Return the box of an index of an array."""
    at = next((number for number, each in enumerate(index) if each is ...), len(index))
    rest = index[at + 1 :]
    items = [*index[:at], *[slice(None)] * (ndim - at - len(rest)), *rest]
    ends = [
        (each.start or 0, _ALL if each.stop is None else each.stop)
        if isinstance(each, slice) and each.step in (None, 1)
        else (each, each + 1)
        if isinstance(each, int)
        else (-1, -1)
        for each in items
    ]
    if len(items) != ndim or not all(isinstance(end, int) and end >= 0 for pair in ends for end in pair):
        raise InvalidInputError(
            f"a box of `{path}` must have {ndim} positions or slices from 0 on, without steps, got "
            f"[{', '.join(map(_text, index))}]. Positions are not counted from the end, because versions may "
            "have different shapes"
        )
    return tuple(ends)


@dataclass(frozen=True, slots=True, eq=False)
class ArrayCut:
    """What is withdrawn of one array. ``boxes`` is empty for the whole array.

    ``document`` has the largest shape of all versions, so that the chunks at its end have all their elements.
    ``encodings`` has the cuts by manifest if versions have other chunks or codecs.
    """

    paths: tuple[str, ...]
    document: bytes
    boxes: tuple[Box, ...]
    encodings: Mapping[bytes, ArrayCut] = field(default_factory=dict)

    def in_manifest(self, id_: bytes) -> ArrayCut:
        """Return the cut for the chunks of a manifest."""
        return self.encodings.get(id_, self)

    def masks(self, index: U32) -> tuple[Mask, Mask]:
        """Return which chunks have only withdrawn elements, and which have some."""
        whole, touched = np.zeros((2, len(index)), np.bool_)
        if not self.boxes:
            return ~whole, touched
        ends = list(self._ends(index))
        for box in self.boxes:
            if box and len(index) and (ends[0][0][0] >= box[0][1] or ends[0][1][-1] <= box[0][0]):
                continue  # the chunks are sorted, so none of them touches the box
            inside, near = np.ones((2, len(index)), np.bool_)
            for (start, stop), (low, high) in zip(box, ends, strict=True):
                near &= (low < stop) & (high > start)
                # A chunk behind the end of the array has no elements.
                inside &= ((low >= start) & (high <= stop)) | (high <= low)
            touched |= near
            whole |= near & inside
        return whole, touched & ~whole

    def _ends(self, index: U32) -> Iterator[tuple[I64, I64]]:
        """Yield the first element and the end of each chunk, for each dimension."""
        shape = loads(self.document)["shape"]
        for column, length, size in zip(index.T, chunk_lengths(self.document), shape, strict=True):
            at = column.astype(np.int64)
            if isinstance(length, int):
                low, high = at * length, at * length + length
            else:
                edges = np.array([0, *accumulate(length), _ALL], np.int64)
                low, high = edges[np.minimum(at, len(length))], edges[np.minimum(at, len(length)) + 1]
            yield low, np.minimum(high, size)

    def boxes_in(self, at: tuple[int, ...]) -> tuple[Box, ...]:
        """Return the parts of the boxes in one chunk, inside of the shape."""
        ends = [(int(low[0]), int(high[0])) for low, high in self._ends(np.array([at], np.uint32))]
        parts = (
            tuple(
                (max(start, low), min(stop, high))
                for (start, stop), (low, high) in zip(box, ends, strict=True)
            )
            for box in self.boxes
        )
        return tuple(part for part in parts if all(start < stop for start, stop in part))


def array_cuts(tables: Callable[[], Iterable[NodeTable]], selection: DataSelection) -> dict[bytes, ArrayCut]:
    """Return the cuts of all arrays that have one of the paths in one of the versions, by node id."""
    boxes: dict[bytes, dict[str, tuple[tuple[Any, ...], ...]]] = {}
    found: set[str] = set()
    for nodes in tables() if selection.boxes else ():
        for path, own in selection.boxes.items():
            row = nodes.find_node(path)
            below = np.arange(len(nodes))[nodes.below(path)]
            rows = np.append(below, row) if row >= 0 else below
            found |= {path} if len(rows) else set()
            if own and row >= 0 and not nodes.is_array[row]:
                raise InvalidInputError(f"`{path}` is a group, which has no box. Name its arrays, or no box")
            for id_ in id_list(nodes.ids[rows[nodes.is_array[rows]]]):
                boxes.setdefault(id_, {})[path] = own
    if missing := sorted(selection.boxes.keys() - found):
        raise NodeNotFoundError(
            f"no version has a group or array at {some_of(missing)}", ErrorKind.NODE_NOT_FOUND
        )
    names: dict[bytes, dict[str, None]] = {id_: {} for id_ in boxes}
    documents: dict[bytes, dict[bytes, None]] = {id_: {} for id_ in boxes}
    ids = id_matrix(list(boxes), NODE_ID_BYTES)
    for nodes in tables() if boxes else ():
        rows = np.flatnonzero(ids_among(nodes.ids, ids))
        paths, texts = nodes.paths.take(rows).texts(), nodes.user_data.take(rows).blobs()
        for id_, path, text in zip(id_list(nodes.ids[rows]), paths, texts, strict=True):
            names[id_][path] = documents[id_][text] = None
    return {
        id_: _array_cut(tables, id_, tuple(names[id_]), list(documents[id_]), list(own.values()))
        for id_, own in boxes.items()
    }


def _array_cut(
    tables: Callable[[], Iterable[NodeTable]],
    id_: bytes,
    paths: tuple[str, ...],
    documents: list[bytes],
    boxes: list[tuple[tuple[Any, ...], ...]],
) -> ArrayCut:
    if not all(boxes):  # one of the paths names the whole array
        return ArrayCut(paths, documents[-1], ())
    every = tuple(_box(paths[0], index, len(loads(documents[-1])["shape"])) for own in boxes for index in own)
    cuts, groups = list[ArrayCut](), list[set[bytes]]()
    for document in documents:
        at = next((at for at, cut in enumerate(cuts) if same_encoding(cut.document, document)), None)
        if at is None:
            cuts.append(ArrayCut(paths, document, every))
            groups.append({document})
        else:
            cuts[at] = replace(cuts[at], document=_longest(cuts[at].document, document))
            groups[at].add(document)
    encodings: dict[bytes, ArrayCut] = {}
    for group, cut in zip(groups, cuts, strict=True) if len(groups) > 1 else ():
        manifests = _manifests(tables, id_, group)
        if not manifests.isdisjoint(encodings):
            raise InvalidInputError(
                f"a manifest of `{paths[0]}` must have the same chunks and codecs in all versions for a box, "
                "got others. Name the whole array"
            )
        encodings |= dict.fromkeys(manifests, cut)
    return replace(cuts[-1], encodings=encodings)


def _longest(one: bytes, other: bytes) -> bytes:
    """Return the metadata of an array with the most elements along each dimension, in the chunks of both."""
    before, after = loads(one), loads(other)
    document = {**after, "shape": list(map(max, before["shape"], after["shape"]))}
    if after["chunk_grid"]["name"] == "rectilinear":
        lengths = zip(chunk_lengths(one), chunk_lengths(other), strict=True)
        shapes = [max(each, key=np.sum) for each in lengths]
        document["chunk_grid"] = {
            "name": "rectilinear",
            "configuration": {"kind": "inline", "chunk_shapes": shapes},
        }
    return dumps(document).encode()


def _manifests(tables: Callable[[], Iterable[NodeTable]], id_: bytes, documents: set[bytes]) -> set[bytes]:
    """Return the ids of the manifests of an array in versions with these metadata."""
    ids, manifests = id_matrix([id_], NODE_ID_BYTES), set[bytes]()
    for nodes in tables():
        own = nodes.select_nodes(np.flatnonzero(ids_among(nodes.ids, ids)))
        if not documents.isdisjoint(own.user_data.blobs()):
            manifests.update(id_list(own.manifest_ids()))
    return manifests


class PartialChunks:
    """Writes chunks again that are partly in a box. Equal chunks with equal boxes are written once."""

    def __init__(self, access: tuple[ChunkWriter, ChunkReader]) -> None:
        self.writer, self._reader = access
        #: Whether each chunk changes, and its new reference, if it is written.
        self._known: dict[Any, tuple[bool, NativeRef | None]] = {}
        self._lock = Lock()

    def files(self) -> U8:
        """Return the ids of the new chunk files."""
        return id_matrix(sorted({ref.chunk_id for _, ref in self._known.values() if ref is not None}))

    def written(
        self, table: ChunkTable, rows: I64, cut: ArrayCut, *, writes: bool
    ) -> tuple[Mask, ChunkTable]:
        """Return which chunks change with the fill value in the boxes, and their new references.

        A chunk without other values has none. Without ``writes``, nothing is stored.
        """
        with self._lock:
            results = [self._written(table, row, cut, writes) for row in rows.tolist()]
        index = table.index[rows[[ref is not None for _, ref in results]]]
        refs = [ref for _, ref in results if ref is not None]
        spans = np.array([(ref.offset, ref.length) for ref in refs], np.uint64).reshape(-1, 2)
        ids = id_matrix([ref.chunk_id for ref in refs])
        new = ChunkTable.from_native(index, ids, np.arange(len(ids)), spans[:, 0], spans[:, 1])
        return np.array([is_changed for is_changed, _ in results], np.bool_), new

    def _written(
        self, table: ChunkTable, row: int, cut: ArrayCut, writes: bool
    ) -> tuple[bool, NativeRef | None]:
        ref, at = table.ref(row), tuple(table.index[row].tolist())
        assert ref is not None
        boxes = cut.boxes_in(at)
        key = (cut.paths, ref, boxes, writes)
        if key not in self._known:
            before = self._reader.read(ref)
            data = filled_chunk(cut.document, cut.paths[0], at, before, boxes)
            is_changed = data != bytes(before)
            new = self.writer.write(data) if writes and is_changed and data is not None else None
            self._known[key] = is_changed, new
        return self._known[key]
