"""The base class of all parts of ``Repository``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.context import Context
from frazil.storage.base import Storage


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
