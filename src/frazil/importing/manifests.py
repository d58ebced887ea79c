"""Converts old manifests. Each is read once, and written once for all snapshots that share it.

References that no array of any snapshot uses are left out: references of deleted arrays, and references of a
node whose array has another number of dimensions (M1 and M2 wrote such references). If arrays with different
numbers of dimensions have the same node in one manifest, the file becomes several *variants*, because a node
in a new manifest has one number of dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from frazil.format.chunk_table import ChunkKind, ChunkTable, ForeignObjects
from frazil.format.columns import U8, U32, Ragged
from frazil.format.ids import OBJECT_ID_BYTES, id_list, id_to_text, ids_to_text
from frazil.format.manifest import LocationCompression, Manifest, encode_manifest
from frazil.format.older.elements import OldManifest
from frazil.importing.containers import url_prefixes
from frazil.importing.history import Users
from frazil.importing.ids import NewIds

#: From locations to sizes in bytes, -1 for an unknown size.
Sizes = Callable[[Sequence[str]], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Converted:
    """A new manifest file: the values for snapshots, and the boxes of its arrays, uint32 (ndim, 2)."""

    id: bytes
    size: int
    references: int
    bounds: Mapping[tuple[bytes, int], U32]


@dataclass(frozen=True, slots=True)
class Conversion:
    """The result for one old manifest.

    Attributes:
        converted: New manifests.
        files: Bytes of the new manifests.
        chunks: Ids of the chunk files that it refers to, uint8 (n, 12), each once.
        chunk_names: Ids of the draft for these ids.
        prefixes: URL prefixes of its virtual chunks.
        unused: Number of references that were left out.
        cut: Number of references that were shortened to the end of their objects.
        has_flags: Whether the old file has format flags.
    """

    converted: tuple[Converted, ...]
    files: tuple[bytes, ...]
    chunks: U8
    chunk_names: Mapping[bytes, bytes]
    prefixes: frozenset[str]
    unused: int
    cut: int
    has_flags: bool


def convert(
    old: OldManifest,
    old_id: bytes,
    users: Users,
    ids: NewIds,
    chunks_at: str | None,
    level: int,
    sizes: Sizes | None = None,
) -> Conversion:
    """Convert one manifest.

    With the URL prefix ``chunks_at``, chunk files become virtual chunks below it. ``sizes`` returns the sizes
    of virtual objects, for references that must be shortened.
    """
    ranks: dict[bytes, set[int]] = {}
    for (_, rank), new in users.items():
        for id_ in new:
            ranks.setdefault(id_, set()).add(rank)
    variants: list[dict[bytes, ChunkTable]] = [{} for _ in range(max(map(len, ranks.values()), default=0))]
    used = cut = 0
    for (node, rank), new in users.items():
        table = old.tables.get((node, rank))
        if table is None:
            continue
        used += len(table)
        for id_ in new:
            variants[sorted(ranks[id_]).index(rank)][id_] = table.prune()
    chunks = [np.zeros((0, OBJECT_ID_BYTES), np.uint8)]
    prefixes: set[str] = set()
    converted, files = [], []
    for number, tables in enumerate(filter(None, variants)):
        arrays = {}
        for id_, table in tables.items():
            chunks.append(table.chunk_ids)
            prefixes |= url_prefixes(table.foreign.locations.texts())
            if sizes is not None:
                table, number_cut = cut_at_the_end(table, sizes)
                cut += number_cut
            arrays[id_] = table if chunks_at is None else as_virtual(table, chunks_at, old.chunk_names)
        manifest = Manifest(ids.manifest(old_id, number), arrays)
        file = encode_manifest(manifest, level=level, locations=LocationCompression())
        files.append(file)
        bounds = {(id_, table.ndim): table.bounds() for id_, table in arrays.items()}
        count = sum(map(len, arrays.values()))
        converted.append(Converted(manifest.id, len(file), count, bounds))
    unused = sum(map(len, old.tables.values())) - used
    ids_of_chunks = distinct_ids(chunks)
    return Conversion(
        tuple(converted),
        tuple(files),
        ids_of_chunks,
        old.chunk_names,
        frozenset(prefixes),
        unused,
        cut,
        old.has_flags,
    )


def distinct_ids(parts: Sequence[U8]) -> U8:
    """Return each id once, sorted."""
    keys = np.ascontiguousarray(np.concatenate(parts)).view(f"V{OBJECT_ID_BYTES}").reshape(-1)
    return np.unique(keys).view(np.uint8).reshape(-1, OBJECT_ID_BYTES)


def cut_at_the_end(table: ChunkTable, sizes: Sizes) -> tuple[ChunkTable, int]:
    """Shorten virtual references to the known sizes of their objects. Return the number of changes."""
    object_sizes = sizes(table.foreign.locations.texts())
    rows = np.flatnonzero(table.kind == ChunkKind.VIRTUAL)
    ends = object_sizes[table.source[rows]]
    left = ends - np.minimum(table.offset[rows], np.uint64(1 << 62)).astype(np.int64)
    long = (ends >= 0) & (left > 0) & (table.length[rows] > np.maximum(left, 0).astype(np.uint64))
    length = table.length.copy()
    length[rows[long]] = left[long].astype(np.uint64)
    return replace(table, length=length), int(np.count_nonzero(long))


def old_names(ids: U8, names: Mapping[bytes, bytes]) -> list[str]:
    """Return the old file names of chunks."""
    if not names:
        return ids_to_text(ids)
    return [id_to_text(names.get(id_, id_)) for id_ in id_list(ids)]


def as_virtual(table: ChunkTable, prefix: str, names: Mapping[bytes, bytes]) -> ChunkTable:
    """Return the same references, with chunk files as virtual objects below ``prefix``."""
    native = table.kind == ChunkKind.NATIVE
    own = old_names(table.chunk_ids, names)
    urls = list(map(prefix.__add__, own))
    foreign = ForeignObjects.concat(
        [
            table.foreign,
            ForeignObjects(Ragged.of_text(urls), Ragged.empty(len(own)), np.zeros(len(own), "u4")),
        ]
    )
    source: NDArray[np.uint32] = table.source + np.where(native, np.uint32(len(table.foreign)), np.uint32(0))
    kind = np.where(native, np.uint8(ChunkKind.VIRTUAL), table.kind)
    nothing = table.chunk_ids[:0]
    return ChunkTable(table.index, kind, source, table.offset, table.length, nothing, foreign, table.inline)
