"""The virtual chunk containers that the caller of an ingest passes."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.repository.handle.repository import Repository
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.access import environment_access


def with_containers(repo: Repository, containers: Sequence[VirtualChunkContainer]) -> Repository:
    """Return the repository with these containers in its saved configuration, authorized for this process.

    The caller names the server of each container, so Frazil may send the credentials of the environment to
    it, unless the repository was opened with other credentials for this prefix.
    """
    config = repo.config
    saved = config.virtual_chunk_containers or {}
    has_new = any(saved.get(each.url_prefix) != each for each in containers)
    for each in containers:
        config.set_virtual_chunk_container(each)
    granted = {each.url_prefix: environment_access(each.url_prefix) for each in containers}
    repo = repo.reopen(config, authorize_virtual_chunk_access={**granted, **repo.virtual_chunk_access})
    if has_new:
        repo.save_config()
    return repo
