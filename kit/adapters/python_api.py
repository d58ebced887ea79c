"""The adapter of libraries with the Python interface of icechunk: `python adapters/python_api.py frazil`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from icechunk_kit.adapter import serve
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

library: Any = importlib.import_module(sys.argv[1])
#: The most special class first.
KINDS = {
    "RebaseFailedError": "rebase",
    "ConflictError": "conflict",
    "NotFoundError": "not-found",
    "AlreadyExistsError": "exists",
    "ReadOnlyError": "read-only",
    "InvalidInputError": "invalid",
    "SessionStateError": "state",
    "FormatError": "format",
    "StorageError": "storage",
}


def kind(error: Exception) -> str:
    if getattr(error, "kind", None) == "virtual-chunk-modified":
        return "modified"
    return next((word for name, word in KINDS.items() if isinstance(error, getattr(library, name))), "other")


def repository(location: dict[str, Any]) -> Any:
    return library.Repository.open(library.local_filesystem_storage(location["path"]))


def refs(location: dict[str, Any]) -> Any:
    repo = repository(location)
    branches = {name: repo.lookup_branch(name) for name in repo.list_branches()}
    return {"branches": branches, "tags": {name: repo.lookup_tag(name) for name in repo.list_tags()}}


def log(location: dict[str, Any], ref: dict[str, str]) -> Any:
    infos = repository(location).ancestry(**ref)
    return [
        {"id": each.id, "message": each.message, "time": round(each.written_at.timestamp() * 1e6)}
        for each in infos
    ]


def read(location: dict[str, Any], ref: dict[str, str], path: str, chunks: list[list[int]]) -> Any:
    store = repository(location).readonly_session(**ref).store
    keys = ("/".join([path.strip("/"), "c", *map(str, index)]).strip("/") for index in chunks)
    buffers = (sync(store.get(key, default_buffer_prototype())) for key in keys)
    return [buffer and buffer.to_bytes().hex() for buffer in buffers]


if __name__ == "__main__":
    serve({"refs": refs, "log": log, "read": read}, kind)
