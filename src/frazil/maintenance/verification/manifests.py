"""Checks of manifests: readable, not exchanged, as the snapshots say, and with existing foreign objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from frazil.chunks.virtual import VirtualSources
from frazil.errors import IcechunkError
from frazil.format.columns import I64, U8, U32, U64
from frazil.format.ids import OBJECT_ID_BYTES, id_keys
from frazil.format.keys import manifest_key
from frazil.format.manifest import ChunkKind, ChunkTable, Manifest, VirtualRef
from frazil.maintenance.verification.requests import problem, virtual
from frazil.repository.catalog.files import MANIFEST
from frazil.repository.catalog.findings import Finding
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded


@dataclass(frozen=True, slots=True, eq=False)
class Needed:
    """The chunk files that a manifest needs.

    files  uint8 (k, 12)  ids, sorted
    ends   uint64 (k,)    end of the last used byte of each file
    size   bytes of all references that are not inline
    count  number of all references
    """

    files: U8
    ends: U64
    size: int
    count: int


def check_manifest(
    storage: Storage,
    sources: VirtualSources,
    id_: bytes,
    listed: tuple[int, int],
    uses: Sequence[tuple[bytes, U32]],
    *,
    with_chunks: bool,
    with_foreign: bool,
) -> tuple[list[Finding], Needed]:
    """Return the findings of a manifest and, with ``with_chunks``, the chunk files that it needs.

    ``listed`` is the size and the number of references in the list of a snapshot. With ``with_foreign``, the
    function also reads one byte of each foreign object.
    """
    key = manifest_key(id_)
    nothing = Needed(np.zeros((0, OBJECT_ID_BYTES), np.uint8), np.zeros(0, np.uint64), 0, 0)
    try:
        manifest, data = MANIFEST.read_with_bytes(storage, id_)
        count = sum(map(len, manifest.arrays.values()))
    except IcechunkError as error:
        return [Finding("unreadable", key, detail=error.message)], nothing
    findings: list[Finding] = []
    size = memoryview(data).nbytes
    for what, expected, stored in (("size", listed[0], size), ("count", listed[1], count)):
        if expected != stored:
            findings.append(Finding(what, key, detail=f"a snapshot has {expected}, the file has {stored}"))
    for node, box in uses:
        table = manifest.arrays.get(node)
        if table is None or len(box) != table.ndim:
            continue
        outside = ((table.index < box[:, 0]) | (table.index >= box[:, 1])).any(axis=1)
        if outside.any():
            findings.append(Finding("outside", key, node, table.index[outside], "outside of the extents"))
    if with_foreign:
        findings += _foreign(manifest, sources)
    return findings, _needed(manifest, count) if with_chunks else nothing


def _needed(manifest: Manifest, count: int) -> Needed:
    ids: list[U8] = [np.zeros((0, OBJECT_ID_BYTES), np.uint8)]
    ends: list[U64] = [np.zeros(0, np.uint64)]
    size = 0
    for table in manifest.arrays.values():
        size += int(table.length[table.kind != ChunkKind.INLINE].sum())
        used, last = ends_of(table, ChunkKind.NATIVE, len(table.chunk_ids))
        ids.append(table.chunk_ids[used])
        ends.append(last)
    files, stops = np.concatenate(ids), np.concatenate(ends)
    distinct, code = np.unique(id_keys(files), return_inverse=True)
    most = np.zeros(len(distinct), np.uint64)
    np.maximum.at(most, code, stops)
    return Needed(distinct.view(np.uint8).reshape(-1, OBJECT_ID_BYTES), most, size, count)


def ends_of(table: ChunkTable, kind: ChunkKind, count: int) -> tuple[I64, U64]:
    """Return the used sources of a kind, and the end of the last used byte of each."""
    rows = table.kind == kind
    ends = np.zeros(count, np.uint64)
    source = table.source[rows]
    np.maximum.at(ends, source, table.offset[rows] + table.length[rows])
    used = np.zeros(count, bool)
    used[source] = True
    return np.flatnonzero(used), ends[used]


def _foreign(manifest: Manifest, sources: VirtualSources) -> Iterator[Finding]:
    """Yield findings of foreign objects that are missing, too short, or changed. Reads one byte of each."""

    def ask(ref: VirtualRef) -> IcechunkError | None:
        return problem(lambda: sources.locate(ref).get(ref.offset, ref.offset + ref.length))

    for node, table in manifest.arrays.items():
        used, ends = ends_of(table, ChunkKind.VIRTUAL, len(table.foreign))
        refs = [virtual(table, row, max(end - 1, 0), 1) for row, end in zip(used, ends.tolist(), strict=True)]
        answers = map_bounded(Purpose.VERIFICATION_READS, ask, refs)
        for row, ref, error in zip(used.tolist(), refs, answers, strict=True):
            if error is not None:
                lost = (table.kind == ChunkKind.VIRTUAL) & (table.source == row)
                yield Finding(str(error.kind), ref.location, node, table.index[lost], error.message)
