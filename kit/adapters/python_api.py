"""The adapter of libraries with the Python interface of icechunk: `python adapters/python_api.py frazil`."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
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


def storage(location: dict[str, Any]) -> Any:
    if "path" in location:
        return library.local_filesystem_storage(location["path"])
    s3 = location["s3"]
    return library.s3_storage(
        bucket=s3["bucket"],
        prefix=s3["prefix"],
        region=s3["region"],
        endpoint_url=s3["endpoint"],
        access_key_id=s3["access_key"],
        secret_access_key=s3["secret_key"],
        allow_http=True,
        force_path_style=True,
    )


def repository(location: dict[str, Any]) -> Any:
    return library.Repository.open(storage(location))


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


def list_(location: dict[str, Any], ref: dict[str, str]) -> Any:
    store = repository(location).readonly_session(**ref).store

    async def nodes() -> list[dict[str, str]]:
        keys = [key async for key in store.list()]
        rows = []
        for key in keys:
            if key.endswith("zarr.json"):
                buffer = await store.get(key, default_buffer_prototype())
                rows.append(
                    {
                        "path": "/" + key.removesuffix("zarr.json").rstrip("/"),
                        "type": json.loads(buffer.to_bytes())["node_type"],
                    }
                )
        return sorted(rows, key=lambda row: row["path"].encode())

    return sync(nodes())


def updates(location: Any) -> Any:
    return [
        {"kind": type(each.kind).__name__ + "Update", "time": round(each.updated_at.timestamp() * 1e6)}
        for each in repository(location).ops_log()
    ]


def metadata(location: Any, ref: dict[str, str], path: str) -> Any:
    store = repository(location).readonly_session(**ref).store
    return json.loads(
        sync(store.get((path + "/zarr.json").lstrip("/"), default_buffer_prototype())).to_bytes()
    )


def properties(location: Any, ref: dict[str, str]) -> Any:
    return next(iter(repository(location).ancestry(**ref))).metadata


#: The sessions of this process by their names.
sessions: dict[str, Any] = {}


def create(location: dict[str, Any], version: str) -> None:
    library.Repository.create(storage(location), spec_version=int(version))


def session(
    location: dict[str, Any], branch: str = "", ref: dict[str, str] | None = None, rearrange: bool = False
) -> str:
    repo = repository(location)
    name = f"session {len(sessions)}"
    if ref is not None:
        sessions[name] = repo.readonly_session(**ref)
    else:
        sessions[name] = repo.rearrange_session(branch) if rearrange else repo.writable_session(branch)
    return name


def set_(location: Any, session: str, key: str, data: str) -> None:
    sync(sessions[session].store.set(key, default_buffer_prototype().buffer.from_bytes(bytes.fromhex(data))))


def delete(location: Any, session: str, key: str) -> None:
    store = sessions[session].store
    is_key = key.endswith("zarr.json") or "c" in key.split("/")
    sync(store.delete(key) if is_key else store.delete_dir(key))


def get(location: Any, session: str, key: str) -> str | None:
    buffer = sync(sessions[session].store.get(key, default_buffer_prototype()))
    return buffer and buffer.to_bytes().hex()


def virtual(
    location: Any,
    session: str,
    path: str,
    index: list[int],
    url: str,
    offset: int,
    length: int,
    etag: str | None = None,
    modified: int | None = None,
) -> None:
    checksum = etag if modified is None else datetime.fromtimestamp(modified, UTC)
    key = "/".join([path.strip("/"), "c", *map(str, index)])
    sessions[session].store.set_virtual_ref(key, url, offset=offset, length=length, checksum=checksum)


def move(location: Any, session: str, **paths: str) -> None:
    sessions[session].move(paths["from"], paths["to"])


def commit(
    location: Any,
    session: str,
    message: str,
    properties: dict[str, Any] | None = None,
    empty: bool = False,
) -> Any:
    return sessions[session].commit(message, properties, allow_empty=empty)


def amend(location: Any, session: str, message: str) -> Any:
    return sessions[session].amend(message)


def rebase(location: Any, session: str, solver: str | None) -> None:
    choice = {"ours": library.VersionSelection.UseOurs, "theirs": library.VersionSelection.UseTheirs}
    if solver is None:
        sessions[session].rebase(library.ConflictDetector())
    else:
        sessions[session].rebase(library.BasicConflictSolver(on_chunk_conflict=choice[solver]))


def expire(location: Any, before: int, delete_branches: bool = False, delete_tags: bool = False) -> list[str]:
    expired = repository(location).expire_snapshots(
        moment(before), delete_expired_branches=delete_branches, delete_expired_tags=delete_tags
    )
    return sorted(expired)


def moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)


def on_repository(method: str, *arguments: str) -> Callable[..., None]:
    """Return an operation that calls a method of the repository with some members of the request."""

    def operation(location: Any, **request: Any) -> None:
        getattr(repository(location), method)(*(request[name] for name in arguments))

    return operation


def reset(location: Any, name: str, snapshot: str, **other: str) -> None:
    repository(location).reset_branch(name, snapshot, from_snapshot_id=other.get("from"))


def collect(location: Any, before: int) -> None:
    repository(location).garbage_collect(moment(before))


def upgrade(location: Any) -> None:
    library.upgrade_icechunk_repository(repository(location), dry_run=False)


WRITER = {
    "create": create,
    "session": session,
    "set": set_,
    "delete": delete,
    "get": get,
    "virtual": virtual,
    "move": move,
    "commit": commit,
    "amend": amend,
    "rebase": rebase,
    "branch-create": on_repository("create_branch", "name", "snapshot"),
    "branch-reset": reset,
    "branch-delete": on_repository("delete_branch", "name"),
    "tag-create": on_repository("create_tag", "name", "snapshot"),
    "tag-delete": on_repository("delete_tag", "name"),
    "expire": expire,
    "collect": collect,
    "upgrade": upgrade,
}

if __name__ == "__main__":
    serve(
        {
            "refs": refs,
            "log": log,
            "read": read,
            "list": list_,
            "updates": updates,
            "metadata": metadata,
            "properties": properties,
            **WRITER,
        },
        kind,
    )
