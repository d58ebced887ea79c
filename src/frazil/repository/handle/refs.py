"""Branches and tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog import repo_changes, repo_requirements
from frazil.repository.catalog.repo_update import Change
from frazil.repository.catalog.stream_batches import History
from frazil.repository.catalog.stream_records import STREAMS
from frazil.repository.catalog.version_names import find_snapshot
from frazil.repository.catalog.version_names import snapshot_id as resolve_id
from frazil.repository.handle.base import RepositoryBase


class Refs(RepositoryBase):
    """Methods of ``Repository``."""

    def list_branches(self) -> set[str]:
        """The names of all branches; ``main`` is always one of them."""
        return set(self._context.catalog.repo_info().branches)

    def create_branch(self, branch: str, snapshot_id: str) -> None:
        """Make a branch. ``snapshot_id`` is a snapshot's id, the first characters of one (4 or more, where
        no other begins so), or the name of a branch or tag.

        Raises ``AlreadyExistsError`` (``branch-already-exists``); ``SnapshotNotFoundError``;
        ``InvalidInputError`` (``invalid-snapshot-id``) for what is none of these, and for a text that can
        mean several snapshots.
        """
        self._set_branch(branch, lambda id_: repo_changes.create_branch(branch, id_), snapshot_id)

    def lookup_branch(self, branch: str) -> str:
        """The snapshot that a branch points to; ``RefNotFoundError``."""
        return id_to_text(repo_requirements.branch_tip(self._context.catalog.repo_info(), branch))

    def reset_branch(self, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None) -> None:
        """Let a branch point to another snapshot: see ``create_branch`` for ``snapshot_id``.

        ``from_snapshot_id``: only if it points there now, else ``ConflictError``
        (``branch-update-conflict``).
        """
        expected = None if from_snapshot_id is None else self._snapshot_id(from_snapshot_id)
        self._set_branch(branch, lambda id_: repo_changes.reset_branch(branch, id_, expected), snapshot_id)

    def delete_branch(self, branch: str) -> None:
        """Raises ``RefNotFoundError``; ``SessionStateError`` (``cannot-delete-main``)."""
        self._context.catalog.update_repo_info(repo_changes.delete_branch(branch))

    def list_tags(self) -> set[str]:
        """The names of all tags, without deleted ones."""
        return set(self._context.catalog.repo_info().tags)

    def create_tag(self, tag: str, snapshot_id: str) -> None:
        """A name for a snapshot, for good: see ``create_branch`` for ``snapshot_id``. Raises
        ``AlreadyExistsError``, also for the name of a deleted tag.
        """
        self._context.catalog.update_repo_info(repo_changes.create_tag(tag, self._resolve(snapshot_id)))

    def lookup_tag(self, tag: str) -> str:
        """The snapshot that a tag names; ``RefNotFoundError``."""
        return id_to_text(repo_requirements.tag_target(self._context.catalog.repo_info(), tag))

    def delete_tag(self, tag: str) -> None:
        """Delete a tag; its name cannot be used again."""
        self._context.catalog.update_repo_info(repo_changes.delete_tag(tag))

    def _set_branch(self, branch: str, change: Callable[[bytes], Change], snapshot_id: str) -> None:
        """Let a branch point to a snapshot, and record which batches of streaming queries it has."""
        id_ = self._resolve(snapshot_id)

        def note(info: RepoInfo, id_: bytes) -> dict[str, Any]:
            return History(info, id_).recorded(branch) if STREAMS in info.metadata else info.metadata

        update = change(id_)
        self._context.catalog.update_repo_info(
            repo_changes.noted(update, note, id_) if self._context.spec_version > 1 else update
        )

    def _resolve(self, text: str) -> bytes:
        """The snapshot that an id, the beginning of one, or the name of a ref means."""
        snapshot = find_snapshot(text, self._context.catalog.repo_info)
        return self._snapshot_id(text) if snapshot is None else snapshot

    def _snapshot_id(self, text: str) -> bytes:
        return resolve_id(text, self._context.catalog.repo_info)

    list_branches_async = awaitable(list_branches)
    create_branch_async = awaitable(create_branch)
    lookup_branch_async = awaitable(lookup_branch)
    reset_branch_async = awaitable(reset_branch)
    delete_branch_async = awaitable(delete_branch)
    list_tags_async = awaitable(list_tags)
    create_tag_async = awaitable(create_tag)
    lookup_tag_async = awaitable(lookup_tag)
    delete_tag_async = awaitable(delete_tag)
