"""The uses of chunk files by manifests, and of manifests by versions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from frazil.format.columns import U8, U64
from frazil.format.ids import id_keys, id_list, id_matrix
from frazil.format.snapshot import ManifestFiles
from frazil.maintenance.verification.state import state_of
from frazil.repository.catalog.context import Context
from frazil.survey.columns import SnapshotManifests, among, distinct
from frazil.survey.survey import Survey


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

    survey = Survey(context, is_incremental=False)
    table = SnapshotManifests.concat(list(survey.read_versions(id_matrix(needed), skips_damage=True)))
    manifests = tuple(table.files.ids[table.rows.row(row)] for row in range(len(table)))
    return VersionFiles(tuple(id_list(table.ids)), manifests, table.files)


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

    survey = Survey(context, is_incremental=False)
    for id_, uses in survey.file_uses(versions.files, skips_damage=True):
        own = uses.select_files(among(uses.ids, wanted))
        rows = id_keys(wanted).searchsorted(id_keys(own.ids))
        ends[rows] = np.maximum(ends[rows], own.ends)
        for row in rows.tolist():
            users[row].append(id_)
    return ChunkUses(wanted, ends, tuple(map(id_matrix, users)))
