"""The interior of a repository's handle, for rooms that are built on it: jobs, operations, tables and streams."""

from __future__ import annotations

from frazil.repository.catalog.context import Context
from frazil.repository.handle.repository import Repository


def context_of(repo: Repository) -> Context:
    """What the handle and its sessions share: the storage, the catalog, the settings and the caches."""
    return repo._context
