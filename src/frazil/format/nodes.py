"""Nodes: the groups and arrays of a snapshot, as columns sorted by the bytes of their paths.

In the order of bytes, all nodes below a group are side by side (from ``/a/`` to ``/a0``, since ``0`` follows
``/``). For UTF-8 it is also the order of Python's ``str``. The first look-ups search the column; after many
look-ups a table builds a dictionary.

Specification: *Snapshot Files* and *Node Paths*.

An array with a hundred million references has thousands of manifests. A commit of one chunk changes one of
them, so it must not make an object for each.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress, repeat
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, InternalError
from frazil.format.columns import (
    I64,
    U8,
    U32,
    Ragged,
    concat_numbered,
    intern,
    join_rows,
    set_rows,
    structs,
    take_rows,
    unshared,
)
from frazil.format.envelope import LateFields
from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES, id_list, id_matrix


@dataclass(frozen=True, slots=True, eq=False)
class ManifestRef:
    """A manifest with references of an array, and the box of chunk coordinates that it covers.

    ``extents`` is uint32 of shape (ndim, 2), half-open. For a scalar array it covers everything.
    """

    id: bytes
    extents: NDArray[np.uint32]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ManifestRef):
            return NotImplemented
        return self.id == other.id and np.array_equal(self.extents, other.extents)

    def __hash__(self) -> int:
        return hash((self.id, self.extents.tobytes()))


@dataclass(frozen=True, slots=True, eq=False)
class ManifestRefs(Sequence[ManifestRef]):
    r"""A sequence of ``ManifestRef``, as columns.

    Attributes:
        ids: uint8 (m, 12).
        extents: uint32 (m, ndim, 2).
    """

    ids: U8
    extents: U32

    @classmethod
    def of(cls, refs: Iterable[ManifestRef], ndim: int) -> ManifestRefs:
        """Return the columns of manifests, for an array with ``ndim`` dimensions."""
        if isinstance(refs, ManifestRefs):
            return refs
        refs = tuple(refs)
        ids = np.frombuffer(b"".join([ref.id for ref in refs]), np.uint8).reshape(len(refs), OBJECT_ID_BYTES)
        boxes = [np.asarray(ref.extents, np.uint32).reshape(-1) for ref in refs]
        flat = np.concatenate([np.zeros(0, np.uint32), *boxes])
        return cls(ids, flat.reshape(len(refs), ndim, 2))

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
        ids = np.ascontiguousarray(self.ids).view(f"V{OBJECT_ID_BYTES}").reshape(-1).tolist()
        return map(ManifestRef, ids, self.extents)

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


def _joined[T: NDArray[Any]](empty: T, parts: Sequence[T]) -> T:
    """Return the rows of all parts; ``empty`` if there is no part."""
    out: T = np.concatenate([empty, *parts])  # type: ignore[assignment]
    return out


@dataclass(frozen=True, slots=True)
class ArrayData:
    """The data of an array in a snapshot besides its Zarr metadata.

    Attributes:
        shape: The number of elements along each dimension.
        num_chunks: The number of chunks along each dimension.
        dimension_names: A name or None for each dimension; None if the array has no names.
        manifests: The manifests with its references.
    """

    shape: tuple[int, ...]
    num_chunks: tuple[int, ...]
    dimension_names: tuple[str | None, ...] | None
    manifests: Sequence[ManifestRef] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A group (``array`` is None) or an array. ``user_data`` is the content of its ``zarr.json``."""

    id: bytes
    path: str
    user_data: bytes
    array: ArrayData | None


#: The columns of a ``NodeTable`` with one row for each node.
_COLUMNS: Final = (
    *("ids", "paths", "user_data", "is_array", "array_length", "num_chunks", "guessed", "named"),
    *("dim_rows", "manifests", "extents"),
)


