"""Access to the interior of a handle, for jobs, operations, tables and streams."""

from __future__ import annotations

from typing import Any

from frazil.repository.catalog.context import Context
from frazil.repository.handle.repository import Repository


def context_of(repo: Repository) -> Context:
    """Return the context that a handle and its sessions share."""
    return repo._context


def default_metadata_of(repo: Repository) -> dict[str, Any]:
    """Return the metadata that every commit through the handle gets."""
    return dict(repo._default_metadata)
