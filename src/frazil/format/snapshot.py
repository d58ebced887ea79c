"""Snapshots: every array and group of one version of a repository.

The nodes are columns (``NodeTable``), sorted by the raw bytes of their paths, as readers search for
them. Old writers sorted by path component; so when reading no order is trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import U8, Ragged


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """A manifest that holds references of an array, and the box of chunk coordinates that it covers.

    ``extents`` is uint32 of shape (ndim, 2), half-open; it covers everything for a scalar array.
    """

    id: bytes
    extents: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class ArrayData:
    """What a snapshot knows of an array besides its zarr metadata.

    shape            number of elements along each dimension
    num_chunks       number of chunks along each dimension
    dimension_names  a name or None for each dimension; None if the array names none
    manifests        where its references are
    """

    shape: tuple[int, ...]
    num_chunks: tuple[int, ...]
    dimension_names: tuple[str | None, ...] | None
    manifests: tuple[ManifestRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A group (``array`` is None) or an array. ``user_data`` is the content of its ``zarr.json``."""

    id: bytes
    path: str
    user_data: bytes
    array: ArrayData | None


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """n nodes as columns, sorted by path bytes.

    ids            uint8 (n, 8)
    paths          text
    user_data      bytes
    is_array       bool (n,)
    ndim           int64 (n,)  number of dimensions, 0 for groups
    array_length   uint64 rows, one number a dimension
    num_chunks     uint32 rows, one number a dimension
    named          bool (n,)   whether the node has dimension names at all
    dim_named      bool rows   which dimensions have one
    dim_names      text, one row a dimension of each named node, in order
    manifest_ids   'V12' rows, one a ManifestRef
    extents        uint32 rows: ndim pairs (from, to) for each ManifestRef, one after the other
    """

    # The implementer may change the inner columns; the methods are the contract.

    def __len__(self) -> int: ...

    @classmethod
    def from_nodes(cls, nodes: list[Node]) -> NodeTable:
        """Columns from a few nodes (those that a session changed)."""

    def find(self, path: str) -> int:
        """Row of the node at ``path``, -1 if there is none."""

    def node(self, row: int) -> Node:
        """One row as a value."""

    def paths_list(self) -> list[str]:
        """All paths, sorted by bytes. Cached."""

    def children(self, path: str) -> list[str]:
        """Names of the direct children of the group ``path``, sorted by bytes."""

    def below(self, path: str) -> slice | NDArray[np.int64]:
        """Rows of all nodes strictly below ``path``."""

    def edit(self, removed: NDArray[np.int64], added: NodeTable) -> NodeTable:
        """Without some rows and with others; sorted."""

    def manifest_ids(self) -> U8:
        """Distinct ids of all manifests that the nodes refer to, (m, 12), sorted."""


@dataclass(frozen=True, slots=True, eq=False)
class ManifestFiles:
    """The manifest files of a snapshot, sorted by id: ids uint8 (m, 12), size_bytes uint64 (m,), num_chunk_refs uint32 (m,)."""

    ids: U8
    size_bytes: NDArray[np.uint64]
    num_chunk_refs: NDArray[np.uint32]

    def size_of(self, id_: bytes) -> int:
        """Size in bytes of a manifest's file; ``FormatError`` (``manifest-info-not-found``) if it is not listed."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A snapshot file. ``flushed_at`` is microseconds since 1970; ``metadata`` maps names to JSON-like values.

    ``parent_id`` is only in files of spec version 1; in version 2 the repo info knows the parents.
    """

    id: bytes
    flushed_at: int
    message: str
    metadata: dict[str, Any]
    nodes: NodeTable
    manifests: ManifestFiles
    parent_id: bytes | None = None
    spec_version: int = 2


def encode_snapshot(snapshot: Snapshot, *, level: int = 3) -> bytes: ...


def decode_snapshot(data: Any, name: str) -> Snapshot:
    """A snapshot of spec version 1 or 2; ``FormatError`` naming ``name`` if the bytes are not one."""


def initial_snapshot(flushed_at: int) -> Snapshot:
    """What a new repository starts from: no nodes, well-known id, metadata {"__icechunk": {"is_root": True}}."""
