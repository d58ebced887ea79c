"""Which results of pieces a verification records in its state, under which keys.

Only results without findings are recorded. The key has everything that the result depends on. A manifest and
a snapshot never change under their ids. Chunk files do not change either, but a damaged or restored file has
another size or time in the listing. Foreign objects may change, so pieces with virtual references are never
recorded.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from frazil.format.ids import id_keys
from frazil.maintenance.listing import Listed
from frazil.maintenance.verification.chunks import ReadRequest, ReadResult
from frazil.maintenance.verification.findings import Finding, VerifyLevel
from frazil.maintenance.verification.log_chunks import LoggedChanges
from frazil.maintenance.verification.manifests import ManifestLevel, ManifestUse, Needed
from frazil.maintenance.verification.runner import Recorded
from frazil.maintenance.verification.verification_state import piece_key
from frazil.repository.catalog.context import Context

_DONE = b"done"


def log_records(context: Context) -> Recorded[LoggedChanges, tuple[bytes, list[Finding]]]:
    """Return how comparisons of logs with manifests are recorded."""
    label = context.storage.label()
    return Recorded(
        lambda changes: piece_key("log-chunks", label, repr(changes)),
        lambda result: None if result[1] else _DONE,
        lambda changes, data: (changes.id, []),
    )


def manifest_records(
    context: Context, level: ManifestLevel
) -> Recorded[ManifestUse, tuple[bytes, list[Finding], Needed]]:
    """Return how checks of manifests are recorded."""
    label = context.storage.label()

    def key(use: ManifestUse) -> bytes:
        boxes = b"".join(node + box.tobytes() for node, box in use.boxes)
        return piece_key("manifest", label, repr(level), use.id, repr(use.listed), boxes)

    def dump(result: tuple[bytes, list[Finding], Needed]) -> bytes | None:
        _, findings, needed = result
        return None if findings or needed.foreign else needed.to_bytes()

    return Recorded(key, dump, lambda use, data: (use.id, [], Needed.from_bytes(data)))


def bytes_records(
    context: Context, level: VerifyLevel, needed: Mapping[bytes, Needed], chunks: Listed
) -> Recorded[ReadRequest, tuple[bytes, ReadResult]]:
    """Return how reads of bytes are recorded. ``chunks`` are the chunk files."""
    label = context.storage.label()
    listed_keys = id_keys(chunks.ids)

    def key(request: ReadRequest) -> bytes | None:
        need = needed[request.manifest]
        if need.foreign:
            return None
        rows = np.flatnonzero(np.isin(listed_keys, id_keys(need.files)))
        files = chunks.sizes[rows].tobytes() + chunks.modified[rows].tobytes()
        span = (request.start, request.stop, int(request.is_hashed))
        return piece_key("bytes", label, level, request.manifest, *span, files)

    return Recorded(
        key,
        lambda result: None if result[1].findings else _numbers(result[1]),
        lambda request, data: (request.manifest, ReadResult((), *map(int, data.split()))),
    )


def _numbers(result: ReadResult) -> bytes:
    return f"{result.size} {result.native} {result.compared}".encode()
