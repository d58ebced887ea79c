"""Nodes: the groups and arrays of a snapshot, as columns sorted by the bytes of their paths.

In the order of bytes, all nodes below a group are side by side (from ``/a/`` to ``/a0``, since ``0`` follows
``/``). For UTF-8 it is also the order of Python's ``str``. An array may have thousands of manifests, and a
commit changes one of them. So they are columns too.

    NodeSnapshot       0 id  1 path  2 user_data  3 type of node_data  4 node_data  5 extra
    ArrayNodeData      0 shape (version 1)  1 dimension_names  2 manifests  3 shape_v2
    DimensionShapeV2   0 array_length  1 num_chunks
    DimensionName      0 name
    ManifestRef        0 object_id  1 extents
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress, repeat
from operator import attrgetter, eq
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, InternalError
from frazil.format.columns import (
    I64,
    U8,
    U32,
    Ragged,
    ascending,
    concat_numbered,
    intern,
    join_rows,
    ranges,
    set_rows,
    spread,
    structs,
    take_rows,
    unshared,
)
from frazil.format.envelope import LateFields, Violation, collect, reading, with_late_fields
from frazil.format.flatbuffer import NUL, OffsetVectors, TableLayout, Tables, TableWriter
from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES, id_keys, id_list, id_matrix, id_to_text


@dataclass(frozen=True, slots=True, eq=False)
class ManifestRef:
    """A manifest with references of an array, and the box of chunk coordinates that it covers."""

    id: bytes
    extents: NDArray[np.uint32]  # (ndim, 2), half-open. For a scalar array it covers everything

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ManifestRef):
            return NotImplemented
        return self.id == other.id and np.array_equal(self.extents, other.extents)

    def __hash__(self) -> int:
        return hash((self.id, self.extents.tobytes()))


@dataclass(frozen=True, slots=True, eq=False)
class ManifestRefs(Sequence[ManifestRef]):
    r"""A sequence of ``ManifestRef``, as columns."""

    ids: U8  # uint8 (m, 12)
    extents: U32  # uint32 (m, ndim, 2)

    @classmethod
    def of(cls, refs: Iterable[ManifestRef], ndim: int) -> ManifestRefs:
        """Return the columns of manifests, for an array with ``ndim`` dimensions."""
        if isinstance(refs, ManifestRefs):
            return refs
        refs = tuple(refs)
        boxes = [np.asarray(ref.extents, np.uint32).reshape(-1) for ref in refs]
        flat = np.concatenate([np.zeros(0, np.uint32), *boxes])
        return cls(id_matrix([ref.id for ref in refs]), flat.reshape(len(refs), ndim, 2))

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> ManifestRef: ...
    @overload
    def __getitem__(self, at: slice) -> ManifestRefs: ...
    def __getitem__(self, at: int | slice) -> ManifestRef | ManifestRefs:
        if isinstance(at, slice):
            return self.select_refs(at)
        return ManifestRef(self.ids[at].tobytes(), self.extents[at])

    def __iter__(self) -> Iterator[ManifestRef]:
        return map(ManifestRef, id_list(self.ids), self.extents)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ManifestRefs):
            return np.array_equal(self.ids, other.ids) and np.array_equal(self.extents, other.extents)
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def select_refs(self, rows: NDArray[Any] | slice) -> ManifestRefs:
        """Return some of the manifests."""
        return ManifestRefs(self.ids[rows], self.extents[rows])

    def join(self, other: Iterable[ManifestRef]) -> ManifestRefs:
        """Return these manifests and others of the same array."""
        more = ManifestRefs.of(other, self.extents.shape[1])
        return ManifestRefs(
            np.concatenate([self.ids, more.ids]), np.concatenate([self.extents, more.extents])
        )


_MAX_U32: Final = (1 << 32) - 1
_SEARCHES_BEFORE_INDEX: Final = 500
#: Below a group with this number of nodes, a search for children is faster than an index of all nodes.
_FEW_NODES: Final = 200
_ARRAY, _GROUP = 1, 2

_NODE_LAYOUT: Final = TableLayout({0: f"V{NODE_ID_BYTES}", 1: "u4", 2: "u4", 3: "u1", 4: "u4"}, slots=5)
#: Of groups, and of dimensions without a name.
_EMPTY_LAYOUT: Final = TableLayout({}, slots=0)
#: Spec version -> whether dimensions have names -> layout.
_ARRAY_LAYOUTS: Final = {
    version: {
        is_named: TableLayout(dict.fromkeys((0, *([1] if is_named else []), *others), "u4"), slots)
        for is_named in (False, True)
    }
    for version, slots, others in ((1, 3, (2,)), (2, 4, (2, 3)))
}
_DIM_LAYOUT: Final = TableLayout({0: "u8", 1: "u4"}, slots=2)
_NAME_LAYOUT: Final = TableLayout({0: "u4"}, slots=1)
_REF_LAYOUT: Final = TableLayout({0: f"V{OBJECT_ID_BYTES}", 1: "u4"}, slots=2)

_REQUIRED: Final = "snapshot-required"
#: The number of pairs of manifests that are compared at once.
_PAIRS: Final = 1 << 20
#: Returns a match for an absolute path without empty segments, ``.`` and ``..``.
_CANONICAL: Final = re.compile(r"/|(/(?!\.{1,2}(/|\Z))[^/]+)+", re.DOTALL).fullmatch


@dataclass(frozen=True, slots=True)
class ArrayData:
    """The data of an array in a snapshot besides its Zarr metadata."""

    shape: tuple[int, ...]  # The number of elements along each dimension
    num_chunks: tuple[int, ...]  # The number of chunks along each dimension
    #: A name or None for each dimension; None if the array has no names
    dimension_names: tuple[str | None, ...] | None
    manifests: Sequence[ManifestRef] = ()  # The manifests with its references


@dataclass(frozen=True, slots=True)
class Node:
    """A group (``array`` is None) or an array. ``user_data`` is the content of its ``zarr.json``."""

    id: bytes
    path: str
    user_data: bytes
    array: ArrayData | None

    @property
    def array_data(self) -> ArrayData:
        """The field ``array`` of a node that is an array."""
        assert self.array is not None
        return self.array


@dataclass(slots=True, eq=False)
class Memo:
    """The values that a table has computed about itself."""

    paths: list[str] | None = None
    rows: dict[str, int] | None = None
    children: tuple[dict[str, slice], list[str]] | None = None
    searches: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable(LateFields):
    """n nodes as columns, sorted by the bytes of their paths."""

    ids: U8  # uint8 (n, 8)
    paths: Ragged  # Text
    user_data: Ragged  # Bytes, the content of ``zarr.json``
    is_array: NDArray[np.bool_]  # bool (n,)
    array_length: Ragged  # uint64 rows, one number for each dimension; empty rows for groups
    num_chunks: Ragged  # uint32 rows, one number for each dimension
    #: bool (n,), whether num_chunks is from a file of version 1, so that only the Zarr metadata are exact
    guessed: NDArray[np.bool_]
    named: NDArray[np.bool_]  # bool (n,), whether the node has dimension names
    #: int64 rows: row numbers of dim_names, one for each dimension of a named node, -1 for no name
    dim_rows: Ragged
    dim_names: Ragged  # Text
    manifests: Ragged  # 'V12' rows, one for each ManifestRef
    extents: Ragged  # uint32 rows: ndim pairs (from, to) for each ManifestRef, all in one row
    #: The nodes of the file whose paths are no names of nodes, or are those of nodes before them. They are no
    #: rows of this table, and stay in the files of later versions.
    hidden: NodeTable | None = None
    #: The nodes of the file that lack a required field: why they cannot be read, by path
    refused: Mapping[str, str] = field(default_factory=dict)
    _memo: Memo = field(default_factory=Memo, repr=False)

    def __len__(self) -> int:
        return len(self.is_array)

    @classmethod
    def from_nodes(cls, nodes: Sequence[Node]) -> NodeTable:
        """Create a table of a few nodes, such as the changed nodes of a session, in any order."""
        nodes = sorted(nodes, key=attrgetter("path"))
        arrays = [node.array for node in nodes]
        data = [array or ArrayData((), (), None) for array in arrays]
        dims = [each.dimension_names or () for each in data]
        names = list(chain.from_iterable(dims))
        has_name = np.fromiter((name is not None for name in names), bool, len(names))
        columns = [ManifestRefs.of((), 0)]
        columns += [ManifestRefs.of(each.manifests, len(each.shape)) for each in data if len(each.manifests)]
        ref_counts = np.array([len(each.manifests) for each in data], np.int64)
        ndim = np.array([len(each.shape) for each in data], np.int64)
        dim_rows = np.where(has_name, np.cumsum(has_name) - 1, -1)
        all_ids = np.concatenate([each.ids for each in columns])
        boxes = np.concatenate([each.extents.reshape(-1) for each in columns])
        table = cls(
            ids=id_matrix([node.id for node in nodes], NODE_ID_BYTES),
            paths=Ragged.of_text([node.path for node in nodes]),
            user_data=Ragged.of_bytes([node.user_data for node in nodes]),
            is_array=np.array([array is not None for array in arrays], bool),
            array_length=_numbers([each.shape for each in data], np.uint64),
            num_chunks=_numbers([each.num_chunks for each in data], np.uint32),
            guessed=np.zeros(len(nodes), bool),
            named=np.array([each.dimension_names is not None for each in data], bool),
            dim_rows=Ragged.from_lengths(dim_rows, np.array([len(each) for each in dims], np.int64)),
            dim_names=Ragged.of_text([name for name in names if name is not None]),
            manifests=Ragged.from_lengths(structs(all_ids), ref_counts),
            extents=Ragged.from_lengths(boxes, 2 * ndim * ref_counts),
        )
        if int(table.extents.lengths.sum()) != len(table.extents.values):
            raise InternalError("extents have another rank than their array")
        if len({node.path for node in nodes}) != len(nodes):
            raise InternalError("two nodes have the same path", ErrorKind.NODE_ALREADY_EXISTS)
        table._memo.paths = [node.path for node in nodes]
        return table

    def find_node(self, path: str) -> int:
        """Return the row of the node at ``path``, -1 if there is none."""
        memo = self._memo
        if memo.rows is None and memo.searches < _SEARCHES_BEFORE_INDEX:
            memo.searches += 1
            row = self._bisect(path)
            is_there = row < len(self) and self.paths.bytes(row) == path.encode(errors="surrogatepass")
            row = row if is_there else -1
        else:
            row = self._rows().get(path, -1)
        # A node without a path could be any node that is not found
        if row < 0 and (reason := self.refused.get(path, self.refused.get(""))):
            raise FormatError(reason, check=_REQUIRED)
        return row

    def find_nodes(self, paths: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of many paths; -1 where there is no node."""
        if self._memo.rows is None and len(paths) < _SEARCHES_BEFORE_INDEX:
            return np.fromiter(map(self.find_node, paths), np.int64, len(paths))
        return np.fromiter(map(self._rows().get, paths, repeat(-1)), np.int64, len(paths))

    def _rows(self) -> dict[str, int]:
        memo = self._memo
        if memo.rows is None:
            memo.rows = dict(zip(self.paths_list(), range(len(self)), strict=True))
        return memo.rows

    def node(self, row: int) -> Node:
        """Return one row as a value."""
        array = None
        if self.is_array[row]:
            shape = tuple(self.array_length.row(row).tolist())
            grid = tuple(self.num_chunks.row(row).tolist())
            if self.guessed[row]:
                grid = _num_chunks(self.user_data.bytes(row), shape, grid)
            names: tuple[str | None, ...] | None = None
            if self.named[row]:
                numbers = self.dim_rows.row(row)
                unshared(self.dim_names.take(numbers[numbers >= 0]), "dimension names")
                text = self.dim_names.text
                names = tuple([None if number < 0 else text(number) for number in numbers.tolist()])
            ids = self.manifests.row(row)
            boxes = self.extents.row(row).reshape(len(ids), len(shape), 2)
            columns = np.ascontiguousarray(ids).view(np.uint8).reshape(len(ids), OBJECT_ID_BYTES)
            array = ArrayData(shape, grid, names, ManifestRefs(columns, boxes))
        return Node(self.ids[row].tobytes(), self.paths.text(row), self.user_data.bytes(row), array)

    def paths_list(self) -> list[str]:
        """Return all paths, sorted by bytes. The list is cached: do not change it."""
        if self._memo.paths is None:
            self._memo.paths = self.paths.texts()
        return self._memo.paths

    def children(self, path: str) -> list[str]:
        """Return the names of the direct children of the group ``path``, sorted by bytes."""
        below, prefix = self.below(path), len(path.rstrip("/")) + 1
        if self._memo.children is None and below.stop - below.start <= _FEW_NODES:
            inner = [self.paths.text(row)[prefix:] for row in range(below.start, below.stop)]
            return [name for name in inner if "/" not in name]
        if self._memo.children is None:
            parents: Sequence[str] = ()
            names: Sequence[str] = ()
            if len(self):
                parents, _, names = zip(*map(str.rpartition, self.paths_list(), repeat("/")), strict=True)
            distinct, codes = intern(parents)
            # The root is not a child; its name is empty.
            real = np.fromiter(map(bool, names), bool, len(names))
            order = np.argsort(codes[real], kind="stable")
            counts = np.bincount(codes[real], minlength=len(distinct))
            ends = np.cumsum(counts)
            named = list(compress(names, real.tolist()))
            slices = map(slice, (ends - counts).tolist(), ends.tolist())
            children = list(map(named.__getitem__, order.tolist()))
            self._memo.children = dict(zip(distinct, slices, strict=True)), children
        where, children = self._memo.children
        return children[where.get("" if path == "/" else path, slice(0))]

    def below(self, path: str) -> slice:
        """Return the rows of all nodes strictly below ``path``."""
        if path == "/":
            return slice(self._bisect("/\0"), len(self))
        return slice(self._bisect(path + "/"), self._bisect(path + "0"))

    def select_nodes(self, rows: NDArray[Any] | slice) -> NodeTable:
        """Return some rows: a mask, or row numbers that result in sorted paths."""
        columns: dict[str, Any] = {name: take_rows(getattr(self, name), rows) for name in _COLUMNS}
        return NodeTable(**columns, dim_names=self.dim_names, hidden=self.hidden, refused=self.refused)

    def edit(self, removed: NDArray[np.int64], added: NodeTable) -> NodeTable:
        """Return the table without the rows ``removed`` and with the nodes ``added``, sorted."""
        if not len(removed) and not len(added):
            return self
        if len(removed) == len(added):
            at = np.sort(removed)
            if list(map(self.paths_list().__getitem__, at.tolist())) == added.paths_list():
                return self._with_rows(at, added)
        keep = np.ones(len(self), bool)
        keep[removed] = False
        return self.select_nodes(keep)._joined(added)._require_distinct()

    def whole(self) -> NodeTable:
        """Return the table with the hidden nodes as rows."""
        return self if self.hidden is None else replace(self, hidden=None)._joined(self.hidden)

    def _joined(self, added: NodeTable) -> NodeTable:
        """Return the table with more nodes, sorted."""
        paths = [*self.paths_list(), *added.paths_list()]
        parts = [self, added]
        columns = {name: join_rows([getattr(part, name) for part in parts]) for name in _COLUMNS}
        dim_names = Ragged.concat([self.dim_names, added.dim_names])
        columns["dim_rows"] = concat_numbered(
            [part.dim_rows for part in parts], [len(part.dim_names) for part in parts]
        )
        joined = NodeTable(**columns, dim_names=dim_names, hidden=self.hidden, refused=self.refused)
        return joined._sorted(paths)  # two sorted runs, which Python's sort merges

    def _with_rows(self, rows: NDArray[np.int64], nodes: NodeTable) -> NodeTable:
        """Return the table with other nodes at the same paths."""
        if len(nodes) == len(self):
            return replace(nodes, hidden=self.hidden, refused=self.refused)
        numbers = concat_numbered(
            [self.dim_rows, nodes.dim_rows], [len(self.dim_names), len(nodes.dim_names)]
        )
        order = np.arange(len(self))
        order[rows] = np.arange(len(self), len(numbers))
        columns: dict[str, Any] = {
            name: set_rows(getattr(self, name), rows, getattr(nodes, name)) for name in _COLUMNS
        }
        columns["dim_rows"] = numbers.take(order)
        names = Ragged.concat([self.dim_names, nodes.dim_names])
        table = NodeTable(**columns, dim_names=names, hidden=self.hidden, refused=self.refused)
        table._memo.paths = self._memo.paths
        return table

    def renamed(self, rows: NDArray[np.int64], paths: Sequence[str]) -> NodeTable:
        """Return the table with new paths for some rows, sorted."""
        names = np.array([*self.paths_list(), None], object)  # None stops numpy from looking into the texts
        names[rows] = paths
        now: list[str] = names[:-1].tolist()
        return replace(self, paths=Ragged.of_text(now), _memo=Memo())._sorted(now)._require_distinct()

    def identities(self, rows: NDArray[np.int64]) -> tuple[list[bytes], list[bool]]:
        """Return the ids of some nodes, and whether each is an array."""
        return id_list(self.ids[rows]), self.is_array[rows].tolist()

    def manifest_ids(self) -> U8:
        """Return the distinct ids of all manifests of the nodes, (m, 12), sorted."""
        keys = self.whole().manifests.compact().values.view(f"S{OBJECT_ID_BYTES}")
        return np.unique(keys).view(np.uint8).reshape(-1, OBJECT_ID_BYTES)

    def exact(self) -> NodeTable:
        """Return the table with exact numbers of chunks, from the Zarr metadata of ``guessed`` rows."""
        rows = np.flatnonzero(self.guessed)
        if not len(rows):
            return self
        documents = self.user_data.take(rows).blobs()
        lengths = self.array_length.take(rows)
        counts = self.num_chunks.take(rows)
        right = Ragged.from_lengths(
            np.fromiter(
                chain.from_iterable(map(_num_chunks, documents, tuples(lengths), tuples(counts))),
                np.uint32,
                int(counts.lengths.sum()),
            ),
            counts.lengths,
        )
        joined = set_rows(self.num_chunks, rows, right)
        return replace(self, num_chunks=joined, guessed=np.zeros(len(self), bool))

    def _bisect(self, path: str) -> int:
        """Return the first row whose path is not less."""
        if self._memo.paths is not None:
            return bisect_left(self._memo.paths, path)
        # Text that UTF-8 cannot encode is not a path, but looking for it must not raise an error.
        return bisect_left(range(len(self)), path.encode(errors="surrogatepass"), key=self.paths.bytes)

    def _sorted(self, paths: list[str]) -> NodeTable:
        """Return the rows, which have these paths, sorted by path."""
        order = sorted(range(len(paths)), key=paths.__getitem__)
        table = self.select_nodes(np.array(order, np.int64))
        table._memo.paths = list(map(paths.__getitem__, order))
        return table

    def _require_distinct(self) -> NodeTable:
        if len(set(self.paths_list())) != len(self):
            raise InternalError("two nodes have the same path", ErrorKind.NODE_ALREADY_EXISTS)
        return self


