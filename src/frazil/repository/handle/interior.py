"""The interior of a repository's handle, for the rooms above: jobs, operations, tables, streams."""

from __future__ import annotations

from frazil.repository.catalog.context import Context
from frazil.repository.handle.repository import Repository


def context_of(repo: Repository) -> Context:
    """What the handle and its sessions share: the storage, the catalog, the settings and the caches."""
    return repo._context
