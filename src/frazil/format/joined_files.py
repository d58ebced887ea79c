"""Decoders of parts of files, for callers that need these parts of many files.

Each of them decodes several small files together (``flatbuffer``), and one file as a list of one. An error
for one of several files does not name the file: the caller decodes each of them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError
from frazil.format.columns import I64, U8, U32, U64, Ragged
from frazil.format.envelope import FileType, reading, spec_version_of
from frazil.format.flatbuffer import Tables, open_tables
from frazil.format.ids import OBJECT_ID_BYTES, id_list, id_order, ids_among
from frazil.format.manifest import read_chunk_ids, read_columns, read_references
from frazil.format.snapshot import ManifestFiles, read_manifest_files, require_fields

# Slots of a manifest, and of its references.
_ID, _LISTS, _DICTIONARY, _ALGORITHM = range(4)
_WITH_DICTIONARY: Final = 1
_CHUNK_ID, _COMPRESSED = 4, 8


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRanges:
    """The id of a manifest, and the ranges of its n references without their arrays and coordinates."""

    id: bytes  # The id of the manifest
    kind: U8  # The ``ChunkKind`` of each reference, uint8 (n,)
    source: U32  # The row of each reference in ``chunk_ids`` or ``locations``, uint32 (n,)
    offset: U64  # uint64 (n,), bytes. 0 for inline chunks
    length: U64  # uint64 (n,), bytes
    chunk_ids: U8  # Ids of chunk files, uint8 (k, 12), with repetitions
    locations: Ragged  # Locations of foreign objects, with repetitions


def decode_chunk_ranges(files: Sequence[Any]) -> list[ChunkRanges]:
    """Read only the ranges of the chunks, faster than ``decode_manifest``.

    Raises ``FormatError`` also if there are several files, and some chunks are not native.
    """
    root = open_tables(FileType.MANIFEST, *files)
    _, refs, _ = read_references(root)
    if len(files) > 1 and not refs.all_have(_CHUNK_ID):
        raise FormatError("manifests with other than native chunks are read one by one")
    table = read_columns(root, refs)
    out = []
    for id_, rows, ids in zip(_ids(root), *_by_file(refs, table.source, table.chunk_ids), strict=True):
        source = table.source[rows] - np.uint32(ids.start) if ids.start else table.source[rows]
        columns = table.offset[rows], table.length[rows], table.chunk_ids[ids], table.foreign.locations
        out.append(ChunkRanges(id_, table.kind[rows], source, *columns))
    return out


@dataclass(frozen=True, slots=True, eq=False)
class ChunkFiles:
    """The id of a manifest, and the ids of its chunk files, uint8 (k, 12), with repetitions."""

    id: bytes
    chunk_ids: U8


def decode_chunk_files(files: Sequence[Any]) -> list[ChunkFiles]:
    """Read only the ids of the chunk files, much faster than ``decode_manifest``."""
    root = open_tables(FileType.MANIFEST, *files)
    _, refs, _ = read_references(root)
    native = refs if refs.all_have(_CHUNK_ID) else refs.take(refs.present(_CHUNK_ID))
    ids, source = read_chunk_ids(native)
    return list(map(ChunkFiles, _ids(root), map(ids.__getitem__, _by_file(native, source, ids)[1])))


def _ids(root: Tables) -> list[bytes]:
    """Return the id of each file."""
    return id_list(root.structs(_ID, OBJECT_ID_BYTES))


def _by_file(refs: Tables, source: NDArray[Any], ids: U8) -> tuple[list[slice], list[slice]]:
    """Return the rows of each file among references, and among the ids of their chunk files."""
    if refs.bounds is None:
        return [slice(len(refs))], [slice(len(ids))]
    edges, places = refs.edges(), np.append(source, len(ids))
    rows, own = (list(starmap(slice, pairwise(each.tolist()))) for each in (edges, places[edges]))
    return rows, own


def stored_locations(data: Any, name: str) -> tuple[bool, int | None, int]:
    """Return how a manifest's file stores locations."""
    with reading(name):
        root = open_tables(FileType.MANIFEST, data)
        refs, _ = root.children(_LISTS)[0].children(_LISTS)
        has = bool(root.present(_DICTIONARY)[0])
        return (
            int(root.scalars(_ALGORITHM, "u1", _WITH_DICTIONARY)[0]) == _WITH_DICTIONARY,
            len(root.vectors(_DICTIONARY).bytes(0)) if has else None,
            int(np.count_nonzero(refs.present(_COMPRESSED))),
        )


