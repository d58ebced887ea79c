"""Repositories that may read virtual chunks from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import frazil


def allow_folder(folder: Path, config: frazil.RepositoryConfig | None = None) -> dict[str, Any]:
    """Return the arguments of `Repository.create` and `open` that declare and authorise a folder."""
    config = config or frazil.RepositoryConfig()
    prefix = f"file://{folder}/"
    store = frazil.local_filesystem_store(str(folder))
    config.set_virtual_chunk_container(frazil.VirtualChunkContainer(prefix, store))
    access = {prefix: frazil.credentials.LocalFileSystemAccess}
    return {"config": config, "authorize_virtual_chunk_access": access}
