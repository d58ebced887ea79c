"""The base class of all parts of ``Repository``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog import repo_requirements
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_requirements import snapshot_id as resolve_id
from frazil.storage.base import Storage


def snapshot_of_version(
    info: RepoInfo, branch: str | None, tag: str | None, snapshot_id: str | None
) -> bytes:
    """Return the id of the snapshot that exactly one of the three arguments names."""
    names = [name for name in (branch, tag, snapshot_id) if name is not None]
    if len(names) != 1:
        raise ValueError(
            f"expected exactly one of branch, tag and snapshot_id, got {len(names)}: "
            f"{', '.join(map(repr, names)) or 'pass branch="main"'}"
        )
    if branch is not None:
        return repo_requirements.branch_tip(info, branch)
    if tag is not None:
        return repo_requirements.tag_target(info, tag)
    id_ = resolve_id(snapshot_id or "", lambda: info)
    repo_requirements.require_snapshot(info, id_)
    return id_


class RepositoryBase:
    """A handle on a repository: its context, and the metadata that every commit of its sessions gets."""

    def __init__(self, context: Context, default_metadata: Mapping[str, Any] | None = None) -> None:
        self._context = context
        self._default_metadata = dict(default_metadata or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._context, self._default_metadata))

    @property
    def storage(self) -> Storage:
        """The storage of the repository, with the options of this handle."""
        return self._context.storage

    def _info(self) -> RepoInfo:
        """Return the current repo info."""
        return self._context.catalog.repo_info()

    def _info_v2(self) -> RepoInfo:
        """Return the current repo info, for methods that need spec version 2."""
        self._context.require_version_2()
        return self._context.catalog.repo_info()
