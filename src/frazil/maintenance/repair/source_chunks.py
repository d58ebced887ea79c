"""Chunk files that are made again from sources, such as the files of an ingest.

A source makes single chunks. A chunk file is written only if all lost chunks in it are there, each with
exactly the length of its reference. Bytes of a pack that are still readable stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from frazil.errors import FormatError, IcechunkError
from frazil.format.chunk_trailer import crc32c, encode_trailer
from frazil.format.columns import I64
from frazil.format.ids import id_from_text
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.maintenance.repair.chunk_uses import ChunkUses, chunk_uses, version_files
from frazil.maintenance.repair.lost import lost_files
from frazil.maintenance.repair.overlay import Overlay
from frazil.maintenance.repair.quarantine import read_present
from frazil.maintenance.repair.repair_plan import Certainty, ChunkSource, LostChunks, RepairStep
from frazil.maintenance.repair.steps import Site, check_content
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files import MANIFEST
from frazil.storage.outages import is_outage

#: The largest number of bytes of chunks from sources in one plan. They are in memory.
_MOST: Final = 1 << 30

#: Bytes by node and coordinates.
type _Chunks = dict[tuple[bytes, tuple[int, ...]], bytes]


@dataclass(frozen=True, slots=True)
class WriteChunks:
    """Writes one chunk file with the bytes that a source has made."""

    key: str
    data: bytes
    source: str
    certainty: Certainty

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        why = "the source files are unchanged, the chunks were ingested from them, and have the same lengths"
        return RepairStep("source", (self.key,), self.source, why, self.certainty)

    def perform(self, site: Site) -> None:
        """Write the file, and put the damaged file aside."""
        site.quarantine.replace_file(site.storage, self.key, self.data)


def source_steps(
    site: Site, sources: Sequence[ChunkSource], lost: Sequence[LostChunks]
) -> Iterator[WriteChunks]:
    """Yield the steps that write lost chunk files from sources."""
    left = list(lost)
    size = 0
    for source in sources:
        if not left or size > _MOST:
            return
        chunks: _Chunks = {}
        for each in source.read_chunks(Overlay(site.storage), left):
            chunks[each.node, each.coordinates] = each.data
            size += len(each.data)
            if size > _MOST:  # the next repair continues
                break
        steps = list(_steps(site, source.label(), chunks, left))
        yield from steps
        done = {step.key for step in steps}
        left = [each for each in left if each.key not in done]


def _steps(
    site: Site,
    label: str,
    chunks: _Chunks,
    lost: Sequence[LostChunks],
) -> Iterator[WriteChunks]:
    wanted = {(each.node, tuple(at)) for each in lost for at in each.coordinates.tolist()}
    if not wanted & chunks.keys():
        return
    uses = chunk_uses(site.context, version_files(site.context), lost_files(lost))
    rows = {file: row for row, file in enumerate(map(bytes, uses.files))}
    for key in dict.fromkeys(each.key for each in lost):
        row = rows[id_from_text(key.rpartition("/")[2])]
        parts = _parts(site.context, uses, row)
        data = _assembled(site, key, parts, chunks, wanted)
        with suppress(FormatError):  # the bytes differ from a checksum that the damaged file still has
            if data is not None:
                yield WriteChunks(key, data, label, check_content(key, data))


@dataclass(frozen=True, slots=True)
class _Part:
    """The range of one chunk in a chunk file."""

    chunk: tuple[bytes, tuple[int, ...]]
    start: int
    stop: int


def _parts(context: Context, uses: ChunkUses, row: int) -> list[_Part]:
    """Return the ranges of all chunks in a chunk file that references use."""
    return [
        _Part((node, tuple(index)), start, start + length)
        for manifest in map(bytes, uses.manifests[row])
        for node, table, rows in _tables(context, manifest, bytes(uses.files[row]))
        for index, start, length in zip(
            table.index[rows].tolist(), table.offset[rows].tolist(), table.length[rows].tolist(), strict=True
        )
    ]


def _assembled(
    site: Site, key: str, parts: Sequence[_Part], chunks: _Chunks, lost: Set[tuple[bytes, tuple[int, ...]]]
) -> bytes | None:
    """Return the bytes of a chunk file, or None if a chunk in it is missing or has another length."""
    present = read_present(site.storage, key)
    data = bytearray(b"" if present is None else present[0])
    readable = len(data)
    data.extend(bytes(max(0, max((part.stop for part in parts), default=0) - readable)))
    for part in parts:
        if part.stop <= readable and part.chunk not in lost:
            continue
        chunk = chunks.get(part.chunk)
        if chunk is None or len(chunk) != part.stop - part.start:
            return None
        data[part.start : part.stop] = chunk
    return bytes(data) + (_trailer(key, parts, data) if len(data) > readable else b"")


def _trailer(key: str, parts: Sequence[_Part], data: bytearray) -> bytes:
    """Return the trailer of a new file. A gap between two chunks counts as a chunk."""
    cuts = sorted({0, *(part.start for part in parts), *(part.stop for part in parts)})
    sums = [crc32c(memoryview(data)[start:stop]) for start, stop in pairwise(cuts)]
    lengths = [stop - start for start, stop in pairwise(cuts)]
    return encode_trailer(id_from_text(key.rpartition("/")[2]), lengths, sums)


def _tables(context: Context, manifest: bytes, file: bytes) -> Iterator[tuple[bytes, ChunkTable, I64]]:
    """Yield the arrays of a manifest with references to a chunk file, and the rows of these references."""
    try:
        arrays = MANIFEST.read(context.storage, manifest).arrays
    except IcechunkError as error:  # there is a finding for it
        if is_outage(error):
            raise
        return
    for node, table in arrays.items():
        hit = (table.chunk_ids == np.frombuffer(file, np.uint8)).all(axis=1)
        native = np.flatnonzero(table.kind == ChunkKind.NATIVE)
        rows = native[hit[table.source[native]]] if len(hit) else native[:0]
        if len(rows):
            yield node, table, rows
