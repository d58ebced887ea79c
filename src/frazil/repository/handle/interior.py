"""Access to the interior of a handle, for jobs, operations, tables and streams."""

from __future__ import annotations

from typing import Any

from frazil.repository.catalog.context import Context
from frazil.repository.handle.repository import Repository


def context_of(repo: Repository) -> Context:
    """Return the context that a handle and its sessions share.

    Args:
        repo: The handle.

    Returns:
        The storage, the catalog, the options and the caches.

    Examples:
        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> context_of(repo).spec_version
        2
    """
    return repo._context


def default_metadata_of(repo: Repository) -> dict[str, Any]:
    """Return the metadata that every commit through the handle gets.

    Args:
        repo: The handle.

    Returns:
        A copy of the metadata. See ``Repository.set_default_commit_metadata``.

    Examples:
        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> repo.set_default_commit_metadata({"author": "Ada"})
        >>> default_metadata_of(repo)
        {'author': 'Ada'}
    """
    return dict(repo._default_metadata)
