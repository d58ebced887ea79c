"""Chunk files that are made again from sources, such as the files of an ingest.

A source makes single chunks. A chunk file is written only if all lost chunks in it are there, each with
exactly the length of its reference. Bytes of a pack that are still readable stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from frazil.errors import IcechunkError
from frazil.format.columns import I64
from frazil.format.ids import id_from_text
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.maintenance.repair.chunk_uses import ChunkUses, chunk_uses, version_files
from frazil.maintenance.repair.lost import lost_files
from frazil.maintenance.repair.overlay import Overlay
from frazil.maintenance.repair.quarantine import read_present
from frazil.maintenance.repair.steps import Site, check_content
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files import MANIFEST
from frazil.repository.catalog.repairs import Certainty, ChunkSource, LostChunks, RepairStep

#: The largest number of bytes of chunks from sources in one plan. They are in memory.
_MOST: Final = 1 << 30


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
        chunks: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
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
    chunks: dict[tuple[bytes, tuple[int, ...]], bytes],
    lost: Sequence[LostChunks],
) -> Iterator[WriteChunks]:
    wanted = {(each.node, tuple(at)) for each in lost for at in each.coordinates.tolist()}
    if not wanted & chunks.keys():
        return
    uses = chunk_uses(site.context, version_files(site.context), lost_files(lost))
    ends = dict(zip(map(bytes, uses.files), uses.ends.tolist(), strict=True))
    for key in dict.fromkeys(each.key for each in lost):
        data = _assembled(site, key, chunks, uses, ends[id_from_text(key.rpartition("/")[2])])
        if data is not None:
            yield WriteChunks(key, data, label, check_content(key, data))


def _assembled(
    site: Site, key: str, chunks: dict[tuple[bytes, tuple[int, ...]], bytes], uses: ChunkUses, end: int
) -> bytes | None:
    """Return the bytes of a chunk file, or None if a chunk in it is missing or has another length."""
    id_ = id_from_text(key.rpartition("/")[2])
    present = read_present(site.storage, key)
    data = bytearray(b"" if present is None else present[0])
    readable = len(data)
    data.extend(bytes(max(0, end - readable)))
    row = list(map(bytes, uses.files)).index(id_)
    for manifest in map(bytes, uses.manifests[row]):
        for node, table, rows in _tables(site.context, manifest, id_):
            for at in rows.tolist():
                start, length = int(table.offset[at]), int(table.length[at])
                if start + length <= readable:
                    continue
                chunk = chunks.get((node, tuple(table.index[at].tolist())))
                if chunk is None or len(chunk) != length:
                    return None
                data[start : start + length] = chunk
    return bytes(data)


def _tables(context: Context, manifest: bytes, file: bytes) -> Iterator[tuple[bytes, ChunkTable, I64]]:
    """Yield the arrays of a manifest with references to a chunk file, and the rows of these references."""
    try:
        arrays = MANIFEST.read(context.storage, manifest).arrays
    except IcechunkError:  # there is a finding for it
        return
    for node, table in arrays.items():
        hit = (table.chunk_ids == np.frombuffer(file, np.uint8)).all(axis=1)
        native = np.flatnonzero(table.kind == ChunkKind.NATIVE)
        rows = native[hit[table.source[native]]] if len(hit) else native[:0]
        if len(rows):
            yield node, table, rows
