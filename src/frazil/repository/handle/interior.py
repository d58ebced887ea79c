"""The interior of a repository's handle, for the rooms above: jobs, operations, tables, streams."""

from __future__ import annotations

from typing import Any

from frazil.repository.catalog.context import Context
from frazil.repository.handle.repository import Repository


def context_of(repo: Repository) -> Context:
    """What the handle and its sessions share: the storage, the catalog, the settings and the caches."""
    return repo._context


def default_metadata_of(repo: Repository) -> dict[str, Any]:
    """A copy of the metadata that every commit through the handle gets."""
    return dict(repo._default_metadata)
