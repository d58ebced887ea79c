"""Conversions of snapshots of the repo info to public values: ids become text, microseconds become times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter

from frazil.format.ids import id_matrix, ids_to_text
from frazil.format.repo_info import SnapshotEntry
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.clock import to_datetimes


def snapshot_info(entry: SnapshotEntry) -> SnapshotInfo:
    """Return the public description of a snapshot."""
    return snapshot_infos([entry])[0]


def snapshot_infos(entries: Sequence[SnapshotEntry]) -> list[SnapshotInfo]:
    """Return the public descriptions of many snapshots, with ``map`` for speed."""
    own = list(map(attrgetter("id"), entries))
    parents = list(map(attrgetter("parent"), entries))
    # Most of them are the parents of others.
    ids = list(dict.fromkeys(chain(own, filter(None, parents))))
    names: dict[bytes | None, str] = dict(zip(ids, ids_to_text(id_matrix(ids)), strict=True))
    return list(
        map(
            SnapshotInfo,
            map(names.__getitem__, own),
            map(names.get, parents),
            to_datetimes(list(map(attrgetter("flushed_at"), entries))),
            map(attrgetter("message"), entries),
            map(dict, map(attrgetter("metadata"), entries)),
        )
    )
