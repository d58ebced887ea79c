"""Checks of single files: their content, the rules that they break, and errors as findings; and manifests."""

from __future__ import annotations

import zlib
from collections.abc import Buffer, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from frazil.chunks.virtual import VirtualSources
from frazil.errors import ErrorKind, FormatError, IcechunkError
from frazil.format.columns import U32
from frazil.format.envelope import Violation, spec_version_of
from frazil.format.ids import OBJECT_ID_BYTES, manifest_key
from frazil.format.manifest import ChunkKind, ChunkTable, Manifest, VirtualRef
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.assets import MANIFEST, FileKind
from frazil.repository.catalog.context import Context
from frazil.storage.base import Storage
from frazil.storage.checks import is_outage, require_whole
from frazil.storage.foreign_objects import is_foreign_outage
from frazil.survey.columns import FileUses, ends_of
from frazil.threads import Purpose, map_bounded

#: The checks of foreign objects, by the kinds of errors of their reads.
_VIRTUAL: Final = {
    ErrorKind.VIRTUAL_CHUNK_MODIFIED: "virtual-modified",
    ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER: "virtual-unauthorized",
    ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK: "virtual-unauthorized",
}


@dataclass(frozen=True, slots=True, eq=False)
class CheckedFile[T]:
    """A metadata file. ``value`` is None if it is missing or cannot be read.

    ``outage`` is the error of a storage that did not return the file.
    """

    value: T | None = None
    data: Buffer = b""
    findings: list[Finding] = field(default_factory=list)
    is_missing: bool = False
    outage: IcechunkError | None = None


def read_check(error: IcechunkError) -> str:
    """Return the name of the check that the error of a read belongs to."""
    if is_outage(error):
        return "unavailable"
    return "missing" if error.kind == ErrorKind.OBJECT_NOT_FOUND else "unreadable"


def read_finding(error: IcechunkError, key: str) -> Finding:
    """Return the finding for a file that cannot be read. Readers refuse a file that is not unavailable."""
    check = read_check(error)
    return Finding(check, key, detail=error.message, is_unreadable=check != "unavailable")


@contextmanager
def noted(findings: list[Finding], key: str) -> Iterator[None]:
    """Turn an error of a read in the block into a finding: some columns are decoded when they are used."""
    try:
        yield
    except IcechunkError as error:
        findings.append(read_finding(error, key))


def check_file[T](storage: Storage, key: str, decode: Callable[[Any, list[Violation]], T]) -> CheckedFile[T]:
    """Read a file. Damage becomes findings: the broken rules, or ``unreadable`` if no rule explains it.

    ``decode`` adds broken rules to a list, and raises an ``IcechunkError`` for a file that readers refuse.
    """
    try:
        data = storage.get(key)
    except IcechunkError as error:
        check = read_check(error)
        findings = [Finding(check, key, detail=error.message)]
        outage = error if check == "unavailable" else None
        return CheckedFile(findings=findings, is_missing=check == "missing", outage=outage)
    broken: list[Violation] = []
    value, is_refused = None, False
    try:
        value = decode(data, broken)
    except IcechunkError as error:
        try:
            require_whole(storage, key, data)
        except IcechunkError as short:
            return CheckedFile(findings=[read_finding(short, key)], outage=short)
        is_refused = True
        check = error.check if isinstance(error, FormatError) and error.check else "unreadable"
        broken.append(Violation(check, error.message))
    findings = [
        Finding(each.check, key, each.node, each.coordinates, each.detail, is_refused) for each in broken
    ]
    return CheckedFile(value, data, findings)


def check_kind[T: Any](storage: Storage, kind: FileKind[T], id_: bytes, spec_version: int) -> CheckedFile[T]:
    """Read a file that is named by an id, in a repository of a spec version."""

    def decode(data: Any, broken: list[Violation]) -> T:
        value = kind.decoded(data, id_, broken)
        if (version := spec_version_of(data)) > spec_version:
            detail = f"the spec version must be 1 to {spec_version}, got {version}"
            broken.append(Violation("file-spec-version", detail))
        return value

    return check_file(storage, kind.key(id_), decode)


def virtual_check(error: IcechunkError) -> str:
    """Return the name of the check that the error of a foreign read belongs to.

    An error of the network or of a permission says nothing about the object: it could not be read.
    """
    other = "virtual-unavailable" if is_foreign_outage(error) else "virtual-unreadable"
    return _VIRTUAL.get(error.kind, other)


def virtual(table: ChunkTable, row: int, offset: int, length: int) -> VirtualRef:
    """Return a reference to a range of the foreign object ``row`` of a table, with its checksum."""
    foreign = table.foreign
    etag, modified = foreign.etags.text(row) or None, int(foreign.modified[row]) or None
    return VirtualRef(foreign.locations.text(row), offset, length, etag, modified)


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
