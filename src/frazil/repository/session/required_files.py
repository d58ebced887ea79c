"""The check that no garbage collection has deleted the older files that a commit refers to."""

from __future__ import annotations

from typing import Final

import numpy as np

from frazil.errors import ErrorKind, SessionStateError, StorageError
from frazil.format.columns import U8
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, id_list
from frazil.format.keys import snapshot_key
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.collection_guard import RequiredFiles, is_uncollected
from frazil.repository.catalog.files import MANIFEST_CHUNK_FILES
from frazil.repository.catalog.repo_requirements import base_not_found
from frazil.repository.session.pending_commit import PendingCommit

_NO_IDS: Final = np.zeros((0, OBJECT_ID_BYTES), np.uint8)


def is_safe(pending: PendingCommit, info: RepoInfo, new_manifests: U8 = _NO_IDS) -> bool:
    """Return ``is_uncollected`` for the files of a commit and for its new manifests."""
    update = pending.session_start.update
    return is_uncollected(
        pending.context.storage,
        info,
        update,
        lambda: _required_files(pending).with_manifests(new_manifests),
    )


def require_uncollected(pending: PendingCommit, info: RepoInfo) -> None:
    """Raise the errors of ``is_uncollected``.

    After a garbage collection, the manifests of earlier attempts are not used again: the collection may have
    deleted them.
    """
    try:
        if not is_safe(pending, info):
            pending.earlier_manifests.forget_manifests()
    except SessionStateError as error:
        parent = pending.parent.id
        if pending.is_unconditional and pending.context.storage.head(snapshot_key(parent)) is None:
            raise base_not_found(parent) from error  # the parent was dropped with its manifests
        raise


def _required_files(pending: PendingCommit) -> RequiredFiles:
    if pending.writer is not None:
        pending.writer.flush()
    prepared = _prepared_files(pending)
    manifests = [prepared.manifests, *([pending.parent.manifests.ids] if pending.is_unconditional else [])]
    chunks = np.concatenate([pending.changes.chunk_files(), prepared.chunks])
    return RequiredFiles(chunks, np.concatenate(manifests))


def _prepared_files(pending: PendingCommit) -> RequiredFiles:
    """Return the manifests that workers have prepared for this commit, and their chunk files.

    Raises ``SessionStateError`` (``garbage-collected``) if a manifest itself was deleted.
    """
    prepared = pending.changes.ready.values()
    ids = np.concatenate([_NO_IDS, *(each.files.ids for each in prepared)])
    ids = ids[~np.isin(id_keys(ids), id_keys(pending.parent.manifests.ids))]
    manifests = ids[np.unique(id_keys(ids), return_index=True)[1]]
    parts = [_NO_IDS]
    for id_ in id_list(manifests):
        try:
            parts.append(MANIFEST_CHUNK_FILES.read(pending.context.storage, id_).chunk_ids)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            raise SessionStateError(
                f"garbage collection deleted `{MANIFEST_CHUNK_FILES.key(id_)}`, which was written for this "
                "commit: the cut-off of the collection was later than the start of the session. Write again "
                "in a new session",
                ErrorKind.GARBAGE_COLLECTED,
            ) from error
    chunks = np.concatenate(parts)
    return RequiredFiles(chunks[np.unique(id_keys(chunks), return_index=True)[1]], manifests)
