"""The adapter of libraries with the Python interface of icechunk: `python adapters/python_api.py frazil`."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
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

type Location = dict[str, Any]
type Ref = dict[str, str]


def kind(error: Exception) -> str:
    if getattr(error, "kind", None) == "virtual-chunk-modified":
        return "modified"
    return next((word for name, word in KINDS.items() if isinstance(error, getattr(library, name))), "other")


def repository(location: Location) -> Any:
    storage = library.local_filesystem_storage(location["path"])
    prefixes = location.get("containers", [])
    if not prefixes:
        return library.Repository.open(storage)
    config = library.Repository.fetch_config(storage) or library.RepositoryConfig.default()
    for prefix in set(prefixes) - set(config.virtual_chunk_containers or {}):
        store = library.local_filesystem_store(prefix.removeprefix("file://"))
        config.set_virtual_chunk_container(library.VirtualChunkContainer(prefix, store))
    access = dict.fromkeys(prefixes, library.Credentials.LocalFileSystemAccess())
    return library.Repository.open(storage, config, access)


def get(store: Any, key: str) -> bytes | None:
    buffer = sync(store.get(key.strip("/"), default_buffer_prototype()))
    return None if buffer is None else bytes(buffer.to_bytes())


def session(location: Location, ref: Ref) -> Any:
    return repository(location).readonly_session(**ref)


def refs(location: Location) -> Any:
    repo = repository(location)
    branches = {name: repo.lookup_branch(name) for name in repo.list_branches()}
    return {"branches": branches, "tags": {name: repo.lookup_tag(name) for name in repo.list_tags()}}


def log(location: Location, ref: Ref) -> Any:
    infos = repository(location).ancestry(**ref)
    return [{"id": each.id, "message": each.message, "time": microseconds(each.written_at)} for each in infos]


def microseconds(time: Any) -> int:
    return round(time.timestamp() * 1e6)


def properties(location: Location, ref: Ref) -> Any:
    return next(iter(repository(location).ancestry(**ref))).metadata


def metadata(location: Location, ref: Ref, path: str) -> Any:
    data = get(session(location, ref).store, f"{path}/zarr.json")
    if data is None:
        raise library.NotFoundError(path)
    return json.loads(data)


def list_nodes(location: Location, ref: Ref) -> Any:
    store = session(location, ref).store

    async def names(prefix: str) -> list[str]:
        return [name async for name in store.list_dir(prefix)]

    def walk(path: str) -> Iterator[dict[str, str]]:
        data = get(store, f"{path}/zarr.json")
        if data is not None:
            type_ = json.loads(data)["node_type"]
            yield {"path": path or "/", "type": type_}
            if type_ == "group":
                for name in sync(names(path.strip("/"))):
                    if name != "zarr.json":
                        yield from walk(f"{path}/{name}")

    return sorted(walk(""), key=lambda node: node["path"].encode())


def read(location: Location, ref: Ref, path: str, chunks: list[list[int]]) -> Any:
    store = session(location, ref).store
    values = (get(store, "/".join([path, "c", *map(str, index)])) for index in chunks)
    return [None if value is None else value.hex() for value in values]


def count(location: Location, ref: Ref, path: str) -> int:
    opened = session(location, ref)

    async def total() -> int:
        return len([0 async for _ in opened.chunk_coordinates(path)])

    return int(sync(total()))


def diff(location: Location, to: str, **start: str) -> Any:
    result = repository(location).diff(from_snapshot_id=start["from"], to_snapshot_id=to)
    both = {
        what: sorted([*getattr(result, f"{what}_groups"), *getattr(result, f"{what}_arrays")])
        for what in ("new", "deleted", "updated")
    }
    chunks = {path: sorted(map(list, indexes)) for path, indexes in result.updated_chunks.items()}
    return both | {"chunks": chunks, "moved": sorted(map(list, result.moved_nodes))}


def updates(location: Location) -> Any:
    log = repository(location).ops_log()
    return [
        {"kind": f"{type(each.kind).__name__}Update", "time": microseconds(each.updated_at)} for each in log
    ]


OPERATIONS = {
    "refs": refs,
    "log": log,
    "properties": properties,
    "list": list_nodes,
    "metadata": metadata,
    "read": read,
    "count": count,
    "diff": diff,
    "updates": updates,
}

if __name__ == "__main__":
    serve(OPERATIONS, kind)