_REQUIRED: Final = "snapshot-required"
_KIND, _DATA = 3, 4
_ARRAY: Final = 1
_FILE_BITS: Final = 6
#: The largest number of snapshots that are read together.
MOST_JOINED: Final = 1 << _FILE_BITS


@dataclass(frozen=True, slots=True, eq=False)
class ManifestsOfSnapshot:
    """The id of a snapshot, and its manifests, each once, sorted by id."""

    id: bytes
    files: ManifestFiles


def decode_manifests_of_snapshots(files: Sequence[Any]) -> list[ManifestsOfSnapshot]:
    """Read only the manifests of snapshots, much faster than ``decode_snapshot``.

    Raises ``FormatError`` also if there are several files, and one of them has spec version 1, or does not
    list exactly the manifests of its arrays.
    """
    root = open_tables(FileType.SNAPSHOT, *files)
    require_fields(root)
    versions = set(map(spec_version_of, files))
    if len(files) > 1 and versions != {2}:
        raise FormatError("snapshots of spec version 1 are read one by one")
    table = read_manifest_files(root, versions.pop())
    nodes, _ = root.children(2)
    nodes.require("node", _REQUIRED, node_type=_KIND, node_data=_DATA)
    arrays, _ = nodes.take(nodes.scalars(_KIND, np.uint8) == _ARRAY).tables(_DATA)
    arrays.require("array", _REQUIRED, manifests=2)
    refs, _ = arrays.children(2)
    refs.require("manifest reference", _REQUIRED, object_id=0)
    used = refs.structs(0, OBJECT_ID_BYTES)
    if len(files) == 1:
        return [ManifestsOfSnapshot(_ids(root)[0], _with_unlisted(table.sorted().distinct(), used))]
    edges = root.children(7)[0].edges()
    if not _same_ids(table.ids, edges, used, refs.edges()):
        raise FormatError("snapshots with other manifests than those of their arrays are read one by one")
    lists = map(table.select_manifests, starmap(slice, pairwise(edges.tolist())))
    return list(map(ManifestsOfSnapshot, _ids(root), lists))


def _with_unlisted(files: ManifestFiles, used: U8) -> ManifestFiles:
    """Return the manifests of a snapshot with those that only its arrays name."""
    # Mostly, the arrays use each listed manifest once. Then a sort is enough, and no search is needed.
    if len(used) == len(files) and np.array_equal(used[id_order(used)], files.ids):
        return files
    unlisted = used[~ids_among(used, files.ids)]
    if not len(unlisted):
        return files
    whole = ManifestFiles(
        np.concatenate([files.ids, unlisted]),
        np.append(files.size_bytes, np.zeros(len(unlisted), np.uint64)),
        np.append(files.num_chunk_refs, np.zeros(len(unlisted), np.uint32)),
    )
    return whole.sorted().distinct()


def _same_ids(listed: U8, edges: I64, used: U8, used_edges: I64) -> bool:
    """Return whether all lists are sorted, and the arrays of each file use exactly its list."""
    files, users = (np.repeat(np.arange(len(each) - 1), np.diff(each)) for each in (edges, used_edges))
    keys = _keys(listed, files)
    if not (keys[1:] > keys[:-1]).all():
        return False
    order = np.argsort(_keys(used, users))
    used, users = used[order], users[order]
    if len(used) > len(listed):  # arrays share manifests
        new = np.ones(len(used), np.bool_)
        np.not_equal(users[1:], users[:-1], out=new[1:])
        new[1:] |= (used[1:] != used[:-1]).any(axis=1)
        used, users = used[new], users[new]
    return np.array_equal(users, files) and np.array_equal(used, listed)


def _keys(ids: U8, files: I64) -> U64:
    """Return numbers that sort by the file, then by the first 58 bits of the id."""
    words = ids.view(">u4").reshape(len(ids), 3)
    keys: U64 = words[:, 0].astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= words[:, 1]
    keys >>= np.uint64(_FILE_BITS)
    keys |= files.astype(np.uint64) << np.uint64(64 - _FILE_BITS)
    return keys