class Memo:
    """The values that a table has computed about itself."""

    __slots__ = ("children", "paths", "rows", "searches")

    def __init__(self) -> None:
        self.paths: list[str] | None = None
        self.rows: dict[str, int] | None = None
        self.children: tuple[dict[str, slice], list[str]] | None = None
        self.searches = 0


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable(LateFields):
    """n nodes as columns, sorted by the bytes of their paths.

    Attributes:
        ids: uint8 (n, 8).
        paths: Text.
        user_data: Bytes, the content of ``zarr.json``.
        is_array: bool (n,).
        array_length: uint64 rows, one number for each dimension; empty rows for groups.
        num_chunks: uint32 rows, one number for each dimension.
        guessed: bool (n,), whether num_chunks is from a file of version 1, so that only the Zarr metadata are
            exact.
        named: bool (n,), whether the node has dimension names.
        dim_rows: int64 rows: row numbers of dim_names, one for each dimension of a named node, -1 for no
            name.
        dim_names: Text.
        manifests: 'V12' rows, one for each ManifestRef.
        extents: uint32 rows: ndim pairs (from, to) for each ManifestRef, all in one row.
    """

    ids: U8
    paths: Ragged
    user_data: Ragged
    is_array: NDArray[np.bool_]
    array_length: Ragged
    num_chunks: Ragged
    guessed: NDArray[np.bool_]
    named: NDArray[np.bool_]
    dim_rows: Ragged
    dim_names: Ragged
    manifests: Ragged
    extents: Ragged
    _memo: Memo = field(default_factory=Memo, repr=False)

    def __len__(self) -> int:
        return len(self.is_array)

    @classmethod
    def from_nodes(cls, nodes: Sequence[Node]) -> NodeTable:
        """Create a table of a few nodes, such as the changed nodes of a session, in any order."""
        nodes = sorted(nodes, key=lambda node: node.path)
        arrays = [node.array for node in nodes]
        shapes = [array.shape if array else () for array in arrays]
        grids = [array.num_chunks if array else () for array in arrays]
        dims = [(array.dimension_names or ()) if array else () for array in arrays]
        refs = [array.manifests if array else () for array in arrays]
        names = list(chain.from_iterable(dims))
        given = np.fromiter((name is not None for name in names), bool, len(names))
        columns = [
            ManifestRefs.of(each, len(shape)) for each, shape in zip(refs, shapes, strict=True) if len(each)
        ]
        ref_counts = np.array([len(each) for each in refs], np.int64)
        ndim = np.array([len(shape) for shape in shapes], np.int64)
        table = cls(
            ids=id_matrix([node.id for node in nodes], NODE_ID_BYTES),
            paths=Ragged.of_text([node.path for node in nodes]),
            user_data=Ragged.of_bytes([node.user_data for node in nodes]),
            is_array=np.array([array is not None for array in arrays], bool),
            array_length=_numbers(shapes, np.uint64),
            num_chunks=_numbers(grids, np.uint32),
            guessed=np.zeros(len(nodes), bool),
            named=np.array([bool(a and a.dimension_names is not None) for a in arrays], bool),
            dim_rows=Ragged(
                np.where(given, np.cumsum(given) - 1, -1),
                *_starts(np.array([len(each) for each in dims], np.int64)),
            ),
            dim_names=Ragged.of_text([name for name in names if name is not None]),
            manifests=Ragged.from_lengths(
                structs(_joined(np.zeros((0, OBJECT_ID_BYTES), np.uint8), [each.ids for each in columns])),
                ref_counts,
            ),
            extents=Ragged.from_lengths(
                _joined(np.zeros(0, np.uint32), [each.extents.reshape(-1) for each in columns]),
                2 * ndim * ref_counts,
            ),
        )
        if table.extents.total() != len(table.extents.values):
            raise InternalError("extents have another rank than their array")
        table._sorted([node.path for node in nodes])
        return table

    def find_node(self, path: str) -> int:
        """Return the row of the node at ``path``, -1 if there is none."""
        memo = self._memo
        if memo.rows is None and memo.searches < _SEARCHES_BEFORE_INDEX:
            memo.searches += 1
            row = self._bisect(path)
            return row if row < len(self) and self.paths.bytes(row) == _encoded(path) else -1
        return self._rows().get(path, -1)

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
        return Node(
            self.ids[row].tobytes(),
            self.paths.text(row),
            self.user_data.bytes(row),
            self._array(row) if self.is_array[row] else None,
        )

    def paths_list(self) -> list[str]:
        """Return all paths, sorted by bytes. The list is cached: do not change it."""
        if self._memo.paths is None:
            self._memo.paths = self.paths.texts()
        return self._memo.paths

    def children(self, path: str) -> list[str]:
        """Return the names of the direct children of the group ``path``, sorted by bytes."""
        if self._memo.children is None:
            self._memo.children = self._children()
        where, names = self._memo.children
        return names[where.get("" if path == "/" else path, slice(0))]

    def below(self, path: str) -> slice:
        """Return the rows of all nodes strictly below ``path``."""
        if path == "/":
            return slice(self._bisect("/\0"), len(self))
        return slice(self._bisect(path + "/"), self._bisect(path + "0"))

    def select_nodes(self, rows: NDArray[Any] | slice) -> NodeTable:
        """Return some rows: a mask, or row numbers that result in sorted paths."""
        columns: dict[str, Any] = {name: take_rows(getattr(self, name), rows) for name in _COLUMNS}
        return NodeTable(**columns, dim_names=self.dim_names)

    def edit(self, removed: NDArray[np.int64], added: NodeTable) -> NodeTable:
        """Return the table without the rows ``removed`` and with the nodes ``added``, sorted."""
        if not len(removed) and not len(added):
            return self
        if self._are_at(removed, added):
            return self._with_rows(np.sort(removed), added)
        keep = np.ones(len(self), bool)
        keep[removed] = False
        paths = [*compress(self.paths_list(), keep.tolist()), *added.paths_list()]
        joined = _concat([self.select_nodes(keep), added])
        # There are two sorted runs, which Python's sort merges.
        order = sorted(range(len(paths)), key=paths.__getitem__)
        table = joined.select_nodes(np.array(order, np.int64))
        table._sorted(list(map(paths.__getitem__, order)))
        return table

    def _are_at(self, rows: NDArray[np.int64], nodes: NodeTable) -> bool:
        """Return whether some rows have the same paths as ``nodes``, as after a change of nodes."""
        if len(rows) != len(nodes):
            return False
        paths = self.paths_list()
        return list(map(paths.__getitem__, sorted(rows.tolist()))) == nodes.paths_list()

    def _with_rows(self, rows: NDArray[np.int64], nodes: NodeTable) -> NodeTable:
        """Return the table with other nodes at the same paths."""
        if len(nodes) == len(self):
            return nodes
        numbers = concat_numbered(
            [self.dim_rows, nodes.dim_rows], [len(self.dim_names), len(nodes.dim_names)]
        )
        order = np.arange(len(self))
        order[rows] = np.arange(len(self), len(numbers))
        columns: dict[str, Any] = {
            name: _set_rows(getattr(self, name), rows, getattr(nodes, name)) for name in _COLUMNS
        }
        columns["dim_rows"] = numbers.take(order)
        table = NodeTable(**columns, dim_names=Ragged.concat([self.dim_names, nodes.dim_names]))
        table._memo.paths = self._memo.paths
        return table

    def renamed(self, rows: NDArray[np.int64], paths: Sequence[str]) -> NodeTable:
        """Return the table with new paths for some rows, sorted."""
        names = np.array([*self.paths_list(), None], object)  # None stops numpy from looking into the texts
        names[rows] = paths
        now: list[str] = names[:-1].tolist()
        order = sorted(range(len(now)), key=now.__getitem__)
        table = replace(self, paths=Ragged.of_text(now), _memo=Memo()).select_nodes(np.array(order, np.int64))
        table._sorted(list(map(now.__getitem__, order)))
        return table

    def identities(self, rows: NDArray[np.int64]) -> tuple[list[bytes], list[bool]]:
        """Return the ids of some nodes, and whether each is an array."""
        return id_list(self.ids[rows]), self.is_array[rows].tolist()

    def manifest_ids(self) -> U8:
        """Return the distinct ids of all manifests of the nodes, (m, 12), sorted."""
        keys = self.manifests.compact().values.view(f"S{OBJECT_ID_BYTES}")
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
                counts.total(),
            ),
            counts.lengths,
        )
        others = self.num_chunks.take(np.flatnonzero(~self.guessed))
        number = np.empty(len(self), np.int64)
        number[self.guessed] = np.arange(len(rows))
        number[~self.guessed] = np.arange(len(rows), len(self))
        joined = Ragged.concat([right, others]).take(number)
        return replace(self, num_chunks=joined, guessed=np.zeros(len(self), bool))

    def _array(self, row: int) -> ArrayData:
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
        return ArrayData(shape, grid, names, ManifestRefs(columns, boxes))

    def _bisect(self, path: str) -> int:
        """Return the first row whose path is not less."""
        if self._memo.paths is not None:
            return bisect_left(self._memo.paths, path)
        return bisect_left(range(len(self)), _encoded(path), key=self.paths.bytes)

    def _children(self) -> tuple[dict[str, slice], list[str]]:
        if not len(self):
            return {}, []
        parents, _, names = zip(*map(str.rpartition, self.paths_list(), repeat("/")), strict=True)
        distinct, codes = intern(parents)
        # The root is not a child; its name is empty.
        real = np.fromiter(map(bool, names), bool, len(names))
        order = np.argsort(codes[real], kind="stable")
        counts = np.bincount(codes[real], minlength=len(distinct))
        ends = np.cumsum(counts)
        named = list(compress(names, real.tolist()))
        slices = map(slice, (ends - counts).tolist(), ends.tolist())
        return dict(zip(distinct, slices, strict=True)), list(map(named.__getitem__, order.tolist()))

    def _sorted(self, paths: list[str]) -> None:
        """Store the paths, which the caller has sorted."""
        if len(set(paths)) != len(paths):
            raise InternalError("two nodes have the same path", ErrorKind.NODE_ALREADY_EXISTS)
        self._memo.paths = paths


