"""The uses of chunk files by manifests, and of manifests by versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frazil.errors import IcechunkError
from frazil.format.columns import U8, U64
from frazil.format.ids import id_keys, id_matrix
from frazil.format.manifest import ChunkKind, Manifest
from frazil.format.snapshot import ManifestFiles
from frazil.maintenance.listing import among, distinct
from frazil.maintenance.side_by_side import side_by_side
from frazil.maintenance.verification.state import state_of
from frazil.maintenance.walk import Bounds, manifests_of, over_manifests
from frazil.maintenance.walk_columns import each_once
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files import MANIFEST
from frazil.storage.outages import is_outage


@dataclass(frozen=True, slots=True, eq=False)
class VersionFiles:
    """The manifests of all needed versions that can be read.

    versions   ids, the oldest first
    manifests  ids of the manifests of each version, (k, 12)
    files      each manifest once
    """

    versions: tuple[bytes, ...]
    manifests: tuple[U8, ...]
    files: ManifestFiles

    def users(self, manifests: U8) -> tuple[bytes, ...]:
        """Return the versions that use one of the manifests, the newest first."""
        pairs = zip(self.versions, self.manifests, strict=True)
        return tuple(reversed([version for version, own in pairs if among(own, manifests).any()]))


def version_files(context: Context) -> VersionFiles:
    """Return the manifests of all versions that a branch or tag leads to. Damaged snapshots are skipped."""
    needed = [each.id for each in state_of(context).versions if each.is_needed]

    def read(id_: bytes) -> ManifestFiles | None:
        try:
            return manifests_of(context.storage, id_)
        except IcechunkError as error:  # there is a finding for it
            if is_outage(error):
                raise
            return None

    bounds = Bounds()
    pairs = zip(needed, side_by_side(needed, read, bounds.snapshots), strict=True)
    readable = [(id_, files) for id_, files in pairs if files is not None]
    every = each_once([ManifestFiles.empty(), *(files for _, files in readable)])
    return VersionFiles(tuple(id_ for id_, _ in readable), tuple(files.ids for _, files in readable), every)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkUses:
    """The uses of some chunk files.

    files      uint8 (n, 12), sorted
    ends       uint64 (n,), the number of bytes that references need
    manifests  the manifests that refer to each file, (k, 12)
    """

    files: U8
    ends: U64
    manifests: tuple[U8, ...]


def chunk_uses(context: Context, versions: VersionFiles, files: U8) -> ChunkUses:
    """Return the uses of chunk files. This reads all manifests, each once."""
    wanted = distinct([files])
    ends = np.zeros(len(wanted), np.uint64)
    users: list[list[bytes]] = [[] for _ in range(len(wanted))]

    def read(id_: bytes) -> tuple[bytes, NDArray[np.int64], U64]:
        try:
            return id_, *_uses(MANIFEST.read(context.storage, id_), wanted)
        except IcechunkError as error:  # there is a finding for it
            if is_outage(error):
                raise
            return id_, np.zeros(0, np.int64), np.zeros(0, np.uint64)

    for id_, rows, last in over_manifests(versions.files, read, Bounds()):
        np.maximum.at(ends, rows, last)
        for row in np.unique(rows).tolist():
            users[row].append(id_)
    return ChunkUses(wanted, ends, tuple(map(id_matrix, users)))


def _uses(manifest: Manifest, wanted: U8) -> tuple[NDArray[np.int64], U64]:
    """Return the row in ``wanted`` of each reference to one of these files, and the end of the reference."""
    parts = list(_parts(manifest, wanted))
    rows = [np.zeros(0, np.int64), *(rows for rows, _ in parts)]
    return np.concatenate(rows), np.concatenate([np.zeros(0, np.uint64), *(ends for _, ends in parts)])


def _parts(manifest: Manifest, wanted: U8) -> Iterator[tuple[NDArray[np.int64], U64]]:
    for table in manifest.arrays.values():
        hit = among(table.chunk_ids, wanted)
        if hit.any():
            rows = np.flatnonzero(table.kind == ChunkKind.NATIVE)
            rows = rows[hit[table.source[rows]]]
            ids = id_keys(table.chunk_ids[table.source[rows]])
            yield id_keys(wanted).searchsorted(ids), table.offset[rows] + table.length[rows]
