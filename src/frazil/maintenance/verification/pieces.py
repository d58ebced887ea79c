"""The pieces of work of a verification, which a worker in any process can do.

An item of work is a pair: a value that all elements share, and the elements. A piece yields one result for
each element, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from frazil.maintenance.side_by_side import side_by_side
from frazil.maintenance.verification.backups import Named, check_named
from frazil.maintenance.verification.chunks import (
    LostFiles,
    ReadRequest,
    ReadResult,
    read_rows,
    without_files,
)
from frazil.maintenance.verification.decoding import decoders
from frazil.maintenance.verification.findings import Finding
from frazil.maintenance.verification.log_chunks import LoggedChanges, check_log_chunks
from frazil.maintenance.verification.manifests import ManifestLevel, ManifestUse, Needed, check_manifest
from frazil.maintenance.verification.versions import CheckedVersion, Version, check_versions
from frazil.repository.catalog.context import Context

#: Number of concurrent items in one process.
_ITEMS: Final = 4

#: A piece of work: from a context and an item to results.
type Piece = Callable[[Context, Any], Iterable[Any]]
#: Does a piece of work for all items in any process. Yields the results in the order of the items.
type Run = Callable[[Piece, Sequence[Any]], Iterator[Any]]


def versions_piece(context: Context, item: tuple[None, Sequence[Version]]) -> Iterator[CheckedVersion]:
    """Check snapshots and their logs."""
    return check_versions(context.storage, item[1])


def logs_piece(
    context: Context, item: tuple[None, Sequence[LoggedChanges]]
) -> Iterator[tuple[bytes, list[Finding]]]:
    """Compare the chunks in transaction logs with manifests."""
    return check_log_chunks(context.storage, item[1])


def manifests_piece(
    context: Context, item: tuple[ManifestLevel, Sequence[ManifestUse]]
) -> Iterator[tuple[bytes, list[Finding], Needed]]:
    """Check manifests and foreign objects."""
    level, uses = item
    for use in uses:
        yield use.id, *check_manifest(context.storage, context.virtual, use, level)


def lost_piece(
    context: Context, item: tuple[LostFiles, Sequence[bytes]]
) -> Iterator[tuple[bytes, list[Finding]]]:
    """Find references of manifests to chunk files that are missing or short."""
    lost, ids = item
    return ((id_, without_files(context.storage, id_, lost)) for id_ in ids)


def bytes_piece(
    context: Context, item: tuple[None, Sequence[ReadRequest]]
) -> Iterator[tuple[bytes, ReadResult]]:
    """Read bytes of chunks, and decode them."""
    decoder_of = decoders(context)
    for request in item[1]:
        yield request.manifest, read_rows(context.storage, context.virtual, request, decoder_of)


def backups_piece(context: Context, item: tuple[None, Sequence[Named]]) -> Iterator[list[Finding]]:
    """Check backups that the ops log names."""
    return check_named(context.storage, item[1])


PIECES: Final[tuple[Piece, ...]] = (
    versions_piece,
    logs_piece,
    manifests_piece,
    lost_piece,
    bytes_piece,
    backups_piece,
)


def run_locally(context: Context) -> Run:
    """Return a function that does pieces of work on threads of this process."""

    def run(piece: Piece, items: Sequence[Any]) -> Iterator[Any]:
        for answers in side_by_side(items, lambda item: list(piece(context, item)), _ITEMS):
            yield from answers

    return run