def _set_rows[T: (NDArray[Any], Ragged)](values: T, rows: I64, others: T) -> T:
    if isinstance(values, Ragged) and isinstance(others, Ragged):
        return set_rows(values, rows, others)
    out = values.copy()
    out[rows] = others
    return out


def _concat(parts: Sequence[NodeTable]) -> NodeTable:
    columns = {name: join_rows([getattr(part, name) for part in parts]) for name in (*_COLUMNS, "dim_names")}
    columns["dim_rows"] = concat_numbered(
        [part.dim_rows for part in parts], [len(part.dim_names) for part in parts]
    )
    return NodeTable(**columns)


def _encoded(path: str) -> bytes:
    # Text that UTF-8 cannot encode is not a path, but looking for it must not raise an error.
    return path.encode(errors="surrogatepass")


def _starts(lengths: I64) -> tuple[I64, I64]:
    return np.cumsum(lengths) - lengths, lengths


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
    try:
        counts = chunk_counts(json.loads(document), shape)
    except (ValueError, RecursionError):
        return guess
    if counts is None:
        return guess
    if max(counts, default=0) > _MAX_U32:
        raise FormatError(f"a dimension must have at most {_MAX_U32} chunks, got {max(counts)}")
    return counts


__all__ = [
    "ArrayData",
    "ManifestRef",
    "Node",
    "NodeTable",
]
