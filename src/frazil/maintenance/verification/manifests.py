"""Checks of manifests: readable, not exchanged, as the snapshots say, and with existing foreign objects."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from frazil.chunks.virtual import VirtualSources
from frazil.errors import IcechunkError
from frazil.format.columns import U32
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.keys import manifest_key
from frazil.format.manifest import ChunkKind, Manifest, VirtualRef
from frazil.maintenance.verification.files import check_kind, noted, virtual, virtual_check
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files import MANIFEST
from frazil.survey.columns import FileUses, ends_of
from frazil.threads import Purpose, map_bounded


@dataclass(frozen=True, slots=True, eq=False)
class RequiredFiles:
    """The chunk files that a manifest needs.

    files    the files, with the end of the last used byte of each
    size     bytes of all references, without those of inline chunks below the level decode
    count    number of all references
    foreign  number of virtual references
    """

    files: FileUses
    size: int = 0
    count: int = 0
    foreign: int = 0

    def to_bytes(self) -> bytes:
        """Return the value as bytes, for the state of a verification."""
        head = np.array([self.size, self.count, self.foreign, len(self.files)], "<u8")
        columns = self.files.ids.tobytes() + self.files.ends.astype("<u8").tobytes()
        return zlib.compress(head.tobytes() + columns, 1)

    @staticmethod
    def from_bytes(data: bytes) -> RequiredFiles:
        """Return the value of ``to_bytes``. Raises ``ValueError`` or ``zlib.error`` for other bytes."""
        raw = np.frombuffer(zlib.decompress(data), np.uint8)
        size, count, foreign, files = raw[:32].view("<u8").tolist()
        split = 32 + files * OBJECT_ID_BYTES
        ends = np.frombuffer(raw[split:].tobytes(), "<u8").astype(np.uint64)
        return RequiredFiles(
            FileUses(raw[32:split].reshape(files, OBJECT_ID_BYTES), ends), size, count, foreign
        )


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


def check_manifests(
    context: Context, item: tuple[ManifestLevel, Sequence[ManifestUse]]
) -> Iterator[tuple[bytes, list[Finding], RequiredFiles]]:
    """Yield the findings of manifests and, if the level has it, the chunk files that each needs."""
    level, uses = item
    for use in uses:
        key, required = manifest_key(use.id), RequiredFiles(FileUses.union([]))
        file = check_kind(context.storage, MANIFEST, use.id, level.spec_version)
        findings, manifest = file.findings, file.value
        if manifest is not None:
            with noted(findings, key):
                count = sum(map(len, manifest.arrays.values()))
                findings += _unlike(key, use.listed, (memoryview(file.data).nbytes, count))
                findings += _outside(key, manifest, use.boxes)
                if level.with_foreign:
                    findings += _foreign(manifest, context.virtual)
                if level.with_chunks:
                    required = _required(manifest, count, level.with_inline)
        yield use.id, findings, required


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


def _required(manifest: Manifest, count: int, with_inline: bool) -> RequiredFiles:
    tables = list(manifest.arrays.values())
    chosen = [table.length[with_inline | (table.kind != ChunkKind.INLINE)] for table in tables]
    foreign = sum(int(np.count_nonzero(table.kind == ChunkKind.VIRTUAL)) for table in tables)
    return RequiredFiles(FileUses.of(tables), sum(int(each.sum()) for each in chosen), count, foreign)


def _foreign(manifest: Manifest, sources: VirtualSources) -> Iterator[Finding]:
    """Yield findings of foreign objects that are missing, too short, or changed. Reads one byte of each."""

    def ask(ref: VirtualRef) -> IcechunkError | None:
        try:
            sources.locate(ref).get(ref.offset, ref.offset + ref.length)
        except IcechunkError as error:
            return error
        return None

    for node, table in manifest.arrays.items():
        used, ends = ends_of(table, ChunkKind.VIRTUAL, len(table.foreign))
        refs = [virtual(table, row, max(end - 1, 0), 1) for row, end in zip(used, ends.tolist(), strict=True)]
        answers = map_bounded(Purpose.VERIFICATION_READS, ask, refs)
        for row, ref, error in zip(used.tolist(), refs, answers, strict=True):
            if error is not None:
                lost = (table.kind == ChunkKind.VIRTUAL) & (table.source == row)
                yield Finding(virtual_check(error), ref.location, node, table.index[lost], error.message)
