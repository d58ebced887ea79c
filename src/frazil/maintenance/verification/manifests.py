"""Checks of manifests: readable, not exchanged, as the snapshots say, and with existing foreign objects."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from frazil.chunks.virtual import VirtualSources
from frazil.errors import IcechunkError
from frazil.format.columns import I64, U8, U32, U64
from frazil.format.ids import OBJECT_ID_BYTES, id_keys
from frazil.format.keys import manifest_key
from frazil.format.manifest import ChunkKind, ChunkTable, Manifest, VirtualRef
from frazil.format.rules.manifest import manifest_violations
from frazil.maintenance.verification.file_checks import check_kind, read_finding
from frazil.maintenance.verification.findings import Finding
from frazil.maintenance.verification.requests import problem, virtual, virtual_check
from frazil.repository.catalog.files import MANIFEST
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded


@dataclass(frozen=True, slots=True, eq=False)
class Needed:
    """The chunk files that a manifest needs.

    files  uint8 (k, 12)  ids, sorted
    ends   uint64 (k,)    end of the last used byte of each file
    size   bytes of all references, without those of inline chunks below the level decode
    count  number of all references
    foreign  number of virtual references
    """

    files: U8
    ends: U64
    size: int
    count: int
    foreign: int = 0

    def to_bytes(self) -> bytes:
        """Return the value as bytes, for the state of a verification."""
        head = np.array([self.size, self.count, self.foreign, len(self.files)], "<u8")
        return zlib.compress(head.tobytes() + self.files.tobytes() + self.ends.astype("<u8").tobytes(), 1)

    @staticmethod
    def from_bytes(data: bytes) -> Needed:
        """Return the value of ``to_bytes``. Raises ``ValueError`` or ``zlib.error`` for other bytes."""
        raw = np.frombuffer(zlib.decompress(data), np.uint8)
        size, count, foreign, files = raw[:32].view("<u8").tolist()
        split = 32 + files * OBJECT_ID_BYTES
        ends = np.frombuffer(raw[split:].tobytes(), "<u8").astype(np.uint64)
        return Needed(raw[32:split].reshape(files, OBJECT_ID_BYTES), ends, size, count, foreign)


@dataclass(frozen=True, slots=True, eq=False)
class ManifestUse:
    """A manifest as the snapshots describe it.

    listed   the size of the file and the number of references, in the lists of snapshots
    boxes    the arrays that use it, with their extents
    """

    id: bytes
    listed: Sequence[tuple[int, int]]
    boxes: Sequence[tuple[bytes, U32]]


@dataclass(frozen=True, slots=True)
class ManifestLevel:
    """How much the check of a manifest reads and returns.

    with_chunks   whether it returns the chunk files that the manifest needs
    with_foreign  whether it reads one byte of each foreign object
    with_inline   whether the size includes inline chunks
    """

    with_chunks: bool = False
    with_foreign: bool = False
    with_inline: bool = False
    spec_version: int = 2


def check_manifest(
    storage: Storage, sources: VirtualSources, use: ManifestUse, level: ManifestLevel
) -> tuple[list[Finding], Needed]:
    """Return the findings of a manifest and, if the level has it, the chunk files that it needs."""
    key = manifest_key(use.id)
    nothing = Needed(np.zeros((0, OBJECT_ID_BYTES), np.uint8), np.zeros(0, np.uint64), 0, 0)
    rules = partial(manifest_violations, id_=use.id, spec_version=level.spec_version)
    file = check_kind(storage, MANIFEST, use.id, rules)
    findings = list(file.findings)
    manifest = file.value
    if manifest is None:
        return findings, nothing
    try:
        count = sum(map(len, manifest.arrays.values()))
        size = memoryview(file.data).nbytes
        findings += _unlike(key, use.listed, (size, count))
        findings += _outside(key, manifest, use.boxes)
        if level.with_foreign:
            findings += _foreign(manifest, sources)
        needed = _needed(manifest, count, level.with_inline) if level.with_chunks else nothing
    except IcechunkError as error:  # some columns are decoded only when they are used
        findings.append(read_finding(error, key))
        return findings, nothing
    return findings, needed


def _unlike(key: str, listed: Sequence[tuple[int, int]], stored: tuple[int, int]) -> Iterator[Finding]:
    for what, column, actual in zip(("size", "count"), zip(*listed, strict=True), stored, strict=True):
        for expected in sorted(set(column) - {actual}):
            detail = f"a snapshot has {expected}, the file has {actual}"
            yield Finding(f"manifest-{what}", key, detail=detail)


def _outside(key: str, manifest: Manifest, boxes: Sequence[tuple[bytes, U32]]) -> Iterator[Finding]:
    for node, box in boxes:
        table = manifest.arrays.get(node)
        if table is None or not len(table):
            continue
        if len(box) != table.ndim:
            detail = f"the array has {len(box)} dimensions, its coordinates have {table.ndim} numbers"
            yield Finding("ref-rank", key, node, detail=detail)
            continue
        outside = ((table.index < box[:, 0]) | (table.index >= box[:, 1])).any(axis=1)
        if outside.any():
            yield Finding("manifest-extents", key, node, table.index[outside], "outside of the extents")


def _needed(manifest: Manifest, count: int, with_inline: bool) -> Needed:
    ids: list[U8] = [np.zeros((0, OBJECT_ID_BYTES), np.uint8)]
    ends: list[U64] = [np.zeros(0, np.uint64)]
    size = foreign = 0
    for table in manifest.arrays.values():
        foreign += int(np.count_nonzero(table.kind == ChunkKind.VIRTUAL))
        size += int(table.length[with_inline | (table.kind != ChunkKind.INLINE)].sum())
        used, last = ends_of(table, ChunkKind.NATIVE, len(table.chunk_ids))
        ids.append(table.chunk_ids[used])
        ends.append(last)
    files, stops = np.concatenate(ids), np.concatenate(ends)
    distinct, code = np.unique(id_keys(files), return_inverse=True)
    most = np.zeros(len(distinct), np.uint64)
    np.maximum.at(most, code, stops)
    return Needed(distinct.view(np.uint8).reshape(-1, OBJECT_ID_BYTES), most, size, count, foreign)


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
                yield Finding(virtual_check(error), ref.location, node, table.index[lost], error.message)