#: The columns with one row for each node.
_COLUMNS: Final = tuple(
    name for name in NodeTable.__dataclass_fields__ if name not in ("dim_names", "hidden", "refused", "_memo")
)


def _numbers(rows: Sequence[tuple[int, ...]], dtype: Any) -> Ragged:
    lengths = np.array([len(row) for row in rows], np.int64)
    return Ragged.from_lengths(np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum())), lengths)


def tuples(rows: Ragged) -> list[tuple[int, ...]]:
    """Return each row as a tuple."""
    flat = rows.compact()
    values = tuple(flat.values.tolist())
    stops = flat.starts + flat.lengths
    return list(map(values.__getitem__, map(slice, flat.starts.tolist(), stops.tolist())))


def chunk_counts(document: Any, shape: Any) -> tuple[int, ...] | None:
    """Return the chunks along each dimension of a regular grid by the Zarr metadata, or None."""
    try:
        grid = document["chunk_grid"]
        pairs = list(zip(shape, grid["configuration"]["chunk_shape"], strict=True))
        is_plain = all(type(chunk) is int and chunk > 0 for _, chunk in pairs)
        if grid.get("name", "regular") != "regular" or not is_plain:
            return None
        return tuple([-(-length // chunk) for length, chunk in pairs])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _num_chunks(document: bytes, shape: tuple[int, ...], guess: tuple[int, ...]) -> tuple[int, ...]:
    """Return the chunks along each dimension by the Zarr metadata, or ``guess`` if they are not plain."""
    counts = chunk_counts(_document(document), shape)
    if counts is None:
        return guess
    if max(counts, default=0) > _MAX_U32:
        raise FormatError(f"a dimension must have at most {_MAX_U32} chunks, got {max(counts)}")
    return counts


def read_nodes(
    nodes: Tables, spec_version: int, source: str = "snapshot", broken: list[Violation] | None = None
) -> NodeTable:
    """Return the nodes of a file in any order. The names of dimensions are decoded when they are read."""
    try:
        return _read_nodes(nodes, spec_version, source, broken)
    except FormatError as error:
        is_bad = _lacking(nodes, spec_version)
        if error.check != _REQUIRED or not is_bad.any():
            raise
        some = nodes.take(is_bad)
        paths = [path.decode(errors="replace") for path in some.vectors(1).blobs()]
        reasons = {path: f"{source}: the node `{path}` lacks a required field" for path in paths}
        ids = id_list(some.structs(0, NODE_ID_BYTES))
        rules = (Violation(_REQUIRED, reasons[path], id_) for path, id_ in zip(paths, ids, strict=True))
        table = read_nodes(nodes.take(~is_bad), spec_version, source, broken)
        collect(broken, rules)
        return replace(table, refused=reasons)


def _lacking(nodes: Tables, spec_version: int) -> NDArray[np.bool_]:
    """Return which nodes, or arrays of nodes, or manifest references of arrays lack a required field."""
    is_bad = np.zeros(len(nodes), np.bool_)
    for slot in range(5):
        is_bad |= ~nodes.present(slot)
    rows = np.flatnonzero((nodes.scalars(3, np.uint8) == _ARRAY) & nodes.present(4))
    arrays, _ = nodes.take(rows).tables(4)
    refs, each = arrays.children(2)
    is_bad[rows] |= ~arrays.present(2) | ((spec_version == 1) & ~arrays.present(0))
    is_bad[np.repeat(rows, each)[~(refs.present(0) & refs.present(1))]] = True
    return is_bad


def _read_nodes(nodes: Tables, spec_version: int, source: str, broken: list[Violation] | None) -> NodeTable:
    nodes.require("node", _REQUIRED, id=0, path=1, user_data=2, node_type=3, node_data=4)
    kinds = nodes.scalars(3, np.uint8)
    is_array = kinds == _ARRAY
    if not (is_array | (kinds == _GROUP)).all():
        kind = int(kinds[~is_array].max())
        raise FormatError(f"a node must have kind 1 (array) or 2 (group), got {kind}", check=_REQUIRED)
    paths = unshared(nodes.vectors(1), "paths")
    arrays, _ = nodes.take(is_array).tables(4)
    array_ids = nodes.take(is_array).structs(0, NODE_ID_BYTES)
    collect(broken, _shape_violations(arrays, array_ids, spec_version))
    if spec_version == 1:
        lengths, counts = _shapes_v1(arrays)
    else:
        dims, each = arrays.children(3)
        lengths = Ragged.from_lengths(dims.scalars(0, "<u8"), each)
        counts = Ragged(dims.scalars(1, "<u4"), lengths.starts, lengths.lengths)
    named = np.zeros(len(nodes), bool)
    named[is_array] = arrays.present(1)
    arrays.require("array", _REQUIRED, manifests=2)
    refs, refs_each = arrays.children(2)
    refs.require("manifest reference", _REQUIRED, object_id=0, extents=1)
    boxes = refs.numbers(1, "V8")
    odd = np.repeat(lengths.lengths, refs_each) != boxes.lengths
    if (without := ~arrays.present(3) & (spec_version > 1)).any() or odd.any():
        owners = np.repeat(np.arange(len(arrays)), refs_each)
        rows = np.union1d(np.flatnonzero(without), owners[odd])
        documents = nodes.vectors(2).take(np.flatnonzero(is_array)[rows]).blobs()
        ends = np.cumsum(refs_each)[rows]
        spans = zip((ends - refs_each[rows]).tolist(), ends.tolist(), strict=True)
        own = [list(map(boxes.row, range(*span))) for span in spans]
        lengths, counts = _shapes_of_documents(rows, documents, own, lengths, counts)
        boxes = _fitting_boxes(boxes, counts.take(owners))
    ids = Ragged.from_lengths(structs(refs.structs(0, OBJECT_ID_BYTES)), refs_each)
    extents = Ragged.from_lengths(boxes.compact().values.view("<u4"), 2 * refs_each * lengths.lengths)
    fields = {
        "ids": nodes.structs(0, NODE_ID_BYTES),
        "paths": paths,
        "user_data": nodes.vectors(2),
        "is_array": is_array,
        "array_length": spread(lengths, is_array),
        "num_chunks": spread(counts, is_array),
        "guessed": is_array if spec_version == 1 else np.zeros(len(nodes), bool),
        "named": named,
        "manifests": spread(ids, is_array),
        "extents": spread(extents, is_array),
        "hidden": None,
        "refused": {},
        "_memo": Memo(),
    }

    def names() -> dict[str, Ragged]:
        with reading(source):
            dims, each = arrays.children(1)
            numbers = Ragged.from_lengths(np.where(dims.present(0), np.arange(len(dims)), -1), each)
            return {"dim_rows": spread(numbers, is_array), "dim_names": dims.vectors(0)}

    table = with_late_fields(NodeTable, fields, {"dim_rows": names, "dim_names": names})
    is_hidden = _strange(paths)
    if ascending(paths) and not is_hidden.any():
        return table
    texts = paths.texts()
    order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
    sorted_texts = list(map(texts.__getitem__, order.tolist()))
    repeats = map(eq, sorted_texts, sorted_texts[1:])
    is_hidden[order[1:]] |= np.fromiter(repeats, np.bool_, len(order[1:]))
    shown, hidden = order[~is_hidden[order]], order[is_hidden[order]]
    return replace(table.select_nodes(shown), hidden=table.select_nodes(hidden) if len(hidden) else None)


def _strange(paths: Ragged) -> NDArray[np.bool_]:
    """Return which paths are not absolute and canonical, and so are no names of nodes."""
    is_strange = np.zeros(len(paths), np.bool_)
    others = paths.take(paths.lengths != 1)  # all but the root
    joined = others.compact().values.tobytes() + b"/"
    starts = paths.lengths.all() and (paths.values[paths.starts] == ord("/")).all()
    # Each path begins with a slash, so a path that ends with a segment of dots is followed by one.
    if not starts or any(part in joined for part in (b"//", b"/./", b"/../")):
        is_strange[:] = [_CANONICAL(each.decode("latin-1")) is None for each in paths.blobs()]
    return is_strange


def _shapes_of_documents(
    rows: I64,
    documents: Sequence[bytes],
    boxes: Sequence[list[NDArray[Any]]],
    lengths: Ragged,
    counts: Ragged,
) -> tuple[Ragged, Ragged]:
    """Return the array lengths and numbers of chunks with those of the Zarr metadata for some arrays.

    Another number of dimensions than that of the metadata hides chunks. The boxes of the manifests of an
    array show how many chunks it has where its grid is not regular.
    """
    shapes, grids = dict(enumerate(tuples(lengths))), dict(enumerate(tuples(counts)))
    for row, document, own in zip(rows.tolist(), map(_document, documents), boxes, strict=True):
        shape = document.get("shape")
        if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 1 << 64 for n in shape):
            shape = [0] * len(own[0]) if own else []
        if len(shape) != len(shapes[row]):
            ends = [box.view("<u4")[1::2] for box in own if len(box) == len(shape)]
            reached = np.max([np.zeros(len(shape), np.uint32), *ends], axis=0).tolist()
            shapes[row] = tuple(shape)
            grids[row] = tuple(np.minimum(chunk_counts(document, shape) or reached, _MAX_U32).tolist())
    return _numbers(list(shapes.values()), np.uint64), _numbers(list(grids.values()), np.uint32)


def _fitting_boxes(boxes: Ragged, counts: Ragged) -> Ragged:
    """Return boxes with one range for each dimension of their array: their own, and then whole dimensions.

    A key with another number of coordinates gives a manifest the extents of a wrong rank.
    """
    whole = Ragged.from_lengths(_whole_ranges(counts.compact().values), counts.lengths)
    common = np.minimum(boxes.lengths, counts.lengths)
    out = whole.values.copy()
    out[ranges(whole.starts, common)] = boxes.values[ranges(boxes.starts, common)]
    return Ragged(out, whole.starts, whole.lengths)


def _whole_ranges(counts: U32) -> NDArray[Any]:
    """Return the range of all chunks of each dimension."""
    return np.column_stack((np.zeros(len(counts), "<u4"), counts)).astype("<u4").view("V8")[:, 0]


def _shapes_v1(arrays: Tables) -> tuple[Ragged, Ragged]:
    """Return the array lengths, and the numbers of chunks as far as version 1 stores them."""
    arrays.require("array", _REQUIRED, shape=0)
    pairs = arrays.numbers(0, "V16")
    both = pairs.values.view("<u8").reshape(-1, 2)
    length, chunk = both[:, 0], np.maximum(both[:, 1], 1)
    counts = length // chunk + (length % chunk > 0)
    return (
        Ragged(np.ascontiguousarray(length), pairs.starts, pairs.lengths),
        Ragged(np.minimum(counts, _MAX_U32).astype(np.uint32), pairs.starts, pairs.lengths),
    )


def node_violations(snapshot: Tables, nodes: NodeTable) -> Iterator[Violation]:
    """Yield the broken rules of the nodes of a snapshot that readers do not need."""
    stored = snapshot.children(2)[0].vectors(1).texts()
    paths = [path for path in stored if _CANONICAL(path) is not None]
    # The specification compares paths by their segments. Readers search by bytes, and all present writers
    # sort by bytes. Both orders are accepted.
    if paths != nodes.paths_list() and [path.split("/") for path in paths] != sorted(
        path.split("/") for path in set(paths)
    ):
        yield Violation("nodes-sorted", "nodes must be sorted by path, each path once")
    strange = [path for path in stored if _CANONICAL(path) is None]
    if strange:
        rule = "a path must be absolute and in canonical form"
        yield Violation("node-path", f"{rule}, got {strange[0]!r}")
    distinct, counts = np.unique(id_keys(nodes.ids), return_counts=True)
    if (counts > 1).any():
        id_ = distinct[counts > 1][:1].view(np.uint8).tobytes()
        yield Violation("node-ids", f"{counts.max()} nodes have the id {id_to_text(id_)}", id_)
    yield from _document_violations(nodes)
    edges = nodes.extents.compact().values.reshape(-1, 2)
    if (edges[:, 0] > edges[:, 1]).any():
        start, stop = edges[edges[:, 0] > edges[:, 1]][0].tolist()
        yield Violation("extents-range", f"extents must begin before their end, got {start} to {stop}")
    for row in np.flatnonzero(nodes.manifests.lengths > 1).tolist():
        count = int(nodes.manifests.lengths[row])
        if overlapping(nodes.extents.row(row).reshape(count, int(nodes.array_length.lengths[row]), 2)):
            detail = f"the extents of the {count} manifests of an array must not overlap"
            yield Violation("extents-overlap", detail, nodes.ids[row].tobytes())


def _shape_violations(arrays: Tables, ids: U8, spec_version: int) -> Iterator[Violation]:
    if spec_version == 1 and arrays.present(3).any():
        yield Violation("array-shape-v1", "an array of spec version 1 must not have shape_v2")
    if spec_version > 1 and arrays.vectors(0, "V16").lengths.any():
        yield Violation("array-shape-v1-empty", "the list shape must be empty in spec version 2")
    if spec_version > 1 and not arrays.all_have(3):
        node = ids[int(np.argmin(arrays.present(3)))].tobytes()
        yield Violation("array-shape-v2", "array lacks the required field `shape_v2`", node)
    refs, each = arrays.children(2)
    ranks = arrays.vectors(0, "V16").lengths // 16 if spec_version == 1 else arrays.children(3)[1]
    got, owners = refs.numbers(1, "V8").lengths, np.repeat(np.arange(len(arrays)), each)
    for owner in np.unique(owners[got != ranks[owners]]).tolist():
        wrong = got[(owners == owner) & (got != ranks[owner])][0]
        detail = f"the extents of an array must have {ranks[owner]} ranges, got {wrong}"
        yield Violation("extents-rank", detail, ids[owner].tobytes())


def _document_violations(nodes: NodeTable) -> Iterator[Violation]:
    """Yield the nodes whose Zarr metadata do not fit the other fields of the node."""
    # Many nodes may share the bytes of one document, which is parsed once.
    texts = nodes.user_data
    places, codes = np.unique(np.stack((texts.starts, texts.lengths)), axis=1, return_inverse=True)
    if int(places[1].sum()) > len(texts.values):
        return  # the documents of a damaged file share bytes
    documents = [_document(texts.values[at : at + size].tobytes()) for at, size in places.T.tolist()]
    ranks = nodes.array_length.lengths
    columns = zip(
        id_list(nodes.ids),
        map(documents.__getitem__, codes.reshape(-1).tolist()),
        nodes.is_array.tolist(),
        tuples(nodes.array_length),
        tuples(nodes.num_chunks),
        strict=True,
    )
    for row, (id_, document, is_array, shape, chunks) in enumerate(columns):
        kind = "array" if is_array else "group"
        if document.get("node_type") != kind:
            detail = f"the Zarr metadata must be of a node of type {kind}, got {document.get('node_type')}"
            yield Violation("node-document", detail, id_)
        if not is_array:
            continue
        stored = document.get("shape")
        if isinstance(stored, list) and tuple(stored) != shape:
            yield Violation("array-shape", f"the Zarr metadata have the shape {stored}, got {shape}", id_)
        expected = chunk_counts(document, stored)
        if not nodes.guessed[row] and expected not in (None, chunks):
            detail = f"the Zarr metadata have {expected} chunks along the dimensions, got {chunks}"
            yield Violation("num-chunks", detail, id_)
        if nodes.named[row] and nodes.dim_rows.lengths[row] != ranks[row]:
            detail = f"an array must have {ranks[row]} dimension names, got {nodes.dim_rows.lengths[row]}"
            yield Violation("dimension-names", detail, id_)


def _document(blob: bytes) -> dict[str, Any]:
    try:
        document = json.loads(blob)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def overlapping(boxes: NDArray[Any]) -> bool:
    """Return whether any two of n half-open boxes, (n, ndim, 2), have a common point."""
    boxes = boxes[(boxes[:, :, 0] < boxes[:, :, 1]).all(axis=1)].astype(np.int64)
    count, rank = boxes.shape[:2]
    if count < 2 or not rank:
        return bool(count > 1)
    best = (np.zeros(count, np.int64), boxes)
    for axis in range(rank):
        # Along the best dimension, each box is compared only with boxes that begin before its end.
        ordered = boxes[np.argsort(boxes[:, axis, 0], kind="stable")]
        last = np.searchsorted(ordered[:, axis, 0], ordered[:, axis, 1]) - np.arange(count) - 1
        rivals = np.maximum(last, 0)
        if not axis or rivals.sum() < best[0].sum():
            best = rivals, ordered
    rivals, boxes = best
    for rows in np.split(np.arange(count), np.flatnonzero(np.diff(np.cumsum(rivals) // _PAIRS)) + 1):
        one = np.repeat(rows, rivals[rows])
        a, b = boxes[one], boxes[ranges(rows + 1, rivals[rows])]
        if ((a[:, :, 0] < b[:, :, 1]) & (b[:, :, 0] < a[:, :, 1])).all(axis=1).any():
            return True
    return False


def write_nodes(writer: TableWriter, table: NodeTable, spec_version: int = 2) -> int:
    """Write the nodes and return the position of their vector."""
    if table.refused:
        reason = next(iter(table.refused.values()))
        raise FormatError(f"{reason}, so no later version can be written. Restore the snapshot from a copy")
    table = table.whole().exact()
    nodes, (vector,) = writer.table_vectors(_NODE_LAYOUT, [len(table)])
    nodes.fields["f0"] = structs(table.ids)
    nodes.fields["f3"] = np.where(table.is_array, _ARRAY, _GROUP)
    contents = np.zeros(len(table), np.int64)
    if table.is_array.any():
        kinds = np.where(table.is_array, table.named, np.int8(-1))
        groups = list(writer.tables_by_shape(kinds, _ARRAY_LAYOUTS[spec_version], contents))
        none = OffsetVectors(writer, [0]).positions
        for rows, arrays in groups:
            lengths = table.array_length.take(rows).compact()
            counts = table.num_chunks.take(rows).compact().values
            if spec_version == 1:
                arrays.link(0, _write_shapes_v1(writer, lengths, counts))
            else:
                arrays.link(0, none)
                dims, shapes = writer.table_vectors(_DIM_LAYOUT, lengths.lengths)
                arrays.link(3, shapes)
                dims.fields["f0"], dims.fields["f1"] = lengths.values, counts
            ids = table.manifests.take(rows).compact()
            refs, lists = writer.table_vectors(_REF_LAYOUT, ids.lengths)
            arrays.link(2, lists)
            refs.fields["f0"] = ids.values
            boxes = table.extents.take(rows).compact().values.view("V8")
            refs.link(1, writer.vectors(Ragged.from_lengths(boxes, np.repeat(lengths.lengths, ids.lengths))))
            if 1 not in arrays.layout.offsets:
                continue
            numbers = table.dim_rows.take(rows).compact()
            vectors = OffsetVectors(writer, numbers.lengths)
            arrays.link(1, vectors.positions)
            has_name = numbers.values >= 0
            targets = np.zeros(len(has_name), np.int64)
            names = writer.tables(_NAME_LAYOUT, int(has_name.sum()))
            targets[has_name] = names.positions
            if not has_name.all():  # dimensions without a name share one table
                targets[~has_name] = writer.tables(_EMPTY_LAYOUT, 1).positions
            names.link(0, writer.vectors(table.dim_names.take(numbers.values[has_name]), NUL))
            vectors.lead(targets)
    # Offsets may share a target: all groups share one empty table, all empty vectors one vector.
    contents[~table.is_array] = writer.tables(_EMPTY_LAYOUT, 1).positions
    nodes.link(4, contents)
    nodes.link(1, writer.vectors(table.paths, NUL))
    nodes.link(2, writer.vectors(table.user_data))
    return int(vector)


def _write_shapes_v1(writer: TableWriter, lengths: Ragged, num_chunks: NDArray[np.uint32]) -> I64:
    """Write vectors of pairs of array length and chunk length, and return their positions.

    As in the reference implementation, it is the smallest chunk length that results in the number of chunks.
    """
    counts = np.maximum(num_chunks, 1).astype(np.uint64)
    chunks = lengths.values // counts + (lengths.values % counts > 0)
    # In words of 8 bytes: one of padding and the count, then two for each dimension, which are aligned.
    ranks = lengths.lengths
    words = np.zeros(len(ranks) + 2 * len(chunks), "<u8")
    heads = np.arange(len(ranks)) + 2 * (np.cumsum(ranks) - ranks)
    is_head = np.zeros(len(words), bool)
    is_head[heads] = True
    words[heads] = ranks.astype(np.uint64) << np.uint64(32)
    words[~is_head] = np.stack([lengths.values, chunks], axis=1).reshape(-1)
    part, start = writer.reserve(words.nbytes, 8)
    part[:] = words.view(np.uint8)
    positions: I64 = start + 8 * heads + 4
    return positions
