"""Tables about the snapshots, refs and updates of a repository."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.format.ids import id_to_text
from frazil.format.ops_log import OpsEntry
from frazil.format.snapshot_table import SnapshotEntry
from frazil.repository.catalog.history import ancestry
from frazil.repository.catalog.ops_history import ops_log
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.spark.tables.repository_schemas import SCHEMAS, TIME
from frazil.spark.tables.table_sessions import session_of


def snapshots(repo: Repository) -> pa.Table:
    """Return every snapshot of the repository, newest first."""
    rows = context_of(repo).catalog.full_repo_info().snapshots
    newest = np.argsort(rows.flushed_at(), kind="stable")[::-1].astype(np.int64)
    return pa.table(_entries(rows.entries(newest)), SCHEMAS["snapshots"])


def history(
    repo: Repository, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
) -> pa.Table:
    """Return a snapshot and its ancestors, newest first."""
    tip = session_of(repo, branch, tag, snapshot_id).workspace.snapshot_id
    columns = _entries(chain.from_iterable(ancestry(context_of(repo).catalog.repo_info(), tip)))
    return pa.table({"position": np.arange(len(columns["snapshot_id"])), **columns}, SCHEMAS["history"])


def refs(repo: Repository) -> pa.Table:
    """Return branches, tags, and deleted tags, whose names cannot be used again."""
    info = context_of(repo).catalog.repo_info()
    groups = {"branch": info.branches, "tag": info.tags}
    names = [name for each in groups.values() for name in sorted(each)]
    ids = [id_to_text(each[name]) for each in groups.values() for name in sorted(each)]
    kinds = [kind for kind, each in groups.items() for _ in each]
    deleted = sorted(info.deleted_tags)
    return pa.table(
        {
            "name": [*names, *deleted],
            "type": [*kinds, *["deleted tag"] * len(deleted)],
            "snapshot_id": [*ids, *[None] * len(deleted)],
        },
        SCHEMAS["refs"],
    )


def ops(repo: Repository) -> pa.Table:
    """Return all updates of the repository, newest first (spec version 2)."""
    context_of(repo).require_version_2()
    entries = list(ops_log(repo.storage, context_of(repo).catalog.repo_info()))
    return pa.table(
        {
            "position": np.arange(len(entries)),
            "update": [entry.kind.name.lower().replace("_", "-") for entry in entries],
            "updated_at": pa.array([entry.updated_at for entry in entries], pa.int64()).view(TIME),
            "name": [entry.name for entry in entries],
            "previous_snapshot_id": [_id(entry.previous_snapshot) for entry in entries],
            "new_snapshot_id": [_id(entry.new_snapshot) for entry in entries],
            "details": list(map(_details, entries)),
            "backup": [entry.backup_path for entry in entries],
        },
        SCHEMAS["ops"],
    )


def _entries(entries: Iterable[SnapshotEntry]) -> dict[str, Any]:
    rows = list(entries)
    return {
        "snapshot_id": [id_to_text(each.id) for each in rows],
        "parent_id": [_id(each.parent) for each in rows],
        "written_at": pa.array([each.flushed_at for each in rows], pa.int64()).view(TIME),
        "message": [each.message for each in rows],
        "metadata": [json.dumps(each.metadata, default=str) for each in rows],
    }


def _id(id_: bytes | None) -> str | None:
    return None if id_ is None else id_to_text(id_)


def _details(entry: OpsEntry) -> str | None:
    if entry.versions is not None:
        return json.dumps({"from_version": entry.versions[0], "to_version": entry.versions[1]})
    if entry.flag is not None:
        return json.dumps({"flag": entry.flag[0], "value": entry.flag[1] if entry.flag[2] else None})
    if entry.status is not None:
        return json.dumps(
            {"availability": entry.status.availability.name.lower(), "reason": entry.status.reason}
        )
    return None
