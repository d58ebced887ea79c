"""The run of pieces of work: in batches, with progress, without the elements that an earlier run has done.

Only results without findings are recorded. The key of a result has everything that it depends on. A manifest
and a snapshot never change under their ids. Chunk files do not change either, but a damaged or restored file
has another size or time in the listing. Foreign objects may change, so pieces with virtual references are
never recorded.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from frazil.format.ids import id_keys
from frazil.maintenance.verification.chunks import ReadRequest, ReadResult
from frazil.maintenance.verification.findings import Finding, VerifyLevel
from frazil.maintenance.verification.manifests import ManifestLevel, ManifestUse, RequiredFiles
from frazil.maintenance.verification.snapshots import LoggedChanges
from frazil.maintenance.verification.verification_state import VerificationState, piece_key
from frazil.repository.catalog.context import Context
from frazil.survey.columns import ObjectListing
from frazil.survey.steps import Piece, Progress, Run


@dataclass(frozen=True, slots=True)
class ResumeCodec[E, R]:
    """How the results of elements are recorded in the state.

    key     the key of an element, or None for an element that is always done again
    dump    a result as bytes, or None for a result with findings, which is not recorded
    load    the result of an element from these bytes
    """

    key: Callable[[E], bytes | None]
    dump: Callable[[R], bytes | None]
    load: Callable[[E, bytes], R]


@dataclass(slots=True)
class Runner:
    """A run of pieces. ``resumed`` counts the elements that the state has as done."""

    run: Run
    state: VerificationState | None
    progress: Progress
    resumed: int = 0

    def results(
        self,
        piece: Piece,
        elements: Sequence[Any],
        batches: Callable[[Sequence[Any]], Sequence[Sequence[Any]]],
        *,
        shared: Any = None,
        codec: ResumeCodec[Any, Any] | None = None,
    ) -> Iterator[Any]:
        """Yield the results of a piece for all elements, in any order."""
        state = None if codec is None else self.state
        if state is not None and codec is not None:
            waiting = []
            for element in elements:
                data = None if (key := codec.key(element)) is None else state.find_result(key)
                try:
                    result = None if data is None else codec.load(element, data)
                except (ValueError, zlib.error):  # the file of the state is damaged: do the piece again
                    result = None
                if result is None:
                    waiting.append(element)
                else:
                    self.resumed += 1
                    yield result
            elements = waiting
        groups = batches(elements)
        self.progress.expect(len(groups))
        answers = self.run(piece, [(shared, group) for group in groups])
        for group in groups:
            answer = list(islice(answers, len(group)))
            for element, result in zip(group, answer, strict=True):
                if state is not None and codec is not None:
                    key, data = codec.key(element), codec.dump(result)
                    if key is not None and data is not None:
                        state.store_result(key, data)
            self.progress.advance()
            yield from answer


def log_codec(context: Context) -> ResumeCodec[LoggedChanges, tuple[bytes, list[Finding]]]:
    """Return how comparisons of logs with manifests are recorded."""
    label = context.storage.label()
    return ResumeCodec(
        lambda changes: piece_key("log-chunks", label, repr(changes)),
        lambda result: None if result[1] else b"done",
        lambda changes, data: (changes.id, []),
    )


def manifest_codec(
    context: Context, level: ManifestLevel
) -> ResumeCodec[ManifestUse, tuple[bytes, list[Finding], RequiredFiles]]:
    """Return how checks of manifests are recorded."""
    label = context.storage.label()

    def key(use: ManifestUse) -> bytes:
        boxes = b"".join(node + box.tobytes() for node, box in use.boxes)
        return piece_key("manifest", label, repr(level), use.id, repr(use.listed), boxes)

    return ResumeCodec(
        key,
        lambda result: None if result[1] or result[2].foreign else result[2].to_bytes(),
        lambda use, data: (use.id, [], RequiredFiles.from_bytes(data)),
    )


def bytes_codec(
    context: Context, level: VerifyLevel, required: Mapping[bytes, RequiredFiles], chunks: ObjectListing
) -> ResumeCodec[ReadRequest, tuple[bytes, ReadResult]]:
    """Return how reads of bytes are recorded. ``chunks`` are the chunk files."""
    label = context.storage.label()
    listed_keys = id_keys(chunks.ids)

    def key(request: ReadRequest) -> bytes | None:
        own = required[request.manifest]
        if own.foreign:
            return None
        rows = np.flatnonzero(np.isin(listed_keys, id_keys(own.files.ids)))
        files = chunks.sizes[rows].tobytes() + chunks.modified[rows].tobytes()
        span = (request.start, request.stop, int(request.is_hashed))
        return piece_key("bytes", label, level, request.manifest, *span, files)

    def dump(answer: tuple[bytes, ReadResult]) -> bytes | None:
        result = answer[1]
        return None if result.findings else f"{result.size} {result.native} {result.compared}".encode()

    return ResumeCodec(
        key, dump, lambda request, data: (request.manifest, ReadResult((), *map(int, data.split())))
    )
